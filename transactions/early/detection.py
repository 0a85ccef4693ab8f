"""Early conflict detection (RFC-56): the part that tasks carry with them, and the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.settings import EARLY_STRATEGY_OPTION, EarlySettings, TransactionSettings
from lakelatch.transactions.conflicts.report import write_conflict
from lakelatch.transactions.conflicts.strategies import open_strategy
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters
from lakelatch.transactions.early.context import Detection
from lakelatch.transactions.early.notes import aborted_by, noted_work
from lakelatch.transactions.early.server_client import MarkerClient
from lakelatch.transactions.early.strategies import MarkerStrategy, find_marker_strategy
from lakelatch.transactions.markers.direct import Markers


@dataclass(frozen=True)
class EarlyDetection:
    """One write's early detection, as its tasks carry it. Pickles; a provider that was pickled is opened anew."""

    storage: Storage
    instant: str
    action: str
    writer: str
    start_slot: int
    settings: EarlySettings
    conflict_strategy: str
    heartbeat: HeartbeatSettings
    lock_timeout_s: float
    provider: LockProvider

    @contextmanager
    def open(self, system: System = REAL_SYSTEM, client: MarkerClient | None = None) -> Iterator[MarkerStrategy]:
        """The strategy for one task attempt, with locks of its own, which connect when they are needed.

        `client` is its connection to the marker server, if there is one.
        """
        kind = find_marker_strategy(self.settings.strategy, self.settings.marker_type)
        locks = type(self.provider)(self.provider.scope)
        try:
            yield kind(self.detection(locks, system, client))
        finally:
            locks.close()

    def detection(self, locks: LockProvider, system: System, client: MarkerClient | None = None) -> Detection:
        """The context of a strategy, or of the marker server, in this process."""
        conflicts = open_strategy(self.conflict_strategy)
        # In another process locks of one process would make every holder of a lease look dead.
        provider = None if isinstance(locks, InProcessLockProvider) else locks
        observer = Observer(self.storage, self.heartbeat, provider)
        return Detection(
            self.storage,
            self.instant,
            self.action,
            self.writer,
            self.start_slot,
            self.settings,
            self.lock_timeout_s,
            locks,
            Markers(self.storage, self.instant),
            conflicts,
            ConcurrentWriters(self.storage, self.instant, conflicts.group_part, observer),
            CommitLog(self.storage, system),
            client,
            system,
            system.monotonic_ns(),
        )


def ensure_shared_locks(settings: TransactionSettings, provider: LockProvider) -> None:
    """Errors: `InvalidRequest` if tasks in other processes could not take the locks that the strategy needs."""
    early = settings.early
    if early is None or not isinstance(provider, InProcessLockProvider):
        return
    if find_marker_strategy(early.strategy, early.marker_type).needs_locks:
        raise InvalidRequest(
            f"{EARLY_STRATEGY_OPTION}={early.strategy} takes locks in Spark's tasks, which are processes of their own, "
            f"and {PROVIDER}=in_process knows one process only: use simple_direct, or another lock provider",
            option=EARLY_STRATEGY_OPTION,
        )


def early_detection(context: TransactionContext, instant: str, action: str, start_slot: int) -> EarlyDetection | None:
    """The early detection of a transaction's tasks; None if conflicts are detected at its commit only."""
    settings = context.settings
    if settings.early is None:
        return None
    return EarlyDetection(
        context.storage,
        instant,
        action,
        context.writer,
        start_slot,
        settings.early,
        settings.conflict_strategy,
        settings.heartbeat,
        settings.lock_timeout_s,
        context.provider,
    )


def found_early(context: TransactionContext, instant: str, began_ms: int, still: bool = False) -> WriteConflict | None:
    """The conflict by which a transaction was marked aborted, with the work that was lost; None if there is none.

    `still`: only if the winner is still at work, or has completed. If it has ended otherwise, the transaction goes on.
    """
    if context.settings.early is None:
        return None
    conflict = aborted_by(context.storage, instant)
    if conflict is None:
        return None
    winner = conflict.winner
    if still and winner.inflight:
        writers = ConcurrentWriters(context.storage, instant, context.strategy.group_part, context.observer)
        if writers.write_of(winner.instant, conflict.file_groups) is None:
            return None
    lost_s = (context.system.realtime_ms() - began_ms) / 1000
    return write_conflict(instant, conflict, lost_s, noted_work(context.storage, instant), early=True)
