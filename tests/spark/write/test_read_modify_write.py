"""Changing what is there: a function is called anew in each try, so that no update is overwritten unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakelatch
from lakelatch.errors import WriteConflict

OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.num.retries.on.conflict.failures": 3,
}


def count_of(spark: SparkSession, path: str) -> list[int]:
    return [row["n"] for row in lakelatch.read(spark, path).collect()]


def test_a_function_reads_again_after_a_conflict(spark: SparkSession, table_path: str) -> None:
    lakelatch.write(spark.createDataFrame([("a", 0)], "id string, n long"), table_path, OPTIONS)
    calls = 0

    def plus_one() -> DataFrame:
        nonlocal calls
        calls += 1
        frame = lakelatch.read(spark, table_path).select("id", (functions.col("n") + 1).alias("n"))
        if calls == 2:  # the first call is for the columns, the second inside the first try: another one commits now
            lakelatch.write(spark.createDataFrame([("a", 100)], "id string, n long"), table_path, OPTIONS)
        return frame

    result = lakelatch.write(plus_one, table_path, OPTIONS)

    assert result.conflicts_retried == 1
    assert count_of(spark, table_path) == [101]


def test_without_retries_the_conflict_is_told(spark: SparkSession, table_path: str) -> None:
    lakelatch.write(spark.createDataFrame([("a", 0)], "id string, n long"), table_path, OPTIONS)

    def disturbed() -> DataFrame:
        frame = lakelatch.read(spark, table_path).select("id", (functions.col("n") + 1).alias("n"))
        lakelatch.write(spark.createDataFrame([("a", 100)], "id string, n long"), table_path, OPTIONS)
        return frame

    with pytest.raises(WriteConflict):
        lakelatch.write(disturbed, table_path, {**OPTIONS, "hoodie.write.num.retries.on.conflict.failures": 0})
    assert count_of(spark, table_path) == [100]


@pytest.mark.parametrize("name", ["fl[ab]x", "{x}", "a*b?"])
def test_a_path_is_no_pattern(name: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    lakelatch.write(spark.createDataFrame([("a", 7)], "id string, n long"), path, OPTIONS)
    lakelatch.compact(spark, path)
    assert count_of(spark, path) == [7]


def test_sequence_numbers_are_unique_within_a_commit(spark: SparkSession, table_path: str) -> None:
    frame = spark.range(40).selectExpr("cast(id as string) id", "id n")
    lakelatch.write(frame, table_path, {**OPTIONS, "hoodie.bucket.index.num.buckets": 4})
    rows = lakelatch.read(spark, table_path, {"columns": "_hoodie_commit_seqno"})
    assert rows.select("_hoodie_commit_seqno").distinct().count() == 40
