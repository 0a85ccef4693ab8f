"""The default generator: a register that only grows, kept close to the wall clock."""

from __future__ import annotations

from lakelatch.locks.lease import Lease
from lakelatch.timegen.contract import TimeGenerator

_REGISTER = "time"


class HybridTimeGenerator(TimeGenerator):
    """`max(wall clock, last + 1)` by the lock service's register. Never waits, and needs no lease.

    A clock that is ahead pulls the table's times ahead of real time, and they stay increasing: others then count on by
    single milliseconds until their clocks have caught up.
    """

    def next_many(self, count: int, above_ms: int = 0, held: Lease | None = None) -> list[int]:
        least = max(self.system.realtime_ms(), above_ms + 1)
        first = self.provider.register(_REGISTER).advance(least, count)
        # A service that has lost its memory, or lies, may answer less than was asked for.
        first = max(first, above_ms + 1)
        return list(range(first, first + count))
