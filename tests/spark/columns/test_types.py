"""Types of Spark's that Hudi has not are refused in Spark's words; and column names in any script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

MERGE = {"mergeSchema": "true"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tinyint", "'c' is tinyint, which Hudi's tables do not have: cast it to int"),
        ("array<smallint>", "'c' is smallint, which Hudi's tables do not have: cast it to int"),
        ("variant", "'c' is variant, which Hudi's tables do not have: cast it to string"),
        ("struct<v:variant>", "'c.v' is variant"),
        ("interval year to month", "'c' is interval year to month"),
        ("interval day to second", "'c' is interval day to second, which Hudi's tables do not have: cast it to bigint"),
        ("map<int,string>", "'c' is map<int,string>, which Hudi's tables do not have: cast it to one whose keys"),
        ("void", "'c' is void"),
        (StringType("UTF8_LCASE"), "'c' is string collate UTF8_LCASE, which Hudi's tables do not have: cast it to str"),
    ],
)
def test_what_hudi_has_not_is_refused_and_makes_no_table(
    spark: SparkSession, tmp_path: Path, kind: str | DataType, said: str
) -> None:
    if isinstance(kind, str):
        schema = StructType.fromDDL(f"id long, c {kind}")
        assert isinstance(schema, StructType)
    else:
        schema = StructType([StructField("id", StringType()), StructField("c", kind)])
    for path, make in (
        ("created", lambda path: lakelatch.Table.create(spark, path, schema, key="id")),
        ("written", lambda path: lakelatch.write(spark.createDataFrame([], schema), path, {KEY: "id"})),
    ):
        with pytest.raises(InvalidRequest) as caught:
            make(str(tmp_path / path))
        assert said in caught.value.message
        assert not (tmp_path / path / ".hoodie" / "hoodie.properties").exists()


KEY = "hoodie.datasource.write.recordkey.field"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({KEY: "d"}, "the column 'd' is double and cannot be part of a record key"),
        ({KEY: "y"}, "the column 'y' is binary and cannot be part of a record key"),
        ({KEY: "id", "hoodie.datasource.write.partitionpath.field": "d"}, "'d' is double"),
        ({KEY: "id", "hoodie.datasource.write.precombine.field": "y"}, "an ordering field of type binary"),
    ],
)
def test_fields_that_name_or_order_rows_have_a_fit_type(
    spark: SparkSession, table_path: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        lakelatch.write(spark.createDataFrame([], "id long, d double, y binary"), table_path, options)
    assert not lakelatch.Table.is_table(table_path)


def test_narrow_numbers_are_values_of_wider_columns(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    table.write([(2, 2, "b")], "id short, ts byte, v string", local=False)
    assert table.read() == [(1, 1, "a"), (2, 2, "b")]


def test_names_have_letters_of_any_script(spark: SparkSession, make_table: MakeTable) -> None:
    table = make_table("`größe` long, ts long, `名前` string", key="größe")
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(2, 2, "c", "d")], "`größe` long, ts long, `名前` string, `имя` string", mergeSchema="true")
    rows = [(1, 1, "a", None), (2, 2, "c", "d")]
    assert table.read(None, "größe", "ts", "名前", "имя") == rows
    table.compact()
    assert table.read(None, "größe", "ts", "名前", "имя") == rows
    assert spark.read.format("lakelatch").load(table.path).where("`größe` = 2").count() == 1
    with pytest.raises(InvalidRequest, match="the column name 'a b' cannot be stored: Hudi's schemas take letters"):
        table.write([(2, 2, "c", "d", 1)], "`größe` long, ts long, `名前` string, `имя` string, `a b` int", **MERGE)


def test_names_are_matched_as_the_session_matches_them(spark: SparkSession, make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    table.write([("b", 2, 1)], "V string, Ts long, ID long", local=False, mergeSchema="true")
    assert table.read() == [(1, 2, "b")] and lakelatch.open(table.path).schema.names == ["id", "ts", "v"]
    frame = spark.createDataFrame([(1, 3, "c", "d")], "id long, ts long, v string, V string")
    with pytest.raises(InvalidRequest, match=r"'v' and 'V' are one under spark\.sql\.caseSensitive=false"):
        lakelatch.write(frame, table.path, {**table.options, "mergeSchema": "true"})
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for merging in ("false", "true"):  # most sessions could not read such a table
            with pytest.raises(InvalidRequest, match=r"the column 'V' differs from 'v' only in the case"):
                lakelatch.write(frame, table.path, {**table.options, "mergeSchema": merging})
        assert table.read() == [(1, 2, "b")]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_arrow_s_types_are_those_of_spark_or_refused(tmp_path: Path) -> None:
    table = lakelatch.ArrowTable(tmp_path / "t", {KEY: "id"})
    with pytest.raises(InvalidRequest, match=r"'id' is smallint, .*: cast it to int"):
        table.upsert(pa.table({"id": pa.array([1], pa.int16())}))
    table.upsert(pa.table({"id": pa.array([1], pa.int32())}))
    table.upsert(pa.table({"id": pa.array([2], pa.int16())}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
