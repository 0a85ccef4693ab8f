"""The one loop by which an event gets into a table's log: place after place, until it has a slot or is not wanted.

Each turn of it

1. **prepares** the event, if that is still to be done: a write closes what its tasks have announced;
2. takes the table's lock, unless the event may try without it and no holder waits for a slot;
3. reads the tail, completes what that slot shows, and takes one snapshot of the timeline;
4. **decides**: an event for the next slot, or a verdict why not;
5. takes a fresh time, claimed where it names an instant, and creates the slot. If others were faster, it begins at 3;
   a commit that can be put by others leaves its record first, and waits for them or for its turn to put theirs (0037).

A verdict ends the turn, and the lock is given back first, since what **follows** from it may take that itself: plans
are cancelled, files are copied, a write that lost is tried again. Then it begins at 1, or is over.

One deadline bounds all of it that others can draw out. So what is done with files does not count, the wait for the
lock has a limit of its own, and of a slot that was created the answer has to be known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.lease import Lease
from lakelatch.system import System
from lakelatch.telemetry import INSTANT, LOCK_HOLD, SLOTS_LOST, kind_name, operation, record
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Undecided
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.transactions.attempts.claims import beat_of
from lakelatch.transactions.attempts.foreign import LockWatch
from lakelatch.transactions.attempts.intent import Intent, Look, Place, Turn
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import Added, Blocked, Cancel, Counted, Ended, Retry, Verdict
from lakelatch.transactions.several.part import Part
from lakelatch.transactions.several.undecided import await_decision

T = TypeVar("T")
_RACES_FOR_S = 600.0
_UNLOCKED_MAX = 2  # after the tail that was seen last, and after the one that is read then
_TURNS_MAX = 20  # slots lost to others with a record left, before the lock is asked for after all
_ON_THEIR_WAY = 3  # requests, between a leader's look and its slot
_LOST_QUIETLY_MAX = 3  # so often a commit loses, with the lock or for many, before it asks the others to queue
_log = logging.getLogger("lakelatch.transactions")


@contextmanager
def table_lock(context: TransactionContext) -> Iterator[Lease]:
    """The table's lease for a block, whose outcome stands also if the lease cannot be given back."""
    with operation("lock.wait", context.labels):
        lease = context.provider.acquire(TABLE_KEY, context.settings.lock_timeout_s)
    began_ns = context.system.monotonic_ns()
    try:
        if context.lock_check is not None:
            context.lock_check.confirm(context.log)
        yield lease
    finally:
        try:
            context.log.waiting.stop(with_lock=True)
        except LakelatchError as error:
            _log.warning("others go on queueing at the table's lock until the next commit: %s", error)
        try:
            lease.release()
            failpoint("lock.after_release")
        except LakelatchError as error:
            _log.warning("the table's lock was not released, and ends with its lease: %s", error)
        record(LOCK_HOLD, (context.system.monotonic_ns() - began_ns) / 1e9, context.labels)


