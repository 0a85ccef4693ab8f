"""What a table says of itself: what was done, what was taken away, and what a notebook shows. No Spark."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_table import LiveTable
from taken_back_table import KeptTable, new_table, rows

import lakelatch
from lakelatch.console.main import main
from lakelatch.engine.table.history import TableDetail, history_rows
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.write.attempt import commit_files
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.timeline import Timeline


@pytest.fixture
def table(tmp_path: Path) -> KeptTable:
    return new_table(tmp_path)


def shown(table: LiveTable, limit: int | None = None) -> list[tuple[Any, ...]]:
    """Requested time, action, operation, what was undone, and by whom."""
    found = history_rows(open_table(table.storage), limit)
    assert {len(row) for row in found} == {13} and all((row[0] is None) == (row[2] is None) for row in found)
    return [(row[1], row[3], row[4], row[11], row[12]) for row in found]


def test_who_was_rolled_back_and_what_a_restore_undid_is_in_the_history(
    table: KeptTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # or a long name of this machine would break the words
    first = table.write(rows(2, 1, "a")).instant
    bad = table.write(rows(2, 2, "b")).instant
    rollback = table.roll_back(bad).instant
    later = [table.write(rows(2, turn, "c")).instant for turn in (3, 4)]
    restore = table.restore(first).instant
    assert shown(table) == [
        (restore, "restore", None, later[::-1], None),
        (later[1], "deltacommit", None, None, restore),
        (later[0], "deltacommit", None, None, restore),
        (rollback, "rollback", None, [bad], None),
        (first, "deltacommit", "UPSERT", None, None),
    ]
    assert shown(table, 2) == shown(table)[:2]
    assert main(["timeline", str(table.root)]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"of {bad}" in text and all(one in text for one in later)


def test_a_change_is_called_what_it_is_and_hudi_reads_its_own_name(
    table: KeptTable, capsys: pytest.CaptureFixture[str]
) -> None:
    writing = table.begin()
    options = replace(writing.options, called="merge")
    writing.put("p", rows(2, 1, "a"))
    result = commit_files(writing.transaction, table.opened, options, writing.reports)
    assert isinstance(result, lakelatch.CommitResult) and result.operation == "merge"
    assert [row[2] for row in shown(table)] == ["MERGE"]
    (instant,) = Timeline.load(table.storage).completed
    assert CommitMetadata.read(table.storage, instant.path).operation_type == "UPSERT"
    assert main(["timeline", str(table.root)]) == 0 and " merge " in capsys.readouterr().out


def test_a_notebook_sees_what_the_table_is_and_no_markup_or_secret_of_it(tmp_path: Path) -> None:
    made = LiveTable(tmp_path / "<b>&t", hoodie__table__name="trips")
    made.write([(1, 1, "a")])
    secret = {"lakelatch.storage.secret_access_key": "hush"}
    held = lakelatch.ArrowTable(made.root, secret)._repr_html_()
    for text in ("&lt;b&gt;&amp;t", "<td>id</td>", "id bigint, ts bigint, v string, part string", "<td>part</td>"):
        assert text in held
    assert "<b>" not in held and "hush" not in held
    detail = lakelatch.detail(str(made.root))
    assert isinstance(detail, TableDetail) and detail._repr_html_().startswith("<table><tr><th>table</th>")
    gone = lakelatch.ArrowTable("nobody://me:hush@there/<i>", secret)
    assert "hush" not in repr(gone) + gone._repr_html_() and "<i>" not in gone._repr_html_()
    assert "there is no table" in lakelatch.ArrowTable(tmp_path / "none")._repr_html_()
