"""Tables for transactions over several of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import lakelatch
from lakelatch import ArrowTable, failpoints
from lakelatch.storage import open_storage
from lakelatch.timeline.log.commit_log import CommitLog

OPTIMISTIC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
QUICK = {"hoodie.client.heartbeat.interval_in_ms": "100", "hoodie.client.heartbeat.tolerable.misses": "2"}


@dataclass
class Tables:
    """Some tables with the same two rows, in which a key has a value."""

    folder: Path
    count: int = 2
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "at",
            "hoodie.write.lock.provider": "filesystem",
            **self.options,
        }
        for path in self.paths:
            ArrowTable(path, {**made, "hoodie.table.name": Path(path).name}).upsert(rows({1: 10, 2: 20}))

    @property
    def paths(self) -> list[str]:
        return [str(self.folder / f"table{number}") for number in range(self.count)]

    def now(self) -> list[dict[int, int]]:
        """What a reader of each table sees."""
        return [values(lakelatch.open(path).to_arrow()) for path in self.paths]

    def cut(self) -> list[dict[int, int]]:
        """What is seen at one moment of all."""
        found = lakelatch.snapshot(self.paths)
        return [values(found.to_arrow(path)) for path in self.paths]

    def log(self, number: int) -> CommitLog:
        return CommitLog(open_storage(self.paths[number]))

    def write(self, number: int, given: Mapping[int, int], at: int = 9) -> None:
        """An ordinary write of one table."""
        ArrowTable(self.paths[number], {**OPTIMISTIC, **QUICK}).upsert(rows(given, at))


def rows(given: Mapping[int, int], at: int = 1) -> pa.Table:
    return pa.table({"id": list(given), "v": list(given.values()), "at": [at] * len(given)})


def values(found: pa.Table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in found.sort_by("id").to_pylist()}


FIRST = {1: 10, 2: 20}


def killed_at(tables: Tables, point: str) -> None:
    """A transaction over all tables, whose process is killed at a visit of a failpoint, as `commit.after_slot@2`."""
    child = os.fork()
    if child == 0:
        try:
            name, _, visit = point.partition("@")
            with (
                failpoints.active(f"{name}=kill@{visit}"),
                lakelatch.transaction(tables.paths, {**OPTIMISTIC, **QUICK}) as tx,
            ):
                for path in tables.paths:
                    tx.upsert(path, rows({1: 11}, 2))
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
