"""Tables without a record key, by Spark: frames are written where they are, by every word that Spark has for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
PARTITION = "hoodie.datasource.write.partitionpath.field"
BY_TASKS = {"lakelatch.write.small.rows": 0}


@pytest.mark.parametrize("partition", ["", "day"])
def test_each_task_makes_a_file_of_its_own_for_each_partition(
    spark: SparkSession, tmp_path: Path, partition: str
) -> None:
    path = str(tmp_path / "events")
    options = {**BY_TASKS, **({PARTITION: partition} if partition else {})}
    frame = spark.range(0, 60, 1, 3).selectExpr("id % 2 AS day", "id AS x")
    done = lakelatch.write(frame, path, options)
    assert done.operation == "insert" and len(list(Path(path).rglob("*.parquet"))) == (6 if partition else 3)
    lakelatch.write(frame, path, options)
    found = lakelatch.read(spark, path, {"lakelatch.read.meta.columns": True})
    assert sorted(row.x for row in found.collect()) == sorted([*range(60), *range(60)])
    assert found.select("_hoodie_record_key").distinct().count() == 120
    assert lakelatch.read(spark, path).where("day = 1 AND x < 10").count() == 10


def test_spark_s_own_words_need_no_key(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events")
    frame = spark.range(0, 4, 1, 2).selectExpr("id AS x")
    for _ in range(2):
        frame.write.format("lakelatch").options(**BY_TASKS).mode("append").save(path)
    assert sorted(row.x for row in lakelatch.read(spark, path).collect()) == [0, 0, 1, 1, 2, 2, 3, 3]
    parts = str(tmp_path / "parts")
    with pytest.raises(Exception, match="has partitions and no record key"):
        frame.write.format("lakelatch").option(PARTITION, "x").mode("append").save(parts)
    assert not Path(parts, ".hoodie/hoodie.properties").exists()


def test_a_table_in_your_hands(spark: SparkSession, tmp_path: Path) -> None:
    table = lakelatch.Table.create(spark, tmp_path / "events", "x long", key=None)
    table.insert(spark.range(3).selectExpr("id AS x"))
    for change in (
        lambda: table.update("x = 1", {"x": "2"}),
        lambda: table.delete("x = 1"),
        lambda: table.merge(spark.range(1).selectExpr("id AS x")),
        lambda: table.upsert(spark.range(1).selectExpr("id AS x")),
        lambda: table.overwrite(spark.range(1).selectExpr("id AS x"), "x > 0"),
        lambda: table.insert(spark.range(1).selectExpr("id AS x"), if_exists="skip"),
    ):
        with pytest.raises(InvalidRequest, match="has no record key"):
            change()
    assert sorted(row.x for row in table.to_df().collect()) == [0, 1, 2]
    table.overwrite(spark.range(7, 8).selectExpr("id AS x"))
    assert [row.x for row in table.to_df().collect()] == [7]
