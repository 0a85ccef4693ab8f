from __future__ import annotations

import logging

import pytest

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.testing.clock import ManualSystem
from lakelatch.timegen.hybrid import REGISTER, HybridTimeGenerator
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.transactions.base.instant_clock import MAX_DRIFT_OPTION, InstantClock

DRIFT_MS = 60_000


class Clocks:
    """A machine's clock and the storage's."""

    def __init__(self, name: str) -> None:
        self.system = ManualSystem()
        self.storage_ms = self.system.realtime_ms()
        self.asked = 0
        self.provider = InProcessLockProvider(LockScope(f"memory:///{name}", {}))
        generator = HybridTimeGenerator(self.provider, self.system)
        self.clock = InstantClock(generator, self._storage_time_ms, DRIFT_MS)

    def _storage_time_ms(self) -> int:
        self.asked += 1
        return self.storage_ms


@pytest.fixture
def clocks(request: pytest.FixtureRequest) -> Clocks:
    return Clocks(request.node.name)


def test_a_clock_far_ahead_is_refused_and_takes_no_time_with_it(clocks: Clocks) -> None:
    clocks.storage_ms -= DRIFT_MS + 1
    with pytest.raises(Unavailable, match=MAX_DRIFT_OPTION):
        clocks.clock.next("", None)
    assert clocks.provider.register(REGISTER).advance(0) == 1


def test_a_leap_that_the_storage_confirms_is_taken(clocks: Clocks) -> None:
    first = clocks.clock.next("", None)
    clocks.system.advance(3600)
    clocks.storage_ms += 3_600_000
    second = clocks.clock.next(first, None)
    assert to_ms(second) - to_ms(first) == 3_600_000 and clocks.asked == 2


def test_a_busy_table_asks_nobody(clocks: Clocks) -> None:
    last = clocks.clock.next("", None)
    for _ in range(50):
        clocks.system.advance(DRIFT_MS / 1000)
        last, before = clocks.clock.next(last, None), last
        assert last > before
    assert clocks.asked == 1


def test_a_clock_that_is_behind_goes_on_from_the_table_and_says_so_once(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = to_instant(clocks.system.realtime_ms() + DRIFT_MS + 5_000)
    with caplog.at_level(logging.WARNING, "lakelatch.transactions"):
        times = [clocks.clock.next(ahead, None) for _ in range(3)]
        assert times == sorted(set(times)) and times[0] > ahead
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "65.0 s ahead" in caplog.text
        clocks.system.advance(61)
        clocks.clock.next(to_instant(clocks.system.realtime_ms() + 2 * DRIFT_MS), None)
        assert len(caplog.records) == 2
