"""Which frames the driver writes, in how many Spark jobs, and that what is written comes from one evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.spark.write import small_frames as rows_in_driver
from lakelatch.spark.write.small_frames import looks_small

MakeTable = Callable[..., Any]
COLUMNS = ("id", "ts", "v")
TAG = "jobs-of-this-write"


def computed(spark: SparkSession, rows: int = 30) -> DataFrame:
    return spark.range(0, rows, 1, 3).selectExpr("id", "id ts", "uuid() v")


def from_file(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    """A frame read from a file that says little of how many rows it has."""
    path.mkdir()
    pq.write_table(pa.table({"id": range(rows), "ts": [1] * rows}), path / "rows.parquet")
    return spark.read.parquet(str(path)).selectExpr("id", "ts", "uuid() v")


def by_driver(result: lakelatch.CommitResult) -> bool:
    """The write token of the driver's files is 0-0-0, with a partition's number within; a task's has its attempt."""
    return all(re.search("_0-[0-9]+-0$", name) for name in result.files)


def jobs_of(spark: SparkSession, work: Callable[[], Any]) -> tuple[Any, int]:
    """What it gives, and how many Spark jobs it starts."""
    context = spark.sparkContext
    context.addJobTag(TAG)
    before = len(context._jsc.sc().statusTracker().getJobIdsForTag(TAG))
    try:
        return work(), len(context._jsc.sc().statusTracker().getJobIdsForTag(TAG)) - before
    finally:
        context.removeJobTag(TAG)


@pytest.mark.parametrize("kind", ["computed", "read", "joined"])
def test_a_frame_that_looks_small_takes_one_job(
    make_table: MakeTable, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = make_table()
    frame = computed(spark) if kind == "computed" else from_file(spark, tmp_path / "rows", 30)
    if kind == "joined":
        frame = frame.join(spark.range(30).hint("broadcast"), "id")
    result, jobs = jobs_of(spark, lambda: lakelatch.write(frame, table.path, table.options))
    assert by_driver(result) and result.rows_written == 30
    assert jobs == (2 if kind == "joined" else 1)  # the other side's rows are sent to all tasks first
    assert [row[0] for row in table.read(None, "id")] == sorted(range(30), key=lambda key: repr((key,)))


def test_more_rows_than_it_looked_are_written_by_tasks_from_one_evaluation(
    make_table: MakeTable, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluation draws texts of its own; those of the rows that came to the driver are nowhere."""
    asked: list[int] = []
    limit = type(spark.range(1)).limit

    def noted(frame: DataFrame, count: int) -> DataFrame:
        asked.append(count)
        return limit(frame, count)

    monkeypatch.setattr(rows_in_driver, "ROWS_MAX", 20)
    table = make_table()
    frame = from_file(spark, tmp_path / "rows", 21)
    assert looks_small(frame)
    monkeypatch.setattr(type(frame), "limit", noted)
    result = lakelatch.write(frame, table.path, table.options)
    assert asked == [21] and not by_driver(result) and result.rows_written == 21
    texts = {(row[0], row[1]) for row in table.read(None, "id", "v")}
    assert len(texts) == 21 == len({key for key, _ in texts})


def test_structs_that_spark_does_not_give_the_driver_are_written_by_tasks(
    make_table: MakeTable, spark: SparkSession
) -> None:
    """A struct is null whose field never is: `toArrow` refuses it, tasks do not."""
    table = make_table("id long, ts long, v struct<x: long>")
    inner = spark.range(3).selectExpr("id", "struct(id AS x) AS v")
    joined = spark.range(6).selectExpr("id", "id AS ts").join(inner, "id", "left")
    local = spark.createDataFrame([(6, 6, None), (7, 7, (1,))], "id long, ts long, v struct<x: long not null>")
    for frame in (joined, local, spark.createDataFrame(local.toPandas(), local.schema)):
        lakelatch.write(frame, table.path, table.options)
    assert [row[0] for row in table.read(None, "id", "v") if row[1] is None] == [3, 4, 5, 6]


def test_rows_for_many_files_are_written_by_tasks(
    make_table: MakeTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_in_driver, "FILES_MAX", 4)
    table = make_table("id long, ts long, v string, p string", partition="p")  # in two buckets each
    for partitions in (2, 3):
        frame = computed(spark).selectExpr("id", "ts", "v", f"string(id % {partitions}) p")
        result = lakelatch.write(frame, table.path, table.options)
        assert len(result.files) >= 2 * partitions and by_driver(result) == (partitions == 2)
    assert len(table.read()) == 30 * 3 - 30 - 10  # a key is a row of each partition that it was written to


def test_what_may_be_large_or_slow_does_not_look_small(spark: SparkSession, tmp_path: Path) -> None:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    from pyspark.sql import functions

    few, many = computed(spark), spark.range(10**6)
    assert looks_small(few) and looks_small(few.union(few).where("id < 3").orderBy("v"))
    assert looks_small(few.groupBy("ts").count())
    small_result = (many.limit(3), many.selectExpr("max(id)"), few.where("id IN (SELECT max(id) FROM range(1000000))"))
    unknown = (few.selectExpr("explode(sequence(1, 1000000))"), few.mapInArrow(same, few.schema), few.rdd.toDF())
    for frame in (
        many,
        *small_result,
        *unknown,
        few.select(functions.udf(lambda value: str(value))("id")),
        few.crossJoin(many),
    ):
        assert not looks_small(frame)
    assert not looks_small(many.selectExpr("'\n== Physical Plan ==\n' x"))


def test_an_operation_that_makes_base_files_stays_with_tasks(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table(hoodie__datasource__write__operation="bulk_insert")
    result = lakelatch.write(computed(spark), table.path, table.options)
    assert result.files and all(name.endswith(".parquet") for name in result.files)


def test_a_row_that_cannot_be_written_is_refused(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    with pytest.raises(InvalidRequest, match="ordering field 'ts'"):
        lakelatch.write(computed(spark).selectExpr("id", "nullif(ts, 3) ts", "v"), table.path, table.options)
    assert not Path(table.path, ".hoodie/hoodie.properties").exists()
