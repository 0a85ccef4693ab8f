"""The context in which a task attempt, or the marker server, looks for conflicts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import System
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.log_reader import LogMoved
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.base.settings import EarlySettings
from lakelatch.transactions.conflicts.contract import ConflictStrategy, Others, OtherWrite, completed_writes
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters
from lakelatch.transactions.early.server_client import MarkerClient
from lakelatch.transactions.markers.direct import Markers


@dataclass(frozen=True)
class Detection:
    """The names of one write, its storage and locks, its concurrent writers, and the commit log.

    `client` is the connection to the marker server, if there is one.
    """

    storage: Storage
    instant: str
    action: str
    writer: str
    start_slot: int
    settings: EarlySettings
    lock_timeout_s: float
    locks: LockProvider
    markers: Markers
    conflicts: ConflictStrategy
    concurrent_writers: ConcurrentWriters
    log: CommitLog
    client: MarkerClient | None
    system: System
    began_ns: int

    def announced_at(self, partition: str, name: str) -> str:
        """The time at which the storage made the marker of our data file, "" if it is gone again."""
        try:
            return to_instant(self.storage.stat(self.markers.path_of(partition, name)).modified_ms)
        except NotFound:
            return ""

    def completed(self) -> Others:
        """The writes that have completed since this one began, by the commit log."""
        return CompletedSince(self)

    def elapsed_s(self) -> float:
        """Seconds since this task attempt began."""
        return (self.system.monotonic_ns() - self.began_ns) / 1e9


class CompletedSince(Others):
    """The writes that have completed since one began, by the commit log, as its tasks see them."""

    def __init__(self, detection: Detection) -> None:
        self._detection = detection

    def completed(self) -> list[OtherWrite]:
        detection = self._detection
        try:
            events = detection.log.events_after(detection.start_slot, detection.log.tail())
        except LogMoved:  # the commit checks all of them
            return []
        return completed_writes(detection.storage, events, [])

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        return self._detection.concurrent_writers.on(groups)
