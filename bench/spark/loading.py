"""Bulk loads beside what Spark writes of the same rows, and the reads right after: one session, in turns.

The rows come from parquet files, in no order. The peer shuffles them by key into as many files as the table has
buckets, sorts each by key, and writes parquet: as Spark does by default, and with the table's compression (`zstd`).
Beside it stands what neither shuffles nor sorts: `source.write.parquet`. *cold* is a session's first load to its first
sorted write. The floor is what pyarrow takes in one process to write the table's rows, meta columns and all, when they
are in memory.
LOAD_ROWS says how many rows there are (5,000,000; with `--quick` 500,000), LOAD_BUCKETS how many buckets, LOAD_ROUNDS
how many turns, and LOAD_CORES how many cores the session has; LOAD_SOURCE=computed has the rows computed in the order
of their keys by each of the writes, instead of read, and LOAD_READS=0 leaves the reads out.
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
from bench.spark.turns import COLUMNS, answer, compared, in_turns, rows_of, sorted_by_key, spread
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROWS = int(os.environ.get("LOAD_ROWS", "5000000"))
_QUICK_ROWS = 500_000
_BUCKETS = int(os.environ.get("LOAD_BUCKETS", "8"))
_ROUNDS = int(os.environ.get("LOAD_ROUNDS", "5"))
_CORES = int(os.environ.get("LOAD_CORES", "2"))
_COMPUTED = os.environ.get("LOAD_SOURCE", "files") == "computed"
_READS = os.environ.get("LOAD_READS", "1") != "0"
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
    "hoodie.datasource.write.operation": "bulk_insert",
}
_QUERIES = ("count", "column", "scan", "lookup")
_LOAD_GOAL, _READ_GOAL = (0.85, "parquet's"), (0.9, "parquet's")
_UNSORTED_GOAL = (0.5, "parquet's, unsorted,")


def run(quick: bool = False) -> list[Result]:
    rows = _QUICK_ROWS if quick else _ROWS
    spark = open_session("lakelatch bench", cores=_CORES, memory_mb=4096)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            source = rows_of(spark, rows, 1) if _COMPUTED else _source(spark, folder, rows)
            return [*_loads(source, folder, rows), *(_reads(spark, folder, rows) if _READS else ())]
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
    table, plain, packed, unsorted = (f"{folder}/{name}" for name in ("table", "plain", "packed", "unsorted"))
    actions: dict[str, Callable[[], object]] = {
        table: lambda: lakelatch.write(source, table, _OPTIONS),
        plain: lambda: sorted_by_key(source, _BUCKETS).write.parquet(plain),
        packed: lambda: sorted_by_key(source, _BUCKETS).write.option("compression", "zstd").parquet(packed),
        unsorted: lambda: source.write.parquet(unsorted),
    }
    times: dict[str, list[float]] = {path: [] for path in actions}
    for turn in range(_ROUNDS + 1):  # the first warms up
        for path in list(actions)[:: -1 if turn % 2 else 1]:
            shutil.rmtree(path, ignore_errors=True)
            times[path].append(time_ms(actions[path]))
    floor, kind = _floor(table, folder), "computed" if _COMPUTED else "files"

    def figure(name: str, peer: str, goal: tuple[float, str], turns: slice) -> Result:
        note = f"{rows:,} rows ({kind}), {_BUCKETS} buckets; {_megabytes(table)} MB to {_megabytes(peer)} MB"
        return compared(f"loading_{kind}_{name}", times[table][turns], times[peer][turns], goal, note, floor)

    warm, cold = slice(1, None), slice(0, 1)
    return [
        figure("to_default", plain, _LOAD_GOAL, warm),
        figure("to_zstd", packed, _LOAD_GOAL, warm),
        figure("to_unsorted", unsorted, _UNSORTED_GOAL, warm),
        figure("cold", plain, _LOAD_GOAL, cold),
    ]


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
