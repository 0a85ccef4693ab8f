"""One partition of 2,000 by a plain `where`, beside plain parquet's: the same files in the same session, in turns.

A query loads the table anew and counts the rows of one day. The peer has the table's own files, linked into folders of
Spark's names. Before the turns it is looked at how many files Spark opens: one. PARTITIONS says how many there are,
PARTITIONS_NAMED whether the table's folders have names (false).
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

from bench.harness import Result
from bench.spark.turns import compared, in_turns
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session

_PARTITIONS = int(os.environ.get("PARTITIONS", "2000"))
_NAMED = os.environ.get("PARTITIONS_NAMED", "false")
_ROWS_EACH = 100
_ROUNDS = 3
_GOAL = 1 / 1.2
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.hive_style_partitioning": _NAMED,
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.datasource.write.operation": "bulk_insert",
}
_WHERE = "day = '2021-02-03'"


def run() -> list[Result]:
    spark = open_session("lakelatch bench", cores=2, memory_mb=2048)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            table, plain = Path(folder, "table"), Path(folder, "plain")
            lakelatch.write(_rows(spark), str(table), _OPTIONS)
            for file in table.glob("*20*/*.parquet"):
                day = plain / f"day={file.parent.name.removeprefix('day=')}"
                day.mkdir(parents=True, exist_ok=True)
                os.link(file, day / file.name)
            return [_compare(spark, name, str(table), str(plain)) for name in ("read", "enabled")]
    finally:
        spark.stop()


def _rows(spark: SparkSession) -> DataFrame:
    return spark.range(_PARTITIONS * _ROWS_EACH).selectExpr(
        "format_string('key-%09d', id) AS id",
        "1L AS ts",
        f"CAST(date_add(DATE'2021-01-01', CAST(id % {_PARTITIONS} AS INT)) AS STRING) AS day",
        "hash(id) AS v",
    )


def _compare(spark: SparkSession, way: str, table: str, plain: str) -> Result:
    if way == "read":
        ours = partial(lakelatch.read, spark, table)
    else:
        ours = partial(lakelatch.enable(spark.newSession()).read.format("lakelatch").load, table)
    _check_opened(ours().where(_WHERE))
    name = f"partitions_{way}"
    times = in_turns(name, lambda: ours().where(_WHERE).count(), partial(_peer, spark, plain), _ROUNDS)
    return compared(name, *times, (_GOAL, "plain parquet's"), f"one of {_PARTITIONS:,} partitions")


def _peer(spark: SparkSession, plain: str) -> int:
    return spark.read.parquet(plain).where(_WHERE).count()


def _check_opened(frame: DataFrame) -> None:
    """That Spark opens one file for the frame's rows; adaptive plans count a scan's twice."""
    conf = frame.sparkSession.conf
    conf.set("spark.sql.adaptive.enabled", "false")
    rows = len(frame.collect())
    conf.unset("spark.sql.adaptive.enabled")
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.length())]
    files = [int(scan.metrics().apply("numFiles").value()) for scan in scans]
    if rows != _ROWS_EACH or files != [1]:
        raise AssertionError(f"{rows} rows of {files} files, for one partition of {_ROWS_EACH}")
