"""Eight processes that want one lock: how soon it goes from one to the next, how long they wait, and in which order.

Each process thinks 10 to 30 ms, waits, holds 5 ms, and so on. A hand-off is measured from the call of `release` to the
return of `acquire` in a process that had been waiting by then. Times of different processes are compared: on one
machine they come from one clock (CLOCK_MONOTONIC on Linux). Locks take turns, in rounds, with eight processes each.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.harness import Result
from bench.locks.common import (
    BACKENDS,
    LEASE_S,
    Contender,
    NotHere,
    Place,
    main,
    open_place,
    percentile,
    print_table,
    short,
    spread,
)
from bench.locks.peers import Adapter, adapters_for, open_contender
from bench.locks.turns import Worker, serve

from lakelatch.system import REAL_SYSTEM

_PROCESSES = 8
_HOLD_S, _THINK_LEAST_S, _THINK_MOST_S = 0.005, 0.010, 0.030
_ROUNDS, _ROUND_S = 4, 3.0
_QUICK_ROUNDS, _QUICK_ROUND_S = 1, 2.0
_TIMEOUT_S = 20.0
_LEAD_S = 0.1  # for the message to reach all processes, so that they begin together
_GOAL_TO_FLOOR = 2.0
_GOAL_TO_PEER = 1.25  # of the 99th percentiles, which differ by that much between two runs of the same lock
_GOAL_P99_TO_MEDIAN = 4.0  # of waits, where nobody wakes who waits
_OUT_OF_ORDER_MOST = 0.05  # more than the floor, whose queue on a busy machine is not perfect either
_HEADERS = (
    *(
        "lock",
        "kind",
        "grants/s",
        "hand-off ms (of rounds)",
        "p99",
        "waiting ms: median",
        "p99",
        "longest",
    ),
    *("Jain", "out of order", "timeouts", "a grant: reads", "writes"),
)


class _Grant(NamedTuple):
    """Nanoseconds. `granted` is False where the deadline came first."""

    process: int
    asked_ns: int
    got_ns: int
    release_ns: int
    granted: bool


class _Share(NamedTuple):
    """What one process had of a round, and the reads and writes that it sent, if they are counted."""

    grants: list[_Grant]
    requests: tuple[int, int] | None


@dataclass(frozen=True)
class _Figures:
    """Of one round."""

    grants_per_s: float
    handoffs_ms: list[float]
    waits_ms: list[float]
    fairness: float
    out_of_order: float
    timeouts: int
    overlaps: int
    reads: float | None  # of one grant
    writes: float | None


@dataclass
class _Line:
    adapter: Adapter
    workers: list[Worker]
    rounds: list[_Figures] = field(default_factory=list)

    @property
    def medians(self) -> list[float]:
        return [statistics.median(found.handoffs_ms) for found in self.rounds if found.handoffs_ms]

    @property
    def handoffs_ms(self) -> list[float]:
        return [one for found in self.rounds for one in found.handoffs_ms]

    @property
    def waits_ms(self) -> list[float]:
        return [one for found in self.rounds for one in found.waits_ms]

    @property
    def out_of_order(self) -> float:
        return statistics.median(found.out_of_order for found in self.rounds)

    @property
    def overlaps(self) -> int:
        return sum(found.overlaps for found in self.rounds)

    @property
    def requests(self) -> tuple[float, float] | None:
        """Reads and writes for one grant, where they are counted."""
        reads = [found.reads for found in self.rounds if found.reads is not None]
        writes = [found.writes for found in self.rounds if found.writes is not None]
        return (statistics.median(reads), statistics.median(writes)) if reads and writes else None


def run(quick: bool = False, backends: Sequence[str] = BACKENDS) -> list[Result]:
    results = []
    for backend in backends:
        try:
            with open_place(backend) as place:
                results += _measure(place, *((_QUICK_ROUNDS, _QUICK_ROUND_S) if quick else (_ROUNDS, _ROUND_S)))
        except NotHere as error:
            print_table(f"{backend}: hand-off among {_PROCESSES}", _HEADERS, [], [f"{backend}: {error}"])
    return results


def _measure(place: Place, rounds: int, round_s: float) -> list[Result]:
    adapters, left_out = adapters_for(place.backend, "handoff")
    with ExitStack() as stack:
        lines = []
        for adapter in adapters:
            try:
                lines.append(_Line(adapter, _start(stack, place, adapter)))
            except NotHere as error:
                left_out.append(f"{place.backend}: {adapter.name}: {error}")
        for number in range(rounds):
            for line in list(lines if number % 2 == 0 else reversed(lines)):
                try:
                    line.rounds.append(_one_round(line.workers, round_s))
                except NotHere as error:
                    lines.remove(line)
                    left_out.append(f"{place.backend}: {line.adapter.name}: {error}")
    _print(place.backend, lines, left_out)
    return _results(place.backend, lines)


def _start(stack: ExitStack, place: Place, adapter: Adapter) -> list[Worker]:
    workers = []
    for number in range(_PROCESSES):
        worker = Worker(_work, adapter.name, place, number)
        stack.callback(worker.end)
        workers.append(worker)
    for worker in workers:
        worker.receive()
    return workers


def _work(connection: Connection, name: str, place: Place, number: int) -> None:
    def contend(contender: Contender, message: tuple[int, float]) -> _Share:
        reads, writes = contender.requests() or (0, 0)
        grants = _contend(contender, number, *message)
        counted = contender.requests()
        return _Share(grants, (counted[0] - reads, counted[1] - writes) if counted else None)

    serve(connection, lambda: open_contender(place, name, "handoff", "handoff", LEASE_S), contend)


def _contend(contender: Contender, number: int, start_ns: int, duration_s: float) -> list[_Grant]:
    system = REAL_SYSTEM
    found: list[_Grant] = []
    system.sleep(max(start_ns - system.monotonic_ns(), 0) / 1e9)
    end_ns = start_ns + int(duration_s * 1e9)
    while True:
        system.sleep(_THINK_LEAST_S + (_THINK_MOST_S - _THINK_LEAST_S) * system.random())
        asked_ns = system.monotonic_ns()
        if asked_ns >= end_ns:
            return found
        granted = contender.acquire(_TIMEOUT_S)
        got_ns = release_ns = system.monotonic_ns()
        if granted:
            system.sleep(_HOLD_S)
            release_ns = system.monotonic_ns()
            contender.release()
        found.append(_Grant(number, asked_ns, got_ns, release_ns, granted))


def _one_round(workers: Sequence[Worker], round_s: float) -> _Figures:
    start_ns = REAL_SYSTEM.monotonic_ns() + int(_LEAD_S * 1e9)
    for worker in workers:
        worker.send((start_ns, round_s))
    shares: list[_Share] = [worker.receive(round_s + 3 * _TIMEOUT_S) for worker in workers]
    if not any(share.grants for share in shares):
        raise NotHere("nothing was granted")
    return _figures_of(shares, round_s)


def _figures_of(found: Sequence[_Share], round_s: float) -> _Figures:
    everything, processes = [grant for share in found for grant in share.grants], len(found)
    counted = [share.requests for share in found if share.requests is not None]
    grants = sorted((grant for grant in everything if grant.granted), key=lambda grant: grant.got_ns)
    pairs = [(grants[number], grants[number + 1]) for number in range(len(grants) - 1)]
    handoffs = [after.got_ns - before.release_ns for before, after in pairs if after.asked_ns < before.release_ns]
    overtaken = sum(_was_overtaking(grant, grants) for grant in grants)
    shares = [sum(grant.process == number for grant in grants) for number in range(processes)]
    squares = sum(share * share for share in shares)
    elapsed_s = max((grants[-1].release_ns - grants[0].got_ns) / 1e9, round_s) if grants else round_s
    return _Figures(
        len(grants) / elapsed_s,
        [handoff / 1e6 for handoff in handoffs if handoff >= 0],
        [(grant.got_ns - grant.asked_ns) / 1e6 for grant in grants],
        sum(shares) ** 2 / (processes * squares) if squares else 0.0,
        overtaken / len(grants) if grants else 0.0,
        sum(not grant.granted for grant in everything),
        sum(after.got_ns < before.release_ns for before, after in pairs),
        sum(reads for reads, _ in counted) / max(len(grants), 1) if counted else None,
        sum(writes for _, writes in counted) / max(len(grants), 1) if counted else None,
    )


def _was_overtaking(grant: _Grant, grants: Sequence[_Grant]) -> bool:
    """Whether somebody had asked before, and was still waiting."""
    return any(other.asked_ns < grant.asked_ns and other.got_ns > grant.got_ns for other in grants)


def _print(backend: str, lines: Sequence[_Line], left_out: Sequence[str]) -> None:
    rows = []
    for line in lines:
        handoffs, waits, rounds = line.handoffs_ms, line.waits_ms, line.rounds
        if not line.medians:
            left_out = [*left_out, f"{backend}: {line.adapter.name}: no process ever waited"]
            continue
        rows.append(
            (
                *(line.adapter.name, line.adapter.kind, f"{statistics.median(r.grants_per_s for r in rounds):.0f}"),
                *(spread(line.medians), short(percentile(handoffs, 0.99)), short(statistics.median(waits))),
                *(short(percentile(waits, 0.99)), short(max(waits))),
                *(f"{statistics.median(r.fairness for r in rounds):.3f}", f"{line.out_of_order:.0%}"),
                f"{sum(found.timeouts for found in rounds)}",
                *(f"{count:.1f}" for count in line.requests or ()),
            )
        )
        if line.overlaps:
            left_out = [*left_out, f"{backend}: {line.adapter.name} had TWO HOLDERS at once {line.overlaps} times"]
    print_table(f"{backend}: hand-off among {_PROCESSES}", _HEADERS, rows, left_out)


def _find(lines: Sequence[_Line], kind: str) -> _Line | None:
    found = [line for line in lines if line.adapter.kind == kind and line.medians]
    return min(found, key=lambda line: statistics.median(line.medians), default=None)


def _results(backend: str, lines: Sequence[_Line]) -> list[Result]:
    ours, floor, peer = (_find(lines, kind) for kind in ("ours", "floor", "peer"))
    if ours is None:
        return []
    median_ms, wait_ms = statistics.median(ours.medians), percentile(ours.waits_ms, 0.99)
    note = f"p99 of waits {wait_ms:.0f} ms, {ours.out_of_order:.0%} out of order, two holders {ours.overlaps} times"
    met, goals, ratio = ours.overlaps == 0, ["never two holders"], None
    if ours.requests is not None:  # who waits is woken by nobody
        spread_of_waits = wait_ms / statistics.median(ours.waits_ms)
        met = met and spread_of_waits <= _GOAL_P99_TO_MEDIAN and ours.out_of_order <= _OUT_OF_ORDER_MOST
        goals += [
            f"p99 of waits at most {_GOAL_P99_TO_MEDIAN:g} x their median",
            f"at most {_OUT_OF_ORDER_MOST:.0%} out of order",
        ]
        note += ", p99 of waits {:.1f} x their median; {:.1f} reads and {:.1f} writes a grant".format(
            spread_of_waits, *ours.requests
        )
    if floor is not None:
        ratio = statistics.median(mine / least for mine, least in zip(ours.medians, floor.medians, strict=False))
        met = met and ratio <= _GOAL_TO_FLOOR and ours.out_of_order <= floor.out_of_order + _OUT_OF_ORDER_MOST
        goals += [f"at most {_GOAL_TO_FLOOR:g} x floor", f"at most {_OUT_OF_ORDER_MOST:.0%} more out of order"]
        note += f"; floor {floor.adapter.name}: p99 of waits {percentile(floor.waits_ms, 0.99):.0f} ms"
        note += f", {floor.out_of_order:.0%} out of order"
    peers = [line for line in lines if line.adapter.kind == "peer" and line.medians]
    if peers:
        patient = min(peers, key=lambda line: percentile(line.waits_ms, 0.99))
        best_ms = percentile(patient.waits_ms, 0.99)
        met = met and wait_ms <= _GOAL_TO_PEER * best_ms
        goals.append(f"p99 of waits at most {_GOAL_TO_PEER:g} x the best peer's")
        note += f"; best peer's p99 of waits {best_ms:.0f} ms ({patient.adapter.name})"
    return [
        Result(
            f"locks_handoff_{backend}",
            round(median_ms, 3),
            "ms",
            round(statistics.median(floor.medians), 3) if floor is not None else None,
            round(statistics.median(peer.medians), 3) if peer is not None else None,
            round(ratio, 2) if ratio is not None else None,
            ", ".join(goals),
            met,
            note,
        )
    ]


if __name__ == "__main__":
    main(run)
