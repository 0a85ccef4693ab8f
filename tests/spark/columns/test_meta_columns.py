"""Hudi's five meta columns are read where they are asked for, whichever way a table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

import lakelatch
from lakelatch.format.avro import META_COLUMNS

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
WITH_META: dict[str, Any] = {"lakelatch.read.meta.columns": "true"}


def test_all_ways_to_read_have_meta_columns_where_they_are_asked_for_and_only_there(
    make_table: MakeTable, spark: SparkSession
) -> None:
    small = make_table()
    done = small.write([(1, 1, "a"), (2, 1, "b")])
    since = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "0"}

    def columns(options: dict[str, Any], meta: bool | None) -> Iterator[list[str]]:
        path, table = small.path, lakelatch.Table(spark, small.path, options)
        for more in ({}, {"as.of.instant": done.completion}, since):
            yield lakelatch.read(spark, path, {**options, **more}).columns
        yield lakelatch.read(spark, path, options, "_hoodie_record_key = '1' and id < 9").columns
        yield lakelatch.read(spark, path, options, functions.col("_hoodie_record_key") == "1").columns
        yield spark.read.format("lakelatch").options(**options).load(path).columns
        yield spark.readStream.format("lakelatch").options(**options).load(path).columns
        yield table.to_df(meta_columns=meta).columns
        yield table.to_df(meta_columns=meta, where="id = 1").columns
        yield table.changes("0", meta_columns=meta).columns
        table.create_view("seen", meta_columns=meta)
        yield spark.table("seen").columns
        arrow = lakelatch.open(path, options)
        yield arrow.to_arrow(meta_columns=meta).column_names
        yield arrow.changes("0", meta_columns=meta).schema.names

    plain, full = ["id", "ts", "v"], [*META_COLUMNS, "id", "ts", "v"]
    assert list(columns({}, None)) == [plain] * 13
    assert list(columns(WITH_META, None)) == [full] * 13
    assert list(columns({}, True))[7:] == list(columns(WITH_META, True))[7:] == [full] * 6
    assert list(columns(WITH_META, False))[7:] == [plain] * 6
    either: tuple[dict[str, Any], ...] = ({**WITH_META, "columns": "v"}, {"columns": ",".join([*META_COLUMNS, "v"])})
    for wanted in either:
        assert lakelatch.read(spark, small.path, wanted).columns == [*META_COLUMNS, "v"]
        assert spark.read.format("lakelatch").options(**wanted).load(small.path).columns == [*META_COLUMNS, "v"]
    named = spark.read.format("lakelatch").options(**WITH_META).schema("v string, _hoodie_record_key string")
    assert sorted(map(tuple, named.load(small.path).collect())) == [("a", "1"), ("b", "2")]
