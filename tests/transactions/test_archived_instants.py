"""An instant that is not on the active timeline may have committed long ago: nobody takes it for one that never did."""

from __future__ import annotations

import pytest
from archiver import Archiver
from one_table import Table, add_file, commit, write

from lakelatch.errors import WriteConflict
from lakelatch.timeline.history.history import History
from lakelatch.timeline.timeline import Timeline, completed
from lakelatch.transactions.rollback import Recovery


def test_a_foreign_commit_that_was_archived_since_the_transaction_began_is_a_conflict(table: Table) -> None:
    write(table.manager(), "z")
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    first = Timeline.load(table.storage).instants[0].requested
    end = str(int(transaction.instant) + 1000)
    foreign = table.place_foreign(str(int(transaction.instant) - 1), end, "a")
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
    commit(transaction, stat)


def test_a_commit_that_was_archived_between_a_listing_and_its_reading_is_read_from_the_history(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    end = str(int(transaction.instant) + 1000)
    foreign = table.place_foreign(str(int(transaction.instant) + 1), end, "a")
    storage, reads = table.storage, type(table.storage).read

    def read(self: object, path: str) -> bytes:
        if path == foreign.path and History.load(storage).is_empty:
            Archiver(storage).archive([foreign.requested])
        return reads(storage, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(storage), "read", read)
        with pytest.raises(WriteConflict, match=f"lost to deltacommit {foreign.requested}"):
            commit(transaction, stat)


def test_a_rollback_never_sweeps_what_has_completed_and_was_archived(table: Table) -> None:
    """An archiver that removes the three files of an instant may show the first one to a listing, and no other."""
    write(table.manager(), "z")
    manager = table.manager()
    transaction = manager.begin()
    stat = add_file(transaction, "a")
    data = table.storage.read(stat.path)
    requested = next(one for one in Timeline.load(table.storage).instants if one.requested == transaction.instant)
    marked = [path for path in table.storage.walk(".hoodie/.temp")]
    copies = {path: table.storage.read(path) for path in [*marked, requested.path]}
    commit(transaction, stat)
    Archiver(table.storage).archive([transaction.instant])
    for path, content in copies.items():
        table.storage.put(path, content)
    assert Timeline.load(table.storage).pending
    table.manager().recover()
    assert not Recovery(manager.context).roll_back(transaction.instant, "deltacommit")
    assert table.storage.read(stat.path) == data
    assert History.load(table.storage).find(transaction.instant) is not None
    assert all(completed(transaction.instant, "rollback", "x").action != one.action for one in [requested])
