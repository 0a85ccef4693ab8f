"""What the loop of attempts is given: one event that is to get into a table's log, and how it is decided."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from lakelatch.errors import InvariantBroken
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.claims import owns_claim
from lakelatch.transactions.attempts.foreign import LockWatch
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import Added, Ended, GivenUp, Verdict
from lakelatch.transactions.several.part import Part

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A place in the log that an event might take: after `tail`, where the timeline is as `snapshot` shows it.

    `watch` has the table's lease, None without one. `owned` says whether the instant's claim was there, if that was
    asked already. `before` is what earlier changes of the same transaction commit in the same slot.
    """

    tail: Tail
    snapshot: Snapshot
    watch: LockWatch | None = None
    owned: bool | None = None
    before: tuple[CommitMetadata, ...] = ()

    @property
    def token(self) -> int:
        """The token of an event: its writer's, or without a lease that of the event before it."""
        if self.watch is not None:
            return self.watch.lease.token
        return self.tail.event.token if self.tail.event is not None else 0


class Look:
    """What a first try without the lock is checked against: the timeline, and the claim of the instant.

    Neither needs the other, nor the list of markers, so these requests are made side by side with what a write asks
    when it closes. The timeline is listed after the tail was read, and if that is the tail no more, the slot is
    refused.
    """

    def __init__(self, context: TransactionContext, elides: Callable[[], bool]) -> None:
        self._context, self._elides = context, elides
        self._tail: Tail | None = None
        self._listing: Snapshot | None = None
        self._owned: bool | None = None

    def requests(self, instant: str, operation_id: str, asks_claim: bool) -> Sequence[Callable[[], None]]:
        """What is to be asked, as of the tail that was seen last; nothing if the lock, or the log, has to come first.

        Without `asks_claim` the log alone has to say whether the instant has ended: that is enough where no task was
        given the instant.
        """
        self._tail = self._context.log.recent_tail() if self._elides() else None
        if self._tail is None:
            return ()
        if not asks_claim:
            self._owned = True
            return (self._list,)
        return (self._list, partial(self._ask, instant, operation_id))

    def forget(self) -> None:
        """Drops the answers: something has changed since they were asked for."""
        self._tail = self._owned = None

    def place(self) -> tuple[Tail, bool | None] | None:
        """The tail with the timeline, and whether the claim was there; None if nothing was asked."""
        return None if self._tail is None else (self._context.log.look(self._tail, self._listing), self._owned)

    def _list(self) -> None:
        self._listing = self._context.log.snapshots.list()

    def _ask(self, instant: str, operation_id: str) -> None:
        self._owned = owns_claim(self._context, instant, operation_id)


class Turn(Protocol):
    """The turn of a commit whose record others can see."""

    def wait(self, ensure_in_time: Callable[[], None]) -> tuple[Event, Tail] | None:
        """Waits for a slot that has this commit, and returns its event and the tail; None when it is its own turn."""
        ...

    def place(self) -> tuple[Tail, bool]:
        """The tail with the timeline, and whether the claim was there; asks at once what the others want to commit."""
        ...

    def others(self, place: Place, first: Event) -> Sequence[Event]:
        """The commits of others that are to be put with this one."""
        ...


class Intent(ABC, Generic[T]):
    """One event that is to be added, and how it is decided; T is what comes of it.

    Its slot's time is to be above `above`. If that time is its instant's as well, `claims_as` is the operation that
    claims it. One that `tries_first` asks for the lock only after it has lost.
    """

    above: str = ""
    claims_as: str = ""
    tries_first: bool = False

    def prepare(self, look: Look) -> Added | Verdict | None:
        """Makes everything ready to be decided, asking at the same time for what the look wants.

        It returns what others have found, if these decide.
        """
        return None

    def begin_turn(self) -> None:
        """Called before the tail is read for the first time in a turn, with the lock if there is one."""
        return

    def queue(self) -> Turn | None:
        """Lets others put this event with theirs, if they can, from now on; else None."""
        return None

    @abstractmethod
    def decide(self, place: Place) -> Event | Verdict:
        """What becomes of it at a place in the log, perhaps one of several; with the same operation id each time."""

    def others(self) -> Sequence[Event]:
        """Events that share its slot, behind it, as they were decided with it."""
        return ()

    def part(self) -> Part[object] | None:
        """The part of a transaction over several tables that this event is, if it is one."""
        return None

    def beside_file(self, event: Event) -> Sequence[Callable[[], None]]:
        """What is asked, without the lock, beside the put of the event's file; it never raises."""
        return ()

    def beside_last_look(self) -> Sequence[Callable[[], None]]:
        """The same when all can see the event, beside the last look at the timeline."""
        return ()

    def added(self, event: Event, place: Place) -> Added:
        """What it is once it has its slot, after this place; the lock is still held, if it was."""
        return event

    def counted(self, event: Event, place: Place) -> Added:
        """The same, once another writer has put it."""
        return self.added(event, place)

    @abstractmethod
    def follow(self, found: Added | Verdict) -> T | None:
        """What comes of it, after a turn; None to go on with another one, for which everything was done here."""


class Deciding(Intent[Event | GivenUp[T]]):
    """An event that a function decides, or gives up."""

    def __init__(self, decide: Callable[[Place], Event | GivenUp[T]], above: str = "", claims_as: str = "") -> None:
        self._decide = decide
        self.above, self.claims_as = above, claims_as

    def decide(self, place: Place) -> Event | Verdict:
        return self._decide(place)

    def follow(self, found: Added | Verdict) -> Event | GivenUp[T]:
        if isinstance(found, Ended):
            raise found.error
        if not isinstance(found, Event | GivenUp):
            raise InvariantBroken(f"{found} is not what comes of an event that a function decides")
        return found


def added(found: Event | GivenUp[T]) -> Event:
    """The event that nothing could have given up."""
    if isinstance(found, GivenUp):
        raise InvariantBroken(f"an event was given up: {found.why}")
    return found
