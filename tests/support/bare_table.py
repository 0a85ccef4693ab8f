"""Tables and writes whose files hold no rows: managers, data files of any content, what is left of them; no Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lakelatch.format.names import LogFile
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import LocalStorage, MemoryStorage, Storage
from lakelatch.storage.contract import path_below
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.commit_log import SLOTS_KEPT
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.settings import TransactionSettings
from lakelatch.transactions.conflicts.contract import ConflictStrategy
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.memory import TableMemory
from lakelatch.transactions.transaction import Transaction

_OF_ENDED = (".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/.lakelatch/open", ".hoodie/.lakelatch/notes")


def bare_table(storage: Storage, buckets: int = 1, **more: Any) -> Storage:
    """Makes a table that has no more than its properties; returns its storage."""
    storage.put_if_absent(PROPERTIES_PATH, TableConfig("t", ("id",), bucket_count=buckets, **more).to_properties())
    return storage


def provider_of(storage: Storage, system: System = REAL_SYSTEM) -> LockProvider:
    """The kernel's locks for a table in a folder, and this process's own for one elsewhere."""
    kind = FilesystemLockProvider if isinstance(storage, LocalStorage) else InProcessLockProvider
    return kind(LockScope(storage.uri, {}, system))


def manager_of(
    storage: Storage,
    provider: LockProvider | None = None,
    system: System = REAL_SYSTEM,
    times: System | None = None,
    slots_kept: int = SLOTS_KEPT,
    memory: TableMemory | None = None,
    strategy: ConflictStrategy | None = None,
    generator: TimeGenerator | None = None,
    **settings: Any,
) -> TransactionManager:
    """A manager as another process would open it; with a memory, as the same process would.

    `times` is the clock that instants come from, if it is not that of `system`; `settings` are `TransactionSettings`.
    """
    provider = provider or provider_of(storage, system)
    generator = generator or HybridTimeGenerator(provider, times or system)
    given = TransactionSettings(**settings)
    return TransactionManager(storage, provider, generator, given, system, strategy, slots_kept, memory)


def add_file(
    transaction: Transaction, group: str, attempt: int = 0, partition: str = "", content: bytes = b"rows"
) -> WriteStat:
    """Writes a data file of a file group, as a task does."""
    name = f"{group}_{attempt}_{transaction.instant}.log"
    transaction.markers.create_data_file(partition, name, content)
    return WriteStat(partition, group, path_below(partition, name))


def add_log(transaction: Transaction, file_id: str, partition: str = "", rows: int = 0) -> WriteStat:
    """Writes a log file of Hudi's name that holds no rows, whatever its metadata will say."""
    name = LogFile(file_id, transaction.instant, 1, "0-0-0").name
    transaction.markers.create_data_file(partition, name, b"rows")
    return WriteStat(partition, file_id, path_below(partition, name), num_writes=rows, file_size_bytes=4)


def commit(transaction: Transaction, *stats: WriteStat, extra: Mapping[str, str] | None = None) -> Committed:
    return transaction.commit(CommitMetadata(stats, "UPSERT", extra or {}))


def write(manager: TransactionManager, *groups: str) -> Committed:
    """A whole transaction."""
    transaction = manager.begin()
    return commit(transaction, *[add_file(transaction, group) for group in groups])


def timeline_names(storage: Storage) -> set[str]:
    return set(storage.list(TIMELINE_FOLDER).files)


def data_files(storage: Storage, instant: str = "") -> list[str]:
    """Paths of files outside of `.hoodie` that have content: all, or an instant's."""
    found = (path for path in storage.walk("") if not path.startswith(".hoodie/"))
    return [path for path in found if instant in path.rpartition("/")[2] and storage.stat(path).size_bytes > 0]


def leftovers(storage: Storage) -> list[str]:
    """Everything that only a transaction under way may have."""
    pending = [one.path for one in Snapshot.load(storage).pending]
    return pending + [path for folder in _OF_ENDED for path in storage.walk(folder)]


def expire(storage: Storage, instant: str) -> None:
    """The last beat of this instant was long ago, by the storage's clock."""
    age(storage, heartbeat_path(instant))


def age(storage: Storage, path: str) -> None:
    """A file was put long ago, by the storage's clock."""
    if isinstance(storage, LocalStorage):
        os.utime(os.path.join(storage.root, path), (1, 1))
    elif isinstance(storage, MemoryStorage):
        put_stamped(storage, path, storage.read(path), 1000)


def put_stamped(storage: MemoryStorage, path: str, data: bytes, modified_ms: int) -> None:
    """Puts a file that was modified then."""
    storage.put(path, data)
    storage._objects[path] = (data, modified_ms)
