"""A table with real rows whose commits are kept, rolled back and restored; and what a process that died leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from live_table import LiveTable, TableRows

from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import restoring, savepoints
from lakelatch.engine.services.log_compaction import LogCompaction
from lakelatch.engine.services.restoring import Undone
from lakelatch.engine.services.savepoints import Savepoint
from lakelatch.engine.table.opening import open_table
from lakelatch.format.names import parse_data_file
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import ROLLBACK
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, requested
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.timeline.snapshot import Snapshot


class KeptTable(LiveTable):
    """Each call is another process."""

    def savepoint(self, instant: str, comment: str = "") -> Savepoint:
        return savepoints.create_savepoint(open_table(self.storage).config, self.manager(), instant, comment)

    def delete_savepoint(self, instant: str) -> None:
        savepoints.delete_savepoint(self.manager(), instant)

    def savepoints(self) -> list[Savepoint]:
        return savepoints.savepoints(self.storage)

    def roll_back(self, instant: str) -> Undone:
        return restoring.roll_back(self.manager(), instant)

    def restore(self, to: str) -> Undone:
        return restoring.restore(open_table(self.storage).config, self.manager(), to)

    def plan_logs(self) -> str | None:
        options = CompactionOptions(least_logs_of_run=2)
        return LogCompaction(options).schedule(self.context())

    def compact_logs(self) -> CommitResult:
        plan = self.plan_logs()
        assert plan is not None
        return LogCompaction().execute(self.context(), plan)

    def all_died(self) -> None:
        """Whoever has a heartbeat counts as dead."""
        for name in self.storage.list(HEARTBEAT_FOLDER).files:
            os.utime(self.root / HEARTBEAT_FOLDER / name, (1, 1))

    def timeline(self) -> list[str]:
        return sorted(path.name for path in (self.root / ".hoodie" / "timeline").iterdir())

    def data_files(self, instant: str) -> list[str]:
        """Files of this instant that hold anything."""
        found = (path for path in self.storage.walk("") if not path.startswith(".hoodie/"))
        return [path for path in found if instant in path.rpartition("/")[2] and self.storage.stat(path).size_bytes]

    def nothing_pending(self) -> bool:
        return not Snapshot.load(self.storage).pending and not self.storage.list(HEARTBEAT_FOLDER).files


def rows(count: int, ts: int, name: str) -> list[tuple[int, int, str]]:
    return [(key, ts, f"{name}{key}") for key in range(count)]


def one_of_each(table: KeptTable) -> list[tuple[str, str, TableRows]]:
    """A history of every kind of write and service: (what, requested time, rows afterwards) of each."""
    steps: list[tuple[str, Callable[[], CommitResult | None]]] = [
        ("insert", lambda: table.write(rows(8, 1, "a"))),
        ("upsert", lambda: table.write(rows(4, 2, "b"))),
        ("log compaction", table.compact_logs),
        ("delete", lambda: table.delete([(0, 3, "")])),
        ("compaction", table.compact),
        ("upsert of a base file", lambda: table.write(rows(6, 4, "c"))),
        ("overwrite", lambda: table.write(rows(3, 5, "d"), operation="insert_overwrite")),
        ("upsert of a successor", lambda: table.write(rows(5, 6, "e"))),
        ("dropped partition", lambda: table.drop("p")),
        ("insert after it", lambda: table.write(rows(2, 7, "f"))),
    ]
    history = []
    for what, step in steps:
        result = step()
        assert result is not None, what
        history.append((what, result.instant, table.agreed()))
    return history


def new_table(path: Path, mode: str = "NON_BLOCKING_CONCURRENCY_CONTROL") -> KeptTable:
    return KeptTable(path / "table", mode)


def undone_by_java(storage: Storage, partition: str, done: CommitResult, action: str) -> str:
    """What Java's `rollback_to_instant` does to a write of one partition; the rollback's requested time."""
    names = storage.list(TIMELINE_FOLDER).files
    last = max(to_ms(time) for name in names for time in name.partition(".")[0].split("_"))
    start, end = to_instant(last + 1), to_instant(last + 2)
    found = (name for name in storage.list(partition).files if parse_data_file(name) is not None)
    files = tuple(path_below(partition, name) for name in found if done.instant in name)
    storage.put(requested(start, ROLLBACK).path, RollbackPlan(done.instant, action, files).to_avro())
    storage.put(inflight(start, ROLLBACK).path, b"")
    storage.delete(completed(done.instant, action, done.completion).path)
    for path in files:
        storage.delete(path)
    storage.delete(inflight(done.instant, action).path)
    storage.delete(requested(done.instant, action).path)
    content = RollbackMetadata(start, done.instant, action, files).to_avro()
    storage.put(completed(start, ROLLBACK, end).path, content)
    return start
