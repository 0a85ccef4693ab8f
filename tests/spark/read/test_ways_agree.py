"""Slices with logs have the same rows in each of the ways in which they are read, now and at moments before.

All tables of one way are one Spark job.
"""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from table import BuiltTable

import lakelatch
from lakelatch.engine.read import by_reader
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.plan import plan_read
from lakelatch.storage import LocalStorage
from lakelatch.transactions.base.settings import MODE_OPTION, OPTIMISTIC

#: What a read is forced into by the limits that it would be chosen by.
WAYS: dict[str, dict[str, int]] = {
    "merged": {"SMALL_LOGS_MAX_BYTES": -1, "LOGS_MAX_BYTES": -1},
    "small": {},
    "overlaid": {"SMALL_LOGS_MAX_BYTES": -1},
    "few": {"SMALL_LOGS_MAX_BYTES": -1, "OVERLAID_MAX_BYTES": -1, "BASE_MIN_BYTES": 0, "_BASE_TO_LOGS": 0},
}
TABLES, KEYS = 4, 8


class RandomLogs:
    """A table with base files, and logs of upserts, late rows and deletes, in which columns are added and widened."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.path = str(path)
        self.options: dict[str, Any] = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.bucket.index.num.buckets": self.chance.randint(1, 3),
            MODE_OPTION: OPTIMISTIC,
            "hoodie.logfile.data.block.format": self.chance.choice(["parquet", "avro"]),
        }
        if seed % 3:
            self.options["hoodie.datasource.write.precombine.field"] = "ts"
        if seed % 2:
            self.options["hoodie.datasource.write.partitionpath.field"] = "part"
        self.columns = {"id": pa.int64(), "ts": pa.int64(), "n": pa.int32(), "v": pa.string(), "part": pa.string()}
        built = BuiltTable(LocalStorage(self.path), pa.schema(list(self.columns.items())), self.options)
        self.moments = [self.upsert(KEYS)]
        built.compact()
        for _ in range(3):
            step = self.chance.choice([self.upsert, self.delete, self.flagged, self.with_columns])
            self.moments.append(step())

    def rows(self, most: int, **more: pa.DataType) -> pa.Table:
        """New ones, of different keys."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for _ in range(most):
            number = self.chance.randrange(100)
            row: dict[str, Any] = {
                "id": self.chance.randrange(KEYS),
                "ts": self.chance.randint(0, 9),
                "n": number,
                "v": f"v{number}",
            }
            row |= {"part": self.chance.choice("pq"), "d": self.chance.random() < 0.4}
            found[row["id"], row["part"] if "part" in self.options.values() else ""] = row
        columns = {**self.columns, **more}
        rows = [{**row, "_hoodie_is_deleted": row["d"], "w": row["n"] / 2} for row in found.values()]
        return pa.Table.from_pylist(
            [{name: row[name] for name in columns} for row in rows], pa.schema(list(columns.items()))
        )

    def write(self, data: pa.Table) -> str:
        options = {**self.options, "mergeSchema": "true"}
        return lakelatch.open(self.path, options).upsert(data).completion

    def upsert(self, most: int = 4) -> str:
        return self.write(self.rows(most))

    def flagged(self) -> str:
        return self.write(self.rows(4, _hoodie_is_deleted=pa.bool_()))

    def with_columns(self) -> str:
        self.columns |= {"n": pa.int64(), "w": pa.float64()}
        return self.write(self.rows(4))

    def delete(self) -> str:
        names = [name for name in ("id", "part", "ts") if name == "id" or name in self.options.values()]
        return lakelatch.open(self.path, self.options).delete(self.rows(3).select(names)).completion


def read_all(spark: SparkSession, tables: list[RandomLogs], way: str) -> tuple[Counter[str], Counter[str]]:
    """All rows of all moments, and how many slices were planned to be read beside their logs or merged."""
    frames: list[DataFrame] = []
    kinds: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in WAYS[way].items():
            patched.setattr(by_reader, name, value)
        for number, table in enumerate(tables):
            for moment in table.moments[-2:]:
                options = {"as.of.instant": moment, "lakelatch.read.meta.columns": "true"}
                frame = lakelatch.read(spark, table.path, options)
                row = functions.concat_ws(
                    " ", functions.lit(f"{number} {moment}"), functions.to_json(functions.struct("*"))
                )
                frames.append(frame.select(row.alias("row")))
                found = SlicesByReader.of(plan_read(table.path, options))
                kinds["beside"] += len(found.beside_logs)
                kinds["merged"] += len(found.in_python)
    rows = reduce(DataFrame.union, frames).collect()
    return Counter(row.row for row in rows), kinds


def test_all_ways_have_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables = [RandomLogs(tmp_path / str(seed), seed) for seed in range(TABLES)]
    merged, kinds = read_all(spark, tables, "merged")
    assert len(merged) > 8 * TABLES and kinds["beside"] == 0
    for way in ("small", "overlaid", "few"):
        rows, kinds = read_all(spark, tables, way)
        assert rows == merged, way
        assert kinds["beside"] > TABLES
