"""The default generator: a register that only grows, kept close to the wall clock."""

from __future__ import annotations

from lakelatch.locks.contract import check_count
from lakelatch.locks.lease import Lease
from lakelatch.timegen.contract import TimeGenerator

REGISTER = "time"


class HybridTimeGenerator(TimeGenerator):
    """`max(wall clock, last + 1)` by the lock service's register, in one round trip. Never waits, needs no lease.

    A clock that is ahead takes the table's times ahead with it; they then grow by single milliseconds until the other
    clocks have caught up.
    """

    needs_lease = False

    def next_many(self, count: int, above_ms: int = 0, held: Lease | None = None) -> list[int]:
        check_count(count)
        at_least = max(self.system.realtime_ms(), above_ms + 1)
        first = self.provider.register(REGISTER).advance(at_least, count)
        first = max(first, above_ms + 1)  # the table's floor holds even if the register went back
        return list(range(first, first + count))
