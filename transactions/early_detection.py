"""Early conflict detection (RFC-56): what tasks carry with them, and what the driver does with what they found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.commit_log import CommitLog
from lakelatch.transactions.conflicts import Others
from lakelatch.transactions.doom import doom_of, noted_work
from lakelatch.transactions.losses import write_conflict
from lakelatch.transactions.marker_client import MarkerClient
from lakelatch.transactions.marker_strategies import CompletedSince, MarkerStrategy, find_marker_strategy
from lakelatch.transactions.markers import Markers
from lakelatch.transactions.rivals import Rivals
from lakelatch.transactions.settings import EARLY_STRATEGY_OPTION, EarlySettings, TransactionSettings
from lakelatch.transactions.strategies import open_strategy

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager
    from lakelatch.transactions.transaction import TransactionState


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
            yield kind(Detection(self, locks, system, client))
        finally:
            locks.close()


class Detection:
    """What a strategy works with: the storage and the names of its write, its rivals, locks, and the commit log."""

    def __init__(
        self, early: EarlyDetection, locks: LockProvider, system: System, client: MarkerClient | None = None
    ) -> None:
        self.storage = early.storage
        self.instant = early.instant
        self.action = early.action
        self.writer = early.writer
        self.start_slot = early.start_slot
        self.settings = early.settings
        self.lock_timeout_s = early.lock_timeout_s
        self.locks = locks
        self.markers = Markers(early.storage, early.instant)
        self.conflicts = open_strategy(early.conflict_strategy)
        # In another process these locks would make every holder of a lease look dead.
        judge = None if isinstance(locks, InProcessLockProvider) else locks
        observer = Observer(early.storage, early.heartbeat, judge)
        self.rivals = Rivals(early.storage, early.instant, self.conflicts.group_part, observer)
        self.log = CommitLog(early.storage, system)
        self.client = client
        self.told: set[str] = set()
        self.system = system
        self._began_ns = system.monotonic_ns()

    def announced_at(self, partition: str, name: str) -> str:
        """When the storage made the marker of our data file, "" if it is gone again."""
        try:
            return to_instant(self.storage.stat(self.markers.path_of(partition, name)).modified_ms)
        except NotFound:
            return ""

    def completed(self) -> Others:
        """What the commit log says has completed since this write began."""
        return CompletedSince(self)

    def elapsed_s(self) -> float:
        """Seconds since this task attempt began."""
        return (self.system.monotonic_ns() - self._began_ns) / 1e9


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


def early_detection(manager: TransactionManager, state: TransactionState) -> EarlyDetection | None:
    """What the tasks of a transaction need; None if conflicts are looked for at its commit only."""
    settings = manager.settings
    if settings.early is None:
        return None
    return EarlyDetection(
        manager.storage,
        state.instant,
        state.action,
        manager.writer,
        state.start_slot,
        settings.early,
        settings.conflict_strategy,
        settings.heartbeat,
        settings.lock_timeout_s,
        manager.provider,
    )


def found_early(manager: TransactionManager, state: TransactionState, still: bool = False) -> WriteConflict | None:
    """The conflict that a transaction is known to have lost, with all that was thrown away; None if there is none.

    `still`: only if the winner is still at work, or has completed. If it has ended otherwise, nobody has to lose.
    """
    if manager.settings.early is None:
        return None
    conflict = doom_of(manager.storage, state.instant)
    if conflict is None:
        return None
    winner = conflict.winner
    if still and winner.inflight:
        rivals = Rivals(manager.storage, state.instant, manager.strategy.group_part, manager.observer)
        if rivals.judge(winner.instant, conflict.file_groups) is None:
            return None
    lost_s = (manager.system.realtime_ms() - state.began_ms) / 1000
    return write_conflict(state.instant, conflict, lost_s, noted_work(manager.storage, state.instant), early=True)
