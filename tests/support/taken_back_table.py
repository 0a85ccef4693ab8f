"""A table with real rows whose commits are kept, rolled back and restored; and what a process that died leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from live_table import LiveTable, TableRows

from lakelatch.engine.run.result import CommitResult
from lakelatch.format.names import parse_data_file
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import ROLLBACK
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, requested
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan


def rows(count: int, ts: int, name: str) -> list[tuple[int, int, str]]:
    return [(key, ts, f"{name}{key}") for key in range(count)]


def one_of_each(table: LiveTable) -> list[tuple[str, str, TableRows]]:
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


def new_table(path: Path, mode: str = "NON_BLOCKING_CONCURRENCY_CONTROL") -> LiveTable:
    return LiveTable(path / "table", mode)


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
