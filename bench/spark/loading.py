"""Bulk loads beside what Spark writes of the same rows, and the reads right after: one session, in turns.

The rows come from parquet files, in no order. The peer shuffles them by key into as many files as the table has
buckets, sorts each by key, and writes parquet: as Spark does by default, and with the table's compression (`zstd`). The
floor is what pyarrow takes in one process to write the table's rows, meta columns and all, when they are in memory.
LOAD_ROWS says how many rows there are (5,000,000; with `--quick` 500,000), LOAD_BUCKETS how many buckets, LOAD_ROUNDS
how many turns, and LOAD_CORES how many cores the session has.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from bench.harness import Result, save, time_ms
from bench.spark.turns import COLUMNS, answer, compared, in_turns, sorted_by_key, spread
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROWS = int(os.environ.get("LOAD_ROWS", "5000000"))
_QUICK_ROWS = 500_000
_BUCKETS = int(os.environ.get("LOAD_BUCKETS", "8"))
_ROUNDS = int(os.environ.get("LOAD_ROUNDS", "5"))
_CORES = int(os.environ.get("LOAD_CORES", "2"))
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
    "hoodie.datasource.write.operation": "bulk_insert",
}
_QUERIES = ("count", "column", "scan", "lookup")
_LOAD_GOAL, _READ_GOAL = (0.85, "parquet's"), (0.9, "parquet's")


def run(quick: bool = False) -> list[Result]:
    rows = _QUICK_ROWS if quick else _ROWS
    spark = open_session("lakelatch bench", cores=_CORES, memory_mb=4096)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            source = _source(spark, folder, rows)
            return [*_loads(source, folder, rows), *_reads(spark, folder, rows)]
    finally:
        spark.stop()


def _source(spark: SparkSession, folder: str, rows: int) -> DataFrame:
    path = f"{folder}/source"
    spark.range(rows).selectExpr(
        f"format_string('key-%09d', {spread('id', rows)}) AS id",
        "1L AS ts",
        "hash(id) AS v",
        "xxhash64(id) AS w",
        "md5(CAST(id AS STRING)) AS text",
    ).write.parquet(path)
    return spark.read.parquet(path)


def _loads(source: DataFrame, folder: str, rows: int) -> list[Result]:
    table, plain, packed = f"{folder}/table", f"{folder}/plain", f"{folder}/packed"
    actions: dict[str, Callable[[], object]] = {
        table: lambda: lakelatch.write(source, table, _OPTIONS),
        plain: lambda: sorted_by_key(source, _BUCKETS).write.parquet(plain),
        packed: lambda: sorted_by_key(source, _BUCKETS).write.option("compression", "zstd").parquet(packed),
    }
    times: dict[str, list[float]] = {path: [] for path in actions}
    for turn in range(_ROUNDS + 1):  # the first warms up
        for path in list(actions)[:: -1 if turn % 2 else 1]:
            shutil.rmtree(path, ignore_errors=True)
            times[path].append(time_ms(actions[path]))
    floor = _floor(table, folder)
    results = []
    for name, peer in (("loading_to_default", plain), ("loading_to_zstd", packed)):
        note = f"{rows:,} rows, {_BUCKETS} buckets; {_megabytes(table)} MB to {_megabytes(peer)} MB"
        results.append(compared(name, times[table][1:], times[peer][1:], _LOAD_GOAL, note, floor))
    return results


def _floor(table: str, folder: str) -> float:
    held = [pq.read_table(file) for file in sorted(Path(table).glob("*.parquet"))]

    def write_all() -> None:
        for number, rows in enumerate(held):
            pq.write_table(rows, f"{folder}/floor-{number}.parquet", compression="zstd", store_schema=False)

    return statistics.median(time_ms(write_all) for _ in range(3))


def _reads(spark: SparkSession, folder: str, rows: int) -> list[Result]:
    results = []
    where = f"id = 'key-{rows // 3:09d}'"
    for query in _QUERIES:
        ours = partial(answer, query, lambda: lakelatch.read(spark, f"{folder}/table").select(*COLUMNS), where)
        theirs = partial(answer, query, lambda: spark.read.parquet(f"{folder}/packed").select(*COLUMNS), where)
        times = in_turns(query, ours, theirs, _ROUNDS)
        results.append(compared(f"loading_then_{query}", *times, _READ_GOAL, f"{rows:,} rows, peer zstd"))
    return results


def _megabytes(folder: str) -> int:
    return round(sum(file.stat().st_size for file in Path(folder).glob("*.parquet")) / 1e6)


if __name__ == "__main__":
    found = run(quick="--quick" in sys.argv)
    save(found)
    for one in found:
        print(one)
