"""How far Spark jobs are: handlers are called while they run, and a handler that fails harms nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.progress import with_progress
from lakelatch.system import REAL_SYSTEM

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]


@pytest.fixture(autouse=True)
def nobody_afterwards() -> Iterator[None]:
    yield
    lakelatch.on_progress(None)


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        REAL_SYSTEM.sleep(0.4)
        yield batch


def slow_rows(table: Any, rows: int = 4) -> DataFrame:
    quick: DataFrame = table.spark.range(0, rows, 1, rows).selectExpr("id", "id ts", "'x' v")
    return quick.mapInArrow(slow, quick.schema)


def test_a_handler_is_told_of_writes_and_services(make_table: MakeTable) -> None:
    seen: list[lakelatch.Progress] = []
    lakelatch.on_progress(seen.append)
    table = make_table()
    written = lakelatch.write(slow_rows(table), table.path, table.options)
    last = seen[-1]
    assert last.done and 4 <= last.tasks_done <= last.tasks  # four compute rows, others write them
    assert any(not one.done and one.tasks_done < one.tasks for one in seen)
    assert str(last).startswith("lakelatch: upsert into ") and ": done, " in str(last)
    assert last.what.endswith(f" ({written.instant})")
    seen.clear()
    (compacted,) = table.compact()
    assert seen[-1].done and "compaction of" in seen[-1].what and compacted.instant in seen[-1].what


@pytest.mark.long
def test_a_handler_that_fails_harms_nobody(make_table: MakeTable, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: lakelatch.Progress) -> None:
        raise ValueError("nowhere to draw")

    lakelatch.on_progress(broken)
    table = make_table()
    with caplog.at_level(logging.WARNING, "lakelatch.spark"):
        lakelatch.write(slow_rows(table), table.path, table.options)
    assert [one for one in caplog.messages if "nowhere to draw" in one] != [] and len(table.read()) == 4


def test_jobs_say_in_sparks_ui_what_they_are_for_and_a_users_own_words_stay(spark: SparkSession) -> None:
    context = spark.sparkContext
    with with_progress(spark, "lakelatch: upsert"):
        assert context.getLocalProperty("spark.job.description") == "lakelatch: upsert"
    assert context.getLocalProperty("spark.job.description") is None
    context.setJobDescription("mine")
    try:
        with with_progress(spark, "lakelatch: upsert"):
            assert context.getLocalProperty("spark.job.description") == "mine"
        assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context._jsc.setLocalProperty("spark.job.description", None)
