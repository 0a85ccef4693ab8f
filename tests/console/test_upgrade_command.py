"""`lakelatch upgrade`: a table of before lets one writer commit for others from then on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_table import LiveTable

import lakelatch
from lakelatch.console.main import main
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION
from lakelatch.timeline.table_config import load_table_config


@pytest.fixture
def live(tmp_path: Path) -> LiveTable:
    live = LiveTable(tmp_path / "t")
    live.write([(1, 1, "a")])
    return live


def upgrade(live: LiveTable, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = main(["upgrade", str(live.root), *more])
    return code, capsys.readouterr().out


def test_a_table_of_before_is_upgraded_once(live: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    update_properties(live.storage, {LOG_VERSION: None})
    before = load_table_config(live.storage)
    assert before.log_version == 1
    assert upgrade(live, capsys) == (0, f"done: the table has {LOG_VERSION}=3\n")
    after = load_table_config(live.storage)
    assert after.log_version == 3 and after == before and after.raw.keys() - before.raw.keys() == {LOG_VERSION}
    assert upgrade(live, capsys) == (0, f"the table has {LOG_VERSION}=3 already\n")
    assert json.loads(upgrade(live, capsys, "--json")[1]) == {"changed": False, "log_version": 3}
    live.write([(2, 1, "b")])
    assert len(live.agreed()) == 2


def test_new_tables_need_no_upgrade(live: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_table_config(live.storage).log_version == 3
    assert "already" in upgrade(live, capsys)[1]


def test_commits_of_a_slot_are_shown_at_once_where_that_is_asked_for(
    live: LiveTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert upgrade(live, capsys, "--side-by-side") == (0, f"done: the table has {LOG_VERSION}=4\n")
    assert upgrade(live, capsys) == (0, f"the table has {LOG_VERSION}=4 already\n")
    assert load_table_config(live.storage).log_version == 4
    live.write([(2, 1, "b")])
    assert len(live.agreed()) == 2


def test_a_newer_version_is_refused_by_name(live: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    update_properties(live.storage, {LOG_VERSION: "5"})
    with pytest.raises(InvalidRequest, match=f"{LOG_VERSION}=5.*knows 1 to 4: upgrade lakelatch"):
        lakelatch.open(str(live.root))
    assert upgrade(live, capsys)[0] != 0
