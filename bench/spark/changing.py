"""An upsert of a tenth of a table's rows, beside a Spark job that joins and rewrites them all, and beside an append.

One session, in turns. The rewriting peer reads its parquet files, leaves out the changed rows by an anti join, adds
their new versions, and writes all of it beside; the appending one writes the changed rows as more parquet files and
replaces nothing. The tenth is spread over all file groups, and in memory as Spark keeps it. CHANGED_ROWS says how many
rows there are (2,000,000; with `--quick` 300,000).
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count
from pathlib import Path

from bench.harness import Result, save
from bench.spark.turns import compared, in_turns, rows_of, sorted_by_key
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROWS = int(os.environ.get("CHANGED_ROWS", "2000000"))
_QUICK_ROWS = 300_000
_BUCKETS = 8
_ROUNDS = 5
_OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
}
_BULK = {**_OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}


def run(quick: bool = False) -> list[Result]:
    rows = _QUICK_ROWS if quick else _ROWS
    spark = open_session("lakelatch bench", cores=2, memory_mb=4096)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            return _figures(spark, folder, rows)
    finally:
        spark.stop()


def _figures(spark: SparkSession, folder: str, rows: int) -> list[Result]:
    table, plain, numbers = f"{folder}/table", f"{folder}/plain", count()
    source = rows_of(spark, rows, 1)
    lakelatch.write(source, table, _BULK)
    sorted_by_key(source, _BUCKETS).write.parquet(plain)
    tenth = rows_of(spark, rows, 2).where("pmod(hash(id), 10) = 0").cache()
    tenth.count()

    def upsert() -> None:
        lakelatch.write(tenth, table, _OPTIONS)

    def rewrite() -> None:
        kept = spark.read.parquet(plain).join(tenth.select("id"), "id", "left_anti")
        sorted_by_key(kept.unionByName(tenth), _BUCKETS).write.parquet(f"{folder}/rewritten-{next(numbers)}")

    def append() -> None:
        tenth.write.mode("append").parquet(f"{folder}/appended")

    note = f"{rows:,} rows, {_BUCKETS} buckets"
    return [
        compared("upsert_tenth_to_rewriting", *in_turns("rewriting", upsert, rewrite, _ROUNDS), (4, "its"), note),
        compared("upsert_tenth_to_appending", *in_turns("appending", upsert, append, _ROUNDS), (0.6, "its"), note),
    ]


if __name__ == "__main__":
    found = run(quick="--quick" in sys.argv)
    save(found)
    for one in found:
        print(one)
