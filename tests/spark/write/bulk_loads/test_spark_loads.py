"""A frame that Spark loads in bulk is read by Spark itself at once, and by hudi-rs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hudi
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.spark.write.writer import sends_runs

OPERATION = "hoodie.datasource.write.operation"
Make = Callable[..., Any]


def base_files(result: lakelatch.CommitResult) -> int:
    return sum(isinstance(parse_data_file(name), BaseFile) for name in result.files)


@pytest.mark.parametrize("partition", [None, "part"])
def test_a_load_is_read_without_merging(make_table: Make, partition: str | None) -> None:
    table = make_table("id long, ts long, v string, part string", partition=partition)
    frame = table.spark.range(2000).selectExpr("id % 1500 id", "id ts", "cast(id as string) v", "string(id % 3) part")
    done = lakelatch.write(frame, table.path, {**table.options, OPERATION: "bulk_insert"})
    assert base_files(done) == len(done.files) == (6 if partition else 2)
    assert done.rows_written == 1500
    found = lakelatch.read(table.spark, table.path)
    assert "FileScan parquet" in found._jdf.queryExecution().toString()
    expected = sorted((key, key + 1500 if key < 500 else key) for key in range(1500))
    assert sorted(tuple(row) for row in found.select("id", "ts").collect()) == expected
    batches = hudi.HudiTableBuilder.from_base_uri(table.path).build().read(hudi.HudiReadOptions())
    rows = [row for batch in batches for row in pa.record_batch(batch).select(["id", "ts"]).to_pylist()]
    assert sorted((row["id"], row["ts"]) for row in rows) == expected


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        ("id long, ts long, v string, _hoodie_is_deleted boolean", {}),
        ("id long, ts long, v string", {"operation": "insert"}),
    ],
)
def test_other_loads_make_log_files(make_table: Make, columns: str, more: dict[str, str]) -> None:
    table = make_table(columns)
    frame = table.spark.range(10).selectExpr("id", "id ts", "'a' v", "id = 3 _hoodie_is_deleted")
    frame = frame.select(*[part.split()[0] for part in columns.split(", ")])
    done = lakelatch.write(frame, table.path, {**table.options, OPERATION: more.get("operation", "bulk_insert")})
    assert base_files(done) == 0
    assert lakelatch.read(table.spark, table.path).count() == (10 if more else 9)


@pytest.mark.long
@pytest.mark.parametrize(("limit", "in_runs"), [("64m", True), ("1g", False)])
def test_a_session_whose_batches_may_be_large_shuffles_rows(make_table: Make, limit: str, in_runs: bool) -> None:
    table = make_table("id string, ts long, v string")
    name, spark = "spark.sql.execution.arrow.maxBytesPerBatch", table.spark
    before = spark.conf.get(name)
    spark.conf.set(name, limit)
    try:
        assert sends_runs(spark) == in_runs
        frame = spark.range(900).selectExpr("string(id % 600) id", "id ts", "string(id) v")
        done = lakelatch.write(frame, table.path, {**table.options, OPERATION: "bulk_insert"})
    finally:
        spark.conf.set(name, before)
    assert base_files(done) == 2
    found = sorted(tuple(row) for row in lakelatch.read(spark, table.path).select("id", "v").collect())
    assert found == sorted((str(key), str(key + 600 if key < 300 else key)) for key in range(600))
