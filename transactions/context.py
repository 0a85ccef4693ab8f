"""What the transactions of one table share in one process, and the state of each: both frozen, and passed."""

from __future__ import annotations

from dataclasses import dataclass

from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import Storage
from lakelatch.system import System
from lakelatch.timeline.commit_log import CommitLog
from lakelatch.timeline.timeline import TimelineFolder
from lakelatch.transactions.conflicts.contract import ConflictStrategy
from lakelatch.transactions.elision import LockElision
from lakelatch.transactions.instant_clock import InstantClock
from lakelatch.transactions.settings import TransactionSettings


@dataclass(frozen=True)
class TransactionContext:
    """One table's storage, log, locks and clocks, and how its transactions behave. Threads may share it."""

    storage: Storage
    settings: TransactionSettings
    provider: LockProvider
    observer: Observer
    strategy: ConflictStrategy
    system: System
    log: CommitLog
    folder: TimelineFolder
    clock: InstantClock
    elision: LockElision

    @property
    def writer(self) -> str:
        """The name under which others see these transactions."""
        return self.settings.writer


@dataclass(frozen=True)
class TransactionState:
    """What another process needs in order to go on with a transaction. Pickles."""

    instant: str
    action: str
    operation_id: str
    start_slot: int
    began_ms: int
    known_files: frozenset[str]
    start_time: str = ""  # that of the start slot: what completed before it is nothing new
