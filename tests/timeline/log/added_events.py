"""Events of commits, numbered, and times for them."""

from __future__ import annotations

import threading

from slots import append

from lakelatch.storage import Storage
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, Event, slot_number
from lakelatch.timeline.snapshot import Snapshot

FIRST = 20261121120000000


class Times:
    """Increasing times for everybody, whatever floor is asked for."""

    def __init__(self) -> None:
        self._last = FIRST
        self._guard = threading.Lock()

    def take(self, above: str) -> str:
        with self._guard:
            self._last = max(self._last + 1, int(above or 0) + 1)
            return str(self._last)


def event(name: int, content: bytes = b"x") -> Event:
    return Event(COMPLETE, "deltacommit", str(FIRST - 1000 + name), f"op-{name}", "me", content=content)


def add(log: CommitLog, times: Times, name: int, content: bytes = b"x") -> Event:
    return append(log, lambda tail: event(name, content), times.take)


def slots(storage: Storage) -> list[int]:
    return [number for name in storage.list(LOG_FOLDER).files if (number := slot_number(name)) is not None]


def shown(storage: Storage) -> list[str]:
    """Requested times of the completed files, by completion time."""
    return [i.requested for i in sorted(Snapshot.load(storage).completed, key=lambda i: i.completion or "")]
