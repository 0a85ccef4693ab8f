"""Slots of the commit log, as one process reads them: the tail, and what lies between two slots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.decisions import Decisions, Undecided
from lakelatch.timeline.log.events import LOG_FOLDER, Event, slot_events, slot_number, slot_path
from lakelatch.timeline.log.waiting import Waiting
from lakelatch.timeline.snapshot import Snapshot

_LISTINGS_MAX = 8
_CACHED_SLOTS_MAX = 4096


class LogMoved(Unavailable):
    """Slots were removed between reading the tail and reading them. Read the tail again."""


@dataclass(frozen=True)
class Tail:
    """The last slot as it was read; number 0 and no events on an empty log.

    `listing` is of the timeline's folder, made when the slot's own file was there or gone for good; None if nobody has
    looked.
    """

    number: int
    events: tuple[Event, ...] = ()
    listing: Snapshot | None = field(default=None, compare=False, repr=False)

    @property
    def event(self) -> Event | None:
        """Its last event, whose time is the greatest of the log."""
        return self.events[-1] if self.events else None

    @property
    def time(self) -> str:
        return self.event.time if self.event else ""

    @property
    def watermark(self) -> int:
        return self.event.watermark if self.event else 0

    @property
    def lock_domain(self) -> str:
        return self.event.lock_domain if self.event else ""


class LogReader:
    """One table's slots. Threads may share it; it caches only what cannot change.

    Of a prepared event it is known whether it counts: one that was aborted is read as nothing that anybody has to heed.
    While the last slot is not decided, `awaits` is called with its event by whoever wants the tail, again and again;
    without it the log ends before that slot.
    """

    def __init__(
        self,
        storage: Storage,
        system: System = REAL_SYSTEM,
        open_table: Callable[[str], Storage] = open_storage,
    ) -> None:
        self._storage = storage
        self._system = system
        self.decisions = Decisions(storage, system, open_table)
        self.awaits: Callable[[Event], None] | None = None
        self._cache: OrderedDict[int, tuple[Event, ...]] = OrderedDict()
        self.last: Tail | None = None  # the tail as this process has seen it last: others may have gone on
        self.last_ns: int | None = None  # and when that was
        self.waiting = Waiting(storage)

    @property
    def storage(self) -> Storage:
        """Where the log lies."""
        return self._storage

    def tail(self) -> Tail:
        """The last slot now. Its file may still be missing: `project` it before relying on a listing."""
        while True:
            try:
                return self.decided_tail()
            except Undecided as error:
                if self.awaits is None:
                    return self.before(error.event)
                self.awaits(error.event)

    def last_decided(self) -> Tail:
        """The last slot that is decided, which may be the one before the tail; nobody is waited for."""
        try:
            return self.decided_tail()
        except Undecided as error:
            return self.before(error.event)

    def decided_tail(self) -> Tail:
        """The same at once. Errors: `Undecided` if it is not known yet whether the last slot counts."""
        for _ in range(_LISTINGS_MAX):
            number = self.tail_number()
            if not number:
                return self._seen(Tail(0))
            events = self._cached(number)  # the greatest number was never removed, so it is what was read then
            if events:
                return self._seen(Tail(number, events))
        raise Unavailable(f"the log at {LOG_FOLDER} shrank while it was read: try again")

    def last_prepared(self) -> Event | None:
        """The prepared event of the last slot, whether it is decided or not; None if that slot has none."""
        events = self.stored(self.tail_number())
        return events[0] if events and events[0].decision else None

    def counts(self, event: Event) -> bool:
        """Whether a prepared event counts. Errors: those of `Decisions.counts`."""
        return self.decisions.counts(event, self.stored(event.number + 1))

    def tail_number(self) -> int:
        """The number of the last slot now."""
        numbers = map(slot_number, sorted(self._names(), reverse=True))  # names are in the order of their numbers
        return next((number for number in numbers if number is not None), 0)

    def still_has(self, tail: Tail) -> bool:
        """Whether the storage has the slot of a tail as it was read, asked anew: then it is the same log."""
        found = self.stored(tail.number)
        return bool(tail.events) and tail.events in (found, _aborted(found))

    def has_slot(self, number: int) -> bool:
        """Whether there is a slot of this number, asked anew, decided or not. One that was removed may be missed."""
        return number in self._cache or bool(self._read(number))

    def known(self, number: int) -> Sequence[Event]:
        """The events of a slot that this process has read."""
        return self._cache.get(number, ())

    def known_of(self, time: str) -> Sequence[Event]:
        """The events of the slot that has one of this time, if this process has read it."""
        for events in reversed(list(self._cache.values())):
            if any(event.time == time for event in events):
                return events
        return ()

    def forget_old(self) -> None:
        """Forgets all slots that were read but the last one."""
        for number in sorted(self._cache)[:-1]:
            del self._cache[number]

    def events_after(self, number: int, tail: Tail) -> list[Event]:
        """The events of slots number+1 to the tail's, in order.

        Slots below the tail's watermark are left out, because they may be gone: the caller compares `number` with the
        watermark if it must see every one. Errors: `LogMoved` if others removed slots since the tail was read.
        """
        numbers = range(max(number + 1, tail.watermark, 1), tail.number + 1)
        unread = [wanted for wanted in numbers if wanted not in self._cache]
        read = self._storage.together(*(partial(self._cached, wanted) for wanted in unread))
        known = dict(zip(unread, read, strict=True))
        events: list[Event] = []
        for wanted in numbers:
            found = known[wanted] if wanted in known else self._cached(wanted)
            if not found:
                raise LogMoved(f"slot {wanted} of the commit log was removed while it was read: try again")
            events += found
        return events

    def may_have_ended(self, instant: str, start_slot: int, tail: Tail) -> bool:
        """Whether an event since an instant's start slot has ended it, or nobody can know any more."""
        if start_slot + 1 < tail.watermark:
            return True
        try:
            return any(event.ends(instant) for event in self.events_after(start_slot, tail))
        except LogMoved:
            return True

    def standing(self, tail: Tail, since: str = "") -> list[Event]:
        """The events of the slots up to the tail's that stand, in order, or of those later than a time.

        Those that others are removing just now are left out. Costs a request for each that this process has not read.
        """
        first = max(tail.watermark, 1)
        if not since:
            self._storage.together(*(partial(self._cached, number) for number in range(first, tail.number)))
        events: list[Event] = []
        for number in range(tail.number, first - 1, -1):
            found = [event for event in self._cached(number) if event.time > since]
            if not found:
                break
            events[:0] = found
        return events

    def _seen(self, tail: Tail) -> Tail:
        if self.last is None or tail.number >= self.last.number:  # what another thread has seen since stays
            self.last, self.last_ns = tail, self._system.monotonic_ns()
        return tail

    def _names(self) -> Sequence[str]:
        names = self._storage.names(LOG_FOLDER)
        self.waiting.seen(names)
        return names

    def stored(self, number: int) -> tuple[Event, ...]:
        """The events of a slot as they were put, whether they count or not; none if it is not there."""
        try:
            return slot_events(self._storage.read(slot_path(number)), number)
        except NotFound:
            return ()

    def before(self, event: Event) -> Tail:
        """The tail before a slot that nobody has decided. Errors: `LogMoved` if it was removed meanwhile."""
        before = event.number - 1
        events = self._cached(before) if before else ()
        if before and not events:
            raise LogMoved(f"slot {before} of the commit log was removed while the next one was read: try again")
        return self._seen(Tail(before, events))

    def decided(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """The events of a slot as they count. Errors: `Undecided`, and those of the table that has the decision."""
        if not events or not events[0].decision or self.counts(events[0]):
            return events
        return _aborted(events)

    def _read(self, number: int) -> tuple[Event, ...]:
        """As `stored`; what needs no decision is not read again."""
        events = self.stored(number)
        if events and not events[0].decision:
            self._keep(number, events)
        return events

    def _cached(self, number: int) -> tuple[Event, ...]:
        events = self._cache.get(number, ())
        if not events:
            events = self.decided(self.stored(number))
            if events:
                self._keep(number, events)
        return events

    def _keep(self, number: int, events: tuple[Event, ...]) -> None:
        self._cache[number] = events
        while len(self._cache) > _CACHED_SLOTS_MAX:
            self._cache.popitem(last=False)


def _aborted(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(event.aborted() for event in events)
