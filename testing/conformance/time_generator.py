"""The suite that every time generator must pass: subclass `TimeGeneratorConformance`, and give `make_generator`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.clock import START_MS, ManualSystem
from lakelatch.testing.conformance.in_processes import run_together, start
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises
from lakelatch.timegen.contract import TimeGenerator


class TimeGeneratorConformance:
    """Each test opens its own table below pytest's `tmp_path`.

    Say `across_processes = False` if the generator's lock provider works within one process.
    """

    across_processes: ClassVar[bool] = True

    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        """A new generator of this table, with a provider of its own that has the same system."""
        raise NotImplementedError

    @contextmanager
    def generators(self, folder: Path, *systems: System) -> Iterator[list[TimeGenerator]]:
        """One generator of a table for each system; their providers are closed at the end."""
        opened = [self.make_generator(f"file://{folder}/table", system) for system in systems]
        try:
            yield opened
        finally:
            for generator in opened:
                generator.provider.close()

    def test_times_are_the_wall_clock_s(self, tmp_path: Path) -> None:
        system = ManualSystem()
        with self.generators(tmp_path, system) as [generator]:
            assert generator.next() == START_MS
            system.advance(1000)
            assert START_MS + 1_000_000 <= generator.next() <= system.realtime_ms()

    def test_times_grow_while_the_clock_stands(self, tmp_path: Path) -> None:
        with self.generators(tmp_path, StoppedSystem(), StoppedSystem()) as [first, second]:
            times = [generator.next() for generator in (first, second, second, first, second)]
        assert_increasing(times)
        assert times[-1] < START_MS + 100

    def test_times_grow_when_the_clock_goes_back(self, tmp_path: Path) -> None:
        system = ManualSystem()
        with self.generators(tmp_path, system, system) as [first, second]:
            times = [first.next()]
            system.set_realtime_ms(START_MS - 86_400_000)
            times += [first.next(), second.next(), first.next()]
        assert_increasing(times)
        assert times[-1] < START_MS + 100

    def test_many_times_are_as_good_as_one(self, tmp_path: Path) -> None:
        with self.generators(tmp_path, StoppedSystem(), StoppedSystem()) as [first, second]:
            times = [*first.next_many(5), *second.next_many(3), first.next(), *second.next_many(2)]
            assert len(times) == 11
            assert_increasing(times)
            assert_raises(InvalidRequest, lambda: first.next_many(0))

    def test_times_are_above_what_the_table_knows(self, tmp_path: Path) -> None:
        with self.generators(tmp_path, StoppedSystem()) as [generator]:
            floor_ms = START_MS + 3_600_000
            times = [generator.next(above_ms=floor_ms), *generator.next_many(2, above_ms=floor_ms + 10)]
            assert times[0] > floor_ms and times[1] > floor_ms + 10
            times += [generator.next(above_ms=5), generator.next()]
        assert_increasing(times)

    def test_the_table_s_lease_may_be_held(self, tmp_path: Path) -> None:
        with self.generators(tmp_path, REAL_SYSTEM) as [generator]:
            with generator.provider.acquire(TABLE_KEY, SOON_S) as lease:
                times = [generator.next(held=lease), *generator.next_many(2, held=lease)]
                assert lease.valid()
            times.append(generator.next())
        assert_increasing(times)

    def test_threads_get_times_in_order(self, tmp_path: Path) -> None:
        log = tmp_path / "times"
        with self.generators(tmp_path, REAL_SYSTEM, REAL_SYSTEM) as opened, ThreadPoolExecutor(8) as pool:
            work = [pool.submit(take_times_here, opened[turn % 2], log, 10) for turn in range(8)]
            assert_in_order([each.result() for each in work])

    def test_processes_get_times_in_order(self, tmp_path: Path) -> None:
        if not self.across_processes:
            raise SkipTest("does not apply: this generator's lock provider works within one process")
        with self.generators(tmp_path, REAL_SYSTEM) as [generator]:
            assert_in_order(run_together(8, take_times, generator, tmp_path / "times", 10))


class StoppedSystem(ManualSystem):
    """A wall clock that does not move even while one sleeps, as one that is set back all the time."""

    def realtime_ms(self) -> int:
        return START_MS


def assert_increasing(times: list[int]) -> None:
    assert all(earlier < later for earlier, later in pairwise(times)), times


def assert_in_order(takers: list[list[tuple[int, int]]]) -> None:
    """Each taker's times grow, none was given twice, and each is above all that had been given before it was asked."""
    for pairs in takers:
        assert_increasing([time_ms for _, time_ms in pairs])
        assert all(known < time_ms for known, time_ms in pairs), pairs
    times = [time_ms for pairs in takers for _, time_ms in pairs]
    assert len(times) == len(set(times))


def take_times(connection: Connection, generator: TimeGenerator, log: Path, rounds: int) -> None:
    """Takes times, and compares each with all that others were given before it was asked for."""
    start(connection)
    connection.send(take_times_here(generator, log, rounds))


def take_times_here(generator: TimeGenerator, log: Path, rounds: int) -> list[tuple[int, int]]:
    """Pairs of the greatest time in the log before the call, and the time that the call gave."""
    pairs = []
    with open(log, "a+b", buffering=0) as file:
        for _ in range(rounds):
            file.seek(0)
            known = max((int(line) for line in file.read().splitlines()), default=0)
            time_ms = generator.next()
            file.write(b"%020d\n" % time_ms)  # one append of a whole line, which the kernel does not tear
            pairs.append((known, time_ms))
    return pairs
