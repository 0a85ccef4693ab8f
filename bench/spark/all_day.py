"""Reads of a table that is upserted all day, beside those of the same rows compacted: nobody calls a service.

Upserts follow each other, a while apart; after each the table is read, in turns with a table of the same rows that has
no log. The first query after an upsert, another one each time, pays for whatever has to be found out anew; the others
come right after it. Everything has its default. DAY_ROWS says how many rows there are (2,000,000), DAY_UPSERTS how many
upserts (12), DAY_SHARES which parts of the rows each of them changes, one in so many (1000, 10), and DAY_EVERY_MIN how
many minutes after the last one an upsert begins (10), by the clock that it is given: nobody waits. DAY_OPTIONS are
options of the upserts (KEY=VALUE, by commas).
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.harness import Result, time_ms
from bench.spark.turns import answer, rows_of
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session
from lakelatch.system import RealSystem
from lakelatch.timeline.actions import COMPACTION

_ROWS = int(os.environ.get("DAY_ROWS", "2000000"))
_UPSERTS = int(os.environ.get("DAY_UPSERTS", "12"))
_SHARES = tuple(int(share) for share in os.environ.get("DAY_SHARES", "1000,10").split(","))
_EVERY_MS = round(float(os.environ.get("DAY_EVERY_MIN", "10")) * 60_000)
_SAID = dict(pair.split("=", 1) for pair in os.environ.get("DAY_OPTIONS", "").split(",") if pair)
_BUCKETS = 8
_GOAL = 2.0
_OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
}
_DRIFT = "lakelatch.time.max_drift_ms"  # by which the clock may be ahead of the storage's
_BULK = {**_OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
_QUERIES = ("count", "column", "scan", "lookup")
#: Of each query, how many upserts were in the logs, and how many times as long it took.
_Ratios: TypeAlias = dict[str, list[tuple[int, float]]]
_WHERE = f"id = 'key-{_ROWS // 3:09d}'"


class _Later(RealSystem):
    """The real machine, so many milliseconds later."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def realtime_ms(self) -> int:
        return super().realtime_ms() + self._ahead_ms


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=4096)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            compacted = f"{folder}/compacted"
            lakelatch.write(rows_of(spark, _ROWS, 1), compacted, _BULK)
            return [one for share in _SHARES for one in _day(spark, f"{folder}/day-{share}", compacted, share)]
    finally:
        spark.stop()


def _day(spark: SparkSession, table: str, compacted: str, share: int) -> Iterator[Result]:
    lakelatch.write(rows_of(spark, _ROWS, 1), table, _BULK)
    for query in _QUERIES:  # warms up
        _times(spark, query, table, compacted)
    first: _Ratios = {query: [] for query in _QUERIES}
    later: _Ratios = {query: [] for query in _QUERIES}
    plain: list[float] = []
    compacting: list[float] = []
    waiting = 0
    for number in range(_UPSERTS):
        took_ms, compacts = _upsert(spark, table, number, share)
        (compacting if compacts else plain).append(took_ms)
        waiting = 0 if compacts else waiting + 1
        for place in range(len(_QUERIES)):
            query = _QUERIES[(number + place) % len(_QUERIES)]
            (later if place else first)[query].append((waiting, _times(spark, query, table, compacted)))
    note = f"{_ROWS:,} rows in {_BUCKETS} buckets, one in {share:,} by each of {_UPSERTS} upserts, {len(compacting)}"
    for kind, found in (("first", first), ("later", later)):
        for query, ratios in found.items():
            yield _result(f"all_day_{share}_{kind}_{query}", ratios, f"{note} of which compacted")
    upserts = [(0, took / statistics.median(plain)) for took in compacting if plain]
    yield _result(f"all_day_{share}_upsert_that_compacts", upserts, f"{note} of which compacted, to the others")


def _upsert(spark: SparkSession, table: str, number: int, share: int) -> tuple[float, bool]:
    """Milliseconds, and whether it compacted; another part of the rows each time."""
    changed = rows_of(spark, _ROWS, number + 2).where(f"pmod(hash(id, {number}), {share}) = 0").cache()
    changed.count()
    results: list[lakelatch.CommitResult] = []
    later, options = _Later(number * _EVERY_MS), {**_OPTIONS, _DRIFT: (number + 1) * _EVERY_MS, **_SAID}
    took_ms = time_ms(lambda: results.append(lakelatch.write(changed, table, options, later)))
    changed.unpersist()
    return took_ms, any(run.service == COMPACTION for run in results[0].services)


def _times(spark: SparkSession, query: str, table: str, compacted: str) -> float:
    """How many times as long a query takes as on the compacted table."""
    ours, theirs = (time_ms(partial(_ask, spark, query, path)) for path in (table, compacted))
    return ours / theirs


def _ask(spark: SparkSession, query: str, path: str) -> None:
    frame: DataFrame = lakelatch.read(spark, path)
    answer(query, lambda: frame, _WHERE)


def _result(name: str, found: list[tuple[int, float]], note: str) -> Result:
    """The median of ratios, and that of those with so many upserts in the logs."""
    ratios = [ratio for _, ratio in found] or [0.0]
    by_logs = {logs: [ratio for of, ratio in found if of == logs] for logs in sorted({logs for logs, _ in found})}
    said = ", ".join(f"{logs}: {statistics.median(of):.2f}" for logs, of in by_logs.items())
    middle = round(statistics.median(ratios), 2)
    spread = f"{len(found)} times, {min(ratios):.2f} to {max(ratios):.2f}; by upserts in the logs {said}"
    return Result(name, middle, "times", None, None, middle, f"at most {_GOAL:g}", middle <= _GOAL, f"{note}; {spread}")
