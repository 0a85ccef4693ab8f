"""The commit log: the one ordered truth of a table.

Slots are create-only objects, numbered without gaps. Creating slot n+1 with put-if-absent, when n was the tail, is the
linearization point of an event; nothing else decides, no lock and no clock. The Hudi-named file in the timeline folder
is the slot's *projection*: whoever wants to add a slot first completes the projection of the last one, so for every
reader, ours or not, files appear in slot order. What others have archived or rolled back since is not brought back
(`timeline/projection.py`).

Old slots are removed below a watermark that newer slots carry. A writer that was paused may then succeed in creating a
number that was removed, so after creating it looks at the tail: if its slot lies below the watermark, its own
projected file decides (there, or archived since: somebody had to complete it, so it was committed; else it never was).

The protocol was checked exhaustively in a small model; `tests/model` runs it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, overload

from lakelatch.errors import (
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    InvariantBroken,
    TransactionEnded,
    Unavailable,
)
from lakelatch.failpoints import failpoint
from lakelatch.retry import tries
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import NotFound, PutUnknown, Storage
from lakelatch.storage.lost_answers import BACKOFF, TRIES_MAX
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.events import (
    COMPLETE,
    LOCKS,
    LOG_FOLDER,
    Event,
    slot_number,
    slot_path,
)
from lakelatch.timeline.projection import Fate, Projections
from lakelatch.timeline.timeline import TIMELINE_FOLDER, completed, requested

CONTENT_FOLDER = ".hoodie/.lakelatch/content"
INLINE_LIMIT_BYTES = 256 * 1024
SLOTS_KEPT = 32
_ATTEMPTS_MAX = 10_000
_LISTINGS_MAX = 8
_CACHED_EVENTS_MAX = 4096
_log = logging.getLogger("lakelatch.timeline")
T = TypeVar("T")


class LogMoved(Unavailable):
    """Slots were removed between reading the tail and reading them. Read the tail again."""


class WrongLocks(InvalidRequest):
    """The table's writers use other locks, perhaps since a moment ago. Nothing of this call was committed."""


@dataclass(frozen=True)
class Tail:
    """The last slot as it was read; number 0 and no event on an empty log."""

    number: int
    event: Event | None

    @property
    def time(self) -> str:
        return self.event.time if self.event else ""

    @property
    def watermark(self) -> int:
        return self.event.watermark if self.event else 0

    @property
    def lock_domain(self) -> str:
        return self.event.lock_domain if self.event else ""


@dataclass(frozen=True)
class GivenUp(Generic[T]):
    """No event is wanted at a place in the log, for a reason of the caller's own."""

    why: T


