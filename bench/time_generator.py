"""The time generators: one time beside one round trip of the same client, and a million times of sixteen processes.

**One time**: `hybrid`, the floor (one call that writes a number, with nobody else around) and `skew_adjusting` with a
skew of 200 ms take turns. **A million**: sixteen processes take batches and single times at once; no time may come
twice, none may be less than one that its process had before, and none less than one that any process had *before the
call began*. Times of different processes are compared: on one machine they come from one clock (CLOCK_MONOTONIC).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.harness import Result
from bench.locks.common import BACKENDS, REDIS_SYNCED, NotHere, Place, main, open_place, print_table, short
from bench.locks.floors import RegisterFloor
from bench.locks.turns import Line, Worker, beside_floor, call_for, fastest, print_lines, serve, take_turns

from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.open import TYPE_OPTION, open_time_generator
from lakelatch.timegen.skew_adjusting import SKEW_OPTION

_BACKENDS = (*BACKENDS, REDIS_SYNCED)
_FULL, _QUICK = (60, 0.04), (12, 0.03)  # rounds, and seconds of each: short, so that neighbours see the same machine
_SKEW_MS = 200
_PROCESSES = 16
_BATCH = 1000
_PLAN = (62, 500)  # batches and single times of each process: 16 x 62,500 are a million
_QUICK_PLAN = (6, 100)
_LEAD_S = 0.2  # for the message to reach all processes, so that they begin together
_DEADLINE_S = 600.0
_GOALS = {"redis": 1.3, REDIS_SYNCED: 1.3, "zookeeper": 1.3, "etcd": 1.3}


class _Call(NamedTuple):
    """Of one process; times of the clock in nanoseconds, and the first and the last of the times that it gave."""

    began_ns: int
    ended_ns: int
    first: int
    last: int
    given: int


def run(quick: bool = False, backends: Sequence[str] = _BACKENDS) -> list[Result]:
    results = []
    for backend in backends:
        try:
            with open_place(backend) as place:
                results += _one_time(place, *(_QUICK if quick else _FULL))
                results += _together(place, *(_QUICK_PLAN if quick else _PLAN))
        except NotHere as error:
            print_table(f"{backend}: times", (), [], [f"{backend}: {error}"])
    return results


def _one_time(place: Place, rounds: int, round_s: float) -> list[Result]:
    left_out: list[str] = []
    with ExitStack() as stack:
        lines = [
            Line("hybrid", "ours", Worker(_take_single, place, "hybrid")),
            Line("one round trip", "floor", Worker(_touch, place)),
            Line(f"skew_adjusting, {_SKEW_MS} ms", "Hudi's way", Worker(_take_single, place, "skew_adjusting"), 1),
        ]
        take_turns(stack, lines, rounds, round_s, left_out)
    print_lines(f"{place.label}: one time", lines, left_out)
    ours, floor, hudis = (fastest(lines, kind) for kind in ("ours", "floor", "Hudi's way"))
    if ours is None or floor is None:
        return []
    note, hudis_ms = "", None
    if hudis is not None:
        rate, hudis_rate = 1000 / ours.median_ms, 1000 / hudis.median_ms
        hudis_ms = round(hudis.median_ms, 2)
        note = f"; {rate:.0f} times/s against {hudis_rate:.1f}/s of skew_adjusting: {rate / hudis_rate:.0f} x"
    name = f"time_generator_{place.label}"
    return [beside_floor(name, ours, floor, _GOALS.get(place.label), hudis_ms, note)]


def _open_generator(place: Place, name: str) -> TimeGenerator:
    options = {TYPE_OPTION: name, SKEW_OPTION: str(_SKEW_MS)}
    generator = open_time_generator(options, place.open_provider(more=options))
    generator.next()
    return generator


def _take_single(connection: Connection, place: Place, name: str) -> None:
    serve(
        connection,
        lambda: _open_generator(place, name),
        lambda generator, message: call_for(generator.next, message),
    )


def _touch(connection: Connection, place: Place) -> None:
    serve(connection, lambda: RegisterFloor(place), lambda floor, message: call_for(floor.advance, message))


def _together(place: Place, batches: int, singles: int) -> list[Result]:
    title = f"{place.label}: {_PROCESSES * (batches * _BATCH + singles):,} times of {_PROCESSES} processes"
    with ExitStack() as stack:
        workers = [Worker(_take_many, place, batches, singles) for _ in range(_PROCESSES)]
        for worker in workers:
            stack.callback(worker.end)
        try:
            for worker in workers:
                worker.receive()
            start_ns = REAL_SYSTEM.monotonic_ns() + int(_LEAD_S * 1e9)
            for worker in workers:
                worker.send(start_ns)
            answers = [worker.receive(_DEADLINE_S) for worker in workers]
        except NotHere as error:
            print_table(title, (), [], [f"{place.label}: {error}"])
            return []
    calls = [call for found, _ in answers for call in found]
    faults = {
        "given twice": _given_twice(calls),
        "back within a process": sum(back for _, back in answers),
        "back in real time": _back_in_real_time(calls),
    }
    elapsed_s = (max(call.ended_ns for call in calls) - start_ns) / 1e9
    count = sum(call.given for call in calls)
    row = (f"{count:,}", f"{len(calls):,}", short(elapsed_s), f"{count / elapsed_s:,.0f}", *map(str, faults.values()))
    print_table(title, ("times", "calls", "seconds", "times/s", *faults), [row], [])
    return [
        Result(
            f"time_generator_together_{place.label}",
            round(count / elapsed_s),
            "times/s",
            None,
            None,
            None,
            "no time twice, none back",
            not any(faults.values()) and count == _PROCESSES * (batches * _BATCH + singles),
            f"{count:,} times of {_PROCESSES} processes in {len(calls):,} calls ({_BATCH} or one at a time), "
            f"{len(calls) / elapsed_s:.0f} calls/s; {', '.join(f'{value} {name}' for name, value in faults.items())}",
        )
    ]


def _take_many(connection: Connection, place: Place, batches: int, singles: int) -> None:
    def take(generator: TimeGenerator, start_ns: int) -> tuple[list[_Call], int]:
        return _take_all(generator, start_ns, batches, singles)

    serve(connection, lambda: _open_generator(place, "hybrid"), take)


def _take_all(generator: TimeGenerator, start_ns: int, batches: int, singles: int) -> tuple[list[_Call], int]:
    """The calls, and how often a time was not greater than the one before it in this process."""
    system = REAL_SYSTEM
    calls: list[_Call] = []
    back, last = 0, 0
    system.sleep(max(start_ns - system.monotonic_ns(), 0) / 1e9)
    for number in range(batches + singles):
        is_batch = (number + 1) * batches // (batches + singles) > number * batches // (batches + singles)
        began_ns = system.monotonic_ns()
        times = generator.next_many(_BATCH) if is_batch else [generator.next()]
        ended_ns = system.monotonic_ns()
        back += sum(after <= before for before, after in zip([last, *times], times, strict=False))
        last = times[-1]
        calls.append(_Call(began_ns, ended_ns, times[0], last, len(times)))
    return calls, back


def _given_twice(calls: Sequence[_Call]) -> int:
    """Calls whose times reach into those of another call."""
    ordered = sorted(calls, key=lambda call: call.first)
    return sum(ordered[number + 1].first <= ordered[number].last for number in range(len(ordered) - 1))


def _back_in_real_time(calls: Sequence[_Call]) -> int:
    """Calls that began after another one had ended, and gave less than it."""
    by_end = sorted(calls, key=lambda call: call.ended_ns)
    ended, greatest, back = 0, 0, 0
    for call in sorted(calls, key=lambda call: call.began_ns):
        while by_end[ended].ended_ns < call.began_ns:
            greatest = max(greatest, by_end[ended].last)
            ended += 1
        back += call.first <= greatest
    return back


if __name__ == "__main__":
    main(run, _BACKENDS)
