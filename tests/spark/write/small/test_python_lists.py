"""Frames made of Python lists: which of them the driver writes itself, and which it leaves to tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakelatch
from lakelatch.spark.write import python_lists
from lakelatch.spark.write.small_frames import BYTES_MAX, ROWS_MAX

MakeTable = Callable[..., Any]
SCHEMA = "id long, ts long, v string"


def is_small_list(frame: DataFrame) -> bool:
    return python_lists.is_small_list(frame, ROWS_MAX, BYTES_MAX)


def of_list(spark: SparkSession, rows: int = 3, text: str = "a") -> DataFrame:
    return spark.createDataFrame([(place, 1, text) for place in range(rows)], SCHEMA)


def test_a_small_list_is_written_by_the_driver_from_one_evaluation(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table("id long, ts long, v string, drawn string")
    frame = of_list(spark).selectExpr("*", "uuid() drawn").where("id < 2")
    result = lakelatch.write(frame, table.path, table.options)
    assert all(re.search("_0-[0-9]+-0$", name) for name in result.files)  # as no task's are called
    rows = table.read(None, "id", "v", "drawn")
    assert [row[:2] for row in rows] == [(0, "a"), (1, "a")]
    assert len({row[2] for row in rows}) == 2


def test_what_spark_gives_for_a_list_is_what_is_written(make_table: MakeTable, spark: SparkSession) -> None:
    columns = "id long, ts long, v struct<x: array<date>, y: map<string, decimal(9,2)>>, w binary, at timestamp"
    v = "named_struct('x', array(date'2026-01-02', null), 'y', map('k', 1.25BD))"
    (row,) = spark.sql(f"SELECT 1L, 1L, {v}, x'0102', timestamp'2026-03-04 05:06:07'").collect()
    table = make_table(columns)
    lakelatch.write(spark.createDataFrame([tuple(row)], columns), table.path, table.options)
    assert table.read(None, "id", "ts", "v", "w", "at") == [tuple(row)]


def test_rows_and_bytes_have_a_bound(spark: SparkSession) -> None:
    assert is_small_list(of_list(spark, ROWS_MAX)) and not is_small_list(of_list(spark, ROWS_MAX + 1))
    assert is_small_list(of_list(spark, 1, "a" * (BYTES_MAX // 2))) and not is_small_list(
        of_list(spark, 1, "a" * BYTES_MAX)
    )
    shared = "a" * (BYTES_MAX // 100)  # pickled once for many rows
    assert is_small_list(of_list(spark, 90, shared)) and not is_small_list(of_list(spark, 110, shared))


def test_a_list_is_known_as_one_however_many_were_before_it(spark: SparkSession) -> None:
    """The JVM forgets from where it is called once it has compiled the call, after some fifteen."""
    seen = [is_small_list(of_list(spark)) for _ in range(40)]
    assert all(seen)


def test_what_runs_code_or_makes_rows_is_left_to_tasks(spark: SparkSession) -> None:
    small, rows = of_list(spark), spark.sparkContext.parallelize([(1, 1, "a")])
    ours = F.udf(lambda value: value)
    for frame in (
        spark.createDataFrame(rows, SCHEMA),  # whose rows are checked by a function in the tasks
        rows.map(lambda row: row).toDF(["id", "ts", "v"]),
        rows.flatMap(lambda row: [row] * 1000).toDF(["id", "ts", "v"]),
        small.select(ours("v")),
        small.where(ours("v") == "a"),
        small.selectExpr("explode(sequence(1, 1000000))"),
        small.crossJoin(spark.range(10**6)),
        small.unionByName(small),
        small.rdd.toDF(),
        spark.range(3),
    ):
        assert not is_small_list(frame)
