"""Planning a read of many partitions by the file index, beside listing them: requests, and how long they take.

The table is in memory, in an object store that is made up: a request takes DISTANCE_MS (30), an answer shows 1,000
names, and 8 requests are under way at once, as in the product. Nobody opens its data files. PARTITIONS says how many
there are (10,000), each with a base file and two log files. Eight small commits have come since the index.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
from bench.harness import Result, time_ms

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.bucket_index import bucket_file_id
from lakelatch.format.names import BaseFile, LogFile
from lakelatch.format.slices.index_making import make_index
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import Listing
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata, WriteStat
from lakelatch.transactions.manager import TransactionManager

_PARTITIONS = int(os.environ.get("PARTITIONS", "10000"))
_DISTANCE_MS = float(os.environ.get("DISTANCE_MS", "30"))
_SHOWN_AT_ONCE = 1000
_THREADS = 8
_COMMITS_SINCE = 8
_ROUNDS = 5
_GOAL_MS = 1000.0
_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
T = TypeVar("T")


class DistantStore(MemoryStorage):
    """Counts requests, each of which takes a while once `distance_s` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.requests = 0
        self.distance_s = 0.0
        self._count = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS)

    def read(self, path: str) -> bytes:
        self._ask()
        return super().read(path)

    def list(self, folder: str) -> Listing:
        found = super().list(folder)
        for _ in range(0, 1 + len(found.files) + len(found.folders), _SHOWN_AT_ONCE):
            self._ask()
        return found

    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        self._ask()
        paths = sorted(self._objects)
        return paths[:_SHOWN_AT_ONCE], len(paths) < _SHOWN_AT_ONCE

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        return list(self._pool.map(lambda request: request(), requests))

    def _ask(self) -> None:
        with self._count:
            self.requests += 1
        if self.distance_s:
            REAL_SYSTEM.sleep(self.distance_s)


def run() -> list[Result]:
    store = DistantStore(f"bench-{REAL_SYSTEM.new_id()}")
    partitions = [f"day={number:05}" for number in range(_PARTITIONS)]
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "part"}
    table = open_for_write(store, Call(options).write(), _SCHEMA)
    provider = InProcessLockProvider(LockScope(store.uri, {}))
    manager = TransactionManager(store, provider, HybridTimeGenerator(provider))
    for files in ("base", "log", "log"):
        _commit(manager, table, partitions, files)
    made_ms = time_ms(lambda: make_index(store, table.config))
    for number in range(_COMMITS_SINCE):
        _commit(manager, table, partitions[number : number + 5], "log")
    provider.close()
    by_listing: dict[str, object] = {"lakelatch.read.index": "false"}
    by_index: dict[str, object] = {"lakelatch.read.index": "true"}
    if plan_read(store.uri, by_listing).slices != plan_read(store.uri, by_index).slices:
        raise AssertionError("the index says something else than the listing")
    results = []
    for distance_ms in (0.0, _DISTANCE_MS):
        store.distance_s = distance_ms / 1000
        listing, index = _figures(store, by_listing), _figures(store, by_index)
        name = f"plan_{_PARTITIONS}_partitions_{distance_ms:g}_ms"
        note = f"{index[1]} requests, listing {listing[1]}; made in {made_ms:.0f} ms by listing at no distance"
        met, ratio = index[0] < _GOAL_MS, round(index[0] / listing[0], 3)
        results.append(
            Result(name, round(index[0]), "ms", None, round(listing[0]), ratio, f"under {_GOAL_MS:g} ms", met, note)
        )
    return results


def _figures(store: DistantStore, options: dict[str, object]) -> tuple[float, int]:
    """The shortest time of a plan, and its requests, in a process that has planned before."""
    times = []
    for _ in range(_ROUNDS):
        store.requests = 0
        times.append(time_ms(lambda: plan_read(store.uri, options)))
    return min(times), store.requests


def _commit(manager: TransactionManager, table: OpenedTable, partitions: Sequence[str], kind: str) -> None:
    transaction = manager.begin(DELTA_COMMIT)
    instant, file_id = transaction.instant, bucket_file_id(0)
    base, log = BaseFile(file_id, "0-0-0", instant).name, LogFile(file_id, instant, 1, "0-0-0").name
    name = base if kind == "base" else log
    for partition in partitions:
        table.storage.put(f"{partition}/.hoodie_partition_metadata", b"")
        table.storage.put(f"{partition}/{name}", b"rows")
    stats = tuple(WriteStat(partition, file_id, f"{partition}/{name}") for partition in partitions)
    extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: transaction.writer}
    transaction.commit(CommitMetadata(stats, "UPSERT", extra))
