"""Small writes on a warm session, beside Spark's append of the same frame in turns, and the frame's way to the driver.

Each of 1, 10, 1,000 and 10,000 rows as four frames: a local one, one made of a Python list, one that Spark computes (a
range with other columns), and one that Spark reads from a parquet file.
`python -m bench.spark.small_write [--quick] [KIND ...]` takes a third of the rounds, and those kinds only.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bench.harness import Result, save, time_ms
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROUNDS = 21
_WARM = 4
_SIZES = (1, 10, 1_000, 10_000)
_OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
}


def run(rounds: int = _ROUNDS, only: Sequence[str] = ()) -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=1024)
    results = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        kinds: dict[str, Callable[[SparkSession, int, int], DataFrame]] = {
            "local": _local,
            "list": _list,
            "computed": _computed,
            "read": partial(_read, Path(folder)),
        }
        for kind, make in kinds.items():
            if only and kind not in only:
                continue
            results += [_measure(spark, f"{folder}/{kind}-{rows}", kind, rows, make, rounds) for rows in _SIZES]
    spark.stop()
    return results


def _measure(
    spark: SparkSession,
    folder: str,
    kind: str,
    rows: int,
    make: Callable[[SparkSession, int, int], DataFrame],
    rounds: int,
) -> Result:
    times: dict[str, list[float]] = {"ours": [], "native": [], "driver": []}
    for turn in range(rounds + _WARM):
        frame = make(spark, rows, turn)
        actions: list[tuple[str, Callable[[], object]]] = [
            ("ours", partial(lakelatch.write, frame, f"{folder}/table", _OPTIONS)),
            ("native", partial(_append, frame, f"{folder}/native")),
            ("driver", frame.toArrow),
        ]
        for name, action in actions[::-1] if turn % 2 else actions:
            times[name].append(time_ms(action))
    count = lakelatch.read(spark, f"{folder}/table").count()
    if count != rows:
        raise AssertionError(f"the table has {count} rows and must have {rows}")
    value, peer, floor = (statistics.median(found[_WARM:]) for found in times.values())
    ratios = sorted(native / ours for ours, native in zip(times["ours"][_WARM:], times["native"][_WARM:], strict=True))
    return Result(
        f"small_write_{kind}_{rows}",
        round(value, 1),
        "ms",
        round(floor, 1),
        round(peer, 1),
        round(peer / value, 2),
        "speed to Spark's native parquet append of at least 1",
        value <= peer,
        f"{rounds} turns, middle half {ratios[rounds // 4]:.2f} to {ratios[3 * rounds // 4]:.2f}; floor: the frame "
        "taken to the driver (toArrow)",
    )


def _local(spark: SparkSession, rows: int, turn: int) -> DataFrame:
    return spark.createDataFrame(_table(rows, turn))


def _list(spark: SparkSession, rows: int, turn: int) -> DataFrame:
    return spark.createDataFrame([(f"k{i}", turn, 1.5) for i in range(rows)], "id string, ts long, v double")


def _computed(spark: SparkSession, rows: int, turn: int) -> DataFrame:
    return spark.range(rows).select(
        F.concat(F.lit("k"), F.col("id").cast("string")).alias("id"),
        F.lit(turn).cast("long").alias("ts"),
        F.rand().alias("v"),
    )


def _read(folder: Path, spark: SparkSession, rows: int, turn: int) -> DataFrame:
    path = folder / f"source-{rows}-{turn}.parquet"
    pq.write_table(_table(rows, turn), path)
    return spark.read.parquet(str(path))


def _table(rows: int, turn: int) -> pa.Table:
    return pa.table({"id": [f"k{i}" for i in range(rows)], "ts": [turn] * rows, "v": [1.5] * rows})


def _append(frame: DataFrame, path: str) -> None:
    frame.write.mode("append").parquet(path)


if __name__ == "__main__":
    kinds = [word for word in sys.argv[1:] if word != "--quick"]
    found = run(_ROUNDS // 3 if "--quick" in sys.argv else _ROUNDS, kinds)
    save(found)
    for one in found:
        print(one)
