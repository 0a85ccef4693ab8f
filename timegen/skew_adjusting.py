"""Hudi's generator: waits out the clocks' greatest skew while it holds the table's lease."""

from __future__ import annotations

from lakelatch.locks.contract import TABLE_KEY, LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator

DEFAULT_SKEW_MS = 200
_LOCK_TIMEOUT_S = 60.0


class SkewAdjustingTimeGenerator(TimeGenerator):
    """For tables that Java Hudi writes as well: every time is followed by a wait of `max_skew_ms` under the table's lease.

    Whoever holds the lease next, with a clock at most that much behind, reads a greater time. Where the table already
    knows a greater time (`above_ms`), the floor wins over the clock: order matters more than closeness. Source: Hudi's
    SkewAdjustingTimeGenerator.
    """

    def __init__(
        self, provider: LockProvider, system: System = REAL_SYSTEM, max_skew_ms: int = DEFAULT_SKEW_MS
    ) -> None:
        super().__init__(provider, system)
        self._max_skew_ms = max_skew_ms
        self._last_ms = 0

    def next_many(self, count: int, above_ms: int = 0, held: Lease | None = None) -> list[int]:
        if held is not None:
            return self._take(count, above_ms)
        with self.provider.acquire(TABLE_KEY, _LOCK_TIMEOUT_S):
            return self._take(count, above_ms)

    def _take(self, count: int, above_ms: int) -> list[int]:
        first = max(self.system.realtime_ms(), above_ms + 1, self._last_ms + 1)
        self._last_ms = first + count - 1
        self.system.sleep((self._max_skew_ms + count - 1) / 1000)
        return list(range(first, first + count))
