"""What a commit costs besides its data: begin, commit, clean up, all of it durable, on a local disk.

The floor is what Hudi's layout alone demands of a commit: three synced files (requested, inflight, completed).
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.harness import Result, time_ms

from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem import FilesystemLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.manager import TransactionManager

_COMMITS = 1010
_GOAL_MS = 30.0
_GOAL_GROWTH = 1.2


def run() -> list[Result]:
    commits: list[float] = []
    floors: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        table = LocalStorage(f"{folder}/table")
        beside = LocalStorage(f"{folder}/floor")
        provider = FilesystemLockProvider(LockScope(table.uri, {}))
        manager = TransactionManager(table, provider, HybridTimeGenerator(provider))
        for number in range(_COMMITS):
            commits.append(time_ms(lambda: _commit(manager)))
            floors.append(time_ms(lambda number=number: _floor(beside, number)))  # type: ignore[misc]
        provider.close()
    median, floor = statistics.median(commits), statistics.median(floors)
    early, late = _around(commits, 10), _around(commits, 1000)
    early_floor, late_floor = _around(floors, 10), _around(floors, 1000)
    growth = late / early
    return [
        Result(
            "commit_overhead_median",
            round(median, 2),
            "ms",
            round(floor, 2),
            None,
            round(median / floor, 2),
            f"median under {_GOAL_MS:g} ms",
            median < _GOAL_MS,
            f"{_COMMITS} commits, lock provider filesystem; ratio to three synced files",
        ),
        Result(
            "commit_overhead_1000th_to_10th",
            round(growth, 3),
            "ratio",
            round(late_floor / early_floor, 3),
            None,
            round(growth, 3),
            f"at most {_GOAL_GROWTH:g}",
            growth <= _GOAL_GROWTH,
            f"medians of commits 1-20 ({early:.2f} ms) and 991-1010 ({late:.2f} ms); floor: the same of the floor",
        ),
    ]


def _commit(manager: TransactionManager) -> None:
    manager.heal()
    transaction = manager.begin()
    stat = WriteStat("", "00000000-0000-0000-0000-000000000000-0", "")
    transaction.commit(CommitMetadata((stat,), "UPSERT", {"schema": "{}"}))


def _floor(storage: LocalStorage, number: int) -> None:
    for name in ("deltacommit.requested", "deltacommit.inflight", "deltacommit"):
        storage.put_if_absent(f".hoodie/timeline/{number:017d}.{name}", b"x" * 1000)


def _around(values: list[float], number: int) -> float:
    return statistics.median(values[number - 10 : number + 10])
