"""Many processes that commit batches of ten rows to one table on the local disk: ours under NBCC, and the peers.

Sixteen add new keys (`batches`); eight give new values to the same ten keys of one file group (`updates`). In turns,
each time on a new table and with new processes, which have made a first commit before the clock starts. Afterwards
the table is read, and must hold what the processes were told is committed.

Our processes have no Spark session (sixteen of them do not fit on a small machine): they do what `lakelatch.write`
does once the rows are in the driver. A commit of ours is durable when it returns; delta-rs leaves that to the kernel,
and DuckLake leaves data files to it, while its catalog's commits are synced.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from bench.harness import Result
from bench.locks.common import NotHere, main, percentile, print_table, short
from bench.locks.turns import Worker, serve
from bench.nbcc_peers import SCHEMA, BatchWriter, DeltaWriter, DeltaWriterWithOpenTable, NbccWriter, TableWriter
from bench.stores.peers import DuckLakeFilesWriter, DuckLakeWriter, SyncedFilesWriter
from bench.stores.postgres import open_catalog
from bench.stores.writers import WRITERS

from lakelatch.system import REAL_SYSTEM

BATCHES, UPDATES = "batches", "updates"
_PROCESSES = {BATCHES: 16, UPDATES: 8}
_KINDS: dict[str, tuple[type[BatchWriter], ...]] = {
    BATCHES: (
        *(NbccWriter, DeltaWriter, DeltaWriterWithOpenTable),
        *(DuckLakeWriter, DuckLakeFilesWriter, SyncedFilesWriter),
    ),
    UPDATES: (NbccWriter, DeltaWriter),
}
_ROWS = 10
_ROUNDS, _ROUND_S = 3, 8.0
_QUICK_ROUNDS, _QUICK_ROUND_S = 1, 4.0
_WARM_TRIES = 1000
_START_S, _END_S = 180.0, 120.0
_LEAD_S = 0.2  # for the message to reach all processes, so that they begin together
_GOALS_TO_PEERS = {
    BATCHES: {DeltaWriter.needs: 12.0, DuckLakeWriter.needs: 4.0},
    UPDATES: {DeltaWriter.needs: 5.0},
}
_GOAL_P99_MS = 500.0
_GOAL_FAIRNESS = 0.5
_HEADERS = (
    *("writer", "commits/s", "failed", "time lost in them", "commit ms: median", "p99", "slowest / fastest writer"),
    "CPU ms for each commit",
)


class _Try(NamedTuple):
    """`batch` names its rows, and `began_ns` is their ordering value. `error` is "" if it was committed."""

    batch: str
    began_ns: int
    ended_ns: int
    error: str


class _Tries(NamedTuple):
    """Of one process."""

    tries: list[_Try]
    cpu_ms: float


@dataclass(frozen=True)
class Round:
    commits_per_s: float
    commits_ms: list[float]
    failed: int
    lost: float
    fairness: float
    cpu_ms: float
    errors: frozenset[str]


@dataclass
class Line:
    name: str
    rounds: list[Round] = field(default_factory=list)

    def median(self, name: str) -> float:
        return statistics.median([float(getattr(found, name)) for found in self.rounds])

    @property
    def commits_ms(self) -> list[float]:
        return [one for found in self.rounds for one in found.commits_ms]

    @property
    def failed(self) -> int:
        return sum(found.failed for found in self.rounds)


def run(quick: bool = False, shapes: Sequence[str] = (BATCHES, UPDATES)) -> list[Result]:
    rounds, round_s = (_QUICK_ROUNDS, _QUICK_ROUND_S) if quick else (_ROUNDS, _ROUND_S)
    results = []
    for shape in shapes:
        with ExitStack() as stack:
            left_out = open_catalog(stack)
            lines = in_turns(_KINDS[shape], shape, _PROCESSES[shape], rounds, round_s, left_out, local_place)
        print_lines(f"{shape}: {_PROCESSES[shape]} processes, {_ROWS} rows a commit", lines, left_out)
        results += _results(shape, lines)
    return results


def local_place(stack: ExitStack) -> str:
    """A place for a table on the local disk, until the stack is closed."""
    return stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-")) + "/table"


def in_turns(
    kinds: Sequence[type[BatchWriter]],
    shape: str,
    processes: int,
    rounds: int,
    round_s: float,
    left_out: list[str],
    place: Callable[[ExitStack], str],
) -> list[Line]:
    """A line for each kind of writer, with a round in each turn, on a table at a new `place`."""
    left_out += [f"{kind.name} is not installed" for kind in kinds if kind.missing()]
    lines = [Line(kind.name) for kind in kinds if not kind.missing()]
    for number in range(rounds):
        for line in list(lines if number % 2 == 0 else reversed(lines)):
            try:
                with ExitStack() as stack:
                    line.rounds.append(_one_round(stack, line.name, shape, processes, round_s, place(stack)))
            except Exception as error:
                if line.name == NbccWriter.name and not isinstance(error, NotHere):
                    raise
                lines.remove(line)
                left_out.append(f"{line.name}: {error}")
    return lines


def _one_round(stack: ExitStack, name: str, shape: str, processes: int, round_s: float, path: str) -> Round:
    first = WRITERS[name](path)
    stack.callback(first.close)
    first.add(rows_of("first", 0, shape))
    workers = []
    for number in range(processes):
        workers.append(Worker(_work, name, path, shape, number))
        stack.callback(workers[-1].end)
    for worker in workers:
        worker.receive(_START_S)
    start_ns = REAL_SYSTEM.monotonic_ns() + int(_LEAD_S * 1e9)
    for worker in workers:
        worker.send((start_ns, round_s))
    found: list[_Tries] = [worker.receive(round_s + _END_S) for worker in workers]
    _check(name, shape, first.read(), [one for tries in found for one in tries.tries])
    return _figures_of(start_ns, found)


def _work(connection: Connection, name: str, path: str, shape: str, number: int) -> None:
    serve(connection, lambda: _open(name, path, number), lambda writer, message: _write(writer, shape, number, message))


def _open(name: str, path: str, number: int) -> BatchWriter:
    """With a first commit behind it, which has imported what there is to import."""
    writer = WRITERS[name](path)
    for turn in range(_WARM_TRIES):
        try:
            writer.add(rows_of(f"warm-{number}-{turn}", 0, BATCHES))
            return writer
        except Exception:  # the peer may fail while the others warm up
            continue
    raise NotHere(f"{_WARM_TRIES} first commits failed")


def _write(writer: BatchWriter, shape: str, number: int, message: tuple[int, float]) -> _Tries:
    start_ns, duration_s = message
    system = REAL_SYSTEM
    system.sleep(max(start_ns - system.monotonic_ns(), 0) / 1e9)
    end_ns = start_ns + int(duration_s * 1e9)
    tries: list[_Try] = []
    before_ms = cpu_ms()
    while True:
        began_ns = system.monotonic_ns()
        if began_ns >= end_ns:
            return _Tries(tries, cpu_ms() - before_ms)
        batch, error = f"{number}-{len(tries)}", ""
        rows = rows_of(batch, began_ns, shape)
        try:
            if shape == UPDATES and isinstance(writer, TableWriter):
                writer.update(rows)
            else:
                writer.add(rows)
        except Exception as problem:
            error = f"{type(problem).__name__}: {' '.join(str(problem).split())[:80]}"
        tries.append(_Try(batch, began_ns, system.monotonic_ns(), error))


def rows_of(batch: str, time_ns: int, shape: str) -> pa.Table:
    """The rows of one commit, whose keys are new in `BATCHES` and the same ten in `UPDATES`."""
    keys = [f"{batch if shape == BATCHES else 'same'}-{index}" for index in range(_ROWS)]
    return pa.table({"id": keys, "ts": [time_ns] * _ROWS, "v": [batch] * _ROWS}, schema=SCHEMA)


def cpu_ms() -> float:
    """Of this process with its threads, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def _check(name: str, shape: str, rows: pa.Table, tries: Sequence[_Try]) -> None:
    """The table holds every committed row, each once, and nothing of what failed."""
    committed = [one for one in tries if not one.error]
    found = {row["id"]: row["v"] for row in rows.to_pylist() if not row["id"].startswith("warm-")}
    if len(set(rows["id"].to_pylist())) != rows.num_rows:
        raise AssertionError(f"{name}: a key is there twice")
    if shape == BATCHES:
        expected = {
            f"{batch}-{index}" for batch in ("first", *(one.batch for one in committed)) for index in range(_ROWS)
        }
        if set(found) != expected:
            raise AssertionError(
                f"{name}: {len(expected - set(found))} rows lost, {len(set(found) - expected)} too many"
            )
        return
    allowed = {one.batch for one in committed}
    if name == NbccWriter.name:  # whatever the order of commits was, the greatest ordering value wins
        allowed = {max(committed, key=lambda one: one.began_ns).batch}
    if len(found) != _ROWS or not set(found.values()) <= allowed:
        raise AssertionError(f"{name}: {len(found)} rows of {sorted(set(found.values()))}, expected {sorted(allowed)}")


