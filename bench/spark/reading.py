"""Reads of a table beside those of plain parquet: the same rows, as many files, in one Spark session.

A table is read after a bulk load, with 200 rows in logs of all file groups, after its compaction, with logs on a tenth
of its file groups, and on all of them: a tenth of the rows of these was written again. Its peer is what Spark has
written of the same rows with the meta columns. What the logs change is merged by the first read, which warms up and is
in no figure.
*named* says in the read's options what is wanted (`columns`, and `where` for a lookup); the other reads say it in
Spark alone; *enabled* is `format("lakelatch")` of a session for which `lakelatch.enable` was called. READ_ROWS says how
many rows the table has (1,000,000), READ_STATES and READ_WAYS which figures are wanted, READ_ROUNDS how many turns.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.harness import Result
from bench.spark.turns import answer, compared, in_turns, rows_of
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.format.bucket_index import bucket_ids
from lakelatch.spark.session.local_session import open_session

_ROWS = int(os.environ.get("READ_ROWS", "1000000"))
_STATES = os.environ.get("READ_STATES", "bulk,few,compacted,tenth,all").split(",")
_WAYS = os.environ.get("READ_WAYS", "read,read_named,format,format_named,enabled").split(",")
_BUCKETS = 10
_ROUNDS = int(os.environ.get("READ_ROUNDS", "3"))
_FEW = 200
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
    "hoodie.datasource.write.operation": "bulk_insert",
}
_META = {"lakelatch.read.meta.columns": "true"}
_KEY = f"key-{_ROWS // 3:09d}"
#: A query's name, the columns and the condition that it needs, and its least share of plain parquet's speed.
_QUERIES: tuple[tuple[str, str | None, str | None], ...] = (
    ("count", "_hoodie_record_key", None),
    ("column", "v", None),
    ("scan", None, None),
    ("lookup", None, f"id = '{_KEY}'"),
)
_GOAL = {"bulk": 0.3, "few": 0.77, "compacted": 0.9, "tenth": 0.7, "all": 0.5}


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=2048)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            return [result for state in _states(spark, folder) for result in _figures(spark, folder, state)]
    finally:
        spark.stop()


def _states(spark: SparkSession, folder: str) -> Iterator[str]:
    """Brings the table into one state after the other."""
    table = f"{folder}/table"
    held = lakelatch.Table(spark, table, _OPTIONS)
    lakelatch.write(rows_of(spark, _ROWS, 1), table, _OPTIONS)
    rows = lakelatch.open(table).to_arrow()
    buckets = bucket_ids(rows, ["id"], _BUCKETS)
    for number, state in enumerate(("bulk", "few", "compacted", "tenth", "all")):
        if state == "compacted":
            held.compact()
        elif state != "bulk":
            touched = rows.filter(pc.equal(buckets, 0)) if state == "tenth" else rows
            each = rows.num_rows // _FEW if state == "few" else 10
            again = touched.take(pa.array(np.arange(0, touched.num_rows, each)))
            later = pa.array(np.full(again.num_rows, number + 1, np.int64))
            again = again.set_column(again.column_names.index("ts"), "ts", later)
            lakelatch.open(table, _OPTIONS).upsert(again)
        if state in _STATES:
            plain = lakelatch.read(spark, table, _META).repartition(_BUCKETS)
            plain.write.option("compression", "zstd").parquet(f"{folder}/{state}")
            yield state


def _figures(spark: SparkSession, folder: str, state: str) -> Iterator[Result]:
    for query, columns, where in _QUERIES:
        peer = partial(answer, query, partial(spark.read.parquet, f"{folder}/{state}"), where)
        for way in _WAYS:
            ours = partial(answer, query, partial(_read, spark, f"{folder}/table", way, columns, where), where)
            yield _compare(f"reading_{state}_{query}_{way}", state, ours, peer)


def _read(spark: SparkSession, path: str, way: str, columns: str | None, where: str | None) -> DataFrame:
    name, _, named = way.partition("_")
    options = {"columns": columns} if named and columns is not None else _META
    if name == "enabled":
        return _enabled(spark).read.format("lakelatch").options(**options).load(path)
    if name == "read":
        return lakelatch.read(spark, path, options, where if named else None)
    return spark.read.format("lakelatch").options(**options).load(path)


@cache
def _enabled(spark: SparkSession) -> SparkSession:
    return lakelatch.enable(spark.newSession())


def _compare(name: str, state: str, ours: Callable[[], object], peer: Callable[[], object]) -> Result:
    goal, note = (_GOAL[state], "plain parquet's"), f"{_ROWS:,} rows in {_BUCKETS} buckets"
    return compared(name, *in_turns(name, ours, peer, _ROUNDS), goal, note)
