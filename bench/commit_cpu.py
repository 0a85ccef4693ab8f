"""The CPU time of a commit of ten rows by `lakelatch.open(path).upsert`, by part; alone, and of one of sixteen writers.

The floor is the CPU time of bare synced files: Parquet, requested, inflight, and the completed file under a kernel
lock. Parts are told apart at failpoints and at two calls of the transaction manager; what a call's threads do counts.
CPU time depends less on what else the machine does than time does, but not at all on a disk's.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Result
from bench.locks.common import main, print_table, short
from bench.nbcc_peers import BatchWriter, NbccWriter
from bench.nbcc_writers import BATCHES, cpu_ms, in_turns, local_place, rows_of
from bench.stores.peers import SyncedFilesWriter

from lakelatch.failpoints import calling
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

ALONE, MANY = "alone", "many"
#: The parts of a commit in order, and what each ends with.
PARTS = {
    "open": "recover",
    "begin": "write.before_rows",
    "file": "close",
    "decide": "commit.before_slot",
    "slot": "commit.after_slot",
    "show": "committed",
    "services": "end",
}
_ENDS = {end: part for part, end in PARTS.items()}
_FIRST, _COMMITS, _QUICK_COMMITS = 40, 300, 80
_PROCESSES, _ROUNDS, _ROUND_S = 16, 2, 8.0
_GOALS_MS = {ALONE: 6.0, MANY: 9.0}


def run(quick: bool = False, which: tuple[str, ...] = (ALONE, MANY)) -> list[Result]:
    results = []
    if ALONE in which:
        results += _alone(_QUICK_COMMITS if quick else _COMMITS)
    if MANY in which:
        results += _many(1 if quick else _ROUNDS)
    return results


def _alone(commits: int) -> list[Result]:
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    floors: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        ours, floor = NbccWriter(f"{folder}/table"), SyncedFilesWriter(f"{folder}/floor")
        for number in range(_FIRST):
            ours.add(rows_of(f"first-{number}", number, BATCHES))
            floor.add(rows_of(f"first-{number}", number, BATCHES))
        for number in range(commits):
            rows = rows_of(str(number), number, BATCHES)
            before_ms = cpu_ms()
            floor.add(rows)
            floors.append(cpu_ms() - before_ms)
            for part, part_ms in parts_of(partial(ours.add, rows)).items():
                spent[part].append(part_ms)
        if ours.read().num_rows != (_FIRST + commits) * rows.num_rows:
            raise AssertionError("rows are missing")
    lines = [(part, short(statistics.mean(found)), short(statistics.median(found))) for part, found in spent.items()]
    print_table(f"CPU of a commit, alone, {commits} commits", ("part", "ms: mean", "median"), lines, [])
    whole = statistics.mean([sum(one) for one in zip(*spent.values(), strict=True)])
    note = ", ".join(f"{part} {mean}" for part, mean, _ in lines)
    return [_result(ALONE, whole, statistics.mean(floors), note)]


def _many(rounds: int) -> list[Result]:
    kinds: tuple[type[BatchWriter], ...] = (NbccWriter, SyncedFilesWriter)
    ours, floor = in_turns(kinds, BATCHES, _PROCESSES, rounds, _ROUND_S, [], local_place)
    note = f"{ours.median('commits_per_s'):.0f} commits/s, bare files {floor.median('commits_per_s'):.0f}"
    return [_result(MANY, ours.median("cpu_ms"), floor.median("cpu_ms"), f"{note}; failed {ours.failed}")]


def _result(which: str, value_ms: float, floor_ms: float, note: str) -> Result:
    goal_ms = _GOALS_MS[which]
    ratio = round(value_ms / floor_ms, 2)
    name, met = f"commit_cpu_{which}", value_ms <= goal_ms
    return Result(name, round(value_ms, 2), "ms", round(floor_ms, 2), None, ratio, f"{goal_ms:g} ms", met, note)


def parts_of(commit: Callable[[], object]) -> dict[str, float]:
    """The CPU milliseconds of each part of one commit."""
    spent = dict.fromkeys(PARTS, 0.0)
    last_ms = cpu_ms()

    def reached(end: str) -> None:
        nonlocal last_ms
        now_ms = cpu_ms()
        spent[_ENDS[end]] += now_ms - last_ms
        last_ms = now_ms

    with (
        calling(reached, [end for end in _ENDS if "." in end]),
        _around(TransactionManager, "recover", lambda: reached("recover"), None),
        _around(Transaction, "close", lambda: reached("close"), None),
        _around(Transaction, "end", lambda: None, lambda: reached("committed")),
    ):
        last_ms = cpu_ms()
        commit()
        reached("end")
    return spent


@contextmanager
def _around(owner: type, name: str, before: Callable[[], None], after: Callable[[], None] | None) -> Iterator[None]:
    """Has `before` and `after` called around a method, for a block."""
    method = getattr(owner, name)

    def around(*given: Any, **named: Any) -> Any:
        before()
        found = method(*given, **named)
        if after is not None:
            after()
        return found

    setattr(owner, name, around)
    try:
        yield
    finally:
        setattr(owner, name, method)


if __name__ == "__main__":
    main(run, (ALONE, MANY))
