"""The files of a scan are told apart by their sizes; one of another size ends the query instead of losing rows."""

from __future__ import annotations

import gc
import re
import weakref
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelatch.engine.read.superseded import Superseded
from lakelatch.spark.read.left_out import in_scans, is_left
from lakelatch.spark.session.handed import handed_once


def superseded(file_bytes: int, *rows: int) -> Superseded:
    """So many bytes, and these rows of a hundred."""
    return Superseded.of(file_bytes, np.isin(np.arange(100), rows))


def test_files_of_one_size_are_read_apart_and_so_are_those_of_too_many() -> None:
    sizes = {"a": 7, "b": 8, "c": 7, "d": 7, "e": 8}
    found = in_scans([*sizes], {path: superseded(size) for path, size in sizes.items()})
    assert found == [
        ["a", "b"],
        ["c", "e"],
        ["d"],
    ]
    many = [str(number) for number in range(40)]
    assert [len(one) for one in in_scans(many, {path: superseded(int(path)) for path in many})] == [32, 8]
    assert in_scans(many, {}) == [many]


def test_rows_by_their_bits_and_files_by_their_sizes(spark: SparkSession, tmp_path: Path) -> None:
    files = []
    for number in range(2):
        spark.range(number * 1000, number * 1000 + 100 - number * 40).coalesce(1).write.parquet(f"{tmp_path}/{number}")
        (file,) = (tmp_path / str(number)).glob("*.parquet")
        files.append(file)
    left_out = [superseded(files[0].stat().st_size, 0, 63, 64, 99), superseded(files[1].stat().st_size, 1, 59)]
    read = spark.read.schema("id long").parquet(*map(str, files))
    rows = read.where(is_left(spark, left_out)).collect()
    gone = {0, 63, 64, 99, 1001, 1059}
    assert sorted(row.id for row in rows) == [one for one in (*range(100), *range(1000, 1060)) if one not in gone]
    assert read.where(is_left(spark, left_out)).columns == ["id"]
    with pytest.raises(PySparkException, match="does not have the size"):
        read.where(is_left(spark, left_out[:1])).collect()


def test_words_are_handed_to_spark_once_for_all_queries_of_a_session(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(100).coalesce(1).write.parquet(f"{tmp_path}/rows")
    (file,) = (tmp_path / "rows").glob("*.parquet")
    left_out = [superseded(file.stat().st_size, 7)]

    def frame(session: SparkSession) -> DataFrame:
        return session.read.schema("id long").parquet(str(file)).where(is_left(session, left_out))

    def words(one: DataFrame) -> set[str]:
        return set(re.findall(r"_lakelatch_words#\d+", one._jdf.queryExecution().analyzed().toString()))

    one, other, another = frame(spark), frame(spark), frame(spark.newSession())
    assert words(one) == words(other) != set() and words(another).isdisjoint(words(one))
    assert one.join(other, one["id"] == other["id"]).count() == one.union(other).distinct().count() == 99
    assert another.count() == 99


def test_a_session_that_nobody_uses_any_more_goes_with_what_it_was_handed(spark: SparkSession) -> None:
    session, left_out = spark.newSession(), [superseded(100, 7)]
    rows = handed_once(session, "rows", partial(session.createDataFrame, pa.table({"id": [1]})))
    assert is_left(session, left_out) is not None
    is_gone, kept = weakref.ref(session), weakref.ref(left_out[0])
    spark.newSession().createDataFrame(pa.table({"id": [1]}))  # PySpark itself holds the one that did so last
    del session, rows, left_out
    gc.collect()
    assert is_gone() is None and kept() is None


def test_a_session_keeps_what_it_was_handed_last(spark: SparkSession) -> None:
    session, made = spark.newSession(), Counter[int]()

    def hand(number: int) -> None:
        handed_once(session, number, partial(made.update, [number]))

    for number in [*range(16), 0, 16, 0, 1]:
        hand(number)
    assert [number for number, times in made.items() if times > 1] == [1]


def test_what_spark_has_compiled_for_one_snapshot_does_for_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """Compiling a query takes longer than most tables need to be read."""
    java: Any = spark._jvm
    metrics = java.org.apache.spark.metrics.source.CodegenMetrics
    compiled = []
    for snapshot in range(2):
        spark.range(100 + 10 * snapshot).coalesce(1).write.parquet(f"{tmp_path}/{snapshot}")
        (file,) = (tmp_path / str(snapshot)).glob("*.parquet")
        read = spark.read.schema("id long").parquet(str(file))
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        assert read.where(is_left(spark, [superseded(file.stat().st_size, snapshot)])).count() == 99 + 10 * snapshot
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    assert compiled[1] == 0
