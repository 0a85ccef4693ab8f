"""Many processes that commit batches of ten rows to one table on the local disk: ours under NBCC, and delta-rs.

Sixteen add new keys (`batches`); eight give new values to the same ten keys of one file group (`updates`). In turns,
each time on a new table and with new processes, which have made a first commit before the clock starts. Afterwards
the table is read, and must hold what the processes were told is committed.

Our processes have no Spark session (sixteen of them do not fit on a small machine): they do what `lakelatch.write`
does once the rows are in the driver. A commit of ours is durable when it returns; delta-rs leaves that to the kernel.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from bench.harness import Result
from bench.locks.common import NotHere, main, percentile, print_table, short
from bench.locks.turns import Worker, serve
from bench.nbcc_peers import SCHEMA, WRITERS, DeltaWriter, DeltaWriterWithOpenTable, NbccWriter, TableWriter

from lakelatch.system import REAL_SYSTEM

BATCHES, UPDATES = "batches", "updates"
_PROCESSES = {BATCHES: 16, UPDATES: 8}
_KINDS: dict[str, tuple[type[TableWriter], ...]] = {
    BATCHES: (NbccWriter, DeltaWriter, DeltaWriterWithOpenTable),
    UPDATES: (NbccWriter, DeltaWriter),
}
_ROWS = 10
_ROUNDS, _ROUND_S = 3, 8.0
_QUICK_ROUNDS, _QUICK_ROUND_S = 1, 4.0
_WARM_TRIES = 1000
_START_S, _END_S = 180.0, 120.0
_LEAD_S = 0.2  # for the message to reach all processes, so that they begin together
_GOAL_TO_PEER = {BATCHES: 10.0, UPDATES: 5.0}
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
class _Round:
    commits_per_s: float
    commits_ms: list[float]
    failed: int
    lost: float
    fairness: float
    cpu_ms: float
    errors: frozenset[str]


@dataclass
class _Line:
    name: str
    rounds: list[_Round] = field(default_factory=list)

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
        left_out = [f"{kind.name} is not installed" for kind in _KINDS[shape] if kind.missing()]
        lines = [_Line(kind.name) for kind in _KINDS[shape] if not kind.missing()]
        for number in range(rounds):
            for line in list(lines if number % 2 == 0 else reversed(lines)):
                try:
                    line.rounds.append(_one_round(line.name, shape, round_s))
                except NotHere as error:
                    lines.remove(line)
                    left_out.append(f"{line.name}: {error}")
        _print(shape, lines, left_out)
        results += _results(shape, lines)
    return results


def _one_round(name: str, shape: str, round_s: float) -> _Round:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-"))
        path = f"{folder}/table"
        first = WRITERS[name](path)
        stack.callback(first.close)
        first.add(_rows("first", 0, shape))
        workers = []
        for number in range(_PROCESSES[shape]):
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


def _open(name: str, path: str, number: int) -> TableWriter:
    """With a first commit behind it, which has imported what there is to import."""
    writer = WRITERS[name](path)
    for turn in range(_WARM_TRIES):
        try:
            writer.add(_rows(f"warm-{number}-{turn}", 0, BATCHES))
            return writer
        except Exception:  # the peer may fail while the others warm up
            continue
    raise NotHere(f"{_WARM_TRIES} first commits failed")


def _write(writer: TableWriter, shape: str, number: int, message: tuple[int, float]) -> _Tries:
    start_ns, duration_s = message
    system = REAL_SYSTEM
    system.sleep(max(start_ns - system.monotonic_ns(), 0) / 1e9)
    end_ns = start_ns + int(duration_s * 1e9)
    tries: list[_Try] = []
    cpu_ms = _cpu_ms()
    while True:
        began_ns = system.monotonic_ns()
        if began_ns >= end_ns:
            return _Tries(tries, _cpu_ms() - cpu_ms)
        batch, error = f"{number}-{len(tries)}", ""
        rows = _rows(batch, began_ns, shape)
        try:
            if shape == BATCHES:
                writer.add(rows)
            else:
                writer.update(rows)
        except Exception as problem:
            error = f"{type(problem).__name__}: {' '.join(str(problem).split())[:80]}"
        tries.append(_Try(batch, began_ns, system.monotonic_ns(), error))


def _rows(batch: str, time_ns: int, shape: str) -> pa.Table:
    keys = [f"{batch if shape == BATCHES else 'same'}-{index}" for index in range(_ROWS)]
    return pa.table({"id": keys, "ts": [time_ns] * _ROWS, "v": [batch] * _ROWS}, schema=SCHEMA)


def _cpu_ms() -> float:
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


def _figures_of(start_ns: int, found: Sequence[_Tries]) -> _Round:
    tries = [one for process in found for one in process.tries]
    spent_ms = {one: (one.ended_ns - one.began_ns) / 1e6 for one in tries}
    committed = [one for one in tries if not one.error]
    if not committed:
        raise NotHere("nothing was committed")
    shares = [sum(not one.error for one in process.tries) for process in found]
    return _Round(
        commits_per_s=len(committed) / ((max(one.ended_ns for one in tries) - start_ns) / 1e9),
        commits_ms=[spent_ms[one] for one in committed],
        failed=len(tries) - len(committed),
        lost=sum(spent_ms[one] for one in tries if one.error) / sum(spent_ms.values()),
        fairness=min(shares) / max(shares),
        cpu_ms=sum(process.cpu_ms for process in found) / len(committed),
        errors=frozenset(one.error for one in tries if one.error),
    )


def _print(shape: str, lines: Sequence[_Line], left_out: Sequence[str]) -> None:
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
    print_table(f"{shape}: {_PROCESSES[shape]} processes, {_ROWS} rows a commit", _HEADERS, rows, left_out)


def _results(shape: str, lines: Sequence[_Line]) -> list[Result]:
    ours = next((line for line in lines if line.name == NbccWriter.name), None)
    if ours is None:
        return []
    peers = [line for line in lines if line is not ours]
    rate, p99_ms, fairness = ours.median("commits_per_s"), percentile(ours.commits_ms, 0.99), ours.median("fairness")
    met, goals = ours.failed == 0, ["no failed commit"]
    note = f"{ours.failed} of {len(ours.commits_ms) + ours.failed} failed, p99 {p99_ms:.0f} ms"
    note += f", slowest writer {fairness:.2f} of the fastest"
    if shape == BATCHES:
        met = met and p99_ms < _GOAL_P99_MS and fairness >= _GOAL_FAIRNESS
        goals += [f"p99 under {_GOAL_P99_MS:g} ms", f"slowest writer at least {_GOAL_FAIRNESS:g} of the fastest"]
    best, ratio = max(peers, key=lambda line: line.median("commits_per_s"), default=None), None
    if best is not None:
        # Round by round, so that a slow minute of the machine is in both.
        pairs = zip(ours.rounds, best.rounds, strict=False)
        ratio = statistics.median(mine.commits_per_s / theirs.commits_per_s for mine, theirs in pairs)
        met = met and ratio >= _GOAL_TO_PEER[shape]
        goals.append(f"at least {_GOAL_TO_PEER[shape]:g} x the best peer")
        note += f"; {best.name}: {best.failed} of {len(best.commits_ms) + best.failed} failed"
        note += f", {best.median('lost'):.0%} of the time lost, p99 {percentile(best.commits_ms, 0.99):.0f} ms"
    return [
        Result(
            f"nbcc_writers_{shape}",
            round(rate, 1),
            "commits/s",
            None,
            round(best.median("commits_per_s"), 1) if best is not None else None,
            round(ratio, 2) if ratio is not None else None,
            ", ".join(goals),
            met,
            note,
        )
    ]


if __name__ == "__main__":
    main(run, (BATCHES, UPDATES))
