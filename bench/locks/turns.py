"""Processes that measure in turns: each is opened once, and asked once in every round, there and back (A B C, C B A).

So what else the machine does meets all of them, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import gc
import logging
import resource
import statistics
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from bench.harness import Result
from bench.locks.common import NotHere, percentile, print_table, quartiles, short, spread

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.in_processes import Child

T = TypeVar("T")

_LEAST_CALLS = 1
_WARM_CALLS = 20
_HEADERS = ("what", "kind", "median ms (middle half)", "p99 ms", "CPU ms", "x floor (middle half)")


@dataclass(frozen=True)
class Failed:
    """What a process sends instead of an answer."""

    text: str


class Worker:
    """A process that measures. It is opened once and asked once in each round, so that rounds can take turns."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.child = Child(target, *arguments)

    def receive(self, timeout_s: float = 120.0) -> Any:
        """The answer. Errors: `NotHere` with what went wrong in the process."""
        try:
            answer = self.child.connection.recv() if self.child.connection.poll(timeout_s) else Failed("no answer")
        except EOFError:
            answer = Failed("the process died")
        if isinstance(answer, Failed):
            raise NotHere(answer.text)
        return answer

    def send(self, message: Any) -> None:
        self.child.send(message)

    def ask(self, message: Any, timeout_s: float = 120.0) -> Any:
        self.send(message)
        return self.receive(timeout_s)

    def end(self) -> None:
        """Also where the process hangs: peers may."""
        self.child.kill()


def serve(connection: Connection, opens: Callable[[], T], work: Callable[[T, Any], Any]) -> None:
    """For targets: opens, sends "ready", and answers every message with the work's result; ends by being killed."""
    try:
        logging.getLogger().addHandler(logging.NullHandler())  # peers write tracebacks of what is counted here anyway
        thing = opens()
        connection.send("ready")
        gc.collect()
        gc.freeze()  # what the imports left is not looked through again in the middle of a round
        while True:
            connection.send(work(thing, connection.recv()))
    except EOFError:
        return
    except Exception as error:
        said = " ".join(str(error).split())
        where = traceback.extract_tb(error.__traceback__)[-1]
        connection.send(Failed(f"{type(error).__name__}: {said[:200]} ({Path(where.filename).name}:{where.lineno})"))


@dataclass(frozen=True)
class Round:
    median_ms: float
    p99_ms: float
    mean_ms: float
    cpu_ms: float


def call_for(call: Callable[[], object], message: tuple[float, int]) -> Round:
    """For workers: calls for so many seconds, and at least that often. `cpu_ms` is this process's, for one call."""
    duration_s, least = message
    durations_ms: list[float] = []
    cpu_s = _cpu_s()
    now_ns = REAL_SYSTEM.monotonic_ns()
    end_ns = now_ns + int(duration_s * 1e9)
    while now_ns < end_ns or len(durations_ms) < least:
        started_ns = now_ns
        call()
        now_ns = REAL_SYSTEM.monotonic_ns()
        durations_ms.append((now_ns - started_ns) / 1e6)
    cpu_ms = (_cpu_s() - cpu_s) * 1000 / len(durations_ms)
    return Round(
        statistics.median(durations_ms), percentile(durations_ms, 0.99), statistics.fmean(durations_ms), cpu_ms
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass
class Line:
    """One thing that is measured, and its rounds."""

    name: str
    kind: str
    worker: Worker
    warm_calls: int = _WARM_CALLS
    rounds: list[Round] = field(default_factory=list)

    @property
    def medians(self) -> list[float]:
        return [found.median_ms for found in self.rounds]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.medians)

    def ratios(self, other: Line) -> list[float]:
        """Round by round, so that a slow minute of the machine is in both."""
        return [ours / theirs for ours, theirs in zip(self.medians, other.medians, strict=False)]

    def ratio(self, other: Line) -> float:
        return statistics.median(self.ratios(other))

    def quiet_ratio(self, other: Line) -> float:
        """Of the rounds in which each was least disturbed: one in four of them was as fast as that, or faster."""
        return quartiles(self.medians)[0] / quartiles(other.medians)[0]


def take_turns(stack: ExitStack, lines: list[Line], rounds: int, round_s: float, left_out: list[str]) -> None:
    """Measures them; what fails is removed from `lines`, with a line in `left_out`. The stack ends the workers."""

    def attempt(line: Line, action: Callable[[Line], object]) -> None:
        try:
            action(line)
        except NotHere as error:
            lines.remove(line)
            left_out.append(f"{line.name}: {error}")

    for line in lines:
        stack.callback(line.worker.end)
    for line in list(lines):
        attempt(line, lambda line: (line.worker.receive(), line.worker.ask((0.0, line.warm_calls))))
    for number in range(rounds):
        for line in list(lines if number % 2 == 0 else reversed(lines)):
            attempt(line, lambda line: line.rounds.append(line.worker.ask((round_s, _LEAST_CALLS))))


def fastest(lines: Sequence[Line], kind: str) -> Line | None:
    found = [line for line in lines if line.kind == kind]
    return min(found, key=lambda line: line.median_ms, default=None)


def beside_floor(
    name: str, ours: Line, floor: Line, goal: float | None, peer_ms: float | None, more_note: str
) -> Result:
    """Our time as a multiple of the floor's, which must not exceed `goal`."""
    ratio, (low, high) = ours.ratio(floor), quartiles(ours.ratios(floor))
    note = f"ratio to {floor.name}, {low:.2f} to {high:.2f} in the middle half of {len(ours.rounds)} rounds"
    note += f", {ours.quiet_ratio(floor):.2f} in the least disturbed quarter{more_note}"
    return Result(
        name,
        round(ours.median_ms, 4),
        "ms",
        round(floor.median_ms, 4),
        peer_ms,
        round(ratio, 2),
        f"at most {goal:g} x floor" if goal is not None else "none set",
        goal is None or ratio <= goal,
        note,
    )


def print_lines(title: str, lines: Sequence[Line], left_out: Sequence[str]) -> None:
    floor = fastest(lines, "floor")
    rows = []
    for line in sorted(lines, key=lambda line: line.median_ms):
        p99_ms = statistics.median(found.p99_ms for found in line.rounds)
        cpu_ms = statistics.median(found.cpu_ms for found in line.rounds)
        shown = spread(line.ratios(floor)) if floor is not None else ""
        rows.append((line.name, line.kind, spread(line.medians), short(p99_ms), short(cpu_ms), shown))
    print_table(title, _HEADERS, rows, left_out)