class Race:
    """How often an event has lost to others, and until when it tries."""

    def __init__(self, log: CommitLog, system: System) -> None:
        self._log, self._system = log, system
        self._deadline_ns = system.monotonic_ns() + round(_RACES_FOR_S * 1e9)
        self.lost = 0

    def lose(self) -> None:
        """Counts a place that others took, or where nothing could be decided. Errors: those of `ensure_in_time`."""
        self.lost += 1
        self.ensure_in_time()

    def ask_if_lost_often(self, with_lock: bool) -> None:
        """Asks the others to queue, after the loss that was one too many; for the lock's holder, or one for many."""
        if self.lost == _LOST_QUIETLY_MAX:
            self._log.waiting.ask(with_lock)

    def go_first(self) -> None:
        """For the lock's holder, where slots are put for many: it takes longer than they do, and would lose each one.

        Slots that are on their way are waited for, or it would follow what is not the tail any more.
        """
        began_ns = self._system.monotonic_ns()
        self._log.waiting.ask(with_lock=True)
        self._system.sleep(_ON_THEIR_WAY * (self._system.monotonic_ns() - began_ns) / 1e9)

    def ensure_in_time(self) -> None:
        """Errors: `Unavailable` after the deadline."""
        if self._system.monotonic_ns() > self._deadline_ns:
            raise Unavailable("other writers were faster each time: try again when the table is less busy")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time of a block does not count."""
        began_ns = self._system.monotonic_ns()
        yield
        self._deadline_ns += self._system.monotonic_ns() - began_ns


def run(context: TransactionContext, intent: Intent[T], lease: Lease | None = None) -> T:
    """Adds the intent's event to the log, or finds out what comes of it without one.

    `lease` is the table's, for a caller who holds it. Errors: what the intent raises, and those of `CommitLog.create`
    and of the lock; `Unavailable` after the deadline, with nothing added.
    """
    with ExitStack() as held:
        return _Loop(context, intent, held, lease).run()


class _WithoutLock:
    """A part that waits for the others without its table's lock, which they might need."""

    def __init__(self, part: Part[object], release: Callable[[], object], race: Race) -> None:
        self._part, self._release, self._race = part, release, race

    def put(self, events: Sequence[Event]) -> None:
        self._part.put(events)

    def decided(self, event: Event) -> bool:
        with self._race.paused():
            self._release()
            return self._part.decided(event)


