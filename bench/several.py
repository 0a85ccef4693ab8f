"""Transactions over two tables beside commits of one, ours and DuckLake's on PostgreSQL; and one moment of ten tables.

`distant` counts requests, in memory: each takes 30 ms, and those that need no answer of each other's are made at once.
`local` has one writer of ten rows in each table, and the peers, in turns on the local disk; `many` has eight. They
commit to the two tables in one transaction, or to one after the other, each of which is a commit of one table.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
from bench.harness import Result, time_ms
from bench.locks.common import main, print_table, short
from bench.locks.turns import Line, Round, Worker, call_for, print_lines, serve, take_turns
from bench.nbcc_peers import OPTIONS, BatchWriter, NbccWriter
from bench.nbcc_writers import BATCHES, in_turns, local_place, ratios, rows_of
from bench.nbcc_writers import print_lines as print_rates
from bench.stores.distant import DistantTable
from bench.stores.peers import DuckLakeWriter
from bench.stores.postgres import open_catalog
from bench.stores.several import SEVERAL_WRITERS, DuckLakeTransactionWriter, OneByOneWriter, TransactionWriter
from bench.stores.writers import WRITERS

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.locks.options import PROVIDER
from lakelatch.system import REAL_SYSTEM

DISTANT, LOCAL, MANY = "distant", "local", "many"
_DISTANCE_S = 0.030
_SNAPSHOT_OF = 10
_WRITERS = 8
_COMMITS_COUNTED, _REQUESTS_BEFORE = 100, 1885  # of a new table, with a version without transactions (5be6502)
_GOALS = {DISTANT: 1.4, LOCAL: 2.2}
_GOAL_MANY, _GOAL_SNAPSHOT_MS, _GOAL_PEER = 0.6, 100.0, 1.0
_WARM_COMMITS = 5
_IN_MEMORY = {**OPTIONS, PROVIDER: "in_process"}
_HEADERS = ("what", "ms", "requests", "rounds of 30 ms, at least")


def run(quick: bool = False, ways: Sequence[str] = (DISTANT, LOCAL, MANY)) -> list[Result]:
    results: list[Result] = []
    if DISTANT in ways:
        results += [_requests_of_one(), *_distant(5 if quick else 15)]
    if LOCAL in ways:
        results += _local(*((4, 1.0) if quick else (10, 1.5)))
    if MANY in ways:
        results += _many(*((1, 4.0) if quick else (3, 8.0)))
    return results


# -- at 30 ms a request -----------------------------------------------------------------------------------------------


def _requests_of_one() -> Result:
    """What the commits of one table ask for, with the removal of old slots that comes after some of them."""
    store = DistantTable(f"bench-{REAL_SYSTEM.new_id()}")
    table = ArrowTable(store.uri, _IN_MEMORY)
    for number in range(_COMMITS_COUNTED):
        table.upsert(rows_of(f"{number}", 0, BATCHES))
    found, name = store.requests, f"several_requests_of_{_COMMITS_COUNTED}_commits"
    goal, ratio = f"{_REQUESTS_BEFORE}, as before", round(found / _REQUESTS_BEFORE, 4)
    return Result(name, found, "requests", _REQUESTS_BEFORE, None, ratio, goal, found <= _REQUESTS_BEFORE)


def _distant(rounds: int) -> list[Result]:
    stores = [DistantTable(f"bench-{REAL_SYSTEM.new_id()}") for _ in range(_SNAPSHOT_OF)]
    tables = [ArrowTable(store.uri, _IN_MEMORY) for store in stores]
    numbers = iter(range(1_000_000))

    def rows() -> pa.Table:
        return rows_of(f"{next(numbers)}", 0, BATCHES)

    for table in tables:
        for _ in range(_WARM_COMMITS):
            table.upsert(rows())
    for store in stores:
        store.distance_s = _DISTANCE_S
    two = [store.uri for store in stores[:2]]

    def transaction(paths: Sequence[str]) -> None:
        with lakelatch.transaction(paths, _IN_MEMORY) as tx:
            for path in paths:
                tx.upsert(path, rows())

    calls: dict[str, Callable[[], object]] = {
        "one table, a commit": lambda: tables[0].upsert(rows()),
        "one table, a transaction": lambda: transaction(two[:1]),
        "two tables, a transaction": lambda: transaction(two),
        f"snapshot of {_SNAPSHOT_OF} tables": lambda: lakelatch.snapshot([store.uri for store in stores]),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    asked: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            before = sum(store.requests for store in stores)
            times[name].append(time_ms(call))
            asked[name].append(sum(store.requests for store in stores) - before)
    shown = []
    for name in calls:
        ms = statistics.median(times[name])
        least = min(times[name]) / _DISTANCE_S / 1000
        shown.append((name, short(ms), f"{statistics.median(asked[name]):g}", f"{least:.1f}"))
    print_table("30 ms a request, in memory", _HEADERS, shown, [])
    one, _, both, moment = times
    found = [mine / alone for mine, alone in zip(times[both], times[one], strict=True)]
    moment_ms, goal = statistics.median(times[moment]), f"at most {_GOAL_SNAPSHOT_MS:g} ms"
    met, note = moment_ms <= _GOAL_SNAPSHOT_MS, f"{statistics.median(asked[moment]):g} requests"
    return [
        _ratio("several_distant", statistics.median(times[both]), found, _GOALS[DISTANT], "one table's commit"),
        Result("several_snapshot", round(moment_ms), "ms", None, None, None, goal, met, note),
    ]


# -- one writer on the local disk -------------------------------------------------------------------------------------


class _Source:
    """Makes new rows."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer, self._batches = writer, 0

    def commit(self) -> None:
        self._batches += 1
        self._writer.add(rows_of(f"{self._batches}", self._batches, BATCHES))


