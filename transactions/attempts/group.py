"""Group commit: who has the turn commits for all who wait, in one slot (0037).

A commit that has lost its slot to others leaves a *record* in a folder beside the log. The order of their names, which
are requested times, is the order of turns: who is first decides its own commit and then each of the others at the same
place in the log, and puts one slot for all that nothing is in the way of. The others learn from that slot that they
are committed. A turn is a guess and no promise: who has waited for too long takes it, and of two who have it at once
one loses the slot. A record that cannot be committed by others is left out, and its owner decides for itself.

A record says what is to be committed for as long as its instant is pending, whether its file is there or not, since
another writer may have read it. Only the log ends that: with the instant's commit or its rollback, or by an event that
withdraws the record, before its owner goes on with other files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial

from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError, Unavailable
from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import completed, inflight, is_completed, requested_time
from lakelatch.timeline.log.awaited_files import AwaitedFiles, time_of_one_ns
from lakelatch.timeline.log.events import COMPLETE, WITHDRAW, Event
from lakelatch.timeline.log.lock_names import agree
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.attempts.ready_commit import WRONG_VALUES, GroupMember, ReadyCommit, Unfit
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import Changed
from lakelatch.transactions.base.ready import (
    INSTANT_DIGITS,
    READY_FOLDER,
    instant_of_record,
    record_path,
    remove_record,
)

_READ_MAX = 64  # records that one slot commits
_SIZE_MAX_BYTES = 16 * 1024 * 1024  # far above any record; what is larger was cut off, and is none
_TURNS_OF_HOLDER = 2  # which whoever holds the table's lock is given for a slot
_TURNS_MOST = 20  # that are left to those before it, whoever they are
_GATHERS, _GATHERS_MORE = 0.5, 0.15  # of a turn others are waited for, and at least after one has come
_CROWD_LEAST = 3  # writers that are worth waiting for
_LOOK_OFTEN = 16  # of those that wait; all others look the more rarely the more are before them
_LOOKS, _LOOKS_GATHERING = 25, 40  # within one turn: at the next slot or its files, and at who has come
_log = logging.getLogger("lakelatch.transactions")


class Turn:
    """The turn of one commit whose record was left, among those that are ready."""

    def __init__(self, context: TransactionContext, record: ReadyCommit, member: GroupMember) -> None:
        self._context, self._record, self._member = context, record, member
        self._names: list[str] = []
        self._records: dict[str, ReadyCommit] = {}
        self._tail = Tail(0)
        self._looked: Tail | None = None  # beside the record, or when the own turn came
        self._listing: Snapshot | None = None  # of the timeline, beside the last look
        self._superfluous = set[str]()  # paths of records that count no more
        self._gathered = self._gathers_until_ns = 0
        self._request_ns = self._turn_ns = 0

    @property
    def instant(self) -> str:
        """The requested time of the commit."""
        return self._record.state.instant

    def leave(self) -> bool:
        """Puts the record where others find it; False if the storage refuses that, and nothing can have been left.

        The first look is beside it: who commits by the record does so in a later slot than that look may show. Errors:
        those of that look, and then the record may have been left.
        """
        refused: list[LakelatchError] = []
        self._context.storage.together(lambda: refused.extend(self._put()), self._look_ahead)
        if not refused:
            return True
        _log.warning("no others can commit %s, which goes on alone: %s", self.instant, refused[0])
        return False

    def _put(self) -> list[LakelatchError]:
        """Puts the record; the error if that was refused."""
        system, began_ns = self._context.system, self._context.system.monotonic_ns()
        try:
            self._context.storage.put_if_absent(self._record.path, self._record.to_bytes())
            self._request_ns = system.monotonic_ns() - began_ns
        except PutUnknown:
            return []
        except (Unavailable, InvalidRequest) as error:
            return [error]
        return []

    def _look_ahead(self) -> None:
        self._looked = self._look()

    def wait(self, ensure_in_time: Callable[[], None]) -> tuple[Event, Tail] | None:
        """Waits for a slot that has this commit, and returns its event and the tail; None when it is its own turn.

        Errors: those of `ensure_in_time`, which is called all the time, and `LogMoved` if the log has gone on beyond
        what this commit needs.
        """
        log = self._context.log
        turn_ns = time_of_one_ns(self._request_ns, 2 * self._context.elision.queue.try_ns)
        self._gathers_until_ns = self._context.system.monotonic_ns() + round(_GATHERS * turn_ns)
        while True:
            tail, self._looked = self._looked or self._look(), None
            own = own_completion(self._context, self._record.state, tail)
            if own is not None:
                if not self._wait_for_files(_until(own, tail), turn_ns, ensure_in_time):
                    log.conclude(own, tail)
                return own, tail
            self._leave_out_ended(tail)
            instants = self._before()
            if not instants and self._gathers(tail, turn_ns):
                ensure_in_time()
                continue
            before = min(len(instants), _TURNS_MOST)  # others may stand for as long as they live, and not move
            patience_ns, pause_ns = turn_ns * before, turn_ns / _LOOKS
            follows = partial(log.has_slot, tail.number + 1)
            rarely = min(max(1.0, len(instants) / _LOOK_OFTEN), _LOOKS)  # but once a turn
            if self._wait_until(follows, patience_ns, pause_ns * rarely, ensure_in_time):
                self._looked = self._look_at(tail.number + 1)
                continue
            if patience_ns:  # others have come meanwhile
                looked = self._look()
                if looked.number > tail.number:
                    self._looked = looked
                    continue
            self._context.elision.passes(instants)
            self._turn_ns = turn_ns
            if not self._gives_way(pause_ns, ensure_in_time):
                return None

    def _gathers(self, tail: Tail, turn_ns: float) -> bool:
        """Waits for a moment if others are about to come, or are putting a slot, and says whether to look again.

        Those who were committed together are ready together; a slot before all of them are is one more to wait for.
        """
        system, names = self._context.system, len(self._names)
        now_ns = system.monotonic_ns()
        if names > self._gathered:  # so more may be on their way
            self._gathered = names
            self._gathers_until_ns = max(self._gathers_until_ns, now_ns + round(_GATHERS_MORE * turn_ns))
        if now_ns >= self._gathers_until_ns or not self._are_to_come(tail):
            return False
        system.sleep(turn_ns / _LOOKS_GATHERING / 1e9)
        return True

    def _are_to_come(self, tail: Tail) -> bool:
        """Whether the last two slots name more writers than are ready, or others came before this one did."""
        before = self._context.log.known(tail.number - 1)
        # Nobody writes twice at a time: who began before the slot before the last one is none of its writers.
        others = [event for event in tail.events if before and event.instant < before[-1].time]
        expected = max(len(tail.events), len(before) + len(others))
        return len(self._names) + 1 < expected if expected >= _CROWD_LEAST else bool(self._names)

    def _gives_way(self, pause_ns: float, ensure_in_time: Callable[[], None]) -> bool:
        """Lets the lock's holder have the next slot, if it loses them all; False if it takes too long.

        It has more to do before its slot than whoever puts commits that are ready, and nobody can do that for it. It
        may have had that slot already, as this one's look found it, and waits no more then.
        """
        log, number = self._context.log, self._tail.number
        if not log.waiting.holder:
            return False

        def went_on() -> bool:
            return log.tail_number() > number or not log.waiting.holder

        if self._wait_until(went_on, _TURNS_OF_HOLDER * self._turn_ns, pause_ns, ensure_in_time):
            return True
        log.waiting.stop(with_lock=True)  # it may be dead
        return False

    def place(self) -> tuple[Tail, bool]:
        """The tail of the last look with the timeline, and whether the claim was there; the others' records are read.

        Those that cannot be read, and those of instants that have no claim or are not pending, are superfluous.
        """
        context, claims, looks = self._context, set[str](), list[Snapshot]()
        names = self._names[:_READ_MAX]
        self._records = {}
        context.storage.together(
            lambda: looks.append(context.log.snapshots.list()),
            lambda: claims.update(context.observer.instants()),
            *(partial(self._read, name) for name in names),
        )
        pending = {one for one in self._records if one in claims and _is_pending(looks[0], self._records[one])}
        for instant in sorted(self._records.keys() - pending):
            self._superfluous.add(self._records.pop(instant).path)
        return context.log.look(self._tail, self._with_files(looks[0])), self.instant in claims

    def others(self, place: Place, first: Event) -> list[Event]:
        """The commits of others that nothing is in the way of at a place in the log, behind this one's own event."""
        number = place.tail.number + 1
        group = [replace(first, number=number, time=_LATER)]
        for _, record in sorted(self._records.items()):
            event = self._decided(record, place, group)
            if event is not None:
                group.append(replace(event, number=number, time=_LATER))
        at_once = self._context.settings.side_by_side
        return [replace(event, number=0, time="", at_once=at_once) for event in group[1:]]

    def removals(self) -> Sequence[Callable[[], None]]:
        """Requests that remove records which count no more; they raise nothing."""
        return [partial(remove_record, self._context.storage, path) for path in sorted(self._superfluous)]

    def _look(self, beside: Callable[[], None] | None = None) -> Tail:
        tails: list[Tail] = []
        self._listing = None
        self._context.storage.together(lambda: tails.append(self._context.log.tail()), beside or self._list)
        self._tail = tails[0]
        return self._tail

    def _look_at(self, number: int) -> Tail:
        """The tail once a slot of this number was read: if that has the own event, it is asked at once for its file."""
        operation_id = self._record.state.operation_id
        is_own = any(event.operation_id == operation_id for event in self._context.log.known(number))
        return self._look(self._list_timeline if is_own else None)

    def _list_timeline(self) -> None:
        with suppress(Unavailable):  # then it is asked again
            self._listing = self._context.log.snapshots.list()

    def _with_files(self, listing: Snapshot) -> Snapshot:
        """A listing with the files of the tail's slot, whose writer is making them; as it is if that makes no more."""
        files = self._files(self._tail.events, self._turn_ns)
        while not files.are_there(listing) and not files.are_late:
            files.pause()
            listing = self._context.log.snapshots.list()
        return listing

    def _wait_for_files(self, events: Sequence[Event], time_ns: float, ensure_in_time: Callable[[], None]) -> bool:
        """Whether all of them are there in the end, the last one, which is the own event's, among them."""
        if not events:  # others have followed the own slot: its file was there, and may have been taken away
            return False
        files = self._files(events, time_ns)
        while True:
            with suppress(Unavailable):
                listing, self._listing = self._listing, None
                listing = self._context.log.snapshots.list() if listing is None else listing
                if files.are_there(listing):  # or gone: none is awaited any more
                    return events[-1].file in listing.listed
            ensure_in_time()
            if files.are_late:
                return False
            files.pause()

    def _files(self, events: Sequence[Event], time_ns: float) -> AwaitedFiles:
        return AwaitedFiles(self._context.log.projections, self._context.system, events, time_ns, self._request_ns)

    def _wait_until(
        self, is_so: Callable[[], bool], time_ns: float, pause_ns: float, ensure_in_time: Callable[[], None]
    ) -> bool:
        """Looks again and again whether something is so; False after this time, and while the storage does not say."""
        system = self._context.system
        until_ns = system.monotonic_ns() + time_ns
        while True:
            with suppress(Unavailable):
                if time_ns and is_so():
                    return True
            ensure_in_time()
            if system.monotonic_ns() >= until_ns:
                return False
            system.sleep(pause_ns / 1e9)

    def _list(self) -> None:
        try:
            names = self._context.storage.names(READY_FOLDER)
        except (Unavailable, InvalidRequest) as error:
            _log.warning("it is not known who else is ready: %s", error)
            names = ()
        self._names = sorted(name for name in names if instant_of_record(name) not in ("", self.instant))

    def _leave_out_ended(self, tail: Tail) -> None:
        """Forgets the records whose instants have ended, as far as the log says: their owners are removing them.

        But of those that had ended when this commit began, or are rolled back, the owners may be dead.
        """
        if not self._names:
            return
        instants = {name: instant_of_record(name) for name in self._names}
        events = self._context.log.events_after(self._record.state.mark.slot, tail)
        ended = {event.instant for event in events if event.kind == COMPLETE}
        left = {event.target for event in events if event.kind != COMPLETE} | self._had_ended
        self._superfluous.update(record_path(one) for one in instants.values() if one in left)
        self._names = [name for name, one in instants.items() if one not in ended and one not in left]

    @cached_property
    def _had_ended(self) -> frozenset[str | None]:
        """What had completed when this commit began."""
        return frozenset(map(requested_time, filter(is_completed, self._record.state.mark.names)))

    def _before(self) -> list[str]:
        """Who has the turn before this commit, but for those that did not take theirs."""
        passed, others = self._context.elision.queue.passed, map(instant_of_record, self._names)
        return [instant for instant in others if instant < self.instant and instant not in passed]

    def _read(self, name: str) -> None:
        storage, instant = self._context.storage, instant_of_record(name)
        try:
            data = storage.read_range(f"{READY_FOLDER}/{name}", 0, _SIZE_MAX_BYTES)
            self._records[instant] = ReadyCommit.from_bytes(data, instant)
        except NotFound:
            return
        except (Unfit, CorruptTable) as error:
            _log.warning("%s: its writer commits it alone", error)
            self._superfluous.add(f"{READY_FOLDER}/{name}")
        except (Unavailable, InvalidRequest) as error:
            _log.info("%s is left to its writer: %s", instant, error)

    def _decided(self, record: ReadyCommit, place: Place, group: Sequence[Event]) -> Event | None:
        """The event of another one's record, None if anything is in its way or cannot be told from the record."""
        context, state, settings = self._context, record.state, self._context.settings
        if (record.mode, record.strategy) != (settings.mode, settings.conflict_strategy):
            return None
        if not agree(record.event.lock_domain, context.log.lock_domain):
            return None
        try:
            if is_withdrawn(context, state, place.tail):
                return None
            staged = self._member.staged_of(record)
            at = At(context, state, replace(place, owned=True), staged, tuple(group))
            for check in self._member.checks_of(record):
                verdict = check(place.snapshot, at)
                if isinstance(verdict, Changed) and verdict.staged.metadata == staged.metadata:
                    at.staged = verdict.staged
                elif verdict is not None:
                    return None
        except (LakelatchError, *WRONG_VALUES) as error:
            _log.info("%s is left to its writer: %s", state.instant, error)
            return None
        return record.event


