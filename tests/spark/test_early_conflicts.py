"""A small job and a large one that meet in one file group: who loses, why, and how much it has written by then."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.engine.write import attempt
from lakelatch.errors import InvalidRequest, WriteConflict, reraise
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage import LocalStorage
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Loss, recent_losses
from lakelatch.transactions.early.notes import mark_aborted
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.winner import wait_for_winner

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
RunPython = Callable[..., "subprocess.Popen[str]"]

PREFIX = "hoodie.write.concurrency.early.conflict."
EARLY = {PREFIX + "detection.enable": "true", "hoodie.write.concurrency.async.conflict.detector.period_ms": "50"}
STRATEGY = PREFIX + "detection.strategy"
CHECK_COMMITS = PREFIX + "check.commit.conflict"
MODE = "hoodie.write.concurrency.mode"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
TASKS = "hoodie.upsert.shuffle.parallelism"
ROWS, BUCKETS = 400, 8
PATIENCE_S = 400


class SmallJob:
    """One row, written in a thread of the driver, which stops when its file is announced and not made yet."""

    def __init__(self, table: Any, patch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
        self._table, self._options = table, {**table.options, **options}
        self._frame = table.frame([(1, 9, "small")])
        self._announced, self._go_on = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done: Future[Any] | None = None
        create = TaskFiles.create

        def paused(files: TaskFiles, partition: str, name: str, data: bytes, rows: int) -> int:
            if threading.current_thread().name.startswith("ThreadPool"):
                files.announce(partition, name)
                self._announced.set()
                assert self._go_on.wait(PATIENCE_S)
            return create(files, partition, name, data, rows)

        patch.setattr(TaskFiles, "create", paused)

    def start(self) -> str:
        """Writes up to the marker; returns its instant."""
        self._done = self._pool.submit(lakelatch.write, self._frame, self._table.path, self._options)
        assert self._announced.wait(PATIENCE_S)
        (instant,) = LocalStorage(self._table.path).list(HEARTBEAT_FOLDER).files
        return instant

    def finish(self) -> Any:
        self._go_on.set()
        assert self._done is not None
        return self._done.result(PATIENCE_S)

    def whole(self) -> Any:
        """All of it at once."""
        self._go_on.set()
        return lakelatch.write(self._frame, self._table.path, self._options)


@pytest.fixture
def small_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SmallJob]]:
    made: list[SmallJob] = []

    def make(table: Any, options: dict[str, str]) -> SmallJob:
        made.append(SmallJob(table, monkeypatch, options))
        return made[-1]

    yield make
    for job in made:
        job._go_on.set()
        job._pool.shutdown()


@pytest.fixture
def table(make_table: MakeTable) -> Any:
    table = make_table(**{"hoodie__bucket__index__num__buckets": str(BUCKETS), TASKS.replace(".", "__"): str(BUCKETS)})
    table.write([(0, 0, "first")])
    return table


def large(table: Any) -> DataFrame:
    """A frame that Spark has to compute, with rows in every bucket, and that does not look small."""
    rows: DataFrame = table.spark.range(ROWS).mapInArrow(lambda batches: batches, "id long")
    return rows.selectExpr("id", "id + 10 as ts", "'large' as v")


def before_the_large_commit(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Does something else when the next Spark write has written all and is about to commit."""
    commit = Transaction.close

    def later(transaction: Transaction, *given: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            patch.setattr(Transaction, "close", commit)
            act()
        return commit(transaction, *given)

    patch.setattr(Transaction, "close", later)


def losses(table: Any) -> list[Loss]:
    return recent_losses(LocalStorage(table.path))


def files_of(table: Any, instant: str, empty: bool) -> list[str]:
    found = [file for file in Path(table.path).glob(f"*{instant}*") if file.is_file()]
    return [file.name for file in found if (file.stat().st_size == 0) == empty]


@pytest.mark.parametrize(
    "strategy, shuffle", [("simple_direct", "true"), ("simple_direct", "false"), ("transactional_direct", "true")]
)
def test_the_large_job_ends_where_a_small_one_came_before(
    table: Any, small_job: Callable[..., SmallJob], strategy: str, shuffle: str
) -> None:
    options = {**EARLY, STRATEGY: strategy, "lakelatch.write.shuffle": shuffle}
    small = small_job(table, options)
    winner = small.start()
    with pytest.raises(WriteConflict) as caught:
        lakelatch.write(large(table), table.path, {**table.options, **options})
    conflict = caught.value
    assert conflict.early and conflict.winner == winner < conflict.details["instant"]
    assert "is at work on 1 of the same file groups" in str(conflict) and conflict.seen_time > winner
    assert len(conflict.file_groups) == 1 and conflict.file_groups[0][1].startswith("0000000")
    assert 0 <= conflict.rows_lost < ROWS and conflict.task_s_lost > 0
    assert files_of(table, conflict.details["instant"], empty=False) == []
    done = small.finish()
    assert done.instant == winner
    assert table.read() == [(0, 0, "first"), (1, 9, "small")]
    (loss,) = losses(table)
    assert (loss.instant, loss.winner, loss.early) == (conflict.details["instant"], winner, True)
    assert loss.rows_lost == conflict.rows_lost


def test_without_it_the_large_job_writes_all_and_loses_at_its_commit(
    table: Any, small_job: Callable[..., SmallJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_job(table, {})
    winner = small.start()
    before_the_large_commit(monkeypatch, small.finish)
    with pytest.raises(WriteConflict) as caught:
        lakelatch.write(large(table), table.path, table.options)
    conflict = caught.value
    assert not conflict.early and conflict.winner == winner and conflict.seen_slot > 0
    assert conflict.rows_lost == ROWS and conflict.bytes_lost > 0 and conflict.task_s_lost > 0
    assert table.read() == [(0, 0, "first"), (1, 9, "small")]
    assert [loss.rows_lost for loss in losses(table)] == [ROWS]


def test_a_small_job_that_comes_later_ends_before_it_has_written_a_row(
    table: Any, small_job: Callable[..., SmallJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_job(table, EARLY)
    found: list[WriteConflict] = []

    def lose() -> None:
        with pytest.raises(WriteConflict) as caught:
            small.whole()
        found.append(caught.value)

    before_the_large_commit(monkeypatch, lose)
    done = lakelatch.write(large(table), table.path, {**table.options, **EARLY})
    (conflict,) = found
    assert conflict.early and conflict.winner == done.instant < conflict.details["instant"]
    assert conflict.rows_lost == 0 and files_of(table, conflict.details["instant"], empty=False) == []
    assert len(table.read()) == ROWS and done.rows_written == ROWS


@pytest.mark.parametrize("check_commits", ["true", "false"])
def test_a_small_job_that_committed_meanwhile_is_found_early_if_asked(
    table: Any, small_job: Callable[..., SmallJob], check_commits: str
) -> None:
    small = small_job(table, EARLY)
    frame = large(table)
    results: list[Any] = []

    def begun() -> DataFrame:  # called once to learn the columns, and then inside the try
        results.append(small.whole() if len(results) == 1 else None)
        return frame

    with pytest.raises(WriteConflict) as caught:
        lakelatch.write(begun, table.path, {**table.options, **EARLY, CHECK_COMMITS: check_commits})
    conflict = caught.value
    assert conflict.winner == results[1].instant > conflict.details["instant"]
    assert (conflict.seen_time, conflict.early) == (results[1].completion, check_commits == "true")
    assert conflict.rows_lost < ROWS if conflict.early else conflict.rows_lost == ROWS
    assert table.read() == [(0, 0, "first"), (1, 9, "small")]


def test_a_write_that_may_try_again_waits_for_its_winner(
    table: Any, small_job: Callable[..., SmallJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_job(table, EARLY)
    winner = small.start()
    waited: list[tuple[str, str]] = []

    def finish_and_wait(observer: Any, conflict: WriteConflict, *given: Any) -> bool:
        waited.append((conflict.winner, small.finish().instant))
        return wait_for_winner(observer, conflict, *given)

    monkeypatch.setattr(attempt, "wait_for_winner", finish_and_wait)
    done = lakelatch.write(large(table), table.path, {**table.options, **EARLY, RETRIES: "1"})
    assert done.conflicts_retried == 1 and waited == [(winner, winner)]
    rows = {row[0]: row for row in table.read()}
    assert len(rows) == ROWS and rows[1] == (1, 11, "large")
    assert [loss.winner for loss in losses(table)] == [winner]


def test_tasks_that_wait_for_rows_are_ended_by_their_driver(table: Any, spark: SparkSession, tmp_path: Path) -> None:
    """No task of it looks: they all wait for a file that nobody makes."""
    gate, started = tmp_path / "gate", tmp_path / "started"
    storage = LocalStorage(table.path)

    def blocked(batches: Any) -> Any:
        for batch in batches:
            started.touch()
            wait = threading.Event()
            while not gate.exists():
                wait.wait(0.05)
            yield batch

    frame = large(table).mapInArrow(blocked, large(table).schema)
    other = OtherWrite("20200101000000000", "deltacommit", "", frozenset(), "other", inflight=True)

    def tell() -> None:
        wait = threading.Event()
        while not started.exists():
            wait.wait(0.05)
        (instant,) = storage.list(HEARTBEAT_FOLDER).files
        mark_aborted(storage, instant, Conflict(other, frozenset([("", "told")])))

    thread = threading.Thread(target=tell)
    thread.start()
    with pytest.raises(WriteConflict) as caught:
        lakelatch.write(frame, table.path, {**table.options, **EARLY})
    thread.join(PATIENCE_S)
    assert caught.value.early and caught.value.file_groups == [("", "told")]
    assert not gate.exists() and table.read() == [(0, 0, "first")]
    assert spark.range(3).count() == 3 and table.write([(2, 2, "more")]).rows_written == 1


ATTEMPTS_SCRIPT = """
import json
from lakelatch.errors import WriteConflict
path, rows, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
frame = spark.range(rows).selectExpr("id", "id + 10 as ts", "'large' as v")
try:
    lakelatch.write(frame, path, options)
except WriteConflict as conflict:
    print(json.dumps([conflict.details["instant"], conflict.winner, conflict.early]), flush=True)
"""


@pytest.mark.long
def test_sparks_second_attempts_of_an_aborted_task_announce_nothing(
    table: Any, small_job: Callable[..., SmallJob], run_python: RunPython
) -> None:
    """With four attempts for each task. A name that was announced and not written gets a tombstone."""
    small = small_job(table, EARLY)
    winner = small.start()
    options = json.dumps({**table.options, **EARLY, TASKS: "2", "lakelatch.write.small.rows": "0"})
    process = run_python(ATTEMPTS_SCRIPT, table.path, str(ROWS), options, master="local[1,4]")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    instant, found, early = json.loads(output)
    assert (found, early) == (winner, True)
    assert len(files_of(table, instant, empty=True)) <= BUCKETS
    small.finish()
    (group,) = [loss.file_groups[0][1] for loss in losses(table)]
    assert len([name for name in files_of(table, instant, empty=True) if group in name]) == 1
    assert files_of(table, instant, empty=False) == []


def test_the_data_source_ends_early_too(table: Any, small_job: Callable[..., SmallJob]) -> None:
    small = small_job(table, EARLY)
    winner = small.start()
    with pytest.raises(WriteConflict, match=winner):
        try:
            writes = large(table).write.format("lakelatch").options(**table.options, **EARLY).mode("append")
            writes.save(table.path)
        except Exception as error:
            reraise(error)
    small.finish()
    assert table.read() == [(0, 0, "first"), (1, 9, "small")]
    (loss,) = losses(table)
    assert loss.winner == winner and loss.early


def test_it_is_refused_without_optimistic_control_and_makes_no_table(make_table: MakeTable) -> None:
    table = make_table(**{MODE.replace(".", "__"): "NON_BLOCKING_CONCURRENCY_CONTROL"})
    with pytest.raises(InvalidRequest, match=MODE):
        lakelatch.write(table.frame([(1, 1, "a")]), table.path, {**table.options, **EARLY})
    assert not Path(table.path).exists()
