"""A table for tests, as its managers, writers and readers see it; no Spark, no rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import LocalStorage, MemoryStorage, Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.clock import ManualSystem
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.instant import TIMELINE_FOLDER, Instant, completed
from lakelatch.timeline.log.commit_log import SLOTS_KEPT, CommitLog
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.context import TableMemory
from lakelatch.transactions.base.elision import AUTO
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.settings import OPTIMISTIC, TransactionSettings
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
        kind = FilesystemLockProvider if isinstance(self.storage, LocalStorage) else InProcessLockProvider
        return kind(LockScope(self.storage.uri, {}))

    def manager(
        self,
        mode: str = OPTIMISTIC,
        storage: Storage | None = None,
        slots_kept: int = SLOTS_KEPT,
        lock_timeout_s: float = 60.0,
        memory: TableMemory | None = None,
    ) -> TransactionManager:
        """As another process would open it; with a memory, as the same process would."""
        provider = self.provider()
        settings = TransactionSettings(mode=mode, lock_timeout_s=lock_timeout_s, lock_elision=self.elision)
        times = HybridTimeGenerator(provider, self.times)
        opened = storage or self.storage
        return TransactionManager(opened, provider, times, settings, self.system, None, slots_kept, memory)

    def expire(self, instant: str) -> None:
        """The last beat was long ago by the storage's clock."""
        path = heartbeat_path(instant)
        if isinstance(self.storage, LocalStorage):
            os.utime(os.path.join(self.storage.root, path), (1, 1))
        elif isinstance(self.storage, MemoryStorage):
            self.storage._objects[path] = (self.storage.read(path), 1000)

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
        """Everything that only a transaction under way may have."""
        pending = [i.path for i in Snapshot.load(self.storage).pending]
        folders = (".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/.lakelatch/open", ".hoodie/.lakelatch/notes")
        return pending + [path for folder in folders for path in self.storage.walk(folder)]

    def data_files(self) -> list[str]:
        """Files outside of `.hoodie` that have content."""
        found = (path for path in self.storage.walk("") if not path.startswith(".hoodie/"))
        return [path for path in found if self.storage.stat(path).size_bytes > 0]


def add_file(transaction: Transaction, group: str, attempt: int = 0, partition: str = "") -> WriteStat:
    """Writes a data file of a file group, as a task does."""
    name = f"{group}_{attempt}_{transaction.instant}.log"
    transaction.markers.create_data_file(partition, name, b"rows")
    return WriteStat(partition, group, f"{partition}/{name}" if partition else name)


def own_file(transaction: Transaction, group: str, partition: str = "") -> WriteStat:
    """The same, made by the process of a transaction that is not for tasks."""
    assert transaction.own_files is not None
    name = f"{group}_0_{transaction.instant}.log"
    transaction.own_files.create(partition, name, b"rows")
    return WriteStat(partition, group, f"{partition}/{name}" if partition else name)


def commit(transaction: Transaction, *stats: WriteStat) -> Committed:
    return transaction.commit(CommitMetadata(stats, "UPSERT"))


def write(manager: TransactionManager, *groups: str) -> Committed:
    """A whole transaction."""
    transaction = manager.begin()
    return commit(transaction, *[add_file(transaction, group) for group in groups])


def timeline_names(storage: Storage) -> set[str]:
    return set(storage.list(TIMELINE_FOLDER).files)
