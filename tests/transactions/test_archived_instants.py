"""An instant that is not on the active timeline may have committed long ago: nobody takes it for one that never did."""

from __future__ import annotations

import pytest
from archiver import Archiver
from bare_table import add_file, commit, write
from cancelling import schedule
from one_table import Table

from lakelatch.errors import WriteConflict
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import CLUSTERING
from lakelatch.timeline.history.manifest import HISTORY_FOLDER
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot


def test_a_foreign_commit_that_was_archived_since_the_transaction_began_is_a_conflict(table: Table) -> None:
    write(table.manager(), "z")
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    first = Snapshot.load(table.storage).instants[0].requested
    end = later(transaction.instant, 1000)
    foreign = table.place_foreign(later(transaction.instant, -1), end, "a")
    write(table.manager(), "y")
    Archiver(table.storage).archive([first, foreign.requested])
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
        commit(transaction, stat)


@pytest.mark.parametrize("later_ones", [0, 1])
def test_our_own_commit_that_was_archived_since_the_transaction_began_is_a_conflict(
    table: Table, later_ones: int
) -> None:
    """Its slot is still in the log, while the timeline's folder has nothing of it."""
    write(table.manager(), "z")
    transaction = table.manager().begin()
    file = add_file(transaction, "a")
    winner = write(table.manager(), "a")
    for _ in range(later_ones):
        write(table.manager(), "y")
    archived = [one.requested for one in Snapshot.load(table.storage).completed if one.requested <= winner.instant]
    Archiver(table.storage).archive(archived)
    assert winner.instant not in table.completed() and len(archived) == 2
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {winner.instant}") as lost:
        commit(transaction, file)
    assert lost.value.details["file_groups"] and table.data_files().count(file.path) == 0


def test_our_own_commit_on_another_file_group_that_was_archived_since_is_none(table: Table) -> None:
    write(table.manager(), "z")
    transaction = table.manager().begin()
    file = add_file(transaction, "a")
    other = write(table.manager(), "b")
    Archiver(table.storage).archive([min(table.completed()), other.instant])
    assert commit(transaction, file).instant in table.completed()


def test_a_foreign_commit_that_was_archived_before_the_transaction_began_is_none(table: Table) -> None:
    write(table.manager(), "z")
    foreign = table.place_foreign("20200101000000000", "20200101000001000", "a")
    Archiver(table.storage).archive([foreign.requested])
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    gone = next(one for one in Snapshot.load(table.storage).completed)
    Archiver(table.storage).archive([gone.requested])
    assert commit(transaction, stat).instant in table.completed()


def test_what_was_archived_before_the_transaction_began_is_none_though_older_files_are_all_that_is_left(
    table: Table,
) -> None:
    left = write(table.manager(), "z")
    gone = write(table.manager(), "a")
    Archiver(table.storage).archive([gone.instant])
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    assert commit(transaction, stat).instant in table.completed() and left.instant in table.completed()


def test_a_commit_that_was_archived_between_a_listing_and_its_reading_is_read_from_the_history(table: Table) -> None:
    archived: list[str] = []
    placed: list[Instant] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path in [foreign.path for foreign in placed] and not archived:
            archived.append(placed[0].requested)
            Archiver(table.storage).archive(archived)

    transaction = table.manager(storage=FaultyStorage(table.storage, before=before)).begin()
    stat = add_file(transaction, "a")
    requested, end = (later(transaction.instant, more) for more in (1, 1000))
    placed.append(table.place_foreign(requested, end, "a"))
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {placed[0].requested}"):
        commit(transaction, stat)
    assert archived


def later(instant: str, by_ms: int) -> str:
    return to_instant(to_ms(instant) + by_ms)


class SharedLock(InProcessLockProvider):
    """One that Hudi's own writers take as well."""

    @property
    def taken_by_hudi(self) -> bool:
        return True


def test_with_a_lock_of_hudi_the_oldest_instant_is_found_that_came_and_went_since(table: Table) -> None:
    manager = table.manager(provider=SharedLock(LockScope(table.storage.uri, {})))
    write(manager, "z")
    Archiver(table.storage).archive([table.place_foreign("20200101000000000", "20200101000001000", "y").requested])
    transaction = manager.begin()
    file = add_file(transaction, "a")
    foreign = table.place_foreign("20200101000002000", later(transaction.instant, 1000), "a")
    Archiver(table.storage).archive([foreign.requested])
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
        commit(transaction, file)


def test_the_history_is_not_read_while_the_timeline_has_all_that_it_had(table: Table) -> None:
    asked: list[str] = []

    def before(operation: str, path: str) -> None:
        if path.startswith(HISTORY_FOLDER):
            asked.append(path)

    oldest = write(table.manager(), "z")
    write(table.manager(), "y")
    Archiver(table.storage).archive([oldest.instant])
    manager = table.manager(storage=FaultyStorage(table.storage, before=before))
    write(manager, "a")
    assert asked == []
    transaction = manager.begin()
    file = add_file(transaction, "a")
    Archiver(table.storage).archive([min(table.completed())])
    asked.clear()
    commit(transaction, file)
    assert asked


def test_a_plan_asks_the_history_for_what_was_archived_since_it_was_made(table: Table) -> None:
    manager = table.manager()
    write(manager, "z")
    instant = schedule(manager, "a")
    end = later(instant, 1000)
    foreign = table.place_foreign(later(instant, -1), end, "a")
    transaction = table.manager().execute(instant, CLUSTERING)
    Archiver(table.storage).archive([foreign.requested])
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
        transaction.commit(CommitMetadata((), "CLUSTER", replaced={"": ("a",)}))


def test_a_rollback_never_sweeps_what_has_completed_and_was_archived(table: Table) -> None:
    """A listing during an archiver's deletions may show the requested file of an instant, and lack the others."""
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    begun = [one.path for one in Snapshot.load(table.storage).instants if one.requested == transaction.instant]
    torn = {path: table.storage.read(path) for path in [*begun, *table.storage.walk(".hoodie/.temp")]}
    commit(transaction, stat)
    write(table.manager(), "b")
    Archiver(table.storage).archive([transaction.instant])
    for path, content in torn.items():
        table.storage.put(path, content)
    assert [one.requested for one in Snapshot.load(table.storage).pending] == [transaction.instant]
    assert table.manager().recover() == []
    assert table.storage.read(stat.path) != b"" and table.rollbacks() == 0
