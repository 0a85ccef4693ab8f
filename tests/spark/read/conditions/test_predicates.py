"""Conditions on columns of every type find the same rows in a table, whatever its files are, as in a frame in memory.

Spark's own parquet files are looked at as well: they lose a zero of the other sign, and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from random_tables.predicates import (
    COLUMNS,
    FLOATS,
    SCHEMA,
    Predicate,
    found_and_scanned,
    found_by,
    predicates_of,
    rows_of,
)

import lakelatch

WAYS = ("loaded", "copied", "logs", "compacted", "mixed")
ROWS, PARTS = 48, 4
BULK = {"hoodie__datasource__write__operation": "bulk_insert"}


def make(make_table: Callable[..., Any], way: str, rows: list[tuple[Any, ...]]) -> Any:
    """A table of one bucket in each partition, whose files came about in this way."""
    more = {"hoodie__table__type": "COPY_ON_WRITE"} if way == "copied" else {}
    table = make_table(SCHEMA, partition="part", hoodie__bucket__index__num__buckets="1", **more)
    loading = BULK if way in ("loaded", "mixed") else {}
    if way == "mixed":  # above a row of each partition are logs with the rows as they are expected
        older = [(*row[:3], *rows[(number + 7) % len(rows)][3:]) for number, row in enumerate(rows)]
        table.write(older, local=False, **loading)
        table.write([(row[0], 2, *row[2:]) for row in rows])
    else:
        table.write(rows, local=False, **loading)
    if way == "compacted":
        table.compact()
    return table


@lru_cache  # whatever the files are, these are the same
def found_in_memory(spark: SparkSession, seed: int, texts: tuple[str, ...]) -> list[list[int]]:
    told = spark.createDataFrame(rows_of(seed, ROWS, PARTS), SCHEMA)
    return found_by([told.where(text) for text in texts])


def check(
    spark: SparkSession, make_table: Callable[..., Any], way: str, seed: int, predicates: list[Predicate]
) -> Counter[str]:
    """Compares what conditions find by `.where` and by `read(where=)`; how often something was there to be missed."""
    rows = rows_of(seed, ROWS, PARTS)
    table = make(make_table, way, rows)
    there = lakelatch.read(spark, table.path)
    texts = [one.text for one in predicates]
    expected = found_in_memory(spark, seed, tuple(texts))
    found, scanned = found_and_scanned([there.where(text) for text in texts])
    assert not {text: (ids, one) for text, ids, one in zip(texts, found, expected, strict=True) if ids != one}
    by_where = found_by([lakelatch.read(spark, table.path, where=text) for text in texts[::4]])
    assert not {
        text: (ids, one) for text, ids, one in zip(texts[::4], by_where, expected[::4], strict=True) if ids != one
    }
    return Counter(
        scans=len(scanned),
        pruned=sum(number < ROWS for number in scanned),
        found=sum(map(bool, expected)),
        nan=sum(map(_finds_nan(rows), predicates, expected)),
    )


def _finds_nan(rows: list[tuple[Any, ...]]) -> Callable[[Predicate, list[int]], bool]:
    """Whether a condition on a floating point column finds a row in which that is NaN."""
    names = ["id", "ts", "part", *(one.name for one in COLUMNS if "." not in one.name), "s"]
    flat = [dict(zip(names, row, strict=True)) for row in rows]
    nan = {
        (row["id"], name)
        for row in flat
        for name in FLOATS
        for value in [(row["s"] or (None,))[0] if name == "s.x" else row[name]]
        if value is not None and math.isnan(value)
    }
    return lambda one, found: any((key, name) in nan for key in found for name in one.columns)


@pytest.mark.parametrize("way", ["mixed", pytest.param("loaded", marks=pytest.mark.long)])
def test_conditions_find_what_they_find_in_memory(
    spark: SparkSession, make_table: Callable[..., Any], way: str
) -> None:
    met = check(spark, make_table, way, 1, predicates_of(1, 34))
    assert met["found"] >= 20 and met["nan"] >= 5, met
    assert way == "mixed" or (met["scans"] >= 30 and met["pruned"] >= 6), met


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [2])
def test_conditions_of_many_seeds(spark: SparkSession, make_table: Callable[..., Any], way: str, seed: int) -> None:
    met = check(spark, make_table, way, seed, predicates_of(seed, 112))
    print(f"{way}, seed {seed}: {dict(met)}")
    assert met["found"] >= 70 and met["nan"] >= 10, met
    assert way in ("logs", "mixed") or met["pruned"] >= 15, met


@pytest.mark.long
def test_spark_loses_a_zero_of_its_own_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """What is said of Spark's own files in the design notes: if this changes, so may they."""
    rows = rows_of(1, ROWS, PARTS)
    told = spark.createDataFrame(rows, SCHEMA)
    told.repartition(PARTS, "part").write.parquet(str(tmp_path / "spark"))
    own = spark.read.parquet(str(tmp_path / "spark"))
    predicates = predicates_of(1, 112)
    expected = found_by([told.where(one.text) for one in predicates])
    found = found_by([own.where(one.text) for one in predicates])
    differing = [one for one, here, there in zip(predicates, expected, found, strict=True) if here != there]
    assert all(one.of_zero for one in differing), differing


def test_changes_by_conditions_meet_the_rows_that_are_meant(
    spark: SparkSession, make_table: Callable[..., Any]
) -> None:
    rows = rows_of(1, ROWS, PARTS)
    table = make(make_table, "loaded", rows)
    held = lakelatch.Table.for_path(spark, table.path, table.options)
    left: DataFrame = spark.createDataFrame(rows, SCHEMA)
    for condition in ("d > 7D OR d = 0D", "s.x = double('NaN')", "f != -2.5F AND n < 3", "v LIKE 'a%'"):
        before = found_by([left])[0]
        left = left.where(f"NOT coalesce({condition}, false)")
        assert found_by([left])[0] != before, condition
        held.delete(condition)
        assert found_by([lakelatch.read(spark, table.path)]) == found_by([left]), condition
    held.update("f = float('NaN') OR day < DATE'1900-01-01'", {"n": "77"})
    changed = left.where("f = float('NaN') OR day < DATE'1900-01-01'")
    assert found_by([lakelatch.read(spark, table.path).where("n = 77")]) == found_by([changed])
    assert found_by([changed])[0]
