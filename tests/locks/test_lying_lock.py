"""That the lying provider and the manual clock do what their users rely on."""

from __future__ import annotations

from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.testing.clock import START_MS, ManualSystem
from lakelatch.testing.faults.lying_lock import LyingLockProvider


def test_it_grants_everybody_everything() -> None:
    one, other = (LyingLockProvider(LockScope("memory://lies", {})) for _ in range(2))
    first, second, third = one.acquire(TABLE_KEY, 0), one.acquire(TABLE_KEY, 0), other.acquire(TABLE_KEY, 0)
    assert [lease.token for lease in (first, second, third)] == [1, 2, 1]
    assert first.release() and first.valid() and third.valid()
    assert [one.register("time").advance(0), one.register("time").advance(0), other.register("time").advance(0)] == [
        1,
        2,
        1,
    ]


def test_a_manual_system_moves_only_when_told() -> None:
    system = ManualSystem(seed=3)
    assert (system.realtime_ms(), system.monotonic_ns()) == (START_MS, 0)
    system.sleep(1.5)
    system.advance(0.5)
    assert (system.realtime_ms(), system.monotonic_ns()) == (START_MS + 2000, 2_000_000_000)
    system.set_realtime_ms(5)
    assert (system.realtime_ms(), system.monotonic_ns()) == (5, 2_000_000_000)


def test_a_manual_system_s_luck_repeats() -> None:
    one, same, other = ManualSystem(seed=3), ManualSystem(seed=3), ManualSystem(seed=4)
    drawn = [[system.random(), system.new_id(), system.new_id()] for system in (one, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][1] != drawn[0][2] and len(str(drawn[0][1])) == 32
