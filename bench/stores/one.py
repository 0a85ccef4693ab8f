"""One writer that commits ten new rows again and again, nobody else around: ours, bare synced files, and the peers.

Each has a process, and they take turns of a second or so on tables that grow. A rate is that of whole rounds, so that
what a writer does after each hundredth commit is in it. On the local disk, in SeaweedFS, and behind 30 ms more.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
from bench.harness import Result
from bench.locks.common import NotHere, main, print_table
from bench.locks.turns import Line, Round, Worker, call_for, print_lines, serve, take_turns
from bench.nbcc_peers import SCHEMA, BatchWriter, DeltaWriter, DeltaWriterWithOpenTable, NbccWriter, OpenNbccWriter
from bench.stores.many import DISTANT, NEAR, new_table, open_store
from bench.stores.peers import DuckLakeFilesWriter, DuckLakeWriter, LanceWriter, SyncedFilesWriter
from bench.stores.postgres import open_catalog
from bench.stores.writers import WRITERS

LOCAL = "local"
_IN_STORE: tuple[type[BatchWriter], ...] = (NbccWriter, OpenNbccWriter, DeltaWriter, DeltaWriterWithOpenTable)
_KINDS: dict[str, tuple[type[BatchWriter], ...]] = {
    LOCAL: (
        *(NbccWriter, OpenNbccWriter, DeltaWriterWithOpenTable, DuckLakeWriter, DuckLakeFilesWriter),
        *(LanceWriter, SyncedFilesWriter),
    ),
    NEAR: _IN_STORE,
    DISTANT: _IN_STORE,
}
_GOALS = {DeltaWriterWithOpenTable: 3.0, DuckLakeWriter: 1.5, DuckLakeFilesWriter: 1.5, LanceWriter: 0.7}
_GOAL_CPU_MS = 5.0
_GOALS_MS = {NEAR: 50.0, DISTANT: 250.0}
_FULL, _QUICK = (10, 1.5), (4, 1.0)  # rounds, and seconds of each
_WARM_COMMITS = 5


class _Source:
    """Makes new rows."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer, self._batches = writer, 0

    def commit(self) -> None:
        self._batches += 1
        keys = [f"{self._batches}-{index}" for index in range(10)]
        columns = {"id": keys, "ts": [self._batches] * 10, "v": [f"{self._batches}"] * 10}
        self._writer.add(pa.table(columns, schema=SCHEMA))


def run(quick: bool = False, ways: Sequence[str] = (LOCAL, NEAR, DISTANT)) -> list[Result]:
    results: list[Result] = []
    for way in ways:
        with ExitStack() as stack:
            try:
                left_out = open_catalog(stack) if way == LOCAL else stack.enter_context(open_store(way))
            except NotHere as error:
                print_table(f"one writer, {way}", (), [], [str(error)])
                continue
            results += _measure(stack, way, left_out, *(_QUICK if quick else _FULL))
    return results


def _measure(stack: ExitStack, way: str, left_out: list[str], rounds: int, round_s: float) -> list[Result]:
    left_out += [f"{kind.name} is not installed" for kind in _KINDS[way] if kind.missing()]
    lines = []
    for kind in _KINDS[way]:
        if not kind.missing():
            path = _local_place(stack) if way == LOCAL else new_table(stack)
            role = {NbccWriter: "ours", OpenNbccWriter: "ours", SyncedFilesWriter: "floor"}.get(kind, "peer")
            lines.append(Line(kind.name, role, Worker(_work, kind.name, path), warm_calls=_WARM_COMMITS))
    take_turns(stack, lines, rounds, round_s, left_out)
    print_lines(f"one writer, ten rows a commit, {way}", lines, left_out)
    ours = next((line for line in lines if line.name == NbccWriter.name), None)
    return [] if ours is None else _results(way, ours, lines)


def _local_place(stack: ExitStack) -> str:
    return stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-")) + "/table"


def _work(connection: Connection, name: str, path: str) -> None:
    def commit_for(source: _Source, message: tuple[float, int]) -> Round:
        return call_for(source.commit, message)

    serve(connection, lambda: _Source(WRITERS[name](path)), commit_for)


def _results(way: str, ours: Line, lines: Sequence[Line]) -> list[Result]:
    results = []
    for line in lines:
        goal = _GOALS.get(WRITERS[line.name]) if way == LOCAL else None
        if line is ours:
            continue
        # Commits a second as a multiple of theirs, round by round.
        found = [theirs.mean_ms / mine.mean_ms for mine, theirs in zip(ours.rounds, line.rounds, strict=False)]
        ratio = statistics.median(found)
        results.append(
            Result(
                f"one_writer_{way}_to_{line.name}",
                round(ours.median_ms, 2),
                "ms",
                round(line.median_ms, 2) if line.kind == "floor" else None,
                round(line.median_ms, 2) if line.kind == "peer" else None,
                round(ratio, 2),
                f"at least {goal:g} x its commits a second" if goal is not None else "none set",
                goal is None or ratio >= goal,
                f"commits a second to its, {min(found):.2f} to {max(found):.2f} in {len(found)} rounds",
            )
        )
    cpu_ms, least_ms = statistics.median(one.cpu_ms for one in ours.rounds), min(one.cpu_ms for one in ours.rounds)
    if way == LOCAL:
        note = f"of the writing process; {least_ms:.1f} in the least disturbed round"
        goal_text, met = f"at most {_GOAL_CPU_MS:g} ms", cpu_ms <= _GOAL_CPU_MS
        return [*results, Result("one_writer_cpu", round(cpu_ms, 2), "ms", None, None, None, goal_text, met, note)]
    goal_ms = _GOALS_MS[way]
    met, goal_text = ours.median_ms <= goal_ms, f"at most {goal_ms:g} ms"
    note = f"CPU {cpu_ms:.1f} ms of the writing process"
    return [
        *results,
        Result(f"one_writer_{way}", round(ours.median_ms, 1), "ms", None, None, None, goal_text, met, note),
    ]


if __name__ == "__main__":
    main(run, (LOCAL, NEAR, DISTANT))
