"""Times for one table's instants: fresh, above a floor, and claimed where a name hangs on them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakelatch.errors import Unavailable
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import Beat
from lakelatch.locks.lease import Lease
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.instant_time import to_instant, to_ms

MAX_DRIFT_OPTION = "lakelatch.time.max_drift_ms"
DEFAULT_MAX_DRIFT_MS = 600_000
_CLAIMS_MAX = 10_000
_WARN_AGAIN_NS = 60_000_000_000
_log = logging.getLogger("lakelatch.transactions")


class InstantClock:
    """Turns a generator's milliseconds into instants, and makes sure that no two instants share a requested time.

    The generator relies on the lock service, which may forget or lie. So a requested time is claimed by creating its
    heartbeat file, put-if-absent: of two writers that were given the same time, one takes another.
    """

    def __init__(self, generator: TimeGenerator, storage_time_ms: Callable[[], int], max_drift_ms: int) -> None:
        self._generator = generator
        self._storage_time_ms = storage_time_ms
        self._max_drift_ms = max_drift_ms
        self._warned_ns: int | None = None
        self._last_ms = 0  # that this process has taken by its own clock

    def next(self, above: str, held: Lease | None) -> str:
        """A time above all that were handed out and above `above` ("" for none).

        A clock that is far ahead would take the table's times with it for good. So a time that leaps ahead of the
        table's last one, as after a quiet night, is taken only if the storage's clock agrees.

        Errors: `Unavailable` if this machine's clock is more than `max_drift_ms` ahead of the storage's.
        """
        above_ms = to_ms(above) if above else 0
        now_ms = self._generator.system.realtime_ms()
        if now_ms - above_ms > self._max_drift_ms:
            self._compare_clocks(now_ms)
        time_ms = self._generator.next(above_ms, held)
        self._warn_if_ahead(time_ms - now_ms)
        return to_instant(time_ms)

    def now(self, above: str) -> str:
        """As `next`, by this machine's clock, without the generator: for a name or slot that only one writer can take.

        Two writers may be given the same time. Errors: as above.
        """
        above_ms = max(to_ms(above) if above else 0, self._last_ms)
        now_ms = self._generator.system.realtime_ms()
        if now_ms - above_ms > self._max_drift_ms:
            self._compare_clocks(now_ms)
        self._last_ms = time_ms = max(now_ms, above_ms + 1)
        self._warn_if_ahead(time_ms - now_ms)
        return to_instant(time_ms)

    def _compare_clocks(self, now_ms: int) -> None:
        ahead_ms = now_ms - self._storage_time_ms()
        if ahead_ms > self._max_drift_ms:
            raise Unavailable(
                f"this machine's clock is {ahead_ms / 1000:,.0f} s ahead of the storage's, and the table's times would "
                f"stay ahead with it: set the clock, or, if it is right, raise {MAX_DRIFT_OPTION}={self._max_drift_ms}",
                option=MAX_DRIFT_OPTION,
            )

    def _warn_if_ahead(self, ahead_ms: int) -> None:
        monotonic_ns = self._generator.system.monotonic_ns()
        lately = self._warned_ns is not None and monotonic_ns - self._warned_ns < _WARN_AGAIN_NS
        if ahead_ms > self._max_drift_ms and not lately:
            self._warned_ns = monotonic_ns
            _log.warning(
                "this table's times are %.1f s ahead of this machine's clock (some writer's clock was, or this one is "
                "behind); they increase all the same, and wait for the clocks to catch up",
                ahead_ms / 1000,
            )

    def claim(
        self,
        above: str,
        beat: Beat,
        held: Lease | None,
        make: Callable[[str, Beat], Heartbeat],
        by_own_clock: bool = False,
    ) -> tuple[str, Heartbeat]:
        """Claims a requested time that no other write has or will have; returns it and its heartbeat, not started."""
        for _ in range(_CLAIMS_MAX):
            above = self.now(above) if by_own_clock else self.next(above, held)
            heartbeat = make(above, beat)
            if heartbeat.claim():
                return above, heartbeat
        raise Unavailable(f"{_CLAIMS_MAX} instant times in a row were taken by others: check the time generator")
