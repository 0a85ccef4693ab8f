"""Hudi's own generator, for tables that Java writers share: it waits out the clocks' skew under the table's lease."""

from __future__ import annotations

import os
import threading

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import TABLE_KEY, LockProvider, check_count
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.lease import Lease
from lakelatch.option_values import Option
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator

SKEW_OPTION = "hoodie.time.generator.max_expected_clock_skew_ms"
DEFAULT_SKEW_MS = 200
DEFAULT_SKEW_IN_PROCESS_MS = 1  # one process has one clock

_SKEW_MOST_MS = 60_000


class _LastTimes:
    """The greatest time that this process has handed out for each table, whichever generator did it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms: dict[str, int] = {}

    def reserve(self, table_uri: str, least_ms: int, count: int) -> int:
        with self._lock:
            first = max(least_ms, self._last_ms.get(table_uri, 0) + 1)
            self._last_ms[table_uri] = first + count - 1
            return first


_last_times = _LastTimes()


def _begin_anew() -> None:
    global _last_times
    _last_times = _LastTimes()


os.register_at_fork(after_in_child=_begin_anew)  # its lock may have been taken at the fork


class SkewAdjustingTimeGenerator(TimeGenerator):
    """Reads the clock under the table's lease, and keeps the lease until every other clock must have passed that time.

    Clocks may differ by at most `max_skew_ms` (the option hoodie.time.generator.max_expected_clock_skew_ms of the
    provider's scope, if it is not given; 200, or 1 within one process). Each call takes at least that long. If
    `above_ms` is ahead of the clock, it waits for the clock, but no longer than twice the skew: it then goes on from
    `above_ms`, because the floor comes from the table, and order there matters more than closeness to the clock.

    Errors: `LeaseLost` if the lease ended meanwhile (the time is not used then), `LockTimeout` if it was not granted.
    Source of the algorithm: Hudi's SkewAdjustingTimeGenerator.
    """

    def __init__(self, provider: LockProvider, system: System = REAL_SYSTEM, max_skew_ms: int | None = None) -> None:
        super().__init__(provider, system)
        self._max_skew_ms = _choose_skew_ms(provider) if max_skew_ms is None else max_skew_ms

    def next_many(self, count: int, above_ms: int = 0, held: Lease | None = None) -> list[int]:
        check_count(count)
        if held is not None:
            return self._take(held, count, above_ms)
        with self.provider.acquire(TABLE_KEY, self.provider.scope.lock_options.timeout_s) as lease:
            return self._take(lease, count, above_ms)

    def _take(self, lease: Lease, count: int, above_ms: int) -> list[int]:
        now_ms = self.system.realtime_ms()
        if now_ms <= above_ms:
            self.system.sleep(min(above_ms + 1 - now_ms, 2 * self._max_skew_ms) / 1000)
            now_ms = self.system.realtime_ms()
        first = _last_times.reserve(self.provider.scope.table_uri, max(now_ms, above_ms + 1), count)
        self.system.sleep((self._max_skew_ms + count - 1) / 1000)  # the last of the times is that much later
        lease.ensure()
        return list(range(first, first + count))


def _choose_skew_ms(provider: LockProvider) -> int:
    default = DEFAULT_SKEW_IN_PROCESS_MS if isinstance(provider, InProcessLockProvider) else DEFAULT_SKEW_MS
    return Option(SKEW_OPTION, parse_skew, default).of(provider.scope.options)


def parse_skew(key: str, text: str) -> int:
    """The bound for the skew of clocks, in milliseconds. Errors: `InvalidRequest`."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and 1 <= int(text) <= _SKEW_MOST_MS):
        raise InvalidRequest(
            f"{key}={text!r} is no bound for the skew of clocks: use 1 to {_SKEW_MOST_MS} milliseconds", option=key
        )
    return int(text)