def _local(rounds: int, round_s: float) -> list[Result]:
    with ExitStack() as stack:
        left_out = open_catalog(stack)
        kinds: tuple[type[BatchWriter], ...] = (NbccWriter, *SEVERAL_WRITERS, DuckLakeWriter)
        left_out += [f"{kind.name} is not installed" for kind in kinds if kind.missing()]
        lines = []
        for kind in kinds:
            if not kind.missing():
                place = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-")) + "/table"
                role = "peer" if issubclass(kind, DuckLakeWriter) else "ours"
                lines.append(Line(kind.name, role, Worker(_work, kind.name, place), warm_calls=_WARM_COMMITS))
        take_turns(stack, lines, rounds, round_s, left_out)
        print_lines("one writer, ten rows in each table, local", lines, left_out)
        found = {line.name: line for line in lines}
    ours, one = found[TransactionWriter.name], found[NbccWriter.name]
    results = [_ratio("several_local", ours.median_ms, ours.ratios(one), _GOALS[LOCAL], "one table's commit")]
    peer = found.get(DuckLakeTransactionWriter.name)
    if peer is not None:
        rates = [1 / ratio for ratio in ours.ratios(peer)]
        results.append(_beside_peer("several_local_to_DuckLake", 1000 / ours.median_ms, 1000 / peer.median_ms, rates))
    return results


def _work(connection: Connection, name: str, path: str) -> None:
    def commit_for(source: _Source, message: tuple[float, int]) -> Round:
        return call_for(source.commit, message)

    serve(connection, lambda: _Source(WRITERS[name](path)), commit_for)


# -- eight writers ----------------------------------------------------------------------------------------------------


def _many(rounds: int, round_s: float) -> list[Result]:
    with ExitStack() as stack:
        left_out = open_catalog(stack)
        lines = in_turns(SEVERAL_WRITERS, BATCHES, _WRITERS, rounds, round_s, left_out, local_place)
    print_rates(f"{_WRITERS} writers of the same two tables, both in each line", lines, left_out)
    found = {line.name: line for line in lines}
    ours, apart = found[TransactionWriter.name], found[OneByOneWriter.name]
    rate, rates = ours.median("commits_per_s"), ratios(ours, apart)
    ratio = statistics.median(rates)
    results = [
        Result(
            f"several_{_WRITERS}_writers",
            round(rate, 1),
            "transactions/s",
            None,
            None,
            round(ratio, 2),
            f"none fails, at least {_GOAL_MANY:g} x the tables' commits one by one",
            not ours.failed and ratio >= _GOAL_MANY,
            f"{_spread(rates)}; {ours.failed} failed",
        )
    ]
    peer = found.get(DuckLakeTransactionWriter.name)
    if peer is not None:
        name = f"several_{_WRITERS}_writers_to_DuckLake"
        results.append(_beside_peer(name, rate, peer.median("commits_per_s"), ratios(ours, peer), peer.failed))
    return results


# -- results ----------------------------------------------------------------------------------------------------------


def _ratio(name: str, value_ms: float, found: Sequence[float], goal: float, other: str) -> Result:
    ratio, goal_text = statistics.median(found), f"at most {goal:g} x {other}"
    return Result(name, round(value_ms, 1), "ms", None, None, round(ratio, 2), goal_text, ratio <= goal, _spread(found))


def _beside_peer(name: str, rate: float, peer: float, found: Sequence[float], failed: int = 0) -> Result:
    ratio, goal = statistics.median(found), f"at least {_GOAL_PEER:g} x its transactions a second"
    note = f"{_spread(found)}; {failed} of its transactions failed"
    unit, met = "transactions/s", ratio >= _GOAL_PEER
    return Result(name, round(rate, 1), unit, None, round(peer, 1), round(ratio, 2), goal, met, note)


def _spread(found: Sequence[float]) -> str:
    return f"{min(found):.2f} to {max(found):.2f} in {len(found)} rounds"


if __name__ == "__main__":
    main(run, (DISTANT, LOCAL, MANY))
