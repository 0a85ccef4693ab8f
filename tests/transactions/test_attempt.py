"""The loop of attempts by itself: turns, verdicts, the lock and the deadline."""

from __future__ import annotations

import pytest
from bare_table import add_file, write
from cancelling import schedule
from one_table import Table

from lakelatch.errors import LockTimeout, Unavailable, WriteConflict
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage import MemoryStorage
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.attempts.intent import Intent, Place
from lakelatch.transactions.base.cancel_requests import cancel_requests
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import Added, GivenUp, Retry, Verdict
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


class Undecided(Intent[str]):
    """Can be decided nowhere, however often it looks."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.places = 0

    def decide(self, place: Place) -> Event | Verdict:
        self.places += 1
        self.table.system.advance(100)
        return Retry("not here")

    def follow(self, found: Added | Verdict) -> str:
        raise AssertionError(found)


def test_what_can_be_decided_nowhere_is_given_up_at_the_deadline(table: Table) -> None:
    manager = table.manager()
    write(manager, "a")
    intent = Undecided(table)
    with pytest.raises(Unavailable, match="other writers were faster each time"):
        run(manager.context, intent)
    assert intent.places == 7 and len(table.events()) == 1
    with manager.context.provider.acquire(TABLE_KEY, 0):  # and nobody is asked to queue there any more
        write(table.manager(), "a")


class Twice(Intent[str]):
    """Has another turn after its first verdict, for which it takes the lock itself."""

    def __init__(self, context: TransactionContext) -> None:
        self.context = context
        self.turns = 0

    def begin_turn(self) -> None:
        self.turns += 1

    def decide(self, place: Place) -> Event | Verdict:
        assert place.watch is not None
        with pytest.raises(LockTimeout):
            self.context.provider.acquire(TABLE_KEY, 0)
        return GivenUp(self.turns)

    def follow(self, found: Added | Verdict) -> str | None:
        with self.context.provider.acquire(TABLE_KEY, 0):
            assert isinstance(found, GivenUp) and found.why == self.turns
        return None if self.turns == 1 else "done"


def test_the_lock_is_free_while_a_verdict_is_followed(table: Table) -> None:
    context = table.manager().context
    intent = Twice(context)
    assert run(context, intent) == "done" and intent.turns == 2
    assert table.events() == []


def test_what_is_in_conflict_anyway_cancels_no_plan(table: Table) -> None:
    """The first verdict counts, and what comes after it in the order is not looked at."""
    manager = table.manager()
    write(manager, "a")
    schedule(manager, "a")
    transaction = manager.begin()
    stat = add_file(transaction, "a")

    def conflicts(snapshot: Snapshot, at: At) -> Conflict:
        return Conflict(OtherWrite("1", "deltacommit", "", frozenset([("", "a")])), frozenset([("", "a")]))

    with pytest.raises(WriteConflict):
        transaction.commit(CommitMetadata((stat,), "UPSERT"), [conflicts])
    assert cancel_requests(table.storage) == []
