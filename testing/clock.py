"""A machine whose clocks stand still until they are moved."""

from __future__ import annotations

import random  # noqa: TID251  (seeded here, so that a run can be repeated)
import threading
from datetime import datetime, timezone

from lakelatch.system import RealThreads

START_MS = int(datetime(2026, 11, 21, 12, tzinfo=timezone.utc).timestamp()) * 1000


class ManualSystem(RealThreads):
    """A `System` whose clocks move by `sleep`, `advance` and `set_realtime_ms` only; random numbers and ids are seeded.

    `sleep` returns at once, having moved both clocks. Built-in providers wait for other threads in real time, however.
    """

    def __init__(self, realtime_ms: int = START_MS, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._realtime_ns = realtime_ms * 1_000_000
        self._monotonic_ns = 0
        self._random = random.Random(seed)

    def monotonic_ns(self) -> int:
        with self._lock:
            return self._monotonic_ns

    def realtime_ms(self) -> int:
        with self._lock:
            return self._realtime_ns // 1_000_000

    def sleep(self, duration_s: float) -> None:
        self.advance(duration_s)

    def random(self) -> float:
        with self._lock:
            return self._random.random()

    def new_id(self) -> str:
        with self._lock:
            return f"{self._random.getrandbits(128):032x}"

    def advance(self, duration_s: float) -> None:
        """Moves both clocks forward."""
        step_ns = round(max(duration_s, 0.0) * 1e9)
        with self._lock:
            self._monotonic_ns += step_ns
            self._realtime_ns += step_ns

    def set_realtime_ms(self, realtime_ms: int) -> None:
        """Steps the wall clock, also back; the monotonic clock stays."""
        with self._lock:
            self._realtime_ns = realtime_ms * 1_000_000
