"""What `lakelatch.enable` adds to what is not ours: the same in two sessions of one process, in turns.

A table by its name is looked up in the catalog once more, to see whose it is. Nothing is executed.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.harness import Result, time_ms
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROUNDS = 200
_GOAL_MS = 1.0
_STATEMENTS: dict[str, Callable[[SparkSession, str], object]] = {
    "sql": lambda spark, path: spark.sql("SELECT 1"),
    "table": lambda spark, path: spark.table("untouched"),
    "load": lambda spark, path: spark.read.format("parquet").option("mergeSchema", "false").load(path),
    "write": lambda spark, path: spark.range(1).write.format("parquet").option("compression", "none").mode("append"),
}


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=1024)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            path = f"{folder}/untouched"
            spark.range(1).write.option("path", path).saveAsTable("untouched")
            enabled = lakelatch.enable(spark.newSession())
            return [
                _added(name, partial(say, enabled, path), partial(say, spark, path))
                for name, say in _STATEMENTS.items()
            ]
    finally:
        spark.sql("DROP TABLE IF EXISTS untouched")
        spark.stop()


def _added(name: str, enabled: Callable[[], object], plain: Callable[[], object]) -> Result:
    times: tuple[list[float], list[float]] = [], []
    for turn in range(_ROUNDS):
        for place, action in ((0, enabled), (1, plain))[:: -1 if turn % 2 else 1]:
            times[place].append(time_ms(action))
    ours, theirs = (statistics.median(found[_ROUNDS // 10 :]) for found in times)
    added = ours - theirs
    return Result(
        f"untouched_{name}",
        round(added, 3),
        "ms added",
        None,
        round(theirs, 3),
        None,
        f"at most {_GOAL_MS:g} ms",
        added <= _GOAL_MS,
        f"median of {_ROUNDS} turns",
    )
