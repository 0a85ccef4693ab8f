"""Each bucket has one live file group, whichever engine wrote to it first, and whatever was replaced in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import NON_BLOCKING, OPTIMISTIC, ORDERED, OURS, SHARED, JavaHudi, Rows, table_of
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.errors import CorruptTable
from lakelatch.timeline.properties_file import PROPERTIES_PATH

COLUMNS = "id long, ts long, v string, part string"
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part"}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
ONE_LOCK = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
OURS_HERE = {**OURS, **PARTITIONED}
CONTROLS = {"single": {}, "optimistic": {**OPTIMISTIC, **ONE_LOCK}, "non-blocking": {**NON_BLOCKING, **ONE_LOCK}}
Read = Callable[[str], Rows]


def say_buckets(path: str) -> None:
    """What the owner of a table that Java made has to add before we write to it."""
    properties = Path(path) / PROPERTIES_PATH
    properties.write_text(properties.read_text() + "hoodie.bucket.index.num.buckets=2\n")
    properties.with_name(".hoodie.properties.crc").unlink(missing_ok=True)


def values(rows: Rows) -> dict[tuple[str, int], str]:
    found = {(row["part"], row["id"]): row["v"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def frame(spark: SparkSession, ids: range, ts: int, name: str, part: str) -> DataFrame:
    return spark.createDataFrame(rows_of(ids, ts, name, part))


def rows_of(ids: range, ts: int, name: str, part: str) -> pa.Table:
    return table_of(COLUMNS, [(key, ts, f"{name}{key}", part) for key in ids])


@pytest.mark.parametrize("version", ["8", "9"])
def test_turns_in_a_table_that_a_single_java_writer_made(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Read, hudi_rs: Read, version: str
) -> None:
    path = str(tmp_path / "trips")
    table = {"hoodie.write.table.version": version, "hoodie.write.auto.upgrade": "false"}
    options = {**SHARED, **ORDERED, **PARTITIONED, **QUIET, **table}
    java.write(path, rows_of(range(8), 1, "java", "p"), options, "overwrite")
    java.write(path, rows_of(range(4), 2, "again", "p"), options)
    say_buckets(path)
    for number, mode in enumerate(("OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL")):
        ts, ours_here = 10 * (number + 1), {**OURS_HERE, "hoodie.write.concurrency.mode": mode}
        lakelatch.write(frame(spark, range(2, 10), ts, "ours", "p"), path, ours_here)
        lakelatch.write(frame(spark, range(2), ts, "new", "q"), path, ours_here)
        assert values(ours(path)) == values(java.read(path)) == values(hudi_rs(path))
        java.write(path, rows_of(range(6), ts + 1, "turn", "p"), options)
        java.write(path, rows_of(range(3), ts + 2, "compacted", "q"), {**options, **COMPACTING})
        lakelatch.write(frame(spark, range(1), ts + 3, "last", "q"), path, ours_here)
        assert lakelatch.compact(spark, path, {**ours_here, "hoodie.compact.inline.max.delta.commits": "1"})
        rows = values(ours(path))
        assert rows == values(java.read(path)) == values(hudi_rs(path))
        assert [rows["p", key] for key in (0, 5, 6, 9)] == ["turn0", "turn5", "ours6", "ours9"]
        assert [rows["q", key] for key in (0, 1, 2)] == ["last0", "compacted1", "compacted2"]


@pytest.mark.parametrize("control", CONTROLS)
def test_java_writes_after_our_deletion_and_our_overwrite(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Read, hudi_rs: Read, control: str
) -> None:
    """Non-blocking ones would go back to the fixed file ids, which were replaced, and lose their rows."""
    path = str(tmp_path / "trips")
    options = {**SHARED, **ORDERED, **PARTITIONED, **QUIET, **CONTROLS[control]}
    named = {**OURS_HERE, "hoodie.table.name": "trips"}
    for part in "pqr":
        lakelatch.write(frame(spark, range(6), 1, "first", part), path, named)
    lakelatch.delete_partitions(path, "p", OURS_HERE)
    overwrite = {**OURS_HERE, "hoodie.datasource.write.operation": "insert_overwrite"}
    lakelatch.write(frame(spark, range(1), 2, "over", "q"), path, overwrite)
    assert values(ours(path)) == values(java.read(path)) == values(hudi_rs(path))
    for part in "pq":
        java.write(path, rows_of(range(4), 5, "java", part), options)
    expected = {(part, key): f"java{key}" for part in "pq" for key in range(4)}
    expected |= {("r", key): f"first{key}" for key in range(6)}
    assert values(ours(path)) == values(java.read(path)) == values(hudi_rs(path)) == expected
    java.write(path, rows_of(range(1), 6, "compacted", "p"), {**options, **COMPACTING})
    lakelatch.write(frame(spark, range(1, 2), 7, "ours", "p"), path, OURS_HERE)
    expected |= {("p", 0): "compacted0", ("p", 1): "ours1"}
    assert values(ours(path)) == values(java.read(path)) == values(hudi_rs(path)) == expected


def test_two_live_groups_are_refused_where_java_reads_each_key_twice(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Read, hudi_rs: Read
) -> None:
    """Two writers without a common lock have each made the bucket's first file group."""
    path, other = str(tmp_path / "trips"), str(tmp_path / "other")
    options = {**SHARED, **ORDERED, **PARTITIONED, **QUIET}
    for where in (path, other):
        java.write(where, rows_of(range(2), 1, "java", "p"), options, "overwrite")
    for file in (Path(other) / "p").glob("[0-9]*.parquet"):
        file.rename(Path(path) / "p" / file.name)
    for file in (Path(other) / ".hoodie" / "timeline").glob("2*"):
        file.rename(Path(path) / ".hoodie" / "timeline" / file.name)
    assert len(java.read(path)) == len(hudi_rs(path)) == 4
    with pytest.raises(CorruptTable, match="two live file groups"):
        ours(path)
    say_buckets(path)
    with pytest.raises(CorruptTable, match="two live file groups"):
        lakelatch.write(frame(spark, range(2), 2, "ours", "p"), path, OURS_HERE)
