"""The transaction manager: everything that changes a table's timeline begins here.

The table's lease keeps writers out of each other's way; the commit log decides. So a commit that loses a race holds the
lease while it reads the tail, checks, takes a time and creates the next slot, and would be just as right without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from lakelatch.errors import CorruptTable, InvariantBroken, LakelatchError, LockTimeout, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import stopped_on_error
from lakelatch.heartbeat.contract import LEASE
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.telemetry import ACTION, INSTANT, TAKEN, TAKEOVERS, operation, record
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timeline.actions import COMPACTION, DELTA_COMMIT
from lakelatch.timeline.instant import inflight, requested
from lakelatch.timeline.log.commit_log import SLOTS_KEPT
from lakelatch.timeline.log.events import PLAN, Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.timeline.log.lost_completions import ensure_none_lost
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.ahead import Ahead
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import known_to_plan
from lakelatch.transactions.attempts.claims import (
    PlanBusy,
    heartbeat_of,
    release_claim,
    take_claim,
)
from lakelatch.transactions.attempts.intent import Deciding, Place
from lakelatch.transactions.base.cancel_requests import is_cancelled
from lakelatch.transactions.base.context import MemoryCheck, TransactionContext, TransactionState
from lakelatch.transactions.base.elision import LockElision
from lakelatch.transactions.base.instant_clock import InstantClock
from lakelatch.transactions.base.lock_check import LockCheck
from lakelatch.transactions.base.outcome import GivenUp, PlanCancelled
from lakelatch.transactions.base.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.beginning import claimed
from lakelatch.transactions.conflicts.contract import ConflictStrategy
from lakelatch.transactions.conflicts.strategies import NonBlockingConflictStrategy, open_strategy
from lakelatch.transactions.early.strategies import find_marker_strategy
from lakelatch.transactions.marker_server.service import ensure_server_installed
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.own_files import LaterLook, OwnFiles, Question, Shown
from lakelatch.transactions.memory import TableMemory
from lakelatch.transactions.next_write import NextWrite, PutOffCheck, withdraw
from lakelatch.transactions.several.undecided import await_decision
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.undo.recovery import finds_nothing, recover

__all__ = ["PlanBusy", "TransactionManager"]

_log = logging.getLogger("lakelatch.transactions")
_CLEARED_EVERY = 10  # heartbeat intervals: what has neither claim nor instant is nothing but garbage


class TransactionManager:
    """One table's transactions, in one process. Threads may share it.

    `strategy` decides conflicts; by default that of the settings, or of non-blocking control if they ask for it.
    `memory` is that of an earlier manager of the same storage and locks, with its `slots_kept`; then `recover` has to
    be called first. `open_table` opens another table, where it has to be asked whether a transaction over both counts.
    If the table `stays_open`, each write of own files makes the next one ready (`next_write.py`).
    With a `lock_check` its locks are confirmed at the latest when the table's lock is granted.
    """

    def __init__(
        self,
        storage: Storage,
        provider: LockProvider,
        generator: TimeGenerator,
        settings: TransactionSettings | None = None,
        system: System = REAL_SYSTEM,
        strategy: ConflictStrategy | None = None,
        slots_kept: int = SLOTS_KEPT,
        memory: TableMemory | None = None,
        open_table: Callable[[str], Storage] = open_storage,
        lock_check: LockCheck | None = None,
        stays_open: bool = False,
    ) -> None:
        settings = settings or TransactionSettings()
        observer = Observer(storage, settings.heartbeat, provider)
        by_options = open_strategy(settings.conflict_strategy)
        if settings.early is not None:  # so that a wrong name is found before anything begins
            find_marker_strategy(settings.early.strategy, settings.early.marker_type)
        if settings.marker_server is not None:
            ensure_server_installed()
        self._open_table = open_table
        self.memory = memory or TableMemory.new(storage, system, slots_kept, provider.domain, open_table)
        self.context = TransactionContext(
            storage=storage,
            settings=settings,
            provider=provider,
            observer=observer,
            strategy=strategy or (NonBlockingConflictStrategy() if settings.mode == NON_BLOCKING else by_options),
            system=system,
            log=self.memory.log,
            clock=InstantClock(generator, observer.storage_time_ms, settings.max_drift_ms),
            elision=LockElision(settings.lock_elision, provider, generator, self.memory.queue, settings.group_commit),
            lock_check=lock_check,
        )
        self.memory.log.awaits = partial(await_decision, self.context)
        #: The first requests of `recover`, which a caller may send together with its own; None without a memory.
        self.memory_check = None if memory is None else MemoryCheck(memory.log, observer)
        self._ahead: Ahead | None = None
        self._next = None  # what writes make ready for the next one, if the table stays open
        if stays_open and settings.heartbeat_type != LEASE:  # which would keep a claim of nobody's alive
            self._next = self.memory.next_write = self.memory.next_write or NextWrite()
        self._remembered = False  # the listing of the timeline is older than what the log has added to it

    @property
    def storage(self) -> Storage:
        """Where the table lies."""
        return self.context.storage

    @property
    def settings(self) -> TransactionSettings:
        """How its transactions behave."""
        return self.context.settings

    @property
    def writer(self) -> str:
        """The name under which others see its transactions."""
        return self.context.writer

    @property
    def snapshot(self) -> Snapshot:
        """The timeline as this manager has seen it last."""
        return self.context.snapshot

    def begin_ahead(self) -> None:
        """Has the first requests of the next `begin` made with those of `memory_check`; without one it does nothing.

        The instant is claimed by them, before anything else is known: call `give_up` if perhaps nothing begins.
        """
        context, check, remembered = self.context, self.memory_check, self.memory.log.last
        if check is None or remembered is None or not context.elision.allowed:
            return
        if not all(map(context.log.projections.is_listed, remembered.events)):  # the check will not be passed
            return
        if context.settings.heartbeat_type != LEASE:  # of a service that is asked for it
            check.beside = self._ahead = Ahead(context, check, remembered, self.memory.folders, self.memory.next_write)

    def believe(self, unchanged: Callable[[], bool]) -> bool:
        """Has the next `begin`, not for tasks, go by what is remembered, if a write was made ready for that.

        Nothing has to be recovered before it, then. Its `own_files` ask at their first announcement whether all of it
        still holds, also what the caller remembers, which is `unchanged`, and say `NotConfirmed` if not: call `doubt`,
        and go on as if this had never been called.
        """
        if self._ahead is None or self.memory_check is None or self._needs_tasks or self._recovery_is_due():
            return False
        if not self._ahead.believe(unchanged):
            return False
        self.memory_check.beside = None
        return True

    def withdraw_next(self) -> None:
        """Gives back what was made ready for a next write that will not come. Raises nothing."""
        self.withdraw_ready(self.memory)

    def withdraw_ready(self, memory: TableMemory) -> None:
        """The same of another memory of the table, which nobody will go on from. Raises nothing."""
        ready, memory.next_write = memory.next_write, None
        claim = None if ready is None else ready.take()
        if claim is not None:
            withdraw(self.context, claim)

    def doubt(self) -> None:
        """Forgets what was believed, so that it is checked first."""
        self.give_up()
        if self.memory_check is not None:
            self.memory_check.forget()

    def give_up(self) -> None:
        """Gives up what `begin_ahead` has claimed, unless it has begun. Raises nothing."""
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    def begin(self, action: str = DELTA_COMMIT, for_tasks: bool = True, folders: Collection[str] = ()) -> Transaction:
        """Begins a write: takes and claims a requested time, puts it on the timeline, and starts the heartbeat.

        Not `for_tasks`: this process makes all its files, through the transaction's `own_files`, which costs a few
        requests less, and the instant appears on the timeline beside the files' markers. `own_files` is None all the
        same if the settings have files announced in another way, and with locks that Java writers take: they roll back
        without a slot, and `own_files` checks nothing but slots. It has the names in these `folders`, if nobody has
        committed meanwhile.
        """
        with operation("begin", self.context.labels, {ACTION: action}) as measured:
            transaction = self._begin(action, for_tasks, folders)
            measured.note({INSTANT: transaction.instant})
        return transaction

    @property
    def _unchanged(self) -> Callable[[], bool] | None:
        """Of a write whose first requests confirm what is remembered: what asks its caller."""
        return None if self._ahead is None else self._ahead.unchanged

    @property
    def _needs_tasks(self) -> bool:
        """Whether nothing is made without telling tasks' files as tasks do, also if there are none."""
        settings = self.context.settings
        return settings.early is not None or settings.marker_server is not None or self.context.provider.taken_by_hudi

    def _begin(self, action: str, for_tasks: bool, folders: Collection[str]) -> Transaction:
        context = self.context
        if self.memory_check is not None and self.memory_check.holds:
            self.memory_check = self._ahead = None
        if self.memory_check is not None and self._unchanged is None:
            raise InvariantBroken("what is remembered of a table was not checked: recover before anything begins")
        for_tasks = for_tasks or self._needs_tasks
        if for_tasks and self._unchanged is not None:
            raise InvariantBroken("a write for tasks begins with what was not checked: do not believe it")
        self.memory.folders = tuple(folders)
        tail = context.log.last
        if tail is None or not context.log.has_same_locks(tail):  # the table may have been moved to these since
            tail, _ = context.look()
        known = context.snapshots.current
        begun = claimed(context, self._ahead, tail, () if for_tasks else folders, looks_later=not for_tasks)
        tail, (instant, heartbeat, operation_id, *_) = begun.tail, begun.claim
        with stopped_on_error(heartbeat):  # the claim stays, for the next recovery
            tail = context.log.ensure_projected(tail)
            mark = self._mark(tail)
            listed = begun.listed if context.snapshots.current is known else {}
            if for_tasks:
                context.storage.together(partial(self._open, instant), *Shown(context, instant, action).requests)
            heartbeat.start()
        _log.debug("%s %s has begun, after slot %d", action, instant, tail.number)
        began_ms = context.system.realtime_ms()
        state = TransactionState(instant, action, operation_id, mark, began_ms)
        if for_tasks:
            return Transaction(context, state, heartbeat, begun_here=True)
        question: Question | None = LaterLook(context, state) if begun.looks_later else None
        if self._unchanged is not None and self.memory_check is not None:
            question = PutOffCheck(context, state, self.memory_check, self._unchanged)
        own_files = OwnFiles(context, state, listed, begun.claim.announced, question)
        return Transaction(context, state, heartbeat, True, own_files, self._next)

    def resume(self, state: TransactionState) -> Transaction:
        """Goes on with a transaction that another process began; its heartbeat beats from here as well."""
        heartbeat = heartbeat_of(self.context, state)
        heartbeat.start()
        return Transaction(self.context, state, heartbeat)

    def execute(self, instant: str, action: str = COMPACTION) -> Transaction:
        """Begins to carry out a scheduled plan, or takes it over from an executor that died.

        Errors: `TransactionEnded` if it has completed or is no longer planned; `PlanCancelled`, a kind of it, if it was
        cancelled: `execute_cancel` then cleans up; `PlanBusy` while another process carries it out.
        """
        context = self.context
        tail, snapshot = context.look()
        context.log.ensure_same_locks(tail)
        if all(pending.requested != instant or pending.action != action for pending in snapshot.pending):
            raise TransactionEnded(f"{action} {instant} is not pending: it has ended, or was never scheduled")
        ensure_none_lost(context.log, tail, since=instant)  # perhaps its own
        if is_cancelled(context.storage, instant):
            raise PlanCancelled.of(action, instant)
        mark = known_to_plan(snapshot, instant, action, tail.number)
        state = TransactionState(instant, action, context.system.new_id(), mark, context.system.realtime_ms())
        heartbeat = heartbeat_of(context, state)
        take_claim(context, heartbeat, requested(instant, action))
        with stopped_on_error(heartbeat):
            ensure_created(context.storage, inflight(instant, action).path, b"", context.system)
            failpoint("execute.after_inflight")
            if not context.storage.exists(requested(instant, action).path):  # it was cancelled and ended since
                context.storage.delete(inflight(instant, action).path)
                release_claim(context, instant, state.operation_id)
                raise PlanCancelled.of(action, instant)
            heartbeat.start()
        return Transaction(context, state, heartbeat, begun_here=True)

    def schedule(self, build: Callable[[Snapshot], bytes | None], action: str = COMPACTION) -> str | None:
        """Puts a table service's plan on the timeline and returns its requested time; None if there is nothing to do.

        `build` is given the timeline exactly as it is before the plan's slot, so a plan misses no commit with an
        earlier time. It may be called several times, and where others commit just now first without the lock: for its
        holder all of them wait. Errors: `CorruptTable` if a completed file is gone whose slot exists, since the plan
        would leave out what it names.
        """
        context = self.context
        operation_id = context.system.new_id()

        def decide(place: Place) -> Event | GivenUp[None]:
            try:
                content = build(place.snapshot)
            except CorruptTable:
                ensure_none_lost(context.log, place.tail)  # which may be why
                raise
            if content is None:
                return GivenUp(None)
            ensure_none_lost(context.log, place.tail)
            return Event(PLAN, action, "", operation_id, context.writer, content=content)

        if context.meets_others and self._gives_up_ahead(decide):
            return None
        event = run(context, Deciding(decide, claims_as=operation_id))
        if isinstance(event, GivenUp):
            return None
        release_claim(context, event.instant, operation_id, unused=True)
        return event.instant

    def _gives_up_ahead(self, decide: Callable[[Place], Event | GivenUp[None]]) -> bool:
        """Whether there is nothing to do at the next place in the log, which others may take meanwhile.

        What is read for that, and cannot change, is not read again under the lock. Errors are left to that as well.
        """
        log = self.context.log
        try:
            tail = log.look(log.last_decided())
            return isinstance(decide(Place(tail, self.context.snapshots.take(tail))), GivenUp)
        except LakelatchError as error:
            _log.info("it is not known without the lock what there is to do: %s", error)
            return False

    def recover_before_write(self) -> None:
        """`recover`, but for what would have to wait too long for the table's lock: that is left to the next writer.

        A write needs nothing of it, and where many find the same dead writer, most of them find the lock taken.
        """
        try:
            self.recover()
        except LockTimeout as error:
            self.memory.recovered_ns = self.context.system.monotonic_ns()
            _log.warning("what dead writers have left is left to the next writer: %s", error)

    def recover(self) -> list[str]:
        """Rolls back what dead writers left, each once, and finishes rollbacks; returns the instants rolled back.

        Every writer calls it before it begins, so no table needs repair by hand. Within a heartbeat interval of the
        last call it does nothing: no writer can be known to have died since. After the first call, it lists claims and
        pending instants first, and the rest if there are any. With a memory it has to come before everything else.
        """
        if self._unchanged is not None:
            return []
        check = self.memory_check
        if check is not None and not self._holds(check):
            check = None
        self.memory_check = None
        if not self._recovery_is_due():
            return []
        memory, now_ns = self.memory, self.context.system.monotonic_ns()
        interval_ns = self.settings.heartbeat.interval_ms * 1_000_000
        long_ago = memory.cleared_ns is None or now_ns - memory.cleared_ns >= _CLEARED_EVERY * interval_ns
        recovered: list[str] = []
        if long_ago or not finds_nothing(self.context, None if check is None else check.claims):
            recovered = recover(self.context)
            record(TAKEOVERS, len(recovered), {**self.context.labels, TAKEN: "write"})
            memory.cleared_ns = now_ns
        memory.recovered_ns = now_ns
        return recovered

    def _recovery_is_due(self) -> bool:
        recovered_ns = self.memory.recovered_ns
        interval_ns = self.settings.heartbeat.interval_ms * 1_000_000
        return recovered_ns is None or self.context.system.monotonic_ns() - recovered_ns >= interval_ns

    def _holds(self, check: MemoryCheck) -> bool:
        """Whether the memory is of this table; if not, it is dropped."""
        if check.is_same():
            self._remembered = True
            return True
        self.give_up()
        context, log = self.context, self.memory.log
        self.memory = TableMemory.new(
            context.storage, context.system, log.slots_kept, context.provider.domain, self._open_table
        )
        self.memory.log.lock_id, self.memory.log.lock_hint = log.lock_id, log.lock_hint
        self.memory.queue = context.elision.queue
        self.context = replace(context, log=self.memory.log)
        self.memory.log.awaits = partial(await_decision, self.context)
        return False

    def _open(self, instant: str) -> None:
        """Opens a claimed instant for its tasks.

        If that fails the claim stays: the opening may still arrive, and must not open another instant that was given
        the same time.
        """
        Markers(self.context.storage, instant).open()
        failpoint("begin.after_open")

    def _mark(self, tail: Tail) -> Mark:
        """The mark of a transaction that begins at this tail.

        The last snapshot suffices, with what the log has added since, so that a process that commits often lists once a
        commit. It does not if any of that was undone, as slots say of our rollbacks. Java's take no slots, so the first
        mark of a remembered table lists the timeline if the log has gone on.
        """
        snapshots = self.context.snapshots
        listed, remembered, self._remembered = snapshots.slot, self._remembered, False
        if listed is not None and listed + 1 >= tail.watermark and not (remembered and listed < tail.number):
            try:
                events = self.context.log.events_after(listed, tail)
            except LogMoved:
                events = None
            if events is not None and not any(event.undoes for event in events):
                known, added = snapshots.current, {event.file for event in events}
                return Mark(tail.number, tail.time, known.names | added, known.moving | added)
        return snapshots.take(tail).mark(tail.number, tail.time)
