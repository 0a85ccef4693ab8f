"""A table for tests, as its managers, writers and readers see it; no Spark, no rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bare_table import data_files, expire, leftovers, manager_of, provider_of

from lakelatch.locks.contract import LockProvider
from lakelatch.storage import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.instant import Instant, completed
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.elision import AUTO
from lakelatch.transactions.base.settings import OPTIMISTIC
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction


@dataclass
class Table:
    """`expire` makes a writer look dead; heartbeats beat once a minute, which is never in a test.

    With `elision` off each commit takes the table's lock. `times` has the clock that instants come from.
    """

    storage: Storage
    system: ManualSystem = field(default_factory=ManualSystem)
    elision: str = AUTO
    times: System = REAL_SYSTEM

    def provider(self) -> LockProvider:
        return provider_of(self.storage)

    def manager(
        self,
        mode: str = OPTIMISTIC,
        storage: Storage | None = None,
        provider: LockProvider | None = None,
        **settings: Any,
    ) -> TransactionManager:
        """As another process would open it; with a memory, as the same process would. See `manager_of`."""
        given = {"times": self.times, "mode": mode, "lock_elision": self.elision, **settings}
        return manager_of(storage or self.storage, provider or self.provider(), self.system, **given)

    def expire(self, instant: str) -> None:
        """The last beat was long ago by the storage's clock."""
        expire(self.storage, instant)

    def place_foreign(self, start: str, end: str, *groups: str, operation: str = "UPSERT") -> Instant:
        """A delta commit as a Java writer leaves it: complete, and in no slot."""
        instant = completed(start, "deltacommit", end)
        stats = tuple(WriteStat("", group, f"{group}_{start}.log") for group in groups)
        self.storage.put(instant.path, CommitMetadata(stats, operation).to_avro())
        return instant

    def events(self) -> list[Event]:
        log = CommitLog(self.storage)
        return log.events_after(0, log.tail())

    def completed(self) -> list[str]:
        """Requested times of the completed writes, by completion."""
        times = Snapshot.load(self.storage).completion_times()
        return sorted(times, key=lambda instant: times[instant])

    def rollbacks(self) -> int:
        return len([i for i in Snapshot.load(self.storage).completed if i.action == "rollback"])

    def leftovers(self) -> list[str]:
        return leftovers(self.storage)

    def data_files(self) -> list[str]:
        return data_files(self.storage)


def own_file(transaction: Transaction, group: str, partition: str = "") -> WriteStat:
    """The same, made by the process of a transaction that is not for tasks."""
    assert transaction.own_files is not None
    name = f"{group}_0_{transaction.instant}.log"
    transaction.own_files.create(partition, name, b"rows")
    return WriteStat(partition, group, f"{partition}/{name}" if partition else name)
