"""The transaction manager: everything that changes a table's timeline goes through it.

The table's lease keeps writers out of each other's way; the commit log decides. So a commit holds the lease while it
reads the tail, checks, takes a time and creates the next slot, and would be just as right without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, Unavailable, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import Beat, heartbeat_path, task_beats_folder
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import TABLE_KEY, LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timeline.commit_log import SLOTS_KEPT, CommitLog, LogMoved, Tail
from lakelatch.timeline.events import COMPLETE, PLAN, ROLLBACK, Event
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.instants import COMPLETED_ACTIONS, inflight, requested
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.clock import InstantClock
from lakelatch.transactions.conflicts import (
    CompletedWrite,
    ConflictStrategy,
    NonBlockingConflictStrategy,
    SimpleConflictStrategy,
)
from lakelatch.transactions.endings import completed_elsewhere, ended
from lakelatch.transactions.markers import Markers
from lakelatch.transactions.recovery import Recovery
from lakelatch.transactions.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.transaction import ABORTED, COMMITTED, OPEN, Committed, Transaction, TransactionState

_BEGINS_MAX = 1000
_SETTLE_ATTEMPTS_MAX = 8
_WRITE_ACTIONS = ("commit", "deltacommit", "replacecommit")
_log = logging.getLogger("lakelatch.transactions")


class TransactionManager:
    """One table's transactions, in one process. Threads may share it.

    `strategy` decides conflicts; by default that of the settings' concurrency mode.
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
        self.log = CommitLog(storage, system, slots_kept)
        self.observer = Observer(storage, self.settings.heartbeat, system)
        self._provider = provider
        self._system = system
        self._clock = InstantClock(storage, generator)
        self._folder = TimelineFolder(storage)
        blocking = self.settings.mode != NON_BLOCKING
        self._strategy = strategy or (SimpleConflictStrategy() if blocking else NonBlockingConflictStrategy())
        self._writer = self.settings.writer
        self._recovery = Recovery(self)
        self._healed_ns: int | None = None

    # -- beginning --------------------------------------------------------------------------------------------------

    def begin(self, action: str = "deltacommit") -> Transaction:
        """Begins a write: takes and claims a requested time, puts it on the timeline, and starts the heartbeat."""
        operation_id = self._system.new_id()
        for _ in range(_BEGINS_MAX):
            tail = self.log.tail()
            self.log.project(tail)
            known = self._known_files(tail)
            instant, heartbeat = self._clock.claim(
                max(tail.time, self._folder.latest_time), self._beat(operation_id, tail.number), None
            )
            failpoint("begin.after_claim")
            # The claim keeps the slots after `tail` from being removed, if it came before they could be.
            if self.log.tail_number() - tail.number <= self.log.slots_kept // 2:
                break
            self.storage.delete(heartbeat_path(instant))
        else:
            raise Unavailable(f"other writers committed faster than a transaction could begin, {_BEGINS_MAX} times")
        try:
            self.ensure_file(requested(instant, action).path)
            failpoint("begin.after_requested")
            self.ensure_file(inflight(instant, action).path)
            failpoint("begin.after_inflight")
        except Unavailable:
            self.forget(instant)  # without a heartbeat the next writer rolls it back at once
            raise
        heartbeat.start()
        state = TransactionState(instant, action, operation_id, tail.number, self._system.realtime_ms(), known)
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
        self.log.project(tail)
        self._folder.refresh(tail.number)
        if all(pending.requested != instant or pending.action != action for pending in self._folder.pending()):
            raise TransactionEnded(f"{action} {instant} is not pending: it has completed, or was never scheduled")
        state = TransactionState(
            instant,
            action,
            self._system.new_id(),
            tail.number,
            self._system.realtime_ms(),
            self._folder.names,
        )
        heartbeat = self._heartbeat(state)
        if not heartbeat.claim():
            if instant not in self.observer.dead([instant]):
                raise PlanBusy(f"{action} {instant} is being carried out by another process: wait for it")
            heartbeat.take_over()
        self.ensure_file(inflight(instant, action).path)
        heartbeat.start()
        return Transaction(self, state, heartbeat)

    def schedule(self, build: Callable[[TimelineFolder], bytes | None], action: str = "compaction") -> str | None:
        """Puts a table service's plan on the timeline and returns its requested time; None if there is nothing to do.

        `build` sees the timeline exactly as it is before the plan's place in the log, so a plan misses no commit whose
        time is before its own. It may be called several times.
        """
        operation_id = self._system.new_id()

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

    def commit(self, transaction: Transaction, metadata: CommitMetadata) -> Committed:
        """See `Transaction.commit`."""
        state = transaction.state
        if state.action in _WRITE_ACTIONS:  # a plan's files have fixed names, so that no attempt leaves others
            transaction.markers.seal_and_sweep(stat.path for stat in metadata.stats)
        content = metadata.to_avro()
        try:
            with self.lock() as lease:
                failpoint("commit.after_lock")
                event = self._append_commit(state, metadata, content, lease)
            failpoint("commit.after_release")
        except WriteConflict:
            self._abort_quietly(transaction)
            raise
        except TransactionEnded:
            transaction.end(ABORTED)
            raise
        except CommitUnknown:
            transaction.end("in an unknown state")
            raise
        transaction.end(COMMITTED)
        transaction.committed = Committed(state.instant, event.time, event.number, event.token)
        self.forget(state.instant)
        return transaction.committed

    def abort(self, transaction: Transaction) -> None:
        """See `Transaction.abort`."""
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
        now_ns = self._system.monotonic_ns()
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
            instant, _ = self._clock.claim(floor, self._beat(operation_id, self.log.tail_number()), lease)
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
            except LakelatchError as error:
                _log.warning("the table's lock was not released, and ends with its lease: %s", error)

    @property
    def folder(self) -> TimelineFolder:
        return self._folder

    @property
    def writer(self) -> str:
        return self._writer

    def new_operation_id(self) -> str:
        return self._system.new_id()

    def ensure_file(self, path: str, data: bytes = b"") -> None:
        """Creates a file that only the owner of its instant creates; a lost answer is settled by doing it again."""
        for attempt in range(_SETTLE_ATTEMPTS_MAX):
            try:
                self.storage.put_if_absent(path, data)
                return
            except PutUnknown:
                self._system.sleep(0.02 * 2**attempt)
        raise Unavailable(f"the storage did not confirm {path}: try again")

    def forget(self, instant: str) -> None:
        """Removes an ended instant's heartbeat, which bars its tasks, and then its markers."""
        try:
            self.storage.delete(heartbeat_path(instant))
            self.storage.delete_folder(task_beats_folder(instant))
            Markers(self.storage, instant).delete()
            failpoint("cleanup.after_markers")
        except Unavailable as error:  # it has ended all the same; `heal` removes what is left
            _log.warning("could not clean up after instant %s: %s", instant, error)

    # -- one commit -------------------------------------------------------------------------------------------------

    def _append_commit(self, state: TransactionState, metadata: CommitMetadata, content: bytes, lease: Lease) -> Event:
        groups = metadata.file_groups() | metadata.replaced_file_groups()

        def decide(tail: Tail) -> Event:
            self._folder.refresh(tail.number)
            since = self._events_since(state, tail)
            if state.action in _WRITE_ACTIONS:
                conflict = self._strategy.find(groups, self._completed_writes(state, since))
                if conflict is not None:
                    lost_s = (self._system.realtime_ms() - state.began_ms) / 1000
                    winner = conflict.winner
                    raise WriteConflict.of(state.instant, winner.instant, winner.action, conflict.file_groups, lost_s)
            failpoint("commit.after_check")
            return Event(
                COMPLETE,
                state.action,
                state.instant,
                state.operation_id,
                self._writer,
                file_groups=groups,
                content=content,
                token=lease.token,
            )

        return self.append_completion(decide, state.instant, lease)

    def _events_since(self, state: TransactionState, tail: Tail) -> list[Event]:
        """Every event since the transaction began; `TransactionEnded` if one of them, or its absence, ends it."""
        if any(found.requested == state.instant for found in self._folder.completed_since(state.known_files)):
            raise completed_elsewhere(state)
        if state.start_slot + 1 < tail.watermark or not self._owns_claim(state.instant, state.operation_id):
            raise ended(state, "its heartbeat was missed for too long")
        if not self._folder.has(inflight(state.instant, state.action)):
            raise ended(state, "its inflight file is gone")
        events = self.log.events_after(state.start_slot, tail)
        for event in events:
            if event.kind == COMPLETE and event.instant == state.instant:
                raise completed_elsewhere(state)
            if event.kind == ROLLBACK and event.target == state.instant:
                raise ended(state, f"rollback {event.instant} by {event.writer} condemned it")
        return events

    def _completed_writes(self, state: TransactionState, events: list[Event]) -> list[CompletedWrite]:
        """Completed writes since the transaction began: those of the log, and files that no slot names."""
        writes = [
            CompletedWrite(
                event.instant,
                COMPLETED_ACTIONS[event.action],
                "COMPACT" if event.action == "compaction" else "",
                event.file_groups,
            )
            for event in events
            if event.kind == COMPLETE and event.action != "rollback"
        ]
        named = {event.file for event in events}
        for foreign in self._folder.completed_since(state.known_files | named):
            if foreign.action in _WRITE_ACTIONS:
                metadata = CommitMetadata.from_avro(self.storage.read(foreign.path))
                groups = metadata.file_groups() | metadata.replaced_file_groups()
                writes.append(CompletedWrite(foreign.requested, foreign.action, metadata.operation_type, groups))
        return writes

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

    def _owns_claim(self, instant: str, operation_id: str) -> bool:
        beat = self.observer.beat_of(instant)
        return beat is not None and beat.operation_id == operation_id

    def _forget_own(self, instant: str, operation_id: str) -> None:
        """Gives up a claim on a plan, unless another process has taken it over."""
        try:
            if self._owns_claim(instant, operation_id):
                self.forget(instant)
        except Unavailable as error:
            _log.warning("could not give up the claim on %s: %s", instant, error)

    # -- small things -----------------------------------------------------------------------------------------------

    def _beat(self, operation_id: str, start_slot: int) -> Beat:
        return Beat(self._writer, operation_id, start_slot, self.settings.heartbeat)

    def _heartbeat(self, state: TransactionState) -> Heartbeat:
        beat = self._beat(state.operation_id, state.start_slot)
        return Heartbeat(self.storage, state.instant, beat)

    def _oldest_needed(self) -> int:
        return self.observer.oldest_start_slot(default=2**62)

    def _give_up(self, claims: list[str]) -> None:
        for instant in claims:
            self.storage.delete(heartbeat_path(instant))

    def _abort_quietly(self, transaction: Transaction) -> None:
        """The caller's error matters more: what cannot be rolled back now is rolled back by the next writer."""
        try:
            transaction.abort()
        except LakelatchError as error:
            _log.warning("instant %s is left to the next writer's rollback: %s", transaction.instant, error)


class PlanBusy(Unavailable):
    """Another live process carries out this plan."""


class _NothingToDo(LakelatchError):
    """A plan would be empty."""