class CommitLog:
    """One table's log, as one process sees it. Threads may share it; it caches only what cannot change.

    `lock_domain` names the locks that this writer takes. The first writer that names any puts it into the log, every
    slot carries it on, and a writer with other locks is refused with its next slot; "" goes along with any.
    """

    def __init__(
        self,
        storage: Storage,
        system: System = REAL_SYSTEM,
        slots_kept: int = SLOTS_KEPT,
        lock_domain: str = "",
    ) -> None:
        self._storage = storage
        self._system = system
        self._slots_kept = slots_kept
        self._lock_domain = lock_domain
        self._cache: OrderedDict[int, Event] = OrderedDict()
        self.projections = Projections(storage, system)

    @property
    def slots_kept(self) -> int:
        return self._slots_kept

    def tail(self) -> Tail:
        """The last slot now. Its file may still be missing: `project` it before relying on a listing."""
        for _ in range(_LISTINGS_MAX):
            numbers = self._numbers()
            if not numbers:
                return Tail(0, None)
            event = self._read(numbers[-1])
            if event is not None:
                return Tail(event.number, event)
        raise Unavailable(f"the log at {LOG_FOLDER} shrank while it was read: try again")

    def tail_number(self) -> int:
        """The number of the last slot now."""
        return max(self._numbers(), default=0)

    def events_after(self, number: int, tail: Tail) -> list[Event]:
        """The events of slots number+1 to the tail's, in order.

        Slots below the tail's watermark are left out, because they may be gone: the caller compares `number` with the
        watermark if it must see every one. Errors: `LogMoved` if others removed slots since the tail was read.
        """
        first = max(number + 1, tail.watermark, 1)
        events = []
        for wanted in range(first, tail.number + 1):
            event = self._cached(wanted)
            if event is None:
                raise LogMoved(f"slot {wanted} of the commit log was removed while it was read: try again")
            events.append(event)
        return events

    def ensure_same_locks(self, tail: Tail) -> None:
        """Errors: `WrongLocks` if the table's writers use other locks than this one."""
        if self._lock_domain and tail.lock_domain not in ("", self._lock_domain):
            raise WrongLocks(
                f"this table's writers take their locks from {tail.lock_domain!r}, and this one from "
                f"{self._lock_domain!r}: set hoodie.write.lock.provider and its options as they have them, or move the "
                "table with `lakelatch locks migrate`",
                option="hoodie.write.lock.provider",
            )

    @overload
    def append(
        self, decide: Callable[[Tail], Event], take_time: Callable[[str], str], oldest_needed: Callable[[], int]
    ) -> Event: ...

    @overload
    def append(
        self,
        decide: Callable[[Tail], Event | GivenUp[T]],
        take_time: Callable[[str], str],
        oldest_needed: Callable[[], int],
    ) -> Event | GivenUp[T]: ...

    def append(
        self,
        decide: Callable[[Tail], Event | GivenUp[T]],
        take_time: Callable[[str], str],
        oldest_needed: Callable[[], int],
    ) -> Event | GivenUp[T]:
        """Adds one event, or finds that it has been added already, and completes its projection.

        `decide` is called with each tail that the event might follow: it returns the event, with the same operation id
        each time, or `GivenUp`, which is then the result, with nothing added. `take_time(above)` gives a fresh time
        greater than `above`, once for each slot tried. `oldest_needed()` is the lowest slot number that somebody may
        still have to read.

        Errors: what `decide` raises, with nothing added; `CommitUnknown` if a lost answer could not be resolved, or if
        the slot was created and what has to follow failed; `TransactionEnded` if a foreign writer rolled the instant
        back before its file was there.
        """
        for _ in range(_ATTEMPTS_MAX):
            tail = self.tail()
            self.project(tail)
            try:
                draft = decide(tail)
            except LogMoved:
                continue
            if isinstance(draft, GivenUp):
                return draft
            if draft.kind != LOCKS:
                self.ensure_same_locks(tail)
            time = take_time(tail.time)
            if time <= tail.time:
                raise InvariantBroken(f"the time {time} is not above {tail.time}, that of slot {tail.number}")
            event = self._place(draft, tail, time, oldest_needed)
            failpoint("commit.before_slot")
            stored = self._create(event)
            if stored is not None and self._finish(stored, moved=event.watermark > tail.watermark):
                return stored
            self._drop_content(event)
        raise Unavailable(f"another writer was faster {_ATTEMPTS_MAX} times: try again when the table is less busy")

    def project(self, tail: Tail) -> None:
        """Completes the projection of the last slot, if its writer has not and no foreign writer took it away."""
        if tail.event is not None:
            self.projections.show(tail.event, self.content)

    def content(self, event: Event) -> bytes:
        """The bytes of the event's projection. Errors: `CorruptTable` if they lie beside the log, damaged."""
        if not event.content_path:
            return event.content
        content = self._storage.read(event.content_path)
        if hashlib.sha256(content).hexdigest() != event.content_digest:
            raise CorruptTable(
                f"{event.content_path} is not what slot {event.number} of the commit log says of it: restore it from "
                "a copy",
                path=event.content_path,
            )
        return content

    # -- one slot ---------------------------------------------------------------------------------------------------

    def _place(self, draft: Event, tail: Tail, time: str, oldest_needed: Callable[[], int]) -> Event:
        number = tail.number + 1
        watermark = tail.watermark
        # Moved in steps, so that most commits need not ask who still reads. Asked after the tail was read: a
        # transaction that begins later begins at this tail or after it.
        if number - watermark >= 2 * self._slots_kept:
            watermark = max(watermark, min(number - self._slots_kept, oldest_needed()))
        action = draft.action
        if draft.kind == COMPLETE:
            file = completed(draft.instant, action, time).file_name
        elif draft.kind == LOCKS:
            draft, file = replace(draft, instant=time), f"{time}.json"
        else:
            draft = replace(draft, instant=time)
            file = requested(time, action).file_name
        if draft.kind != LOCKS:
            draft = replace(draft, lock_domain=tail.lock_domain or self._lock_domain)
        content = add_checksum(draft.content, f"{TIMELINE_FOLDER}/{file}")
        event = replace(draft, content=content).placed(number, time, file, watermark)
        if len(content) > INLINE_LIMIT_BYTES:
            path = f"{CONTENT_FOLDER}/{event.operation_id}-{number}"
            self._storage.put(path, content)
            digest = hashlib.sha256(content).hexdigest()
            event = replace(event, content=b"", content_path=path, content_digest=digest)
        return event

    def _create(self, event: Event) -> Event | None:
        """The event as stored if this operation holds the slot, None if another one does."""
        path, problem = slot_path(event.number), ""
        for _ in tries(self._system, BACKOFF, TRIES_MAX):
            try:
                if self._storage.put_if_absent(path, event.to_bytes()):
                    return event
                return self._own(event)
            except PutUnknown as error:
                problem = error.message
            except Unavailable:
                if not problem:  # no earlier try can have done it, so nothing happened
                    self._drop_content(event)
                    raise
            try:
                stored = self._read(event.number)
                if stored is not None:
                    return stored if stored.operation_id == event.operation_id else None
                if self.projections.was_shown(event):  # completed by another, and the slot removed since
                    return event
            except Unavailable as error:
                problem = error.message
        raise CommitUnknown(
            f"the storage did not tell whether slot {event.number} was created for instant {event.instant} "
            f"({problem}). It is committed if and only if {event.path} appears on the timeline",
            instant=event.instant,
            slot=event.number,
        )

    def _finish(self, event: Event, moved: bool) -> bool:
        """All that follows a created slot; False if it is not part of the log. No failure here undoes the slot."""
        try:
            failpoint("commit.after_slot")
            if not self._counts(event):
                return False
            fate = self.projections.show(event, self.content, fresh=True)
            self._cache[event.number] = event
        except (Unavailable, CorruptTable) as error:
            raise CommitUnknown(
                f"slot {event.number} was created for instant {event.instant}, and then the storage failed "
                f"({error.message}). It is committed if and only if {event.path} appears on the timeline, where the "
                "next writer puts it",
                instant=event.instant,
                slot=event.number,
            ) from error
        if fate is Fate.ROLLED_BACK:
            raise TransactionEnded(
                f"{event.action} {event.instant} took slot {event.number}, and another writer of the table, which "
                "takes no slots (Java Hudi), rolled it back before its file was there: nothing of it is visible, begin "
                "a new one. If this writer was paused, raise hoodie.client.heartbeat.interval_in_ms on both sides",
                instant=event.instant,
            )
        try:
            if moved:  # once for many slots; what a crash leaves goes at the next move
                self._remove_old(event)
        except Unavailable as error:
            _log.warning("slots below %d are left to the next commit: %s", event.watermark, error)
        return True

    def _own(self, event: Event) -> Event | None:
        """After 'exists': the slot is ours if a repeated request of ours created it."""
        stored = self._read(event.number)
        if stored is None:
            return event if self.projections.was_shown(event) else None
        return stored if stored.operation_id == event.operation_id else None

    def _counts(self, event: Event) -> bool:
        """Whether a slot that was created is part of the log."""
        if self.tail_number() == event.number:  # no later slot can have moved the watermark past it
            return True
        tail = self.tail()
        if tail.number < event.number:
            raise InvariantBroken(f"slot {event.number} was created and the tail is {tail.number}")
        if tail.watermark <= event.number:
            return True
        if self.projections.was_shown(event):
            return True
        self._storage.delete(slot_path(event.number))
        return False

    def _remove_old(self, event: Event) -> None:
        """Removes slots below the watermark, lowest first, and then all content below it, whoever left it."""
        old = [number for number in self._numbers() if number < event.watermark]
        for number in old:
            self._storage.delete(slot_path(number))
            failpoint("log.after_removal")
        if not old:
            return
        for name in self._storage.list(CONTENT_FOLDER).files:
            digits = name.rpartition("-")[2]
            if digits.isascii() and digits.isdigit() and int(digits) < event.watermark:
                self._storage.delete(f"{CONTENT_FOLDER}/{name}")

    def _drop_content(self, event: Event) -> None:
        if event.content_path:
            self._storage.delete(event.content_path)

    # -- reading ----------------------------------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        found = map(slot_number, self._storage.names(LOG_FOLDER))
        return sorted(number for number in found if number is not None)

    def _read(self, number: int) -> Event | None:
        try:
            return Event.from_bytes(self._storage.read(slot_path(number)), number)
        except NotFound:
            return None

    def _cached(self, number: int) -> Event | None:
        event = self._cache.get(number)
        if event is None:
            event = self._read(number)
            if event is not None:
                self._cache[number] = event
                while len(self._cache) > _CACHED_EVENTS_MAX:
                    self._cache.popitem(last=False)
        return event
