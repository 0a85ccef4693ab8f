"""A column is added beside arrays and maps in log files: hudi-rs reads parquet blocks then, and no Avro blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.engine.arrow import ArrowTable

pytestmark = pytest.mark.spark
Read = Callable[..., list[dict[str, Any]]]
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
}
AVRO = {"hoodie.logfile.data.block.format": "avro"}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
NUMBERS, TEXTS = pa.int64(), pa.string()
NESTED = {
    "array": (pa.list_(pa.string()), ["a"]),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "array of structs": (pa.list_(pa.struct([("x", pa.int64())])), [{"x": 1}]),
    "struct": (pa.struct([("x", pa.int64())]), {"x": 1}),
}


def made(path: Path, nested: str, ordering: pa.DataType, more: dict[str, str]) -> ArrowTable:
    table = ArrowTable(path, {**OPTIONS, **more})
    kind, value = NESTED[nested]
    rows = pa.table({"id": [1], "ts": pa.array([1]).cast(ordering), "c": pa.array([value], kind)})
    table.upsert(rows)
    wider = rows.set_column(0, "id", pa.array([2])).append_column("note", pa.array(["new"]))
    table.upsert(wider, {"mergeSchema": "true"})
    return table


def notes(rows: list[dict[str, Any]]) -> dict[int, str | None]:
    return {row["id"]: row["note"] for row in rows}


@pytest.mark.parametrize("nested", NESTED)
def test_hudi_rs_reads_what_is_written_unless_one_asks_otherwise(tmp_path: Path, by_hudi_rs: Read, nested: str) -> None:
    table = made(tmp_path / "t", nested, NUMBERS, {})
    assert notes(table.to_arrow().to_pylist()) == {1: None, 2: "new"} == notes(by_hudi_rs(str(table.path)))


@pytest.mark.parametrize(("ordering", "more"), [(NUMBERS, AVRO), (TEXTS, {})], ids=["asked for", "ordered by texts"])
@pytest.mark.parametrize("nested", NESTED)
def test_hudi_rs_reads_avro_blocks_once_they_are_compacted(
    spark: SparkSession, tmp_path: Path, by_hudi_rs: Read, nested: str, ordering: pa.DataType, more: dict[str, str]
) -> None:
    """Nothing in an Avro block could say how hudi-rs is to call the elements; texts in parquet blocks Java mistakes."""
    table = made(tmp_path / "t", nested, ordering, more)
    expected = {1: None, 2: "new"}
    assert notes(table.to_arrow().to_pylist()) == expected
    if nested == "struct":
        assert notes(by_hudi_rs(str(table.path))) == expected
        return
    with pytest.raises(Exception, match=r"column 'c' has type .* but the table schema expects"):
        by_hudi_rs(str(table.path))
    assert lakelatch.compact(spark, str(table.path), {**OPTIONS, **EVERY_LOG})
    assert notes(by_hudi_rs(str(table.path))) == expected
