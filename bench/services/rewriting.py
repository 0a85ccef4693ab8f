"""Compaction and clustering on Spark, beside native Spark jobs that read, merge or sort, and write the same rows.

A compaction merges five writes of a tenth of the rows each; its peer reads the same base files and the written rows as
parquet, keeps the newest row of each key by a window, and writes as many files. A clustering sorts each file group; its
peer reads the base files, sorts each by a column and writes it. All write zstd, and all rows have Hudi's meta columns.
REWRITTEN_ROWS says how many rows the table has (1,000,000).
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.harness import Result, time_ms
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as functions

import lakelatch
from lakelatch.spark.session.local_session import open_session

_ROWS = int(os.environ.get("REWRITTEN_ROWS", "1000000"))
_BUCKETS = 8
_UPDATES = 5
_ROUNDS = 3
_GOAL = 0.6
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
}
_LAYOUTS = {
    "linear": {"hoodie.clustering.plan.strategy.sort.columns": "v"},
    "z-order": {
        "hoodie.clustering.plan.strategy.sort.columns": "v,w",
        "hoodie.layout.optimize.strategy": "z-order",
    },
}
_KEY, _COMMIT_TIME = "_hoodie_record_key", "_hoodie_commit_time"


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=2048)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        made, written = f"{folder}/made", f"{folder}/written"
        lakelatch.write(_frame(spark, 0), made, _OPTIONS)
        lakelatch.compact(spark, made)
        bases = [str(path) for path in Path(made).glob("*.parquet")]
        results = [
            _compare(
                spark,
                folder,
                f"clustering_{layout}",
                made,
                partial(lakelatch.cluster, spark, options=options),
                partial(_sorted, spark, bases),
            )
            for layout, options in _LAYOUTS.items()
        ]
        for turn in range(1, _UPDATES + 1):
            lakelatch.write(_frame(spark, turn), made, _OPTIONS)
            _with_meta_columns(_frame(spark, turn), turn).write.mode("append").parquet(written)
        compact, merged = partial(lakelatch.compact, spark), partial(_merged, spark, bases, written)
        results.append(_compare(spark, folder, "compaction", made, compact, merged))
    spark.stop()
    return results


def _compare(
    spark: SparkSession,
    folder: str,
    name: str,
    made: str,
    rewrite: Callable[[str], object],
    native: Callable[[], DataFrame],
) -> Result:
    ours: list[float] = []
    peers: list[float] = []
    for turn in range(_ROUNDS + 1):  # the first one warms up
        table, path = f"{folder}/{name}-{turn}", f"{folder}/native-{name}-{turn}"
        shutil.copytree(made, table)
        before = {one.name for one in Path(table).glob("*.parquet")}
        both: list[tuple[list[float], Callable[[], object]]] = [
            (ours, partial(rewrite, table)),
            (peers, partial(_write, native, path)),
        ]
        for times, action in both[::-1] if turn % 2 else both:
            times.append(time_ms(action))
        rows = lakelatch.read(spark, table).count(), spark.read.parquet(path).count()
        if rows != (_ROWS, _ROWS):
            raise AssertionError(f"{rows[0]} rows of ours and {rows[1]} of Spark's, instead of {_ROWS}")
        sizes = [
            sum(one.stat().st_size for one in Path(root).glob("*.parquet") if one.name not in before)
            for root in (table, path)
        ]
        shutil.rmtree(table)
        shutil.rmtree(path)
    ratios = [peer / our for peer, our in zip(peers[1:], ours[1:], strict=True)]
    speed = statistics.median(ratios)
    return Result(
        f"rewriting_{name}",
        round(statistics.median(ours[1:]), 0),
        "ms",
        None,
        round(statistics.median(peers[1:]), 0),
        round(speed, 2),
        f"at least {_GOAL:g} of a native Spark job's speed",
        speed >= _GOAL,
        f"{_ROWS:,} rows in {_BUCKETS} buckets; {_ROUNDS} turns, {min(ratios):.2f} to {max(ratios):.2f}; "
        f"{sizes[0] / 1e6:.0f} MB written, Spark {sizes[1] / 1e6:.0f}",
    )


def _write(native: Callable[[], DataFrame], path: str) -> None:
    native().write.option("compression", "zstd").parquet(path)


def _sorted(spark: SparkSession, bases: list[str]) -> DataFrame:
    return spark.read.parquet(*bases).sortWithinPartitions("v")


def _merged(spark: SparkSession, bases: list[str], written: str) -> DataFrame:
    rows = spark.read.parquet(*bases).unionByName(spark.read.parquet(written))
    newest = Window.partitionBy(_KEY).orderBy(functions.desc("ts"), functions.desc(_COMMIT_TIME))
    place = functions.row_number().over(newest)
    return rows.repartition(_BUCKETS, _KEY).withColumn("place", place).where("place = 1").drop("place")


def _frame(spark: SparkSession, turn: int) -> DataFrame:
    """All rows in the first turn; in later ones every tenth of them, another tenth in each."""
    rows = spark.range(_ROWS) if turn == 0 else spark.range(turn, _ROWS, 10)
    number = functions.col("id")
    return rows.select(
        functions.format_string("key-%09d", number).alias("id"),
        functions.lit(1 + turn).cast("long").alias("ts"),
        functions.hash(number).alias("v"),
        functions.xxhash64(number).alias("w"),
        functions.md5((number + turn).cast("string")).alias("text"),
    )


def _with_meta_columns(frame: DataFrame, turn: int) -> DataFrame:
    """As the base files have them."""
    return frame.select(
        functions.lit(f"2026112212000000{turn}").alias(_COMMIT_TIME),
        functions.concat(functions.lit(f"2026112212000000{turn}_0_"), "id").alias("_hoodie_commit_seqno"),
        functions.col("id").alias(_KEY),
        functions.lit("").alias("_hoodie_partition_path"),
        functions.lit("").alias("_hoodie_file_name"),
        *frame.columns,
    )
