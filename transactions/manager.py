"""The transaction manager: everything that changes a table's timeline goes through it.

The table's lease keeps writers out of each other's way; the commit log decides. So a commit holds the lease while it
reads the tail, checks, takes a time and creates the next slot, and would be just as right without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, Unavailable, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat, stopped_on_error
from lakelatch.heartbeat.contract import LEASE, Beat, heartbeat_path, task_beats_folder
from lakelatch.heartbeat.lease_beat import LeaseHeartbeat
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import TABLE_KEY, LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timeline.commit_log import SLOTS_KEPT, CommitLog, LogMoved, Tail, WrongLocks
from lakelatch.timeline.events import COMPLETE, PLAN, Event
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.instants import WRITE_ACTIONS, inflight, requested
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.clock import InstantClock
from lakelatch.transactions.commit_check import ensure_no_conflict, known_to_plan, others_since
from lakelatch.transactions.conflicts import ConflictStrategy
from lakelatch.transactions.doom import forget_notes, note_lost
from lakelatch.transactions.early_detection import found_early
from lakelatch.transactions.losses import Work, record_loss
from lakelatch.transactions.marker_strategies import find_marker_strategy
from lakelatch.transactions.markers import Markers
from lakelatch.transactions.recovery import Recovery
from lakelatch.transactions.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.strategies import NonBlockingConflictStrategy, open_strategy
from lakelatch.transactions.transaction import (
    ABORTED,
    COMMITTED,
    LOST,
    OPEN,
    Committed,
    Settle,
    Transaction,
    TransactionState,
)

_BEGINS_MAX = 1000
_SETTLE_ATTEMPTS_MAX = 8
_log = logging.getLogger("lakelatch.transactions")


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
        self.storage = storage
        self.settings = settings or TransactionSettings()
        self.log = CommitLog(storage, system, slots_kept, provider.domain)
        self.observer = Observer(storage, self.settings.heartbeat, provider)
        self._provider = provider
        self.system = system
        self._clock = InstantClock(generator, self.observer.storage_time_ms, self.settings.max_drift_ms)
        self._folder = TimelineFolder(storage)
        asked = open_strategy(self.settings.conflict_strategy)
        self.strategy = strategy or (NonBlockingConflictStrategy() if self.settings.mode == NON_BLOCKING else asked)
        if self.settings.early is not None:  # so that a wrong name is told before anything begins
            find_marker_strategy(self.settings.early.strategy, self.settings.early.marker_type)
        self._writer = self.settings.writer
        self._recovery = Recovery(self)
        self._healed_ns: int | None = None

    # -- beginning --------------------------------------------------------------------------------------------------

    def begin(self, action: str = "deltacommit") -> Transaction:
        """Begins a write: takes and claims a requested time, puts it on the timeline, and starts the heartbeat."""
        operation_id = self.system.new_id()
        for _ in range(_BEGINS_MAX):
            tail = self.log.tail()
            self.log.ensure_same_locks(tail)
            self.log.project(tail)
            known = self._known_files(tail)
            instant, heartbeat = self._clock.claim(
                max(tail.time, self._folder.latest_time),
                self._beat(operation_id, tail.number),
                None,
                self._make_heartbeat,
            )
            failpoint("begin.after_claim")
            # The claim keeps the slots after `tail` from being removed, if it came before they could be. And if another
            # instant of this time has ended since we read `tail`, its heartbeat is gone, and its slot has a later time.
            with stopped_on_error(heartbeat):
                now = self.log.tail()
                if now.number - tail.number <= self.log.slots_kept // 2 and instant > now.time:
                    break
            heartbeat.stop()
            self.storage.delete(heartbeat_path(instant))
        else:
            raise Unavailable(f"other writers committed faster than a transaction could begin, {_BEGINS_MAX} times")
        try:
            Markers(self.storage, instant).open()
            failpoint("begin.after_open")
            self.ensure_file(requested(instant, action).path)
            failpoint("begin.after_requested")
            self.ensure_file(inflight(instant, action).path)
            failpoint("begin.after_inflight")
        except Unavailable:
            heartbeat.stop()
            self.forget(instant)  # without a heartbeat the next writer rolls it back at once
            raise
        heartbeat.start()
        state = TransactionState(instant, action, operation_id, tail.number, self.system.realtime_ms(), known)
        return Transaction(self, state, heartbeat)

    def resume(self, state: TransactionState) -> Transaction:
        """Goes on with a transaction that another process began; its heartbeat beats from here as well."""
        heartbeat = self._heartbeat(state)
        heartbeat.start()
        return Transaction(self, state, heartbeat)

    def execute(self, instant: str, action: str = "compaction") -> Transaction:
        """Begins to carry out a scheduled plan, or takes it over from an executor that died.

        Errors: `TransactionEnded` if it has completed or is no longer planned, `PlanBusy` while another one works
        on it.
        """
        tail = self.log.tail()
        self.log.ensure_same_locks(tail)
        self.log.project(tail)
        self._folder.refresh(tail.number)
        if all(pending.requested != instant or pending.action != action for pending in self._folder.pending()):
            raise TransactionEnded(f"{action} {instant} is not pending: it has completed, or was never scheduled")
        known = known_to_plan(self._folder, instant, action)
        state = TransactionState(instant, action, self.system.new_id(), tail.number, self.system.realtime_ms(), known)
        heartbeat = self._heartbeat(state)
        if not heartbeat.claim():
            if instant not in self.observer.dead([instant]):
                raise PlanBusy(f"{action} {instant} is being carried out by another process: wait for it")
            heartbeat.take_over()
        with stopped_on_error(heartbeat):
            self.ensure_file(inflight(instant, action).path)
        heartbeat.start()
        return Transaction(self, state, heartbeat)

    def schedule(self, build: Callable[[TimelineFolder], bytes | None], action: str = "compaction") -> str | None:
        """Puts a table service's plan on the timeline and returns its requested time; None if there is nothing to do.

        `build` sees the timeline exactly as it is before the plan's place in the log, so a plan misses no commit whose
        time is before its own. It may be called several times.
        """
        operation_id = self.system.new_id()

        def decide(tail: Tail) -> Event:
            self._folder.refresh(tail.number)
            content = build(self._folder)
            if content is None:
                raise _NothingToDo("nothing to do")
            return Event(PLAN, action, "", operation_id, self._writer, content=content, token=lease.token)

        with self.lock() as lease:
            try:
                event = self.append_claimed(decide, operation_id, lease)
            except _NothingToDo:
                return None
        self._forget_own(event.instant, operation_id)
        return event.instant

    # -- ending -----------------------------------------------------------------------------------------------------

    def commit(self, transaction: Transaction, metadata: CommitMetadata, settle: Settle | None = None) -> Committed:
        """See `Transaction.commit`."""
        state = transaction.state
        if state.action in WRITE_ACTIONS:  # a plan's files have fixed names, so that no attempt leaves others
            if self.settings.marker_server is not None:
                transaction.markers.ensure_whole()
            transaction.markers.close_and_sweep(stat.path for stat in metadata.stats)
        try:
            early = found_early(self, state, still=True)
            if early is not None:
                raise early
            with self.lock() as lease:
                failpoint("commit.after_lock")
                work = transaction.work or Work.of(metadata)
                event = self._append_commit(state, metadata, settle, work, lease)
        except WriteConflict as conflict:
            if transaction.keeps_lost_files and note_lost(self.storage, state.instant):
                transaction.status = LOST
            else:
                self._abort_quietly(transaction, conflict)
            raise
        except TransactionEnded:
            transaction.end(ABORTED)
            raise
        except WrongLocks:  # its own rollback would be refused as well: without a heartbeat, others see to it at once
            transaction.end(ABORTED)
            self.storage.delete(heartbeat_path(state.instant))
            raise
        except CommitUnknown:
            transaction.end("in an unknown state")
            raise
        transaction.end(COMMITTED)
        transaction.committed = Committed(state.instant, event.time, event.number, event.token)
        self.forget(state.instant)
        return transaction.committed

    def abort(self, transaction: Transaction, conflict: WriteConflict | None = None) -> None:
        """See `Transaction.abort`."""
        if conflict is not None:
            record_loss(self.storage, self._writer, conflict)
        transaction.end(ABORTED)
        self._recovery.roll_back(transaction.instant, transaction.state.action)

    def let_go(self, transaction: Transaction) -> None:
        """Leaves a plan that could not be carried out to the next executor, at once."""
        if transaction.status == OPEN:
            transaction.end(ABORTED)
            self._forget_own(transaction.instant, transaction.state.operation_id)

    def heal(self) -> list[str]:
        """Rolls back what dead writers left, each once, and finishes rollbacks; returns the instants rolled back.

        Every writer calls it before it begins, so nobody has to repair a table by hand. A manager that has looked
        within the last heartbeat interval does not look again: nobody can have died in the meantime, to its knowledge.
        """
        now_ns = self.system.monotonic_ns()
        interval_ns = self.settings.heartbeat.interval_ms * 1_000_000
        if self._healed_ns is not None and now_ns - self._healed_ns < interval_ns:
            return []
        healed = self._recovery.heal()
        self._healed_ns = now_ns
        return healed

    # -- for this room ----------------------------------------------------------------------------------------------

    def append_claimed(self, decide: Callable[[Tail], Event], operation_id: str, lease: Lease) -> Event:
        """Adds an event whose slot time is also a requested time, claiming each time that is tried."""
        claims: list[str] = []

        def take_time(above: str) -> str:
            floor = max(above, self._folder.latest_time)
            beat = self._beat(operation_id, self.log.tail_number())
            instant, _ = self._clock.claim(floor, beat, lease, partial(Heartbeat, self.storage, system=self.system))
            claims.append(instant)
            return instant

        try:
            event = self.log.append(decide, take_time, self._oldest_needed)
        except CommitUnknown:
            raise
        except LakelatchError:
            self._give_up(claims)
            raise
        self._give_up([claim for claim in claims if claim != event.instant])
        return event

    def append_completion(self, decide: Callable[[Tail], Event], instant: str, lease: Lease) -> Event:
        """Adds the event that completes an instant."""

        def take_time(above: str) -> str:
            return self._clock.next(max(above, instant, self._folder.latest_time), lease)

        return self.log.append(decide, take_time, self._oldest_needed)

    @contextmanager
    def lock(self) -> Iterator[Lease]:
        """The table's lease for a block, whose outcome stands also if the lease cannot be given back."""
        lease = self._provider.acquire(TABLE_KEY, self.settings.lock_timeout_s)
        try:
            yield lease
        finally:
            try:
                lease.release()
                failpoint("lock.after_release")
            except LakelatchError as error:
                _log.warning("the table's lock was not released, and ends with its lease: %s", error)

    @property
    def provider(self) -> LockProvider:
        return self._provider

    @property
    def folder(self) -> TimelineFolder:
        return self._folder

    @property
    def writer(self) -> str:
        return self._writer

    def new_operation_id(self) -> str:
        return self.system.new_id()

    def ensure_file(self, path: str, data: bytes = b"") -> None:
        """Creates a file that only the owner of its instant creates; a lost answer is settled by doing it again."""
        for attempt in range(_SETTLE_ATTEMPTS_MAX):
            try:
                self.storage.put_if_absent(path, data)
                return
            except PutUnknown:
                self.system.sleep(0.02 * 2**attempt)
        raise Unavailable(f"the storage did not confirm {path}: try again")

    def forget(self, instant: str, noted: bool = False) -> None:
        """Removes an ended instant's heartbeat, which bars its tasks, then its markers, and what was noted of it."""
        try:
            self.storage.delete(heartbeat_path(instant))
            self.storage.delete_folder(task_beats_folder(instant))
            Markers(self.storage, instant).delete()
            failpoint("cleanup.after_markers")
            if self.settings.early is not None or noted:
                forget_notes(self.storage, instant)
        except Unavailable as error:  # it has ended all the same; `heal` removes what is left
            _log.warning("could not clean up after instant %s: %s", instant, error)

    # -- one commit -------------------------------------------------------------------------------------------------

    def _append_commit(
        self, state: TransactionState, metadata: CommitMetadata, settle: Settle | None, work: Work, lease: Lease
    ) -> Event:
        def decide(tail: Tail) -> Event:
            self._folder.refresh(tail.number)
            others = others_since(self, state, tail)
            settled = metadata
            if settle is not None:
                settled, others.considered = settle(self._folder, others.completed())
            groups = settled.file_groups() | settled.replaced_file_groups()
            ensure_no_conflict(self, state, groups, others, work)
            failpoint("commit.after_check")
            return Event(
                COMPLETE,
                state.action,
                state.instant,
                state.operation_id,
                self._writer,
                file_groups=groups,
                content=settled.to_avro(),
                token=lease.token,
            )

        return self.append_completion(decide, state.instant, lease)

    def _known_files(self, tail: Tail) -> frozenset[str]:
        """Names of the timeline as of this tail: whatever else appears, and no slot names, is a foreign writer's.

        The last listing will do, with what the log has added since: a process that commits often lists once a commit.
        """
        listed = self._folder.slot
        if listed is not None and listed + 1 >= tail.watermark:
            try:
                return self._folder.names | {event.file for event in self.log.events_after(listed, tail)}
            except LogMoved:
                pass
        self._folder.refresh(tail.number)
        return self._folder.names

    def owns_claim(self, instant: str, operation_id: str) -> bool:
        beat = self.observer.beat_of(instant)
        return beat is not None and beat.operation_id == operation_id

    def _forget_own(self, instant: str, operation_id: str) -> None:
        """Gives up a claim on a plan, unless another process has taken it over."""
        try:
            if self.owns_claim(instant, operation_id):
                self.forget(instant)
        except Unavailable as error:
            _log.warning("could not give up the claim on %s: %s", instant, error)

    # -- small things -----------------------------------------------------------------------------------------------

    def _beat(self, operation_id: str, start_slot: int) -> Beat:
        return Beat(self._writer, operation_id, start_slot, self.settings.heartbeat)

    def _heartbeat(self, state: TransactionState) -> Heartbeat:
        return self._make_heartbeat(state.instant, self._beat(state.operation_id, state.start_slot))

    def _make_heartbeat(self, instant: str, beat: Beat) -> Heartbeat:
        if self.settings.heartbeat_type == LEASE:
            return LeaseHeartbeat(self.storage, instant, beat, self._provider)
        return Heartbeat(self.storage, instant, beat, self.system)

    def _oldest_needed(self) -> int:
        return self.observer.oldest_start_slot(default=2**62)

    def _give_up(self, claims: list[str]) -> None:
        for instant in claims:
            self.storage.delete(heartbeat_path(instant))

    def _abort_quietly(self, transaction: Transaction, conflict: WriteConflict) -> None:
        """The caller's error matters more: what cannot be rolled back now is rolled back by the next writer."""
        try:
            transaction.abort(conflict)
        except LakelatchError as error:
            _log.warning("instant %s is left to the next writer's rollback: %s", transaction.instant, error)


class PlanBusy(Unavailable):
    """Another live process carries out this plan."""


class _NothingToDo(LakelatchError):
    """A plan would be empty."""
