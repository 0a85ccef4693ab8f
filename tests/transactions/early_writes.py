"""Writers with early detection, and their task attempts, for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from one_table import Table

from lakelatch.storage import Storage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.settings import EarlySettings
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

GROUP = "00000003-0000-0000-0000-000000000000-0"


def early_manager(
    table: Table, strategy: str = "simple_direct", storage: Storage | None = None, **more: Any
) -> TransactionManager:
    """A writer's manager as another process would open it; `more` are fields of `EarlySettings`."""
    return table.manager(storage=storage, early=replace(EarlySettings(strategy, period_ms=10), **more))


@dataclass
class Writer:
    """One write, and what its tasks do. `told` says whether its tasks know that it has lost."""

    table: Table
    transaction: Transaction
    attempts: int = 0

    @classmethod
    def begin(cls, table: Table, strategy: str = "simple_direct", **more: Any) -> Writer:
        return cls(table, early_manager(table, strategy, **more).begin())

    @property
    def instant(self) -> str:
        return self.transaction.instant

    def attempt(self, storage: FaultyStorage | None = None) -> TaskFiles:
        """A new task attempt, which works on another view of the storage if it is given."""
        self.attempts += 1
        early = self.transaction.early_detection()
        assert early is not None
        if storage is not None:
            early = replace(early, storage=storage)
        name = f"{self.attempts}-0-{self.attempts}"
        return TaskFiles(storage or self.table.storage, self.instant, name, early, self.table.system)

    def name(self, group: str = GROUP) -> str:
        return f".{group}_{self.instant}.log.1_{self.attempts}-0-{self.attempts}"

    def write(self, group: str = GROUP, partition: str = "p", storage: FaultyStorage | None = None) -> WriteStat:
        """A task attempt that writes one file of ten rows."""
        with self.attempt(storage) as files:
            name = self.name(group)
            files.create(partition, name, b"rows", 10)
        return WriteStat(partition, group, f"{partition}/{name}" if partition else name)

    def commit(self, *stats: WriteStat) -> Committed:
        return self.transaction.commit(CommitMetadata(stats, "UPSERT"))

    @property
    def told(self) -> bool:
        return self.transaction.found_early() is not None
