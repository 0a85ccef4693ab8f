"""As ordering values -0.0 is less than 0.0, and all that are not a number are one, the greatest: as Java compares."""

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
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
EXPECTED = {1: "positive", 2: "positive", 3: "last", 4: "last", 5: "last"}


def rows(kind: pa.DataType, *values: tuple[int, float, str]) -> pa.Table:
    ids, times, names = zip(*values, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.array(times, kind), "v": list(names)})


FIRST = ((1, 0.0, "positive"), (2, -0.0, "negative"), (3, 0.0, "first"), (4, -0.0, "first"), (5, -1.0, "first"))
THEN = ((1, -0.0, "negative"), (2, 0.0, "positive"), (3, 0.0, "last"), (4, -0.0, "last"), (5, -0.0, "last"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("over", ["a log", "a base file", "the same frame", "copied on write"])
def test_negative_zero_is_less_than_zero(
    spark: SparkSession, tmp_path: Path, by_hudi_rs: Read, kind: pa.DataType, over: str
) -> None:
    written_over = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"} if over == "copied on write" else {}
    table = ArrowTable(tmp_path / "t", {**OPTIONS, **written_over})

    def agree(expected: dict[int, str]) -> None:
        found = table.to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
        assert {row["id"]: row["v"] for row in by_hudi_rs(str(table.path))} == expected

    if over == "the same frame":
        table.upsert(rows(kind, *FIRST, *THEN))
    else:
        table.upsert(rows(kind, *FIRST))
        if over == "a base file":
            assert lakelatch.compact(spark, str(table.path), {**OPTIONS, **EVERY_LOG})
        table.upsert(rows(kind, *THEN))
    agree(EXPECTED)
    table.delete(rows(kind, (1, -0.0, ""), (2, 0.0, "")))
    agree({key: value for key, value in EXPECTED.items() if key != 2})
