"""`lakelatch verify`, and the same by path and by the table in one's hands; no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from live_table import LiveTable
from taken_back_table import new_table, rows

import lakelatch
from lakelatch.console.main import main


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    table = new_table(tmp_path)
    table.write(rows(2, 1, "a"))
    return table


def test_a_whole_table(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table.root)
    assert main(["verify", path, "--deep"]) == 0
    assert "nothing is missing: 2 data files were read" in capsys.readouterr().out
    assert main(["verify", path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"whole": True, "findings": [], "files": 2, "deep": False, "unchecked": 0}
    assert lakelatch.Table(cast(Any, None), path).verify() == lakelatch.verify(path)


def test_a_table_without_a_file(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    gone = max(table.root.glob("p/.*.log.*"))
    gone.unlink()
    before = sorted(table.storage.walk(""))
    assert main(["verify", str(table.root), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["path"]) == ("missing", f"p/{gone.name}")
    assert main(["verify", str(table.root)]) == 1
    said = capsys.readouterr().out
    assert f"missing: p/{gone.name}" in said and "the table is not whole" in said
    assert sorted(table.storage.walk("")) == before  # nothing is written
    assert not lakelatch.Table(cast(Any, None), str(table.root)).verify(deep=True).whole
