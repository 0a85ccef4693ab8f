"""Folders that say their values: Spark opens the files of those alone that a plain `where` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.read.folders import Folders
from lakelatch.timeline.table_config import TableConfig

STYLE = "hoodie.datasource.write.hive_style_partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"


def opened(frame: DataFrame) -> int:
    """How many files Spark's scans open for all rows of a frame."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.length())]
    return sum(int(scan.metrics().apply("numFiles").value()) for scan in scans if "parquet" in scan.nodeName())


@pytest.mark.parametrize("encoded", ["true", "false"])
def test_a_plain_where_opens_the_files_of_its_partitions(
    spark: SparkSession, make_table: Callable[..., Any], encoded: str
) -> None:
    days = ["2026-11-24", "0012", "a b", "ö", "1e5", "true", "a.b"] + (
        ["p/q", "x=y", "100%", "%41"] * (encoded == "true")
    )
    table = make_table(columns="id long, ts long, day string, hour int", partition="day,hour")
    table.write([(n, 1, day, n % 3) for n, day in enumerate(days)], **{STYLE: "true", ENCODED: encoded})
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert read.schema["day"].dataType.typeName() == "string"
    for n, day in enumerate(days):
        found = read.where(read["day"] == day)
        assert [(row["id"], row["day"], row["hour"]) for row in found.collect()] == [(n, day, n % 3)]
        assert opened(read.where(read["day"] == day)) == 1  # a frame counts at its first job
    assert opened(read.where("hour = 1 AND day LIKE 'q%'")) == 0
    assert sorted(row["id"] for row in read.where("hour > 0").collect()) == [n for n in range(len(days)) if n % 3]
    assert opened(read) == len(days)


def test_what_no_folder_says_is_asked_of_the_files(spark: SparkSession, make_table: Callable[..., Any]) -> None:
    """Null and an empty text have one folder, and a folder may be named as if it were encoded."""
    table = make_table(columns="id long, ts long, day string", partition="day")
    rows = [(1, 1, None), (2, 1, ""), (3, 1, "%41"), (4, 1, "A"), (5, 1, "__HIVE_DEFAULT_PARTITION__")]
    table.write(rows, **{STYLE: "true", ENCODED: "true"})
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert sorted((row["id"], row["ts"], row["day"]) for row in read.collect()) == rows
    assert [row["id"] for row in read.where("day IS NULL").collect()] == [1]
    assert [row["id"] for row in read.where("day = ''").collect()] == [2]
    assert [row["id"] for row in read.where("day = 'A'").collect()] == [4]
    assert [row["id"] for row in read.where("day = '%41'").collect()] == [3]
    assert [row["id"] for row in read.where("day LIKE '__HIVE%'").collect()] == [5]


@pytest.mark.parametrize(
    ("more", "partition", "expected"),
    [
        ({}, "day=1/n=2", True),
        ({}, "n=2/day=1", False),
        ({}, "day=1", False),
        ({}, "day=/n=2", False),
        ({}, "day=%41/n=2", False),
        ({"url_encode_partitioning": True}, "day=%41/n=2", True),
    ],
)
def test_folders_that_say_their_values(more: dict[str, Any], partition: str, expected: bool) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
    config = TableConfig("t", ("id",), ("day", "n"), hive_style_partitioning=True, **more)
    folders = Folders.of(config, schema)
    assert folders is not None and folders.say(partition) is expected


def test_tables_whose_folders_do_not_say_them() -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("f", pa.float64())])
    assert Folders.of(TableConfig("t", ("id",), ("day",)), schema) is None
    assert Folders.of(TableConfig("t", ("id",), ("f",), hive_style_partitioning=True), schema) is None
    assert Folders.of(TableConfig("t", ("id",), (), hive_style_partitioning=True), schema) is None
    assert Folders.of(TableConfig("t", ("id",), ("day",), hive_style_partitioning=True), schema.remove(1)) is None
