from __future__ import annotations

import pytest
from made_history import MadeHistory

from lakelatch.system import REAL_SYSTEM, System

DAY_MS, A_TEST_MS = 86_400_000, 30_000


@pytest.fixture
def table() -> MadeHistory:
    return MadeHistory()


def await_day(system: System) -> None:
    """Waits for the next day (UTC) if this one is about to end: a budget is one of a day."""
    left_ms = DAY_MS - system.realtime_ms() % DAY_MS
    if left_ms < A_TEST_MS:
        system.sleep(left_ms / 1000)


@pytest.fixture
def one_day() -> None:
    """The test begins and ends on the same day."""
    await_day(REAL_SYSTEM)
