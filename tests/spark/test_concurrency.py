"""Several writers at once, in threads and in processes: no row is lost, and who loses a race is told."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import lakelatch
from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import WriteConflict
from lakelatch.failpoints import calling
from lakelatch.format.avro import META_COLUMNS

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
RunPython = Callable[..., "subprocess.Popen[str]"]

MODE = "hoodie.write.concurrency.mode"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
NON_BLOCKING = {MODE: "NON_BLOCKING_CONCURRENCY_CONTROL"}


class Beside:
    """Writes other rows when the next write has begun, and has announced its files and written nothing yet."""

    def __init__(self, stack: ExitStack, other: Callable[[], Any], times: int = 1) -> None:
        self.results: list[Any] = []
        self._other = other
        self._times = times
        stack.enter_context(calling(self._write, ["mark.after"]))

    def _write(self, _: str) -> None:
        if len(self.results) < self._times:
            self.results.append(None)
            self.results[-1] = self._other()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Whatever is entered here ends with the test."""
    with ExitStack() as stack:
        yield stack


def _beside(table: Any, rows: list[tuple[Any, ...]], options: dict[str, str] | None = None) -> Callable[[], Any]:
    frame = table.frame(rows)
    inner: list[Any] = []

    def other() -> Any:
        if inner:  # the write below comes here as well
            return None
        inner.append(True)
        try:
            return lakelatch.write(frame, table.path, {**table.options, **(options or {})})
        finally:
            inner.clear()

    return other


def test_the_loser_of_an_optimistic_race_learns_who_won(make_table: MakeTable, stack: ExitStack) -> None:
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 1, "a")])
    beside = Beside(stack, _beside(table, [(1, 2, "winner")]))
    with pytest.raises(WriteConflict) as caught:
        table.write([(1, 3, "loser")])
    (winner, *_) = beside.results
    assert caught.value.winner == winner.instant
    assert caught.value.file_groups == [("", plan_read(table.path).slices[0].file_id)]
    assert caught.value.time_lost_s > 0
    assert RETRIES in str(caught.value)
    assert table.read() == [(1, 2, "winner")]
    table.compact()
    assert table.read() == [(1, 2, "winner")]


def test_retries_let_the_loser_succeed(make_table: MakeTable, stack: ExitStack) -> None:
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 1, "a")])
    beside = Beside(stack, _beside(table, [(1, 2, "winner")]))
    result = lakelatch.write(table.frame([(1, 3, "second")]), table.path, {**table.options, RETRIES: 1})
    assert result.conflicts_retried == 1 and len(beside.results) == 1
    assert result.instant > beside.results[0].completion
    assert table.read() == [(1, 3, "second")]


def test_optimistic_writers_of_different_file_groups_both_commit(make_table: MakeTable, stack: ExitStack) -> None:
    table = make_table("id long, ts long, v string, part string", partition="part")
    beside = Beside(stack, _beside(table, [(1, 1, "b", "q")]))
    outer = table.write([(1, 1, "a", "p")])
    inner = beside.results[0]
    assert outer.instant < inner.instant < inner.completion < outer.completion
    assert table.read() == [(1, 1, "a", "p"), (1, 1, "b", "q")]


def test_non_blocking_writers_of_the_same_keys_both_commit(make_table: MakeTable, stack: ExitStack) -> None:
    table = make_table(**{name.replace(".", "__"): value for name, value in NON_BLOCKING.items()})
    table.write([(1, 1, "a"), (2, 1, "a")])
    beside = Beside(stack, _beside(table, [(1, 3, "inner"), (2, 2, "inner")]))
    outer = table.write([(1, 2, "outer"), (2, 3, "outer")])
    inner = beside.results[0]
    assert inner.completion < outer.completion and outer.conflicts_retried == 0
    wanted = [(1, 3, "inner"), (2, 3, "outer")]
    assert table.read() == wanted
    table.compact()
    assert table.read() == wanted