def _figures_of(start_ns: int, found: Sequence[_Tries]) -> Round:
    tries = [one for process in found for one in process.tries]
    spent_ms = {one: (one.ended_ns - one.began_ns) / 1e6 for one in tries}
    committed = [one for one in tries if not one.error]
    if not committed:
        raise NotHere("nothing was committed")
    shares = [sum(not one.error for one in process.tries) for process in found]
    return Round(
        commits_per_s=len(committed) / ((max(one.ended_ns for one in tries) - start_ns) / 1e9),
        commits_ms=[spent_ms[one] for one in committed],
        failed=len(tries) - len(committed),
        lost=sum(spent_ms[one] for one in tries if one.error) / sum(spent_ms.values()),
        fairness=min(shares) / max(shares),
        cpu_ms=sum(process.cpu_ms for process in found) / len(committed),
        errors=frozenset(one.error for one in tries if one.error),
    )


def print_lines(title: str, lines: Sequence[Line], left_out: Sequence[str]) -> None:
    rows = []
    for line in lines:
        commits_ms = line.commits_ms
        rows.append(
            (
                *(line.name, " ".join(short(found.commits_per_s) for found in line.rounds), f"{line.failed}"),
                *(
                    f"{line.median('lost'):.0%}",
                    short(statistics.median(commits_ms)),
                    short(percentile(commits_ms, 0.99)),
                ),
                *(f"{line.median('fairness'):.2f}", short(line.median("cpu_ms"))),
            )
        )
        errors = sorted({error for found in line.rounds for error in found.errors})
        left_out = [*left_out, *(f"{line.name} failed with {error}" for error in errors[:3])]
    print_table(title, _HEADERS, rows, left_out)


