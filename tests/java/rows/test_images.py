"""What commits changed, read by both engines from one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import ORDERED, SHARED, JavaHudi
from pyspark.sql import SparkSession

import lakelatch

pytestmark = pytest.mark.spark
CDC = {"hoodie.table.cdc.enabled": "true"}
OPERATION = "hoodie.datasource.write.operation"


def test_both_engines_find_the_same_changes_in_a_table_of_javas(
    java: JavaHudi, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "trips")

    def write(rows: list[tuple[int, int, str]], **more: str) -> None:
        columns = dict(zip(("id", "ts", "v"), map(list, zip(*rows, strict=True)), strict=True))
        java.write(path, pa.table(columns), {**SHARED, **ORDERED, **CDC, **more})

    write([(number, 1, "a") for number in range(6)])
    write([(0, 2, 'b "ü"'), (7, 2, "new"), (1, 0, "older")])
    write([(2, 3, "c")], **{OPERATION: "delete"})
    write([(0, 4, "again"), (7, 4, "again")])
    window = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.query.incremental.format": "cdc",
        "hoodie.datasource.read.begin.instanttime": "20000101000000000",
    }
    ours = in_order([row.asDict() for row in lakelatch.read(spark, path, window).collect()])
    assert [row["op"] for row in ours] == ["i"] * 6 + ["u", "i", "d", "u", "u"]
    assert in_order(java.read(path, window)) == ours


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes with their images as values, without meta columns, which some versions of Java show."""
    found = [{**row, "before": image(row["before"]), "after": image(row["after"])} for row in changes]
    return sorted(found, key=lambda row: (row["ts_ms"], (row["after"] or row["before"])["id"]))


def image(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return {name: value for name, value in json.loads(text).items() if not name.startswith("_hoodie_")}
