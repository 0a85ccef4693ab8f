"""Folders that say their values: Spark opens the files of those alone that a plain `where` asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakelatch
from lakelatch.engine.read import by_reader
from lakelatch.spark.read.folders import Folders
from lakelatch.spark.read.listed import TASKS, in_few_tasks
from lakelatch.timeline.table_config import TableConfig

MADE_HERE: dict[str, Any] = {"raw": {"lakelatch.table.checksum": "1"}}
STYLE = "hoodie.datasource.write.hive_style_partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"


def opened(frame: DataFrame) -> int:
    """How many files Spark's scans open for all rows of a frame."""
    return rows_and_opened(frame)[1]


def rows_and_opened(frame: DataFrame) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of a frame, sorted, and how many files Spark's scans open for them.

    Adaptive plans count those of a scan twice, and every frame counts at its first job alone.
    """
    frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        rows = sorted(map(tuple, frame.collect()))
    finally:
        frame.sparkSession.conf.unset("spark.sql.adaptive.enabled")
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.length())]
    files = sum(int(scan.metrics().apply("numFiles").value()) for scan in scans if "parquet" in scan.nodeName())
    return rows, files


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


def test_a_plain_where_opens_the_files_of_its_partitions_where_folders_have_no_names(
    spark: SparkSession, make_table: Callable[..., Any]
) -> None:
    days = ["2026-11-24", "0012", "B6", "a.b~-", "_x"]
    table = make_table(columns="id long, ts long, day string, hour int, v long", partition="day,hour")
    rows = [(n, 1, day, n % 3 - 1, n * 7) for n, day in enumerate(days)]
    table.write(rows)
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert [(one.name, one.dataType.typeName(), one.nullable) for one in read.schema] == [
        ("id", "long", True),
        ("ts", "long", True),
        ("day", "string", True),
        ("hour", "integer", True),
        ("v", "long", True),
    ]
    for where, wanted, files in [
        *((f"day = '{day}'", [n], 1) for n, day in enumerate(days)),
        ("hour = 1 AND day LIKE 'q%'", [], 0),
        ("day IN ('B6', '0012') AND v > 7", [2], 2),
        ("hour >= 1 OR day = '0012'", [1, 2], 2),
        ("hour + 1 > 1 AND day IS NOT NULL", [2], 1),
        ("v = 14", [2], 5),
        ("true", [0, 1, 2, 3, 4], 5),
    ]:
        assert rows_and_opened(read.where(where)) == ([rows[n] for n in wanted], files), where


def test_a_text_with_slashes_is_several_folders(spark: SparkSession, make_table: Callable[..., Any]) -> None:
    days = ["2013/01/02", "2013/01/03", "2013/02", "B6"]
    table = make_table(columns="id long, ts long, day string", partition="day")
    table.write([(n, 1, day) for n, day in enumerate(days)])
    table.compact()
    read = lakelatch.read(spark, table.path, {"columns": "day,id"})
    for where, wanted in [
        ("day = '2013/01/02'", [0]),
        ("day = 'B6'", [3]),
        ("day >= '2013/01/03' AND day < '2014'", [1, 2]),
        ("true", [0, 1, 2, 3]),
    ]:
        assert rows_and_opened(read.where(where)) == ([(days[n], n) for n in wanted], len(wanted)), where


DAY, HOUR = date(2026, 11, 24), datetime(2026, 11, 24, 5)
#: Of a type: its values, and conditions with the number of files that they open.
OF_TYPES: dict[str, tuple[list[Any], list[tuple[str, int]]]] = {
    "date": (
        [DAY + timedelta(days) for days in (0, 1, 40, -700_000)],
        [
            ("p = DATE'2026-11-24'", 1),
            ("p = '2026-11-25'", 1),
            ("p BETWEEN DATE'2026-11-25' AND DATE'2027-02-01'", 2),
            ("CAST(p AS STRING) LIKE '2026-%'", 2),
            ("year(p) = 2027 OR p = DATE'2026-11-24'", 2),
            ("p IN (DATE'2026-11-24', DATE'1999-01-01') AND v < 9", 1),
        ],
    ),
    "timestamp": (
        [HOUR + timedelta(hours=hours, microseconds=7) for hours in (0, 1, 48, -1_000_000)],
        [
            ("p = TIMESTAMP'2026-11-24 05:00:00.000007Z'", 1),
            ("p >= TIMESTAMP'2026-11-24 06:00:00Z'", 2),
            ("to_date(p) = DATE'2026-11-26'", 1),
        ],
    ),
    "timestamp_ntz": (
        [HOUR + timedelta(hours=hours, microseconds=7) for hours in (0, 1, 48, -1_000_000)],
        [
            ("p = TIMESTAMP_NTZ'2026-11-24 05:00:00.000007'", 1),
            ("p < TIMESTAMP_NTZ'2026-11-24 05:30:00'", 2),
        ],
    ),
    "decimal(9,2)": (
        [Decimal(number) for number in ("-1.50", "0.00", "7.05", "1234567.00")],
        [("p = 7.05", 1), ("p < 1", 2), ("p IN (0, 1234567)", 2)],
    ),
    "boolean": ([True, False], [("p", 1), ("NOT p", 1), ("p IS NULL", 1), ("p = 'true'", 1)]),
}


@pytest.mark.parametrize("kind", OF_TYPES)
@pytest.mark.parametrize("named", ["true", "false"])
def test_times_decimals_and_truths(spark: SparkSession, make_table: Callable[..., Any], kind: str, named: str) -> None:
    values, conditions = OF_TYPES[kind]
    table = make_table(columns=f"id int, ts long, p {kind}, v int", partition="p")
    rows = [(number, 1, value, number) for number, value in enumerate([*values, None])]
    table.write(rows, **{STYLE: named})
    table.compact()
    read, same = lakelatch.read(spark, table.path), table.frame(rows)
    assert read.dtypes == same.dtypes
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        for where, files in [*conditions, ("true", len(rows))]:
            wanted = sorted(map(tuple, same.where(where).collect()))
            assert rows_and_opened(read.where(where)) == (wanted, files), where
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("encoded", ["true", "false"])
def test_places_of_other_characters(spark: SparkSession, make_table: Callable[..., Any], encoded: str) -> None:
    texts = [
        "a b",
        "x+y",
        "ö",
        "日本",
        "o\u0308",
        "a\u00a0b",
        "a&b;c,d",
        "<$>|`~!@()",
        "\U0001f600",
        "2013/a b",
        "plain",
    ]
    texts += ["100%", "%41", "a=b?c#d", "'\"", "{[*]}", "t\tu", "+%2B"] * (encoded == "true")
    table = make_table(columns="id int, ts long, p string", partition="p")
    rows = [(number, 1, text) for number, text in enumerate(texts)]
    table.write(rows, **{ENCODED: encoded})
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert rows_and_opened(read) == (rows, len(rows))
    for row in rows:
        assert rows_and_opened(read.where(read["p"] == row[2])) == ([row], 1)


@pytest.mark.parametrize("logs", ["small", "overlaid"])
@pytest.mark.parametrize("named", ["true", "false"])
def test_below_logs_the_same_files_are_opened(
    spark: SparkSession, make_table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, logs: str, named: str
) -> None:
    if logs == "overlaid":
        monkeypatch.setattr(by_reader, "SMALL_LOGS_MAX_BYTES", -1)
    table = make_table(columns="id int, ts long, p date, v int", partition="p", **{STYLE.replace(".", "__"): named})
    days = [DAY + timedelta(days) for days in range(5)]
    rows = [(key, 1, day, key) for day in days for key in range(4)]
    table.write(rows)
    table.compact()
    table.write([(1, 2, day, 100) for day in days[:3]])  # of five folders in two buckets, three have a log
    rows = sorted((key, 2, day, 100) if key == 1 and day in days[:3] else (key, ts, day, v) for key, ts, day, v in rows)
    read = lakelatch.read(spark, table.path)
    overlays = 3 * (logs == "overlaid")  # which lie in one folder
    assert rows_and_opened(read) == (rows, 10 + overlays)
    # Of an OR with another column Spark takes what it says of folders that have names, and of no others.
    for where, wanted, files in [
        ("p = DATE'2026-11-24'", days[:1], 2),
        ("p > DATE'2026-11-24' AND p <= '2026-11-27'", days[1:4], 6),
        ("p = DATE'2026-11-28' OR v > 99 AND p = DATE'2026-11-25'", [days[4], days[1]], 4 if named == "true" else 10),
    ]:
        some = [row for row in rows if row[2] in wanted and (" OR " not in where or row[2] == days[4] or row[3] > 99)]
        assert rows_and_opened(read.where(where)) == (some, files + overlays), where


def test_a_join_opens_the_files_of_the_partitions_that_it_finds_where_folders_have_names(
    spark: SparkSession, make_table: Callable[..., Any]
) -> None:
    table = make_table(columns="id int, ts long, p date", partition="p")
    rows = [(number, 1, DAY + timedelta(number)) for number in range(6)]
    table.write(rows, **{STYLE: "true"})
    table.compact()
    few = spark.createDataFrame([(row[2], "x" if row[0] == 4 else "y") for row in rows], "p date, name string")
    joined = lakelatch.read(spark, table.path).join(functions.broadcast(few.where("name = 'x'")), "p", "left_semi")
    found, files = rows_and_opened(joined.select("id", "ts", "p"))
    assert (found, files) == (rows[4:5], 1)


def test_spark_lists_the_files_of_many_partitions_in_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 65, 1, 65).write.parquet(str(tmp_path / "many"))
    files = [str(file) for file in (tmp_path / "many").glob("*.parquet")]
    assert len(files) == 65
    for said, tasks in (("10000", 64), ("7", 7)):
        spark.conf.set(TASKS, said)
        try:
            with in_few_tasks(spark, len(files)):
                read = spark.read.schema("id long").parquet(*files)
            assert spark.conf.get(TASKS) == said
            tracker = spark.sparkContext.statusTracker()
            job = tracker.getJobInfo(max(tracker.getJobIdsForGroup()))
            assert job is not None
            stages = map(tracker.getStageInfo, job.stageIds)
            assert [stage.numTasks for stage in stages if stage is not None] == [tasks]
        finally:
            spark.conf.unset(TASKS)
        assert read.count() == 65


def test_what_places_do_not_say_is_asked_of_the_files(spark: SparkSession, make_table: Callable[..., Any]) -> None:
    table = make_table(columns="id long, ts long, day string", partition="day")
    rows = [(1, 1, None), (2, 1, ""), (3, 1, "a b"), (4, 1, "ö"), (5, 1, "__HIVE_DEFAULT_PARTITION__"), (6, 1, "x")]
    table.write(rows)
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert sorted((row["id"], row["ts"], row["day"]) for row in read.collect()) == rows
    for number, _, day in rows:
        wanted = read["day"].isNull() if day is None else read["day"] == day
        assert [row["id"] for row in read.where(wanted).collect()] == [number]


def test_a_column_that_hides_what_spark_says_of_files_and_another_source_of_files(
    spark: SparkSession, make_table: Callable[..., Any]
) -> None:
    table = make_table(columns="id long, ts long, n int, _METADATA string", partition="n")
    rows = [(key, 1, key % 3, "m") for key in range(9)]
    table.write(rows)
    table.compact()
    read = lakelatch.read(spark, table.path)
    assert sorted(map(tuple, read.where("n = 2").collect())) == [row for row in rows if row[2] == 2]
    spark.conf.set("spark.sql.sources.useV1SourceList", "avro,csv")
    try:
        read = lakelatch.read(spark, table.path, {"columns": "id,n"})
        assert sorted(row["id"] for row in read.where("n = 2").collect()) == [2, 5, 8]
    finally:
        spark.conf.unset("spark.sql.sources.useV1SourceList")


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
        ({}, "day=1/n=2", 2),
        ({}, "n=2/day=1", 0),
        ({}, "day=1", 0),
        ({}, "day=/n=2", 0),
        ({}, "day=1/n=__HIVE_DEFAULT_PARTITION__", 2),
        ({}, "day=__HIVE_DEFAULT_PARTITION__/n=1", 0),
        ({}, "day=%41/n=2", 0),
        ({"url_encode_partitioning": True}, "day=%41/n=2", 2),
        ({"hive_style_partitioning": False}, "a/2", 2),
        ({"hive_style_partitioning": False}, "a/02", 0),
        ({"hive_style_partitioning": False}, "a/b/2", 0),
        ({"hive_style_partitioning": False}, "2", 0),
        ({"hive_style_partitioning": False}, "a%41/2", 2),
        ({"hive_style_partitioning": False}, "a b/2", 2),
        ({"hive_style_partitioning": False}, "__HIVE_DEFAULT_PARTITION__/2", 0),
    ],
)
def test_folders_that_say_their_values(more: dict[str, Any], partition: str, expected: int) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
    config = TableConfig("t", ("id",), ("day", "n"), **{"hive_style_partitioning": True, **MADE_HERE, **more})
    folders = Folders.of(config, schema)
    said = None if folders is None else folders.said(partition)
    assert folders is not None and (0 if said is None else said.levels) == expected


def test_tables_whose_folders_do_not_say_them() -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("f", pa.float64())])
    assert Folders.of(TableConfig("t", ("id",), ("day",)), schema) is None, "others put a day into three folders"
    assert Folders.of(TableConfig("t", ("id",), ("day",), **MADE_HERE), schema) is not None
    assert Folders.of(TableConfig("t", ("id",), ("f",), **MADE_HERE), schema) is None
    assert Folders.of(TableConfig("t", ("id",), ("f",), hive_style_partitioning=True), schema) is None
    assert Folders.of(TableConfig("t", ("id",), (), hive_style_partitioning=True), schema) is None
    assert Folders.of(TableConfig("t", ("id",), ("day",), hive_style_partitioning=True), schema.remove(1)) is None
    hidden = schema.append(pa.field("_Metadata", pa.string()))
    assert Folders.of(TableConfig("t", ("id",), ("day",), **MADE_HERE), hidden) is None
