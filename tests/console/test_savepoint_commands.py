"""`lakelatch savepoint`, `rollback` and `restore`, and the same calls by path; no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import rows

import lakelatch
from lakelatch.console.main import main
from lakelatch.errors import InvalidRequest


def test_a_savepoint_is_made_listed_and_deleted(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.write(rows(2, 1, "a"))
    last = table.write(rows(2, 2, "b")).instant
    path = str(table.root)
    assert main(["savepoint", "create", path, "--comment", "before", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["instant"], made["comment"], made["by"]) == (last, "before", made["by"])
    assert main(["savepoint", "list", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [made]
    assert main(["savepoint", "list", path]) == 0 and last in capsys.readouterr().out
    assert main(["savepoint", "delete", path, last]) == 0
    capsys.readouterr()
    assert main(["savepoint", "list", path]) == 0 and "no savepoints" in capsys.readouterr().out
    assert main(["savepoint", "delete", path, last, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == InvalidRequest.code


def test_a_commit_is_rolled_back(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.write(rows(2, 1, "a"))
    bad = table.write(rows(2, 2, "b")).instant
    assert main(["rollback", str(table.root), bad, "--json"]) == 0
    undone = json.loads(capsys.readouterr().out)
    assert undone["undone"] == [bad] and undone["instant"] > bad and undone["files"] > 0
    assert [row[3] for row in table.agreed()] == ["a0", "a1"]


def test_a_restore_asks_whether_it_is_meant(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    to = table.write(rows(2, 1, "a")).instant
    table.write(rows(2, 2, "b"))
    assert main(["restore", str(table.root), to]) == 1
    assert "--yes" in capsys.readouterr().err and table.agreed()[0][3] == "b0"
    assert main(["restore", str(table.root), to, "--yes"]) == 0
    assert f"as of {to}: 1 instants" in capsys.readouterr().out and table.agreed()[0][3] == "a0"


def test_the_same_by_path(table: LiveTable) -> None:
    path = str(table.root)
    to = table.write(rows(2, 1, "a")).instant
    made = lakelatch.savepoint(path, comment="kept")
    assert lakelatch.savepoints(path) == [made] and made.instant == to
    bad = table.write(rows(2, 2, "b")).instant
    assert lakelatch.roll_back(path, bad).undone == (bad,)
    worse = table.write(rows(2, 3, "c")).instant
    assert lakelatch.restore(path, to).undone == (worse,)
    lakelatch.delete_savepoint(path, to)
    assert lakelatch.savepoints(path) == [] and table.agreed()[0][3] == "a0"


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for call in (
        lambda: lakelatch.savepoints(str(tmp_path)),
        lambda: lakelatch.savepoint(str(tmp_path)),
        lambda: lakelatch.restore(str(tmp_path), "20260101000000000"),
    ):
        with pytest.raises(InvalidRequest):
            call()
