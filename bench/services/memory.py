"""Memory of a task that rewrites a file group: a compaction, a clustering, and a compaction of what that has clustered.

The log writes a thirtieth of the base file's rows anew. The task runs in a process of its own, beside what its plan
needs; told are the most memory that it has had (VmHWM) and what it had before the task (VmRSS). MEMORY_ROWS says how
many rows the table has (2,800,000), MEMORY_FOLDER where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.harness import Result, save, time_ms

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.rewriting import RewritingService
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_existing, with_columns_at
from lakelatch.engine.write.attempt import commit_files
from lakelatch.engine.write.commit import write_task
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

_ROWS = int(os.environ.get("MEMORY_ROWS", "2800000"))
_FOLDER = os.environ.get("MEMORY_FOLDER", "")
_LOADS = 10
_UPDATED = 30  # one row in so many
_GOAL_MB = 300.0
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clustering.plan.strategy.sort.columns": "v",
    "hoodie.clustering.plan.strategy.small.file.limit": str(2**40),
}
_NUMBERS = ("v", "w", "x", "y", "z")
_SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), *((name, pa.float64()) for name in _NUMBERS), ("text", pa.string())]
)


def run(rounds: int = 1) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        _child("make", f"{folder}/made")
        shutil.copytree(f"{folder}/made", f"{folder}/clustered")
        results.append(_result("compaction", _child("compact", f"{folder}/made")))
        results.append(_result("clustering", _child("cluster", f"{folder}/clustered")))
        _child("update", f"{folder}/clustered")
        results.append(_result("compaction_unsorted", _child("compact", f"{folder}/clustered")))
    return results


def _result(name: str, said: list[float]) -> Result:
    before, peak, size, took_ms = said
    return Result(
        f"memory_{name}",
        round(peak, 0),
        "MB",
        round(before, 0),
        None,
        round(peak - before, 0),
        f"under {_GOAL_MB:g} MB",
        peak < _GOAL_MB,
        f"the base file has {size:.0f} MB; floor: the process before the task; ratio: what came on top; "
        f"{took_ms / 1000:.1f} s",
    )


def _child(step: str, table: str) -> list[float]:
    command = [sys.executable, "-m", "bench.services.memory", step, table]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent.parent, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [float(word) for word in done.stdout.split()]


def _act(step: str, folder: str) -> None:
    storage, options = LocalStorage(folder), Call(_OPTIONS).write()
    provider = FilesystemLockProvider(LockScope(storage.uri, {}))
    manager = TransactionManager(storage, provider, HybridTimeGenerator(provider), options.manager.transactions)
    services = Call(_OPTIONS).services()
    if step == "make":
        table = open_for_write(storage, options, _SCHEMA)
        for load in range(_LOADS):
            _write(manager, options, range(load, _ROWS, _LOADS), load)
        Compaction(services.compaction).run(ServiceContext(table, manager))
    if step in ("make", "update"):
        _write(manager, options, _drawn_keys(len(step)), _LOADS + len(step))
        return
    table = with_columns_at(open_existing(storage, options), Snapshot.look(storage))
    context = ServiceContext(table, manager)
    clustering = Clustering(services.clustering, services.cancellation)
    service: RewritingService = Compaction(services.compaction) if step == "compact" else clustering
    plan = service.schedule(context)
    import_module("pandas")  # as Arrow does at its first array
    before = _memory_mb("VmRSS")
    took_ms = time_ms(lambda: service.execute(context, str(plan)))
    largest = max(path.stat().st_size for path in Path(folder).glob("*.parquet")) / 1e6
    print(before, _memory_mb("VmHWM"), largest, took_ms)


def _drawn_keys(seed: int) -> list[int]:
    """The keys of a log: each once."""
    drawn = np.random.default_rng(seed).choice(_ROWS, _ROWS // _UPDATED, replace=False)
    return [int(key) for key in drawn]


def _write(manager: TransactionManager, options: WriteOptions, keys: Iterable[int], ts: int) -> None:
    table = with_columns_at(open_existing(manager.storage, options), Snapshot.look(manager.storage))
    transaction = manager.begin()
    task = write_task(table, options, transaction)
    numbers = np.fromiter(keys, np.int64)
    drawn = np.random.default_rng(ts)
    columns = {
        "id": pa.array([f"k{number:010d}" for number in numbers]),
        "ts": pa.array(np.full(len(numbers), ts)),
        **{name: pa.array(drawn.random(len(numbers))) for name in _NUMBERS},
        "text": pa.array([f"{number:032x}" for number in map(int, drawn.integers(2**62, size=len(numbers)))]),
    }
    reports = task.write_here(pa.table(columns, schema=_SCHEMA).to_batches())
    commit_files(transaction, table, options, reports)


def _memory_mb(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _act(*sys.argv[1:])
    else:
        found = run()
        save(found)
        for one in found:
            print(one)
