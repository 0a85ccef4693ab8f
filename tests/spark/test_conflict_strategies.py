"""Each strategy at work on Spark jobs that meet: who loses, to whom, and what is done again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.errors import WriteConflict, reraise
from lakelatch.format.bucket_index import bucket_file_id
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.instant import completed
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.plans.clustering_plan import ClusteringPlan
from lakelatch.transactions.conflicts.report import recent_losses
from lakelatch.transactions.conflicts.strategies import STRATEGY_OPTION
from lakelatch.transactions.transaction import Transaction

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

RETRIES = "hoodie.write.num.retries.on.conflict.failures"
JAVAS = "00000000-5a1c-44b5-93a1-4fa8f12f3d2b-0"  # the same bucket under a file id that a Java writer drew
ROWS = [(1, 5, "job"), (2, 5, "job")]
STRATEGIES = ["simple", "bucket", "prefer_writer"]


@pytest.fixture
def table(make_table: MakeTable) -> Any:
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 1, "old")])
    return table


def before_the_commit(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Does something else when the next job of this thread has written all and is about to commit."""
    commit, thread = Transaction.close, threading.current_thread()

    def later(transaction: Transaction, *given: Any) -> Any:
        if threading.current_thread() is thread:
            patch.setattr(Transaction, "close", commit)
            act()
        return commit(transaction, *given)

    patch.setattr(Transaction, "close", later)


def place_foreign(path: str, file_id: str) -> str:
    """A delta commit as a Java writer leaves it, in no slot of the log."""
    start, end = (to_instant(REAL_SYSTEM.realtime_ms() + late_ms) for late_ms in (0, 1))
    instant = completed(start, "deltacommit", end)
    stat = WriteStat("", file_id, f".{file_id}_{start}.log.1_0-0-0")
    LocalStorage(path).put(instant.path, CommitMetadata((stat,), "UPSERT").to_avro())
    return start


def clustering(table: Any, strategy: str) -> Transaction:
    """A clustering of the table's only bucket, under way in another process."""
    from bare_table import manager_of  # which Spark's tasks, to whom this module goes, do not find

    manager = manager_of(LocalStorage(table.path), conflict_strategy=strategy)
    plan = manager.schedule(lambda folder: ClusteringPlan(()).to_avro(), "clustering")
    assert plan is not None
    return manager.execute(plan, "clustering")


def job(table: Any, strategy: str) -> Any:
    """A job with tasks."""
    options = {**table.options, STRATEGY_OPTION: strategy}
    return lakelatch.write(table.frame(ROWS, local=False), table.path, options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_two_jobs_in_one_file_group_the_first_to_complete_wins(
    table: Any, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are real jobs with tasks; the one that began first is about to commit when the other one does."""
    options = {**table.options, STRATEGY_OPTION: strategy}
    other = table.frame([(1, 6, "winner")], local=False)
    results: list[Any] = []

    def meanwhile() -> None:
        with ThreadPoolExecutor(1) as pool:
            results.append(pool.submit(lakelatch.write, other, table.path, options).result(120))

    before_the_commit(monkeypatch, meanwhile)
    with pytest.raises(WriteConflict) as caught:
        job(table, strategy)
    conflict, won = caught.value, results[0]
    assert (conflict.winner, conflict.seen_time, conflict.early) == (won.instant, won.completion, False)
    assert conflict.file_groups == [("", bucket_file_id(0))] and conflict.rows_lost == len(ROWS)
    assert conflict.bytes_lost > 0 and conflict.task_s_lost > 0
    assert table.read() == [(1, 6, "winner")]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_java_writer_of_the_same_bucket(table: Any, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign: list[str] = []
    before_the_commit(monkeypatch, lambda: foreign.append(place_foreign(table.path, JAVAS)))
    with pytest.raises(WriteConflict) as caught:
        job(table, strategy)
    assert caught.value.winner == foreign[0] and caught.value.file_groups == [("", bucket_file_id(0))]


@pytest.mark.parametrize("strategy", ["bucket", "prefer_writer"])
def test_a_clustering_that_meets_a_job(table: Any, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to complete wins, but for a clustering that yields to whoever is at work."""
    service = clustering(table, strategy)
    replaced = CommitMetadata((), "CLUSTER", replaced={"": (bucket_file_id(0),)})
    found: list[WriteConflict] = []

    def meanwhile() -> None:
        try:
            service.commit(replaced)
        except WriteConflict as conflict:
            found.append(conflict)

    before_the_commit(monkeypatch, meanwhile)
    if strategy == "prefer_writer":
        done = job(table, strategy)
        assert [conflict.winner for conflict in found] == [done.instant] and found[0].details["inflight"]
        assert table.read() == ROWS
        return
    with pytest.raises(WriteConflict) as caught:
        job(table, strategy)
    assert found == [] and caught.value.winner == service.instant
    assert caught.value.details["winner_action"] == "replacecommit"


def counting(table: Any, log: Path, once: Callable[[], Any] | None = None) -> DataFrame:
    """A frame that notes each time that it is evaluated, and does something at the first."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = not log.exists()
        with log.open("a") as file:
            file.write("x")
        if first and once is not None:
            once()
        yield from batches

    rows = table.spark.range(1, 3, 1, 1).selectExpr("id", "5L AS ts", "'job' AS v")
    return rows.mapInArrow(count, table.columns)  # type: ignore[no-any-return]


def test_a_job_that_lost_at_its_commit_is_not_computed_again(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_commit(monkeypatch, lambda: place_foreign(table.path, JAVAS))
    done = lakelatch.write(counting(table, tmp_path / "log"), table.path, {**table.options, RETRIES: "1"})
    assert done.conflicts_retried == 1 and (tmp_path / "log").read_text() == "x"
    assert table.read() == ROWS and {row[0] for row in table.read(None, "_hoodie_commit_time")} == {done.instant}
    (loss,) = recent_losses(LocalStorage(table.path))
    assert (loss.rows_lost, loss.task_s_lost) == (0, 0) and loss.bytes_lost > 0


def test_a_function_is_called_again(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_the_commit(monkeypatch, lambda: place_foreign(table.path, JAVAS))
    log = tmp_path / "log"
    done = lakelatch.write(lambda: counting(table, log), table.path, {**table.options, RETRIES: "1"})
    assert done.conflicts_retried == 1 and log.read_text() == "xx" and table.read() == ROWS


@pytest.mark.parametrize("retries", ["0", "1"])
def test_the_data_source_tries_its_commit_again(table: Any, tmp_path: Path, retries: str) -> None:
    log, path = tmp_path / "log", table.path
    frame = counting(table, log, lambda: place_foreign(path, JAVAS))
    writes = frame.write.format("lakelatch").options(**{**table.options, RETRIES: retries}).mode("append")
    if retries == "0":
        with pytest.raises(WriteConflict):
            try:
                writes.save(path)
            except Exception as error:
                reraise(error)
        assert table.read() == [(1, 1, "old")]
        return
    writes.save(path)
    assert log.read_text() == "x" and table.read() == ROWS
