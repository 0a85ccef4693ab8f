"""A ten-row write on a warm session, beside Spark's own append of the same frame and the frame's way to the driver."""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
from bench.harness import Result, time_ms
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.console.sessions import open_session

_ROUNDS = 30
_WARM = 5
_GOAL_MS = 120.0


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=1024)
    options: dict[str, object] = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.bucket.index.num.buckets": 1,
    }
    ours: list[float] = []
    native: list[float] = []
    driver: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        for turn in range(_ROUNDS + _WARM):
            rows = pa.table({"id": [f"k{i}" for i in range(10)], "ts": [turn] * 10, "v": [1.5] * 10})
            frame = spark.createDataFrame(rows)
            ours.append(time_ms(partial(lakelatch.write, frame, f"{folder}/table", options)))
            native.append(time_ms(partial(_append, frame, f"{folder}/native")))
            driver.append(time_ms(frame.toArrow))
        count = lakelatch.read(spark, f"{folder}/table").count()
    spark.stop()
    if count != 10:
        raise AssertionError(f"the table has {count} rows and must have 10")
    value, peer, floor = (statistics.median(values[_WARM:]) for values in (ours, native, driver))
    return [
        Result(
            "ten_row_write_warm",
            round(value, 1),
            "ms",
            round(floor, 1),
            round(peer, 1),
            round(value / peer, 2),
            f"under {_GOAL_MS:g} ms",
            value < _GOAL_MS,
            "ratio to Spark's native parquet append; floor: the frame taken to the driver (toArrow)",
        )
    ]


def _append(frame: DataFrame, path: str) -> None:
    frame.write.mode("append").parquet(path)