def test_threads_of_one_session_lose_nothing(make_table: MakeTable) -> None:
    """Four threads upsert the same keys without blocking; each key must keep the greatest of all values."""
    table = make_table(**{name.replace(".", "__"): value for name, value in NON_BLOCKING.items()})
    table.write([(0, 0, "start")])
    frames = [table.frame([(key, 10 * thread + key % 7, f"w{thread}") for key in range(8)]) for thread in range(4)]

    def work(frame: Any) -> list[Any]:
        return [lakelatch.write(frame, table.path, table.options) for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        results = [result for found in pool.map(work, frames) for result in found]
    assert len({result.instant for result in results}) == len({result.completion for result in results}) == 12
    assert table.read() == [(key, 30 + key % 7, "w3") for key in range(8)]


WRITER_SCRIPT = """
import json
path, name, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
rows = [(key, 100 * turn + name, f"{name}-{turn}") for turn in range(4) for key in (turn, turn + 1, 10 * (name + 1))]
frame = spark.createDataFrame(spark.createDataFrame(rows, "id long, ts long, v string").toArrow())
print("ready", flush=True)
sys.stdin.readline()
done = []
for turn in range(4):
    part = frame.where(f"ts >= {100 * turn} and ts < {100 * turn + 100}")
    done.append(lakelatch.write(part, path, options).completion)
print(json.dumps(done), flush=True)
"""


#: What two writers of such rows leave.
AT_LAST = [
    *((turn, 100 * turn + 1, f"1-{turn}") for turn in range(4)),
    (4, 301, "1-3"),
    (10, 300, "0-3"),
    (20, 301, "1-3"),
]


def test_threads_and_a_reader(make_table: MakeTable) -> None:
    """As below, in one session."""
    table = make_table(**{name.replace(".", "__"): value for name, value in NON_BLOCKING.items()})
    table.write([])

    def rows(name: int, turn: int) -> list[tuple[int, int, str]]:
        return [(key, 100 * turn + name, f"{name}-{turn}") for key in (turn, turn + 1, 10 * (name + 1))]

    frames = [[table.frame(rows(name, turn)) for turn in range(4)] for name in (0, 1)]

    def work(mine: list[Any]) -> list[str]:
        return [lakelatch.write(frame, table.path, table.options).completion for frame in mine]

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, mine) for mine in frames]
        while not all(one.done() for one in working):
            _check_whole_commits(table)
        completions = [completion for one in working for completion in one.result()]
    assert len(set(completions)) == 8
    assert table.read() == sorted(AT_LAST, key=repr)


@pytest.mark.long
@pytest.mark.parametrize("more", [NON_BLOCKING, {RETRIES: "50"}], ids=["non-blocking", "optimistic"])
def test_processes_and_a_reader(make_table: MakeTable, run_python: RunPython, more: dict[str, str]) -> None:
    """Two processes write the same keys while this one reads: whole commits only, the greatest values in the end."""
    table = make_table()
    options = {**table.options, **more}
    table.write([])
    processes = [run_python(WRITER_SCRIPT, table.path, str(name), json.dumps(options)) for name in (0, 1)]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdin is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        while any(process.poll() is None for process in processes):
            _check_whole_commits(table)
        completions = []
        for process in processes:
            output, errors = process.communicate()
            assert process.returncode == 0, errors
            completions += json.loads(output)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert len(set(completions)) == 8
    assert table.read() == sorted(AT_LAST, key=repr)


def _check_whole_commits(table: Any) -> None:
    """Each write has its own key (10 or 20) and two shared ones: who sees one of its rows must see that it happened."""
    frame = lakelatch.read(table.spark, table.path).drop(*META_COLUMNS)
    rows = {row["id"]: (row["ts"], row["v"]) for row in frame.collect()}
    for ts, _ in rows.values():
        turn, name = divmod(ts, 100)
        own = rows.get(10 * (name + 1))
        assert own is not None and own[0] >= ts, f"half a commit: {rows}"
        assert rows[turn][0] >= ts and rows[turn + 1][0] >= ts, f"half a commit: {rows}"
