"""What a commit costs besides its data: begin, commit, clean up, all of it durable, on a local disk.

The floor is what Hudi's layout alone demands of a commit: three synced files (requested, inflight, completed).
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.harness import Result, time_ms

from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.manager import TransactionManager

_OLD = 990
_YOUNG = 20
_TURNS = 5
_GOAL_MS = 30.0
_GOAL_GROWTH = 1.2


def run() -> list[Result]:
    commits: list[float] = []
    floors: list[float] = []
    old: list[float] = []
    young: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        beside = LocalStorage(f"{folder}/floor")
        with _manager(f"{folder}/made") as table:
            for number in range(_OLD):
                commits.append(time_ms(partial(_commit, table)))
                floors.append(time_ms(partial(_floor, beside, number)))
        # A copy, because ext4 looks at every inode that was deleted in the last minutes before it makes a file
        # nearby: after a thousand commits in ten seconds anything is slow there, and this is about the table's age.
        shutil.copytree(f"{folder}/made", f"{folder}/old")
        with _manager(f"{folder}/old") as old_table:
            _commit(old_table)
            # Side by side, because a shared machine is not the same from one minute to the next.
            for turn in range(_TURNS):
                with _manager(f"{folder}/young-{turn}") as young_table:
                    for _ in range(_YOUNG):
                        old.append(time_ms(partial(_commit, old_table)))
                        young.append(time_ms(partial(_commit, young_table)))
    median, floor = statistics.median(commits), statistics.median(floors)
    early, late = statistics.median(young), statistics.median(old)
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
            f"{_OLD} commits, lock provider filesystem; ratio to three synced files",
        ),
        Result(
            "commit_overhead_1000th_to_10th",
            round(late / early, 3),
            "ratio",
            None,
            None,
            round(late / early, 3),
            f"at most {_GOAL_GROWTH:g}",
            late / early <= _GOAL_GROWTH,
            f"medians of commits {_OLD + 2}-{_OLD + 1 + _TURNS * _YOUNG} of one table ({late:.2f} ms), copied first, "
            f"and 1-{_YOUNG} of {_TURNS} others ({early:.2f} ms), taken in turns",
        ),
    ]


@contextmanager
def _manager(folder: str) -> Iterator[TransactionManager]:
    storage = LocalStorage(folder)
    provider = FilesystemLockProvider(LockScope(storage.uri, {}))
    yield TransactionManager(storage, provider, HybridTimeGenerator(provider))
    provider.close()


def _commit(manager: TransactionManager) -> None:
    manager.recover()
    transaction = manager.begin()
    stat = WriteStat("", "00000000-0000-0000-0000-000000000000-0", "")
    transaction.commit(CommitMetadata((stat,), "UPSERT", {"schema": "{}"}))


def _floor(storage: LocalStorage, number: int) -> None:
    for name in ("deltacommit.requested", "deltacommit.inflight", "deltacommit"):
        storage.put_if_absent(f".hoodie/timeline/{number:017d}.{name}", b"x" * 1000)
