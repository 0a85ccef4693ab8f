"""A frame that Spark loads in bulk is read by Spark itself at once, and by hudi-rs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hudi
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.spark.write.frames_in import sends_runs

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


def test_rows_that_delete_become_log_files(make_table: Make) -> None:
    table = make_table("id long, ts long, v string, _hoodie_is_deleted boolean")
    frame = table.spark.range(10).selectExpr("id", "id ts", "'a' v", "id = 3 _hoodie_is_deleted")
    done = lakelatch.write(frame, table.path, {**table.options, OPERATION: "bulk_insert"})
    assert base_files(done) == 0
    assert lakelatch.read(table.spark, table.path).count() == 9


def test_the_first_insert_into_a_table_makes_base_files(make_table: Make) -> None:
    table = make_table("id long, ts long, v string, part string", partition="part")
    options = {**table.options, OPERATION: "insert"}

    def insert(first: int, part: str) -> lakelatch.CommitResult:
        frame = table.spark.range(first, first + 900).selectExpr("id % 600 id", "id ts", "'v' v", f"'{part}' part")
        return lakelatch.write(frame, table.path, {**options, "lakelatch.write.small.rows": "0"})

    first, second, elsewhere = insert(0, "a"), insert(900, "a"), insert(0, "b")
    assert [base_files(done) for done in (first, second, elsewhere)] == [2, 0, 0]
    assert first.rows_written == 600
    expected = [(key, key + 1200, "a") for key in range(600)]
    expected += [(key, key + (600 if key < 300 else 0), "b") for key in range(600)]
    found = lakelatch.read(table.spark, table.path).select("id", "ts", "part").collect()
    assert sorted(map(tuple, found)) == sorted(expected)


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
