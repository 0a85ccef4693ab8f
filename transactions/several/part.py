"""One part of a transaction over several tables, as the write that it is sees it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

from lakelatch.errors import CommitUnknown, InvalidRequest, LakelatchError, WriteConflict
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.history.same_table import ensure_same_table
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.snapshot import Mark
from lakelatch.timeline.staged import StagedStorage
from lakelatch.transactions.base.outcome import Added, Verdict

W_co = TypeVar("W_co", covariant=True)


class PartGivenUp(LakelatchError):
    """Another part of the same transaction has failed, or its block has: nothing of this one is visible."""


class PartsOfOne(Protocol):
    """All parts of one transaction, as a part calls them."""

    def began(self, part: Part[object]) -> None: ...
    def stage(self, part: Part[object]) -> None: ...
    def follow(self, part: Part[object]) -> Added | Verdict: ...
    def pass_on(self, part: Part[object], found: Added | Verdict) -> None: ...
    def await_turn(self, part: Part[object], release: Callable[[], object]) -> None: ...
    def prepared(self, part: Part[object], event: Event, after_slot: int) -> Event | None: ...
    def put(self, part: Part[object], events: Sequence[Event]) -> None: ...
    def decided(self, part: Part[object], event: Event) -> bool: ...
    def note(self, part: Part[object], **flags: bool) -> None: ...
    def give_way_to(self, part: Part[object], event: Event) -> None: ...


class Part(Generic[W_co]):
    """One write of a table, as its own thread sees it.

    `mark` is the table as the transaction reads it, None if it has not done so before the part's beginning: what has
    completed since may be in its way. `has_read`: the same where any change of the table is, because the transaction
    has read it and is to be serializable. `found_first` are the names on the timeline when the transaction began.
    `sees` is the table's storage at the mark, with what the parts before it in the same table have staged; the
    first of those is its `leader`, which puts one slot for all of them.
    """

    def __init__(
        self,
        parts: PartsOfOne,
        table: str,
        mark: Mark | None,
        found_first: frozenset[str],
        leader: Part[W_co] | None = None,
        sees: StagedStorage | None = None,
    ) -> None:
        self._parts, self.table, self.mark, self.found_first, self.sees = parts, table, mark, found_first, sees
        self.leader = leader or self
        self.followers: list[Part[W_co]] = []
        self.has_read: Mark | None = None
        self.write: W_co | None = None  # what stages files in this part's thread, and waits then; none if it only reads
        self.batch: Hashable = None  # the one that the write is, if it is one
        self.is_staged = self.is_put = self.gives_way = False
        self.is_ready = False  # whether it follows its leader, and has nothing to do before that may decide
        self.found: Added | Verdict | None = None  # what its leader has found for it
        self.has_failed = self.is_shown = self.has_ended = False
        self.event: Event | None = None  # while it is prepared
        self.events: tuple[Event, ...] = ()  # those of the last slot that it has put
        self.tried = 0  # the last try in which it may put its event
        self.error: BaseException | None = None

    @property
    def leads(self) -> bool:
        """Whether it is the first of its table, and so puts the slot."""
        return self.leader is self

    @property
    def is_last(self) -> bool:
        """Whether no other part of its table comes after it."""
        return (self.leader.followers or [self.leader])[-1] is self

    def began(self, storage: Storage, seen: Mark) -> None:
        """Says as which it has seen its table at its beginning; from then on its `mark` stays as it is.

        Waits while the moment of all tables is being taken, since that may be earlier than its beginning. Errors:
        `WriteConflict` if it is another table.
        """
        ensure_same_table(storage, self.found_first, seen.names)
        self._parts.began(self)

    def stage(self) -> None:
        """Says that its files are staged, and waits until they are to be committed. Errors: `PartGivenUp`."""
        self._parts.stage(self)

    def follow(self) -> Added | Verdict:
        """Says that it is staged and closed, and waits for what its leader finds for it.

        Errors: `PartGivenUp`; `CommitUnknown` if nobody can say.
        """
        return self._parts.follow(self)

    def pass_on(self, found: Added | Verdict) -> None:
        """Gives a part what its leader has found for it, and lets it go on."""
        self._parts.pass_on(self, found)

    def await_turn(self, release: Callable[[], object]) -> None:
        """Waits until the event may be put, after a call of `release` if that is not now. Errors: `PartGivenUp`."""
        self._parts.await_turn(self, release)

    def prepared(self, event: Event, after_slot: int) -> Event | None:
        """The event that is to be put after this slot; None if its try is over, and it has to wait for another turn."""
        return self._parts.prepared(self, event, after_slot)

    def put(self, events: Sequence[Event]) -> None:
        """Says that its events have their slot: if this is the home, the others need wait no longer."""
        self._parts.put(self, events)

    def decided(self, event: Event) -> bool:
        """Waits until it is known whether the event counts, which has its slot; False if it needs another one.

        Errors: `PartGivenUp`; `CommitUnknown` if nobody can say.
        """
        return self._parts.decided(self, event)

    def fail(self) -> None:
        """Says that nothing comes of it, before it is rolled back: the others need wait no longer."""
        self._parts.note(self, has_failed=True)

    def show(self) -> None:
        """Says that its completed file is there."""
        self._parts.note(self, is_shown=True)

    def give_way_to(self, event: Event) -> None:
        """Called before another transaction over several tables is waited for, whose prepared event this is."""
        self._parts.give_way_to(self, event)

    def end(self, error: BaseException | None) -> None:
        """Says that its thread has ended, by an error if there is one: a conflict then names the table."""
        self.has_ended, self.error = True, error
        if isinstance(error, WriteConflict) and error.winner:
            self.error = WriteConflict.of(**{**error.details, "table": without_secrets(self.table)})
            self.error.__cause__ = error

    def as_its_leader(self) -> LakelatchError:
        """The error of one whose leader has ended, and has not said that it is committed."""
        error = self.leader.error
        if isinstance(error, CommitUnknown):
            return CommitUnknown(error.message, **error.details)
        return PartGivenUp("an earlier change of the same table has failed")


_of_thread: ContextVar[Part[object] | None] = ContextVar("lakelatch_part", default=None)


def ensure_may_take_part(provider: LockProvider, table: str) -> None:
    """Errors: `InvalidRequest` for locks that Java Hudi takes: it rolls back a part whose heartbeat it misses."""
    if provider.taken_by_hudi:
        raise InvalidRequest(
            f"the writers of {without_secrets(table)} take Hudi's own locks, so that a writer of Java Hudi could roll "
            "back a part of a transaction over several tables that is committed: write the table alone, or move it "
            "with `lakelatch locks migrate` to locks that Java does not take",
            option="hoodie.write.lock.provider",
        )


@contextmanager
def gives_way(part: Part[object]) -> Iterator[None]:
    """Lets this thread give way to others for a part, in the block."""
    _of_thread.set(part)
    try:
        yield
    finally:
        _of_thread.set(None)


def give_way_to(event: Event) -> None:
    """Called before another transaction over several tables is waited for, by whatever a part does meanwhile."""
    part = _of_thread.get()
    if part is not None:
        part.give_way_to(event)
