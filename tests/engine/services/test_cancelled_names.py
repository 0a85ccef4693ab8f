"""Names of a cancelled clustering: tombstones are put once, before its terminal state, and never after it."""

from __future__ import annotations

import os
from pathlib import Path

from live_table import LiveTable

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.cancelling import aborted_plans
from lakelatch.engine.services.removals.cleaning import cancel_overdue
from lakelatch.storage import LocalStorage
from lakelatch.transactions.attempts.cancellation import remove_tombstones


class PutsNoted(LocalStorage):
    """Notes down what is put."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def put(self, path: str, data: bytes) -> None:
        self.paths.append(path)
        super().put(path, data)


def cancelled(table: LiveTable) -> tuple[str, list[str]]:
    """A clustering that has ended as cancelled, and the paths of its tombstones."""
    table.write([(number, 1, "a") for number in range(4)])
    plan = table.plan_clustering("")
    assert plan is not None
    assert table.cancel(plan)
    tombstones = [path for path in table.storage.walk("p") if plan in path]
    assert tombstones
    return plan, tombstones


def test_a_tombstone_that_is_there_is_not_put_again(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    _, tombstones = cancelled(table)
    before = [os.stat(tmp_path / path).st_ino for path in tombstones]
    cancel_overdue(table.manager(), CleaningOptions())
    assert [
        os.stat(tmp_path / path).st_ino for path in tombstones
    ] == before  # its request could arrive after the archiver


def test_a_name_that_was_freed_gets_no_tombstone_again(tmp_path: Path) -> None:
    """An archiver frees names when it is about to pass the plan, and an empty base file would count behind it."""
    table = LiveTable(tmp_path)
    _, tombstones = cancelled(table)
    for path in tombstones:
        table.storage.delete(path)
    table.storage.put(tombstones[0], b"late")
    cancel_overdue(table.manager(), CleaningOptions())
    assert [path for path in tombstones if table.storage.exists(path)] == []
    table.agreed()


def test_of_two_archivers_at_once_neither_bars_a_name_anew(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    plan, tombstones = cancelled(table)
    storage = table.storage = PutsNoted(str(tmp_path))
    (over,) = aborted_plans(table.manager())
    for _ in range(2):  # a put of the second could arrive when the first has archived, and every reader would count it
        remove_tombstones(table.storage, over)
        assert not any(storage.exists(path) for path in tombstones)
    assert [path for path in storage.paths if plan in path] == []