class _Loop(Generic[T]):
    def __init__(self, context: TransactionContext, intent: Intent[T], held: ExitStack, lease: Lease | None) -> None:
        self._context, self._intent, self._held, self._given = context, intent, held, lease
        self._watch = LockWatch(context, lease) if lease is not None else None
        self._race = Race(context.log, context.system)
        self._look: Look | None = None  # of the turn that has begun
        self._elided = False
        self._turn: Turn | None = None  # once others can put this event

    def run(self) -> T:
        while True:
            found = self._prepare() or self._measured_try()
            if isinstance(found, Retry):
                self._lose(found)
                continue
            self._end_turn()
            if isinstance(found, Blocked):
                await_decision(self._context, found.event, self._race.ensure_in_time)
                continue
            with nullcontext() if isinstance(found, Cancel) else self._race.paused():
                result = self._intent.follow(found)
            if result is not None:
                return result
            self._race.ensure_in_time()

    def _prepare(self) -> Added | Verdict | None:
        """What comes before the first place of a turn; nothing at the others."""
        if self._look is not None:
            return None
        self._look = Look(self._context, lambda: self._elides() and not self._context.meets_others)
        with self._race.paused():
            verdict = self._intent.prepare(self._look)
        self._elided, self._race.lost, self._turn = self._elides(), 0, None
        if verdict is None and self._elided and self._context.meets_others:
            self._turn = self._intent.queue()
            self._elided = self._turn is not None
        return verdict

    def _elides(self) -> bool:
        """Whether to try without the lock."""
        context = self._context
        return (
            self._given is None and self._intent.tries_first and context.elision.tries_first(context.log.waiting.others)
        )

    def _measured_try(self) -> Added | Verdict:
        if not self._intent.tries_first:
            return self._try()
        with operation("commit", self._context.labels) as measured:
            found = self._try()
            measured.end_as(kind_name(type(found)))
            measured.note({INSTANT: self._intent.above})
        return found

    def _try(self) -> Added | Verdict:
        """One place: what was added there, or why nothing was."""
        part = self._intent.part()
        if part is not None:
            with self._race.paused():
                part.await_turn(self._release)
        try:
            turn = self._turn if self._elided else None
            waited = self._wait(turn) if turn is not None else None
            if waited is not None:
                return waited
            began_ns = self._context.system.monotonic_ns()
            place = self._place()
            draft = self._intent.decide(place)
            if isinstance(draft, Counted):
                self._context.log.conclude(draft.event, place.tail)
                return self._intent.counted(draft.event, place)
            if not isinstance(draft, Event):
                return draft
            others = turn.others(place, draft) if turn is not None else self._intent.others()
            event = self._create(replace(draft, token=place.token), place, others)
            if turn is not None:
                self._context.elision.took(self._context.system.monotonic_ns() - began_ns)
                (self._context.elision.lost if others or event is None else self._context.elision.queued)()
                if event is not None:
                    self._context.log.waiting.stop(with_lock=False)
        except LogMoved as error:
            return Retry(error.message)
        except Undecided as error:
            return Blocked(error.event)
        except TransactionEnded as error:  # its slot was created, and a foreign writer rolled it back meanwhile
            return Ended(error)
        return Retry("others were faster") if event is None else self._intent.added(event, place)

    def _wait(self, turn: Turn) -> Added | None:
        found = turn.wait(self._race.ensure_in_time)
        if found is None:
            return None
        event, tail = found
        self._context.elision.lost()
        return self._intent.counted(event, Place(tail, self._context.snapshot))

    def _place(self) -> Place:
        context, log, first = self._context, self._context.log, self._race.lost == 0
        if self._watch is None and not self._elided:
            with self._race.paused():
                lease = self._held.enter_context(table_lock(context))
            self._watch = LockWatch(context, lease)
            if log.has_met_group:
                self._race.go_first()
        if first:
            self._intent.begin_turn()
        known: tuple[Tail, bool | None] | None = None
        if self._elided and self._turn is not None:
            known = self._turn.place()
        elif self._elided and first and self._look is not None:
            known = self._look.place()
        if known is None:
            recent = log.recent_tail() if self._elided and first else None
            known = log.look(recent or log.decided_tail()), None
        tail, owned = known
        return Place(tail, context.snapshots.take(tail), self._watch, owned)

    def _create(self, draft: Event, place: Place, others: Sequence[Event] = ()) -> Event | None:
        context, intent, claimed = self._context, self._intent, ""
        lease = place.watch.lease if place.watch is not None else None

        def take_time(above: str) -> str:
            nonlocal claimed
            floor = max(above, intent.above, context.snapshot.latest_time)
            if intent.claims_as:
                beat = beat_of(context, intent.claims_as, place.tail.number)
                make = partial(Heartbeat, context.storage, system=context.system)
                claimed, _ = context.clock.claim(floor, beat, lease, make)
                return claimed
            return context.clock.now(floor) if lease is None else context.clock.next(floor, lease)

        oldest_needed = partial(context.observer.oldest_start_slot, default=2**62)
        shower = intent if lease is None else None
        part = intent.part()
        prepared = None if part is None else _WithoutLock(part, self._release, self._race)
        try:
            event = context.log.create(draft, place.tail, take_time, oldest_needed, shower, others, prepared)
        except LakelatchError as error:
            if claimed and not isinstance(error, CommitUnknown):
                context.storage.delete(heartbeat_path(claimed))
            raise
        if claimed and event is None:  # kept until the end, the claims of lost slots would look like dead writers
            context.storage.delete(heartbeat_path(claimed))
        return event

    def _lose(self, retry: Retry) -> None:
        record(SLOTS_LOST, 1, self._context.labels)
        self._race.lose()
        with_lock = self._watch is not None
        if with_lock and self._race.lost == 1 and not self._intent.tries_first:
            self._race.go_first()  # all but commits take longer than the others do between their looks and slots
        elif with_lock or self._turn is not None:
            self._race.ask_if_lost_often(with_lock)
        if not self._elided or (self._race.lost < _UNLOCKED_MAX and not self._context.log.has_met_group):
            return
        if self._race.lost == _UNLOCKED_MAX:
            self._context.elision.lost()
        if self._turn is None and not retry.needs_lock:
            self._turn = self._intent.queue()
        if self._turn is None or retry.needs_lock or self._race.lost >= _TURNS_MAX:
            self._elided, self._race.lost = False, 0

    def _end_turn(self) -> None:
        """Gives the lock back, so that what follows may take it."""
        self._look = None
        if self._release() and self._intent.tries_first:
            self._context.elision.queued()

    def _release(self) -> bool:
        """Gives the lock back, if it is not the caller's; whether it was held."""
        if self._given is not None or self._watch is None:
            return False
        self._held.close()
        self._watch = None
        return True