def _is_pending(listing: Snapshot, record: ReadyCommit) -> bool:
    state = record.state
    files = listing.of(state.instant)
    return listing.has(inflight(state.instant, state.action)) and all(one.completion is None for one in files)


def _until(own: Event, tail: Tail) -> Sequence[Event]:
    """The events of the own slot up to the own one, as far as their files may be missing: those of the last slot."""
    place = tail.events.index(own) if own in tail.events else -1
    return tail.events[: place + 1]


def own_completion(context: TransactionContext, state: TransactionState, tail: Tail) -> Event | None:
    """The event by which others have committed a transaction, as far as its slot is still there. Errors: `LogMoved`."""
    events = context.log.events_after(state.mark.slot, tail)
    own = (one for one in events if one.kind == COMPLETE and one.operation_id == state.operation_id)
    return next(own, None)


def found_completed(context: TransactionContext, state: TransactionState, place: Place) -> Event | None:
    """The same at a place in the log, where the instant's own file says so of slots after the tail, or removed since.

    Only its writer, and others by its record, complete a write.
    """
    own = own_completion(context, state, place.tail)
    if own is not None:
        return own
    times = [one.completion for one in place.snapshot.of(state.instant) if one.completion is not None]
    if not times and state.mark.slot + 1 < place.tail.watermark:
        archived = History.load(context.storage).find(state.instant)
        times = [] if archived is None else [archived.completion]
    if not times:
        return None
    time = times[0]
    file = completed(state.instant, state.action, time).file_name
    return Event(COMPLETE, state.action, state.instant, state.operation_id, context.writer, time=time, file=file)


def is_withdrawn(context: TransactionContext, state: TransactionState, tail: Tail) -> bool:
    """Whether the log says that the record of a transaction counts no more. Errors: `LogMoved`."""
    events = context.log.events_after(state.mark.slot, tail)
    return any(event.kind == WITHDRAW and event.target == state.instant for event in events)


_LATER = "9" * INSTANT_DIGITS  # for events that have no time yet: it will be above all that a check compares it with
