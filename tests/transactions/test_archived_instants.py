"""An instant that is not on the active timeline may have committed long ago: nobody takes it for one that never did."""

from __future__ import annotations

import pytest
from archiver import Archiver
from one_table import Table, add_file, commit, write

from lakelatch.errors import WriteConflict
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.timeline import Timeline


def test_a_foreign_commit_that_was_archived_since_the_transaction_began_is_a_conflict(table: Table) -> None:
    write(table.manager(), "z")
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    first = Timeline.load(table.storage).instants[0].requested
    end = str(int(transaction.instant) + 1000)
    foreign = table.place_foreign(str(int(transaction.instant) - 1), end, "a")
    write(table.manager(), "y")
    Archiver(table.storage).archive([first, foreign.requested])
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
        commit(transaction, stat)


def test_a_foreign_commit_that_was_archived_before_the_transaction_began_is_none(table: Table) -> None:
    write(table.manager(), "z")
    foreign = table.place_foreign("20200101000000000", "20200101000001000", "a")
    Archiver(table.storage).archive([foreign.requested])
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    gone = next(one for one in Timeline.load(table.storage).completed)
    Archiver(table.storage).archive([gone.requested])
    assert commit(transaction, stat).instant in table.completed()


def test_a_commit_that_was_archived_between_a_listing_and_its_reading_is_read_from_the_history(table: Table) -> None:
    archived: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path == foreign.path and not archived:
            archived.append(foreign.requested)
            Archiver(table.storage).archive(archived)

    transaction = table.manager(storage=FaultyStorage(table.storage, before=before)).begin()
    stat = add_file(transaction, "a")
    requested, end = (str(int(transaction.instant) + more) for more in (1, 1000))
    foreign = table.place_foreign(requested, end, "a")
    with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
        commit(transaction, stat)
    assert archived


def test_a_rollback_never_sweeps_what_has_completed_and_was_archived(table: Table) -> None:
    """A listing during an archiver's deletions may show the requested file of an instant, and lack the others."""
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    begun = [one.path for one in Timeline.load(table.storage).instants if one.requested == transaction.instant]
    torn = {path: table.storage.read(path) for path in [*begun, *table.storage.walk(".hoodie/.temp")]}
    commit(transaction, stat)
    write(table.manager(), "b")
    Archiver(table.storage).archive([transaction.instant])
    for path, content in torn.items():
        table.storage.put(path, content)
    assert [one.requested for one in Timeline.load(table.storage).pending] == [transaction.instant]
    assert table.manager().recover() == []
    assert table.storage.read(stat.path) != b"" and table.rollbacks() == 0
