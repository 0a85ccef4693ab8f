"""Writes that leave their records for others, and wait until somebody has done something."""

from __future__ import annotations

from collections.abc import Callable

from table import BuiltTable, Writing

from lakelatch.engine.run.result import CommitResult
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.transactions.base.ready import READY_FOLDER, record_path


class Waiting:
    """A write that leaves its record, and looks at the log again only after others have done something."""

    def __init__(self, table: BuiltTable, operation: str = "upsert") -> None:
        self.step: Callable[[], object] = lambda: None
        self.left: list[bytes] = []
        self._done = False
        self._storage = table.storage
        storage = FaultyStorage(table.storage, before=self._before)
        self.writing = crowded(table.begin(operation, storage=storage))

    def put(self, *rows: tuple[int, int, str], partition: str = "p") -> Waiting:
        self.writing.put(partition, rows)
        return self

    def commit(self, meanwhile: Callable[[], object]) -> CommitResult:
        self.step = meanwhile
        return self.writing.commit()

    def _before(self, operation: str, path: str) -> None:
        if operation == "list" and path == LOG_FOLDER and self._storage.list(READY_FOLDER).files and not self._done:
            self._done = True
            self.left = [self._storage.read(record_path(self.writing.instant))]
            self.step()


def crowded(writing: Writing) -> Writing:
    """As after a slot that its process has lost."""
    writing.manager.memory.queue.left = 4
    return writing


def slots(table: BuiltTable) -> list[list[tuple[str, str]]]:
    log = CommitLog(table.storage)
    tail = log.tail()
    found: dict[int, list[tuple[str, str]]] = {}
    for event in log.events_after(0, tail):
        found.setdefault(event.number, []).append((event.kind, event.target or event.instant))
    return list(found.values())


def records(table: BuiltTable) -> list[str]:
    return list(table.storage.list(READY_FOLDER).files)
