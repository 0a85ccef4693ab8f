"""Cleans of many files on Spark: executors remove them, and the clean is the same as by threads."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from live_table import LiveTable
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.services.removals.cleaning import Clean, CleanResult
from lakelatch.engine.services.service import ServiceContext, waiting
from lakelatch.errors import Unavailable
from lakelatch.spark.session.executor import SparkExecutor
from lakelatch.storage import LocalStorage, Storage
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.actions import CLEAN
from lakelatch.timeline.snapshot import Snapshot

ONE = CleaningOptions(commits=1, parallelism=2)


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """One whose clean takes nine files."""
    table = LiveTable(tmp_path / "table", buckets=1)
    for number in range(3):
        for partition in ("p", "q", "r"):
            table.write([(1, number, "v")], partition)
        table.compact()
    return table


def clean(table: LiveTable, executor: Executor = HERE, storage: Storage | None = None) -> CleanResult:
    """With tasks of four files at the most, which remove them from `storage`."""
    opened = replace(table.opened, storage=storage or table.storage)
    (result,) = Clean(ONE, files_of_task=4).run(ServiceContext(opened, table.manager(), executor))
    return result


def jobs_of(spark: SparkSession, group: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_executors_remove_what_threads_would(spark: SparkSession, table: LiveTable, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table.root, copy)
    spark.sparkContext.setJobGroup("clean of nine", "")
    by_executors = clean(table, SparkExecutor.of(spark))
    assert jobs_of(spark, "clean of nine") == 1 and len(by_executors.files) > 4
    before = table.agreed()
    table.root, table.storage = copy, LocalStorage(str(copy))
    by_threads = clean(table)
    assert (by_executors.files, by_executors.bytes_removed) == (by_threads.files, by_threads.bytes_removed)
    assert by_threads.bytes_removed > 0 and table.agreed() == before
    for path in by_executors.files:
        assert not (tmp_path / "table" / path).exists()


def test_few_files_and_a_run_without_spark_are_left_to_threads(spark: SparkSession, table: LiveTable) -> None:
    opened: list[str] = []

    def session() -> SparkSession:
        opened.append("session")
        return spark

    executor, paths = SparkExecutor(session), list(table.storage.walk("p"))
    context = ServiceContext(table.opened, table.manager(), executor)
    assert Clean(ONE).remove(context, paths[:1]) > 0 and opened == []
    assert Clean(ONE, files_of_task=1).remove(context, paths[1:]) > 0 and opened == ["session"]
    assert Clean(ONE, files_of_task=1).remove(table.context(), paths) == 0
    assert not any(table.storage.exists(path) for path in paths)


def test_a_task_that_fails_leaves_the_clean_to_the_next_executor(
    spark: SparkSession, table: LiveTable, faults_are_injected: dict[Fault, bool]
) -> None:
    broken = FaultyStorage(table.storage, [Fault(UNAVAILABLE, operation="delete", prefix="q/")])
    with pytest.raises(Unavailable, match="injected fault"):
        clean(table, SparkExecutor.of(spark), broken)
    faults_are_injected.clear()  # an executor has met it, and said so
    (left,) = waiting(str(table.root), [CLEAN])
    result = clean(table, SparkExecutor.of(spark))
    assert result.instant == left and not any(table.storage.exists(path) for path in result.files)
    assert not Snapshot.load(table.storage).pending


def test_the_call_takes_a_session(spark: SparkSession, table: LiveTable) -> None:
    (result,) = lakelatch.clean(str(table.root), {"hoodie.clean.commits.retained": "1"}, spark=spark)
    assert result.files and not any(table.storage.exists(path) for path in result.files)
