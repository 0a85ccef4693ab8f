"""The transaction manager: everything that changes a table's timeline begins here.

The table's lease keeps writers out of each other's way; the commit log decides. So a commit holds the lease while it
reads the tail, checks, takes a time and creates the next slot, and would be just as right without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import stopped_on_error
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import Storage
from lakelatch.storage.lost_answers import ensure_created
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timeline.actions import COMPACTION, DELTA_COMMIT
from lakelatch.timeline.commit_log import SLOTS_KEPT, CommitLog, GivenUp, LogMoved, Tail
from lakelatch.timeline.events import PLAN, Event
from lakelatch.timeline.timeline import TimelineFolder, inflight, requested
from lakelatch.transactions.append import append_claimed, table_lock
from lakelatch.transactions.claims import beat_of, heartbeat_of, make_heartbeat, release_claim
from lakelatch.transactions.commit import known_to_plan
from lakelatch.transactions.conflicts.contract import ConflictStrategy
from lakelatch.transactions.conflicts.strategies import NonBlockingConflictStrategy, open_strategy
from lakelatch.transactions.context import TransactionContext, TransactionState
from lakelatch.transactions.early.strategies import find_marker_strategy
from lakelatch.transactions.instant_clock import InstantClock
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.server.service import ensure_server_installed
from lakelatch.transactions.rollback import Recovery
from lakelatch.transactions.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.transaction import Transaction

_BEGINS_MAX = 1000


class TransactionManager:
    """One table's transactions, in one process. Threads may share it.

    `strategy` decides conflicts; by default that of the settings, or of non-blocking control if they ask for it.
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
    ) -> None:
        settings = settings or TransactionSettings()
        observer = Observer(storage, settings.heartbeat, provider)
        by_options = open_strategy(settings.conflict_strategy)
        if settings.early is not None:  # so that a wrong name is told before anything begins
            find_marker_strategy(settings.early.strategy, settings.early.marker_type)
        if settings.marker_server is not None:
            ensure_server_installed()
        self.context = TransactionContext(
            storage=storage,
            settings=settings,
            provider=provider,
            observer=observer,
            strategy=strategy or (NonBlockingConflictStrategy() if settings.mode == NON_BLOCKING else by_options),
            system=system,
            log=CommitLog(storage, system, slots_kept, provider.domain),
            folder=TimelineFolder(storage),
            clock=InstantClock(generator, observer.storage_time_ms, settings.max_drift_ms),
        )
        self._recovered_ns: int | None = None

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
    def folder(self) -> TimelineFolder:
        """The timeline as this manager has seen it last."""
        return self.context.folder

    def begin(self, action: str = DELTA_COMMIT) -> Transaction:
        """Begins a write: takes and claims a requested time, puts it on the timeline, and starts the heartbeat."""
        context = self.context
        operation_id = context.system.new_id()
        for _ in range(_BEGINS_MAX):
            tail = context.log.tail()
            context.log.ensure_same_locks(tail)
            context.log.project(tail)
            known = self._known_files(tail)
            instant, heartbeat = context.clock.claim(
                max(tail.time, context.folder.latest_time),
                beat_of(context, operation_id, tail.number),
                None,
                partial(make_heartbeat, context),
            )
            failpoint("begin.after_claim")
            # The claim keeps the slots after `tail` from being removed, if it came before they could be. And if another
            # instant of this time has ended since we read `tail`, its heartbeat is gone, and its slot has a later time.
            with stopped_on_error(heartbeat):
                now = context.log.tail()
                if now.number - tail.number <= context.log.slots_kept // 2 and instant > now.time:
                    break
            heartbeat.stop()
            context.storage.delete(heartbeat_path(instant))
        else:
            raise Unavailable(f"other writers committed faster than a transaction could begin, {_BEGINS_MAX} times")
        with stopped_on_error(heartbeat):  # the claim stays, for the next recovery
            self._show_begun(instant, action)
        heartbeat.start()
        state = TransactionState(instant, action, operation_id, tail.number, context.system.realtime_ms(), known)
        return Transaction(context, state, heartbeat)

    def resume(self, state: TransactionState) -> Transaction:
        """Goes on with a transaction that another process began; its heartbeat beats from here as well."""
        heartbeat = heartbeat_of(self.context, state)
        heartbeat.start()
        return Transaction(self.context, state, heartbeat)

    def execute(self, instant: str, action: str = COMPACTION) -> Transaction:
        """Begins to carry out a scheduled plan, or takes it over from an executor that died.

        Errors: `TransactionEnded` if it has completed or is no longer planned, `PlanBusy` while another one works
        on it.
        """
        context = self.context
        tail = context.log.tail()
        context.log.ensure_same_locks(tail)
        context.log.project(tail)
        context.folder.refresh(tail.number)
        if all(pending.requested != instant or pending.action != action for pending in context.folder.pending()):
            raise TransactionEnded(f"{action} {instant} is not pending: it has completed, or was never scheduled")
        known = known_to_plan(context.folder, instant, action)
        began_ms = context.system.realtime_ms()
        state = TransactionState(instant, action, context.system.new_id(), tail.number, began_ms, known)
        heartbeat = heartbeat_of(context, state)
        if not heartbeat.claim():
            if instant not in context.observer.dead([instant]):
                raise PlanBusy(f"{action} {instant} is being carried out by another process: wait for it")
            heartbeat.take_over()
        with stopped_on_error(heartbeat):
            ensure_created(context.storage, inflight(instant, action).path, b"", context.system)
        heartbeat.start()
        return Transaction(context, state, heartbeat)

    def schedule(self, build: Callable[[TimelineFolder], bytes | None], action: str = COMPACTION) -> str | None:
        """Puts a table service's plan on the timeline and returns its requested time; None if there is nothing to do.

        `build` sees the timeline exactly as it is before the plan's place in the log, so a plan misses no commit whose
        time is before its own. It may be called several times.
        """
        context = self.context
        operation_id = context.system.new_id()

        def decide(tail: Tail) -> Event | GivenUp[None]:
            context.folder.refresh(tail.number)
            content = build(context.folder)
            if content is None:
                return GivenUp(None)
            return Event(PLAN, action, "", operation_id, context.writer, content=content, token=lease.token)

        with table_lock(context) as lease:
            event = append_claimed(context, decide, operation_id, lease)
        if isinstance(event, GivenUp):
            return None
        release_claim(context, event.instant, operation_id)
        return event.instant

    def recover(self) -> list[str]:
        """Rolls back what dead writers left, each once, and finishes rollbacks; returns the instants rolled back.

        Every writer calls it before it begins, so nobody has to repair a table by hand. A manager that has looked
        within the last heartbeat interval does not look again: nobody can have died in the meantime, to its knowledge.
        """
        now_ns = self.context.system.monotonic_ns()
        interval_ns = self.settings.heartbeat.interval_ms * 1_000_000
        if self._recovered_ns is not None and now_ns - self._recovered_ns < interval_ns:
            return []
        recovered = Recovery(self.context).recover()
        self._recovered_ns = now_ns
        return recovered

    def _show_begun(self, instant: str, action: str) -> None:
        """Opens a claimed instant for its tasks, and puts it on the timeline.

        If that fails the claim stays: the opening may still arrive, and must not open another instant that was given
        the same time.
        """
        context = self.context
        Markers(context.storage, instant).open()
        failpoint("begin.after_open")
        ensure_created(context.storage, requested(instant, action).path, b"", context.system)
        failpoint("begin.after_requested")
        ensure_created(context.storage, inflight(instant, action).path, b"", context.system)
        failpoint("begin.after_inflight")

    def _known_files(self, tail: Tail) -> frozenset[str]:
        """Names of the timeline as of this tail: whatever else appears, and no slot names, is a foreign writer's.

        The last listing will do, with what the log has added since: a process that commits often lists once a commit.
        """
        folder = self.context.folder
        listed = folder.slot
        if listed is not None and listed + 1 >= tail.watermark:
            try:
                return folder.names | {event.file for event in self.context.log.events_after(listed, tail)}
            except LogMoved:
                pass
        folder.refresh(tail.number)
        return folder.names


class PlanBusy(Unavailable):
    """Another live process carries out this plan."""
