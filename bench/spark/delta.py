"""The same work by Lakelatch and by Delta Lake, in one Spark session: loading, reading, changing a tenth, small writes.

It needs a PySpark for which there is a jar of Delta Lake's, delta-spark beside it, and the jars in a folder:

    .ci/test-versions python3 4.2   # makes .venv-python3-spark4.2
    .venv-python3-spark4.2/bin/pip install --no-deps delta-spark==4.4.0
    mvn dependency:copy -DoutputDirectory=JARS -Dartifact=io.delta:delta-spark_4.2_2.13:4.4.0   # and delta-storage
    DELTA_JARS=JARS PYSPARK_PYTHON=... .venv-python3-spark4.2/bin/python bench/run.py spark.delta

Both have their defaults, but that Delta's table is loaded with as many files as ours has buckets. Delta Lake neither
looks for equal keys when it loads nor sorts; its upsert is a MERGE. DELTA_ROWS says how many rows there are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from bench.harness import Result
from bench.spark.turns import answer, compared, in_turns, rows_of
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import check_java

_ROWS = int(os.environ.get("DELTA_ROWS", "1000000"))
_JARS = os.environ.get("DELTA_JARS", "")
_BUCKETS = 10
_ROUNDS = 3
_SMALL_WRITES = 20
_OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
}
_BULK = {**_OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
_KEY = f"id = 'key-{_ROWS // 3:09d}'"
_EXTENSION, _CATALOG = "io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def run() -> list[Result]:
    if find_spec("delta") is None or not _JARS:
        print("Delta Lake is not here: the top of bench/spark/delta.py says how it is installed")
        return []
    spark = _open_session()
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
            return list(_figures(spark, folder))
    finally:
        spark.stop()


def _open_session() -> SparkSession:
    check_java()
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(Path(_JARS).glob("*.jar"))),
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakelatch bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _figures(spark: SparkSession, folder: str) -> Iterator[Result]:
    """One table of each, in one state after the other; the last ones that were loaded are those that are changed."""
    rows = rows_of(spark, _ROWS, 1).cache()
    rows.count()
    turn = iter(range(1_000_000))

    def load(ours: bool) -> None:
        path = f"{folder}/{'ours' if ours else 'delta'}-{next(turn)}"
        latest[ours] = path
        if ours:
            _write(rows, path, _BULK)
        else:
            rows.repartition(_BUCKETS).write.format("delta").save(path)

    latest: dict[bool, str] = {}
    yield _compare("delta_bulk_load", partial(load, True), partial(load, False))
    table, delta = latest[True], latest[False]
    yield from _reads(spark, "loaded", table, delta)
    tenth = rows_of(spark, _ROWS, 2).where("pmod(hash(id), 10) = 0").cache()
    tenth.count()
    yield _compare("delta_upsert_tenth", partial(_write, tenth, table), partial(_merge, spark, tenth, delta))
    yield from _reads(spark, "changed", table, delta)
    lakelatch.Table(spark, table, _OPTIONS).compact()
    yield from _reads(spark, "compacted", table, delta)
    few = rows_of(spark, 10, 3)
    yield _compare(
        "delta_ten_rows_upserted",
        partial(_write, few, table),
        partial(_merge, spark, few, delta),
        _SMALL_WRITES,
    )
    yield _compare(
        "delta_ten_rows_to_append",
        partial(_write, few, table),
        partial(few.write.format("delta").mode("append").save, delta),
        _SMALL_WRITES,
    )


def _write(frame: DataFrame, path: str, options: Mapping[str, object] = _OPTIONS) -> None:
    lakelatch.write(frame, path, options)


def _merge(spark: SparkSession, changed: DataFrame, path: str) -> None:
    changed.createOrReplaceTempView("changed")
    spark.sql(
        f"MERGE INTO delta.`{path}` AS old USING changed AS new ON old.id = new.id "
        "WHEN MATCHED AND new.ts >= old.ts THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _reads(spark: SparkSession, state: str, table: str, delta: str) -> Iterator[Result]:
    ours = partial(lakelatch.read, spark, table)
    theirs = partial(spark.read.format("delta").load, delta)
    for query, where in (("count", None), ("column", None), ("scan", None), ("lookup", _KEY)):
        own = partial(lakelatch.read, spark, table, {}, where) if where is not None else ours
        yield _compare(
            f"delta_{state}_{query}", partial(answer, query, own, where), partial(answer, query, theirs, where)
        )


def _compare(name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int = _ROUNDS) -> Result:
    return compared(name, *in_turns(name, ours, theirs, rounds), (1, "Delta Lake's"), f"{_ROWS:,} rows")
