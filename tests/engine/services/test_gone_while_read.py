"""Plans that are taken off the timeline between a look at its names and the reading of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable
from made_history import MadeHistory, group
from taken_back_table import new_table, rows

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services import cancelling, restoring
from lakelatch.engine.services.removals.archiving import archive
from lakelatch.errors import Unavailable
from lakelatch.failpoints import active
from lakelatch.storage.contract import Storage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import aborted, requested
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

A, C = ("p", group(0)), ("q", group(0))


def before_reading(storage: Storage, path: str, act: Callable[[], object]) -> tuple[Storage, list[str]]:
    """The storage, in which something happens before this file is read for the first time, and a list that says so."""
    seen: list[str] = []

    def before(operation: str, read: str) -> None:
        if operation == "read" and read == path and not seen:
            seen.append(path)
            act()

    return FaultyStorage(storage, before=before), seen


def manager_on(table: LiveTable, storage: Storage) -> TransactionManager:
    return table.manager(storage)


def test_a_clean_needs_nothing_of_a_plan_that_a_restore_takes_away(table: MadeHistory) -> None:
    for _ in range(3):
        table.write(A, C)
        table.compact_now(A, C)
    table.write(A)
    to = max(Snapshot.load(table.storage).completed, key=lambda one: one.completion or "")
    plan = table.plan_compaction(A)
    assert plan is not None
    path, manager = requested(plan, "compaction").path, table.manager()
    table.storage, seen = before_reading(
        table.memory, path, lambda: restoring.restore(table.config, manager, to.requested)
    )
    found = table.preview(CleaningOptions(commits=1))
    assert seen and not table.memory.exists(path) and found is not None
    table.storage = table.memory
    again = table.preview(CleaningOptions(commits=1))
    assert again is not None and set(found.paths) <= set(again.paths) <= table.files()


def test_an_archive_passes_over_a_rollback_that_ends_while_it_looks(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(4):
        table.write(rows(4, number, "a"))
        table.compact()
    bad = table.write(rows(4, 9, "b"))
    with active("rollback.after_plan=raise"), pytest.raises(Unavailable, match="after_plan"):
        table.roll_back(bad.instant)
    (pending,) = [one for one in Snapshot.load(table.storage).pending if one.action == "rollback"]

    def end() -> None:
        """And another archiver takes it away."""
        table.all_died()
        table.manager().recover()
        for path in table.storage.walk(".hoodie/timeline"):
            if path.rpartition("/")[2].startswith(pending.requested):
                table.storage.delete(path)

    storage, seen = before_reading(table.storage, requested(pending.requested, "rollback").path, end)
    archive(
        manager_on(table, storage), table.opened.config, ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)
    )
    assert seen and table.nothing_pending()
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"]


def test_what_a_cancelled_plan_has_left_goes_when_an_archiver_takes_the_plan_first(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    plan = table.plan_clustering("v")
    assert plan is not None
    cancelling.request_cancel(table.manager(), plan)
    with active("cancel.after_claim_gone=raise"), pytest.raises(Unavailable, match="after_claim_gone"):
        cancelling.execute_open(table.manager())
    path = aborted(plan, "clustering").path
    storage, seen = before_reading(table.storage, path, lambda: table.storage.delete(path))
    cancelling.execute_open(manager_on(table, storage))
    assert seen and not table.storage.names(CANCEL_FOLDER) and table.nothing_pending()