def _results(shape: str, lines: Sequence[Line]) -> list[Result]:
    results = results_beside_peers(f"nbcc_writers_{shape}", lines, _GOALS_TO_PEERS[shape])
    ours = next((line for line in lines if line.name == NbccWriter.name), None)
    if shape != BATCHES or ours is None:
        return results
    p99_ms, fairness = percentile(ours.commits_ms, 0.99), ours.median("fairness")
    goal = f"p99 under {_GOAL_P99_MS:g} ms, slowest writer at least {_GOAL_FAIRNESS:g} of the fastest"
    met = p99_ms < _GOAL_P99_MS and fairness >= _GOAL_FAIRNESS
    note = f"slowest writer {fairness:.2f} of the fastest"
    floor = next((line for line in lines if line.name == SyncedFilesWriter.name), None)
    if floor is not None:
        note += f"; {statistics.median(ratios(ours, floor)):.2f} of the commits of {floor.name}"
    return [*results, Result(f"nbcc_writers_{shape}_p99", round(p99_ms, 1), "ms", None, None, None, goal, met, note)]


def results_beside_peers(name: str, lines: Sequence[Line], goals: Mapping[str, float]) -> list[Result]:
    """Our commits a second as a multiple of each peer's, by the package that it needs; its faster way counts."""
    ours = next((line for line in lines if line.name == NbccWriter.name), None)
    if ours is None:
        return []
    results = []
    for package, goal in goals.items():
        ways = [line for line in lines if WRITERS[line.name].needs == package and line.rounds]
        if not ways:
            continue
        best = max(ways, key=lambda line: line.median("commits_per_s"))
        found = ratios(ours, best)
        note = f"{min(found):.2f} to {max(found):.2f} in {len(found)} rounds; {_failures(ours)}; {_failures(best)}"
        results.append(
            Result(
                f"{name}_{package}",
                round(ours.median("commits_per_s"), 1),
                "commits/s",
                None,
                round(best.median("commits_per_s"), 1),
                round(statistics.median(found), 2),
                f"no failed commit, at least {goal:g} x {package}",
                ours.failed == 0 and statistics.median(found) >= goal,
                note,
            )
        )
    return results


def ratios(ours: Line, other: Line) -> list[float]:
    """Of the commits a second, round by round, so that a slow minute of the machine is in both."""
    pairs = zip(ours.rounds, other.rounds, strict=False)
    return [mine.commits_per_s / theirs.commits_per_s for mine, theirs in pairs]


def _failures(line: Line) -> str:
    return f"{line.name}: {line.failed} of {len(line.commits_ms) + line.failed} failed"


if __name__ == "__main__":
    main(run, (BATCHES, UPDATES))
