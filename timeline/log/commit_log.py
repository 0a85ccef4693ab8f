"""The commit log: the one ordered truth of a table.

Slots are create-only objects, numbered without gaps. Creating slot n+1 with put-if-absent, when n was the tail, is the
linearization point of its events; nothing else decides, no lock and no clock. A slot has one event, or several commits
that one writer put for others as well (0037). The Hudi-named file of an event in the timeline folder is its
*projection*: whoever wants to add a slot first completes the projections of the last one, in the order of their times,
so for every reader, ours or not, files appear in the order of the log. What others have archived or rolled back since
is not brought back (`timeline/log/projection.py`).

Old slots are removed below a watermark that newer slots carry. A writer that was paused may then succeed in creating a
number that was removed, so after creating it looks at the tail: if its slot lies below the watermark, its own
projected file decides (there, or archived since: somebody had to complete it, so it was committed; else it never was).

The protocol was checked exhaustively in a small model; `tests/model` runs it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from lakelatch.errors import (
    CommitUnknown,
    CorruptTable,
    InvariantBroken,
    TransactionEnded,
    Unavailable,
)
from lakelatch.failpoints import failpoint
from lakelatch.retry import tries
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.conditional_puts import BACKOFF, TRIES_MAX
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.instant import aborted, completed, requested
from lakelatch.timeline.log.awaited_files import listing_with_files
from lakelatch.timeline.log.decisions import Prepared
from lakelatch.timeline.log.events import (
    ABORT,
    CANCEL,
    COMPLETE,
    LOCKS,
    WITHDRAW,
    Event,
    path_of,
    slot_bytes,
    slot_path,
)
from lakelatch.timeline.log.lock_names import WrongLocks, agree, joined, named_locks
from lakelatch.timeline.log.log_reader import LogMoved, LogReader, Tail
from lakelatch.timeline.log.old_slots import CONTENT_FOLDER, remove_below
from lakelatch.timeline.log.projection import Fate, Projections, Shower
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.metadata import after
from lakelatch.timeline.snapshot import Snapshot

INLINE_LIMIT_BYTES = 256 * 1024
SLOTS_KEPT = 32
_RECENT_NS = 2_000_000_000
_log = logging.getLogger("lakelatch.timeline")


class _Place(Enum):
    """Where a slot is that was created."""

    LAST = "the tail"
    OVERTAKEN = "others have followed it"
    GONE = "its number had been removed, but its event's own file was there: it had been part of the log"
    NONE = "its number had been removed, so it is not part of the log"


class CommitLog(LogReader):
    """One table's log, as one process sees it. Threads may share it; it caches only what cannot change.

    `lock_domain` names the kind of locks that this writer takes, and `lock_id` the ones that it has found there
    (`timeline/log/lock_names.py`). The first writer that names any puts it into the log, every slot carries it on, and
    a writer with other locks is refused with its next slot; "" goes along with any.
    """

    def __init__(
        self,
        storage: Storage,
        system: System = REAL_SYSTEM,
        slots_kept: int = SLOTS_KEPT,
        lock_domain: str = "",
        open_table: Callable[[str], Storage] = open_storage,
    ) -> None:
        super().__init__(storage, system, open_table)
        self._slots_kept = slots_kept
        self._lock_domain = lock_domain
        self.lock_id = ""  # the id of this writer's locks, as soon as it is known
        self.lock_hint: Callable[[], str] = str  # what it says of them otherwise than the table, for an error
        self._looked_at = 0  # the last slot whose file this process has seen there, or gone for good
        self.snapshots = Snapshots(storage)
        self.projections = Projections(storage, system, self.snapshots)

    @property
    def slots_kept(self) -> int:
        return self._slots_kept

    @property
    def lock_domain(self) -> str:
        """The locks that this writer takes, as far as it knows them."""
        return named_locks(self._lock_domain, self.lock_id)

    def has_same_locks(self, tail: Tail) -> bool:
        """Whether the table's writers use the locks of this one, as of a tail."""
        return agree(self.lock_domain, tail.lock_domain)

    def ensure_same_locks(self, tail: Tail) -> None:
        """Errors: `WrongLocks` if the table's writers use other locks than this one."""
        if not self.has_same_locks(tail):
            raise WrongLocks(
                f"this table's writers take their locks from {tail.lock_domain!r}, and this one from "
                f"{self.lock_domain!r}{self.lock_hint()}: set hoodie.write.lock.provider and its options as they have "
                "them, or move the table with `lakelatch locks migrate`",
                option="hoodie.write.lock.provider",
            )

    def create(
        self,
        draft: Event,
        tail: Tail,
        take_time: Callable[[str], str],
        oldest_needed: Callable[[], int],
        shower: Shower | None = None,
        others: Sequence[Event] = (),
        prepared: Prepared | None = None,
    ) -> Event | None:
        """Adds one event directly after a tail that was looked at, and completes its projection; None if others did.

        Of one event each call has the same operation id, so that it is found if an earlier call has added it, or if
        another writer has. `take_time(above)` gives a fresh time greater than `above`. `oldest_needed()` is the lowest
        slot number that somebody may still have to read. `shower` shows the event. `others` are completed writes
        that the same slot commits, after this event and in this order. A `prepared` event whose decision says that it
        does not count has lost, as if others had been faster.

        Errors: `WrongLocks`; `CommitUnknown` if a lost answer could not be resolved, or if the slot was created and
        what has to follow failed; `TransactionEnded` if a foreign writer rolled the instant back before its file was
        there.
        """
        if draft.kind != LOCKS:
            self.ensure_same_locks(tail)
        time = take_time(tail.time)
        if time <= tail.time:
            raise InvariantBroken(f"the time {time} is not above {tail.time}, that of slot {tail.number}")
        event = self._place(draft, tail, time, oldest_needed)
        failpoint("commit.before_slot")
        stored = self._create(event, self._place_others(event, others, take_time))
        if stored and prepared is not None:
            prepared.put(stored)
        place = self._place_of(event, stored) if stored else _Place.NONE
        if place is not _Place.NONE and prepared is not None and not prepared.decided(event):
            place = _Place.NONE
        if place is _Place.NONE:
            self._drop_content(event)
            return None
        self._finish(event, stored, tail, place, shower)
        return _of_operation(stored, event.operation_id)

    def conclude(self, event: Event, tail: Tail) -> None:
        """Sees to it that the file of an event that another writer has added is there, if it is to be.

        `tail` is one that has the event, or a later one. Errors: as those of `create` after its slot was created.
        """
        try:
            if event.at_once and event in tail.events:  # those before it may be missing, though it is there
                self.project(tail)
            elif self._storage.exists(event.path):
                return
            elif event.number == tail.number:
                self.project(tail)
            fate = self.projections.fate(event)
            if fate is Fate.NEVER:  # behind another slot it was there before anybody could add that one
                is_last = self.tail_number() == event.number
                fate = self.projections.show(event, self.content) if is_last else self.projections.fate(event)
            if fate is Fate.NEVER:
                raise LogMoved(f"slot {event.number} of the commit log had been removed when this event came into it")
        except (Unavailable, CorruptTable) as error:
            raise self._in_doubt(event, error) from error
        self._ensure_not_rolled_back(event, fate)

    @property
    def has_met_group(self) -> bool:
        """Whether the last slot that this process has read was put for several writers: they queue, and wait there."""
        return len(next(reversed(self._cache.values()), ())) > 1

    def recent_tail(self) -> Tail | None:
        """The tail as it was seen a moment ago. If others have gone on, the next slot is refused, and that tells."""
        recent = self.last_ns is not None and self._system.monotonic_ns() - self.last_ns < _RECENT_NS
        return self.last if recent else None

    def project(self, tail: Tail) -> None:
        """Completes the projection of the last slot, if its writer has not and no foreign writer took it away.

        Nothing is made for another slot: whoever added the next one has seen to it. And if it was removed before this
        caller read it, which was paused, it may be a zombie's, and no part of the log.
        """
        if tail.events and self.tail_number() == tail.number:
            self.projections.show_all(tail.events, self.content)
        self._looked_at = max(self._looked_at, tail.number)

    def ensure_projected(self, tail: Tail) -> Tail:
        """As `look`, but at no cost and as it is if this process has seen before what has become of the file."""
        return tail if tail.number == self._looked_at else self.look(tail)

    def look(self, tail: Tail, listing: Snapshot | None = None) -> Tail:
        """The same with the timeline, after completing its projection: one listing, if that is complete.

        `listing`: that one, for a caller who has made it since the tail was read.

        The listing begins after the slot was read, and then the files of all slots before it were there. So one that
        shows the slot's own file lacks none of theirs.
        """
        # What was seen since a listing that is given says nothing about that listing.
        events, looked_at = tail.events, listing is None and tail.number == self._looked_at
        is_listed = all(map(self.projections.is_listed, events))
        if not events or (looked_at and not is_listed):
            return replace(tail, listing=self.snapshots.list() if listing is None else listing)
        if is_listed:
            listing = self.snapshots.list() if listing is None else listing
            if not looked_at:  # what is missing then was taken away
                listing = listing_with_files(self.projections, self.snapshots, self._system, events, listing)
            if all(self.projections.needs_nothing(event, listing, looked_at) for event in events):
                self._looked_at = max(self._looked_at, tail.number)
                return replace(tail, listing=listing)
        self.project(tail)
        return replace(tail, listing=self.snapshots.list())

    def has_seen(self, tail: Tail, all_files: bool) -> None:
        """Takes note of whether all files of this tail's slot are there: the table may be a copy from before that."""
        self._looked_at = max(self._looked_at, tail.number) if all_files else min(self._looked_at, tail.number - 1)

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
        action, instant = draft.action, draft.instant
        if draft.kind == COMPLETE:
            file = completed(draft.instant, action, time).file_name
        elif draft.kind == LOCKS:
            instant, file = time, f"{time}.json"
        elif draft.kind == ABORT:
            file = aborted(draft.instant, action).file_name
        elif draft.kind == WITHDRAW:
            file = ""
        elif draft.kind == CANCEL:
            file = f"{draft.instant}_{time}" if draft.file_groups else draft.instant
        else:
            instant, file = time, requested(time, action).file_name
        lock_domain = draft.lock_domain if draft.kind == LOCKS else joined(tail.lock_domain, self.lock_domain)
        after_aborted = tail.event is not None and tail.event.kind == WITHDRAW and tail.event.decision != ""
        content = add_checksum(draft.content, path_of(draft.kind, file))
        values = {"instant": instant, "content": content, "lock_domain": lock_domain, "after_aborted": after_aborted}
        event = draft.placed(number, time, file, watermark, **values)
        if len(content) > INLINE_LIMIT_BYTES:
            path = f"{CONTENT_FOLDER}/{event.operation_id}-{number}"
            self._storage.put(path, content)
            digest = hashlib.sha256(content).hexdigest()
            return replace(event, content=b"", content_path=path, content_digest=digest)
        return event

    def _place_others(
        self, first: Event, others: Sequence[Event], take_time: Callable[[str], str]
    ) -> tuple[Event, ...]:
        """All events of a slot, with those of others behind the first one."""
        at_once = any(draft.at_once for draft in others)
        events = [replace(first, at_once=at_once)]
        for draft in others:
            time = take_time(max(events[-1].time, draft.instant))
            if time <= events[-1].time:
                raise InvariantBroken(f"the time {time} is not above {events[-1].time}, which is in the same slot")
            file = completed(draft.instant, draft.action, time).file_name
            content = after(draft.content, [event.instant for event in events]) if at_once else draft.content
            content = add_checksum(content, path_of(draft.kind, file))
            values = {"token": first.token, "lock_domain": first.lock_domain, "at_once": at_once}
            events.append(draft.placed(first.number, time, file, first.watermark, content=content, **values))
        return tuple(events)

    def _create(self, event: Event, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """The events of the slot as stored, if this operation's is one of them, whoever put it; else none."""
        path, problem = slot_path(event.number), ""
        for _ in tries(self._system, BACKOFF, TRIES_MAX):
            try:
                if self._storage.put_if_absent(path, slot_bytes(events)):
                    return events
                problem = "it is there, and could not be read"  # perhaps by a request of ours, sent twice
                stored = self._read(event.number)
                if not stored and self.projections.was_shown(event):  # and removed since
                    return events
                return stored if _of_operation(stored, event.operation_id) else ()
            except PutUnknown as error:
                problem = error.message
            except Unavailable:
                if not problem:  # no earlier try can have done it, so nothing happened
                    self._drop_content(event)
                    raise
            try:
                stored = self._read(event.number)
                if stored:
                    return stored if _of_operation(stored, event.operation_id) else ()
                if self.projections.was_shown(event):  # completed by another, and the slot removed since
                    return events
            except Unavailable as error:
                problem = error.message
        raise CommitUnknown(
            f"the storage did not tell whether slot {event.number} was created for instant {event.instant} "
            f"({problem}). It is committed if and only if {event.path} appears on the timeline",
            instant=event.instant,
            slot=event.number,
        )

    def _place_of(self, event: Event, stored: tuple[Event, ...]) -> _Place:
        """Where the created slot of an event is. Errors: `CommitUnknown` if the storage does not say."""
        event = _of_operation(stored, event.operation_id) or event
        try:
            failpoint("commit.after_slot")
            return self._counts(event)
        except (Unavailable, CorruptTable) as error:
            raise self._in_doubt(event, error) from error

    def _finish(
        self,
        event: Event,
        stored: tuple[Event, ...],
        after: Tail,
        place: _Place,
        shower: Shower | None,
    ) -> None:
        """All that follows a created slot that is part of the log. No failure here undoes the slot."""
        if place is _Place.GONE:  # which says nothing of the other events: their files must not be made
            return
        event = _of_operation(stored, event.operation_id) or event
        try:
            # What has been overtaken may have been shown, and archived, long ago: then the look has to be a new one.
            checked = after.listing if place is _Place.LAST else None
            fates = self.projections.show_all(stored, self.content, checked, shower)
            self._cache[event.number] = stored
            self._looked_at = max(self._looked_at, event.number)
            self._seen(Tail(event.number, stored))
        except (Unavailable, CorruptTable) as error:
            raise self._in_doubt(event, error) from error
        self._ensure_not_rolled_back(event, fates[stored.index(event)])
        try:
            if event.watermark > after.watermark:  # once for many slots; what a crash leaves goes at the next move
                remove_below(self._storage, self._names(), event.watermark)
        except Unavailable as error:
            _log.warning("slots below %d are left to the next commit: %s", event.watermark, error)

    def _in_doubt(self, event: Event, error: Unavailable | CorruptTable) -> CommitUnknown:
        return CommitUnknown(
            f"slot {event.number} was created for instant {event.instant}, and then the storage failed "
            f"({error.message}). It is committed if and only if {event.path} appears on the timeline, where the "
            "next writer puts it",
            instant=event.instant,
            slot=event.number,
        )

    def _ensure_not_rolled_back(self, event: Event, fate: Fate) -> None:
        if fate is Fate.ROLLED_BACK:
            raise TransactionEnded(
                f"{event.action} {event.instant} took slot {event.number}, and another writer of the table, which "
                "takes no slots (Java Hudi), rolled it back before its file was there: nothing of it is visible, begin "
                "a new one. If this writer was paused, raise hoodie.client.heartbeat.interval_in_ms on both sides",
                instant=event.instant,
            )

    def _counts(self, event: Event) -> _Place:
        """Whether a slot that was created is part of the log, and still the last one."""
        if self.tail_number() == event.number:  # no later slot can have moved the watermark past it
            return _Place.LAST
        tail = self.last_decided()
        if tail.number < event.number:
            raise InvariantBroken(f"slot {event.number} was created and the tail is {tail.number}")
        if tail.watermark <= event.number:
            return _Place.OVERTAKEN
        if self.projections.was_shown(event):
            return _Place.GONE
        self._storage.delete(slot_path(event.number))
        return _Place.NONE

    def _drop_content(self, event: Event) -> None:
        if event.content_path:
            self._storage.delete(event.content_path)


def _of_operation(events: Sequence[Event], operation_id: str) -> Event | None:
    return next((event for event in events if event.operation_id == operation_id), None)
