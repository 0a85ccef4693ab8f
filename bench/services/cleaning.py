"""A clean of 100,000 files, beside bare deletes of as many by the same storage, in turns.

The table has 10,000 file groups in 100 partitions, eleven versions of each, and the clean keeps the last one. The floor
is a pool of as many threads that does nothing but the storage's own `delete`; bare `unlink` without a sync is told too.
CLEAN_GROUPS says how many file groups there are (10,000), CLEAN_FOLDER where.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
from bench.harness import Result, time_ms

from lakelatch.engine.options.table_services.cleaning import KEEP_LATEST_FILE_VERSIONS, CleaningOptions
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.bucket_index import bucket_file_id
from lakelatch.format.names import planned_base_file
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.storage.contract import Listing
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import UPSERT
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import TransactionManager

_GROUPS = int(os.environ.get("CLEAN_GROUPS", "10000"))
_FOLDER = os.environ.get("CLEAN_FOLDER", "")
_PARTITIONS = 100
_VERSIONS = 11
_ROUNDS = 2
_BYTES = b"x" * 1024
_OPTIONS = CleaningOptions(policy=KEEP_LATEST_FILE_VERSIONS, versions=1)
_CONFIG = TableConfig("cleaned", ("id",), ("part",), bucket_count=_GROUPS // _PARTITIONS, hash_fields=("id",))


class CountingStorage(LocalStorage):
    """Counts how often each folder is listed."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.listed: Counter[str] = Counter()

    def list(self, folder: str) -> Listing:
        self.listed[folder] += 1
        return super().list(folder)


def run() -> list[Result]:
    times: dict[str, list[float]] = {"clean": [], "floor": [], "unlink": []}
    listed: list[int] = []
    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        for turn in range(_ROUNDS):
            table = CountingStorage(f"{folder}/{turn}-table")
            manager, dead = _make(table)
            copies = {name: LocalStorage(f"{folder}/{turn}-{name}") for name in ("floor", "unlink")}
            for copy in copies.values():
                for path in dead:
                    _create(copy, path)
            actions: list[tuple[str, Callable[[], object]]] = [
                ("clean", partial(_clean, manager, dead)),
                ("floor", partial(_delete_all, copies["floor"], dead)),
                ("unlink", partial(_unlink_all, copies["unlink"], dead)),
            ]
            table.listed.clear()
            for name, action in actions[::-1] if turn % 2 else actions:
                times[name].append(time_ms(action))
            listed.append(max(count for path, count in table.listed.items() if path.startswith("p")))
    clean, floor, unlink = (statistics.median(found) for found in times.values())
    ratios = [a / b for a, b in zip(times["clean"], times["floor"], strict=True)]
    return [
        Result(
            "clean_many_files",
            round(clean, 0),
            "ms",
            round(floor, 0),
            round(unlink, 0),
            round(clean / floor, 2),
            "each partition listed once; the rest is the storage's deletes",
            max(listed) == 1,
            f"{len(dead):,} files, {_ROUNDS} turns, ratios {min(ratios):.2f} to {max(ratios):.2f}; a partition was "
            f"listed {max(listed)} times at most; floor: {_OPTIONS.parallelism} threads of the storage's deletes, each "
            f"synced; peer: one thread of unlinks, not synced",
        )
    ]


def _make(storage: CountingStorage) -> tuple[TransactionManager, list[str]]:
    """A table, and which of its files are dead."""
    storage.put(PROPERTIES_PATH, _CONFIG.to_properties())
    provider = FilesystemLockProvider(LockScope(storage.uri, {}))
    manager = TransactionManager(storage, provider, HybridTimeGenerator(provider))
    groups = [
        (f"p{partition:03d}", bucket_file_id(bucket))
        for partition in range(_PARTITIONS)
        for bucket in range(_GROUPS // _PARTITIONS)
    ]
    dead: list[str] = []
    for version in range(_VERSIONS):
        transaction = manager.begin()
        stats = []
        for partition, file_id in groups:
            path = f"{partition}/{planned_base_file(partition, file_id, transaction.instant).name}"
            _create(storage, path)
            stats.append(WriteStat(partition, file_id, path, num_writes=1, file_size_bytes=len(_BYTES)))
        transaction.commit(CommitMetadata(tuple(stats), UPSERT, {}))
        if version < _VERSIONS - 1:
            dead += [stat.path for stat in stats]
    return manager, dead


def _create(storage: LocalStorage, path: str) -> None:
    target = Path(storage.root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_BYTES)


def _clean(manager: TransactionManager, dead: list[str]) -> None:
    (result,) = Clean(_OPTIONS).run(ServiceContext(OpenedTable(manager.storage, _CONFIG, pa.schema([])), manager))
    if set(result.files) != set(dead):
        raise AssertionError(f"{len(result.files)} files were cleaned, and {len(dead)} are dead")


def _delete_all(storage: LocalStorage, paths: list[str]) -> None:
    with ThreadPoolExecutor(_OPTIONS.parallelism) as pool:
        list(pool.map(storage.delete, paths))


def _unlink_all(storage: LocalStorage, paths: list[str]) -> None:
    for path in paths:
        os.unlink(f"{storage.root}/{path}")
