"""The waits of the skew-adjusting generator, and its options."""

from __future__ import annotations

import pytest

from lakelatch.errors import InvalidRequest, LeaseLost, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.options import WAIT_TIME
from lakelatch.testing.clock import START_MS, ManualSystem
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.open import TYPE_OPTION, open_time_generator
from lakelatch.timegen.skew_adjusting import SKEW_OPTION, SkewAdjustingTimeGenerator


class SleepLog(ManualSystem):
    """Knows how long it slept, and whether somebody held the table's lease meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.provider: LockProvider | None = None
        self.slept_s: list[float] = []
        self.held: list[bool] = []

    def sleep(self, duration_s: float) -> None:
        assert self.provider is not None
        self.slept_s.append(duration_s)
        self.held.append(bool(self.provider.holders(TABLE_KEY)))
        super().sleep(duration_s)


@pytest.fixture
def system(request: pytest.FixtureRequest) -> SleepLog:
    system = SleepLog()
    system.provider = InProcessLockProvider(LockScope(f"memory://{request.node.name}", {}, system))
    return system


def generator_of(system: SleepLog, skew_ms: int | None) -> SkewAdjustingTimeGenerator:
    assert system.provider is not None
    return SkewAdjustingTimeGenerator(system.provider, system, skew_ms)


def test_it_sleeps_the_whole_skew_under_the_lease(system: SleepLog) -> None:
    assert generator_of(system, 200).next() == START_MS
    assert (system.slept_s, system.held) == ([0.2], [True])
    assert system.provider is not None and system.provider.holders() == []


def test_the_last_of_many_times_is_waited_out_too(system: SleepLog) -> None:
    assert generator_of(system, 200).next_many(3) == [START_MS, START_MS + 1, START_MS + 2]
    assert system.slept_s == [0.202]


def test_a_floor_just_ahead_is_waited_for(system: SleepLog) -> None:
    assert generator_of(system, 200).next(above_ms=START_MS + 99) == START_MS + 100
    assert system.slept_s == [0.1, 0.2]


def test_a_floor_far_ahead_is_waited_for_twice_the_skew_only(system: SleepLog) -> None:
    generator = generator_of(system, 200)
    assert generator.next(above_ms=START_MS + 3_600_000) == START_MS + 3_600_001
    assert system.slept_s == [0.4, 0.2]
    assert generator.next() == START_MS + 3_600_002  # above the process's own last, with no floor given


def test_another_generator_of_the_process_goes_on_from_the_last_time(system: SleepLog) -> None:
    generator_of(system, 200).next(above_ms=START_MS + 3_600_000)
    assert generator_of(system, 200).next() == START_MS + 3_600_002


def test_a_time_under_a_lost_lease_is_not_given(system: SleepLog) -> None:
    assert system.provider is not None
    lease = system.provider.acquire(TABLE_KEY, 0)
    system.provider.break_(TABLE_KEY)
    with pytest.raises(LeaseLost):
        generator_of(system, 1).next(held=lease)


def test_it_waits_for_the_lease_as_long_as_the_options_say() -> None:
    provider = InProcessLockProvider(LockScope("memory://waits", {WAIT_TIME: "30"}))
    with provider.acquire(TABLE_KEY, 0), pytest.raises(LockTimeout, match=r"0\.03 s"):
        SkewAdjustingTimeGenerator(provider).next()


@pytest.mark.parametrize("options, slept_s", [({}, 0.001), ({SKEW_OPTION: "70"}, 0.07)])
@pytest.mark.parametrize("name", ["skew_adjusting", "WAIT_TO_ADJUST_SKEW", "wait_to_adjust_skew"])
def test_the_registry_reads_the_options(name: str, options: dict[str, str], slept_s: float) -> None:
    system = SleepLog()
    options = {**options, TYPE_OPTION: name}
    system.provider = InProcessLockProvider(LockScope(f"memory://registry/{name}/{slept_s}", options, system))
    open_time_generator(options, system.provider, system).next()
    assert system.slept_s == [slept_s]


def test_other_providers_default_to_hudi_s_skew() -> None:
    system = SleepLog()
    system.provider = LyingLockProvider(LockScope("memory://defaults", {}, system))
    SkewAdjustingTimeGenerator(system.provider, system).next()
    assert system.slept_s == [0.2]


@pytest.mark.parametrize("value", ["", "0", "-1", "soon", "60001", "1.5", "²"])
def test_a_bad_skew_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{SKEW_OPTION}='{value}'"):
        SkewAdjustingTimeGenerator(InProcessLockProvider(LockScope("memory://bad", {SKEW_OPTION: value})))


def test_hybrid_is_the_default_and_unknown_types_are_refused() -> None:
    provider = InProcessLockProvider(LockScope("memory://types", {}))
    assert isinstance(open_time_generator({}, provider), HybridTimeGenerator)
    with pytest.raises(InvalidRequest, match=r"'hybird' is no known time generator. Did you mean 'hybrid'\?"):
        open_time_generator({TYPE_OPTION: "hybird"}, provider)


def test_hybrid_keeps_the_table_s_floor_though_the_service_lies() -> None:
    class Forgetful(LyingLockProvider):
        def register(self, key: str):  # type: ignore[no-untyped-def]
            return Zero()

    class Zero:
        def advance(self, at_least: int, count: int = 1) -> int:
            return 0

    system = ManualSystem()
    generator = HybridTimeGenerator(Forgetful(LockScope("memory://lies", {}, system)), system)
    assert generator.next_many(2, above_ms=START_MS + 7) == [START_MS + 8, START_MS + 9]
