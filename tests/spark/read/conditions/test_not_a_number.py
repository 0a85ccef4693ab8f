"""NaN, and zeros of both signs, in base files: the rows that a condition finds are those that it finds in a frame.

NaN is greater than every number in Spark, and both zeros are one value. Neither is so in what a footer says of a column
chunk: its bounds leave NaN out, and its dictionary and its Bloom filter have bits of one zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from random_tables.predicates import found_by

import lakelatch
from lakelatch.engine.read import by_reader
from lakelatch.format.names import NO_TASK, BaseFile, parse_data_file
from lakelatch.storage import LocalStorage
from lakelatch.timeline.history import named_files
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot

NAN = math.nan
COLUMNS = "id long, ts long, f double, g float, s struct<x: double, n: long>"
#: Each column has NaN, and zeros of one sign alone.
ROWS = [
    (1, 1, -2.5, -2.5, (-2.5, 1)),
    (2, 1, NAN, NAN, (NAN, 2)),
    (3, 1, -0.0, 0.0, (-0.0, 3)),
    (4, 2, -2.5, None, None),
    (5, 2, None, -2.5, (None, 5)),
]
VALUES = {"f": "D", "g": "F", "s.x": "D"}
CONDITIONS = [
    condition.format(column=column, kind=kind)
    for column, kind in VALUES.items()
    for condition in (
        "{column} > 0{kind}",
        "{column} >= 1{kind}",
        "{column} != -2.5{kind}",
        "NOT ({column} = -2.5{kind})",
        "{column} = {column} AND {column} > 7{kind}",
        "{column} = double('NaN')",
        "{column} IN (double('NaN'), 5{kind})",
        "{column} BETWEEN 1{kind} AND double('NaN')",
        "{column} > double('Infinity')",
        "{column} = 0{kind}",
        "{column} = -0{kind}",
        "{column} <=> 0{kind}",
        "{column} IN (0{kind}, 5{kind})",
        "{column} IN (-0{kind}, 5{kind})",
        "{column} IS NULL",
        "{column} < -2{kind} AND id > 0",
    )
]


def base_files(path: str) -> list[Path]:
    return [file for file in Path(path).rglob("*.parquet") if ".hoodie" not in str(file)]


def check(spark: SparkSession, path: str, conditions: list[str] = CONDITIONS) -> None:
    """Compares what each condition finds with what it finds in a frame in memory; most of them find NaN or a zero."""
    told, there = spark.createDataFrame(ROWS, COLUMNS), lakelatch.read(spark, path)
    assert there.select(*told.columns).schema.simpleString() == told.schema.simpleString()
    expected = found_by([told.where(condition) for condition in conditions])
    found = found_by([there.where(condition) for condition in conditions])
    assert dict(zip(conditions, found, strict=True)) == dict(zip(conditions, expected, strict=True))
    assert sum(2 in ids or 3 in ids for ids in expected) >= len(conditions) * 3 / 4


@pytest.mark.parametrize("way", ["loaded", "compacted", "copied"])
def test_conditions_find_nan_and_zeros_in_base_files(
    spark: SparkSession, make_table: Callable[..., Any], make_cow: Callable[..., Any], way: str
) -> None:
    more = {"hoodie.bucket.index.num.buckets": "1"}
    if way == "copied":  # here a Bloom filter is asked, elsewhere a dictionary
        more |= {"parquet.bloom.filter.enabled#f": "true", "hoodie.parquet.dictionary.enabled": "false"}
    table = (make_cow if way == "copied" else make_table)(COLUMNS, **more)
    if way == "loaded":
        table.write(ROWS, local=False, hoodie__datasource__write__operation="bulk_insert")
    else:
        table.write(ROWS)
    if way == "compacted":
        table.compact()
    assert len(base_files(table.path)) == 1
    check(spark, table.path, CONDITIONS if way == "loaded" else CONDITIONS[::3])
    by_where = [lakelatch.read(spark, table.path, where=text) for text in ("f > 0D", "s.x != -2.5D", "g = -0F")]
    assert found_by(by_where) == [[2], [2, 3], [3]]


def test_changes_by_a_condition_find_nan(spark: SparkSession, make_table: Callable[..., Any]) -> None:
    table = make_table(COLUMNS, hoodie__bucket__index__num__buckets="1")
    table.write(ROWS, local=False, hoodie__datasource__write__operation="bulk_insert")
    held = lakelatch.Table.for_path(spark, table.path, table.options)
    held.update("f > 7D", {"g": "1F"})
    assert table.read(None, "id", "g")[1] == (2, 1.0)
    held.delete("f != -2.5D AND f != 0D")
    assert table.read(None, "id") == [(1,), (3,), (4,), (5,)]


def before(path: str) -> None:
    """Makes the base files of a table such as they were before: bounds without NaN, under names without a mark."""
    names: dict[str, str] = {}
    for file in base_files(path):
        rows = pq.read_table(file)
        parsed = parse_data_file(file.name)
        assert isinstance(parsed, BaseFile)
        file.unlink()
        names[file.name] = BaseFile(parsed.file_id, NO_TASK, parsed.instant).name
        pq.write_table(rows, file.with_name(names[file.name]), store_schema=False)
    storage = LocalStorage(path)
    for instant in Snapshot.load(storage).completed:
        metadata = CommitMetadata.read(storage, instant.path)
        paths = [PurePosixPath(stat.path) for stat in metadata.stats]
        renamed = [str(one.with_name(names.get(one.name, one.name))) for one in paths]
        stats = tuple(replace(stat, path=found) for stat, found in zip(metadata.stats, renamed, strict=True))
        storage.put(instant.path, replace(metadata, stats=stats).to_avro())
    named_files.forget_all()


@pytest.mark.parametrize("logs", ["small", "few"])
def test_base_files_of_before_are_not_believed_below_logs(
    spark: SparkSession, make_table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, logs: str
) -> None:
    """Where Spark reads the base file by itself, and Python what the logs change of it."""
    if logs == "few":
        monkeypatch.setattr(by_reader, "SMALL_LOGS_MAX_BYTES", -1)
        monkeypatch.setattr(by_reader, "OVERLAID_MAX_BYTES", -1)
        monkeypatch.setattr(by_reader, "BASE_MIN_BYTES", 0)
        monkeypatch.setattr(by_reader, "_BASE_TO_LOGS", 0)
    table = make_table(COLUMNS, hoodie__bucket__index__num__buckets="1")
    table.write(ROWS, local=False, hoodie__datasource__write__operation="bulk_insert")
    before(table.path)
    table.write([(1, 3, 8.0, None, None)])
    found = [lakelatch.read(spark, table.path).where(text) for text in ("f > 7D", "s.x = 0D", "g != -2.5F")]
    assert found_by(found) == [[1, 2], [3], [2, 3]]
    assert {"small": "row_index", "few": "LeftAnti"}[logs] in found[0]._jdf.queryExecution().toString()


def test_base_files_of_before_are_not_believed(spark: SparkSession, make_table: Callable[..., Any]) -> None:
    """Beside files of now, of which they are: what is pushed down for the one kind is not for the other."""
    table = make_table(COLUMNS, partition="ts", hoodie__bucket__index__num__buckets="1")
    table.write(ROWS[:3], local=False, hoodie__datasource__write__operation="bulk_insert")
    before(table.path)
    assert len(base_files(table.path)) == 1
    table.write(ROWS[3:], local=False, hoodie__datasource__write__operation="bulk_insert")
    check(spark, table.path)
    assert len(base_files(table.path)) == 2
