"""Heartbeats as they are seen to beat, by readings alone.

Nothing is written to learn the storage's time, and no two machines' clocks are compared: how long a writer has been
silent is measured here, from the moment at which its last beat was first seen. So a page that was just opened knows
for certain that a writer lives once it has seen a beat, and has to watch for a while to know that there are no more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakelatch.heartbeat.contract import (
    HEARTBEAT_KEYS,
    LEASE,
    Beat,
    HeartbeatSettings,
    heartbeat_path,
)
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import System
from lakelatch.timeline.instant import is_time

ALIVE, WATCHED, SILENT = "alive", "watched", "silent"  # watched: no beat was seen yet, and the time is not up
_BEATS_KEPT = 60


@dataclass
class _Seen:
    """One instant's heartbeat: the last stamps of its file, and when the last one was first seen, by our clock."""

    beat: Beat | None
    moved: bool  # whether a beat was seen to come, and did not just lie there
    stamps: list[int] = field(default_factory=list)
    since_ns: int = 0
    since_ms: int = 0  # the same moment, for people


class BeatWatch:
    """The heartbeats of one table's open transactions. For one thread."""

    def __init__(self, storage: Storage, system: System) -> None:
        self._storage = storage
        self._system = system
        self._seen: dict[str, _Seen] = {}
        self._looked = False

    def look(self, listed: Collection[str], leases: Collection[str] | None) -> list[dict[str, Any]]:
        """All open transactions, by requested time.

        `listed` are the names in the heartbeats' folder; `leases` the keys that are held, None if nobody knows.
        """
        names = sorted(filter(is_time, listed))
        for instant in [*self._seen]:
            if instant not in names:
                del self._seen[instant]
        self._storage.together(*(partial(self._look_at, instant) for instant in names))
        self._looked = True
        return [self._shown(instant, self._seen[instant], leases) for instant in names if instant in self._seen]

    def _look_at(self, instant: str) -> None:
        path = heartbeat_path(instant)
        try:
            stamp = self._storage.stat(path).modified_ms
            seen = self._seen.get(instant)
            if seen is None:
                beat = Beat.from_bytes(self._storage.read(path))
                seen = self._seen[instant] = _Seen(beat, moved=self._looked)
            if stamp not in seen.stamps[-1:]:
                seen.moved = seen.moved or bool(seen.stamps)
                seen.stamps = [*seen.stamps[1 - _BEATS_KEPT :], stamp]
                seen.since_ns, seen.since_ms = self._system.monotonic_ns(), self._system.realtime_ms()
        except NotFound:
            self._seen.pop(instant, None)

    def _shown(self, instant: str, seen: _Seen, leases: Collection[str] | None) -> dict[str, Any]:
        beat = seen.beat
        settings = beat.settings if beat is not None else HeartbeatSettings()
        leased = beat is not None and beat.proof == LEASE
        if leased:
            state = WATCHED if leases is None else ALIVE if f"{HEARTBEAT_KEYS}{instant}" in leases else SILENT
        else:
            silent_ms = (self._system.monotonic_ns() - seen.since_ns) // 1_000_000
            state = SILENT if silent_ms > settings.expiry_ms else ALIVE if seen.moved else WATCHED
        return {
            "instant": instant,
            "writer": beat.writer if beat is not None else "",
            "version": beat.version if beat is not None else "",
            "proof": LEASE if leased else "storage",
            "state": state,
            "beats": seen.stamps,
            "seen_ms": seen.since_ms,
            "interval_ms": settings.interval_ms,
            "expiry_ms": settings.expiry_ms,
        }
