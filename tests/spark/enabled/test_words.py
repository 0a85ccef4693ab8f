"""`lakelatch.enable`: Spark's own words for tables of ours, in one session, through Classic and through Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import enabled_words
import pytest
from enabled_words import EXPECTED, Words
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_session import SESSION_SETTINGS

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
PATIENCE_S = 300


@pytest.fixture(scope="module")
def words(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    session = spark.newSession()
    made = Words(lakelatch.enable(session), str(tmp_path_factory.mktemp("enabled")))
    yield made
    made.drop()
    lakelatch.disable(session)


@pytest.mark.parametrize("part", ["modes", "partitions", "catalog", "table_writer"])
def test_each_word_does_what_spark_says_of_it(words: Words, part: str) -> None:
    assert getattr(enabled_words, part)(words) == EXPECTED[part]


@pytest.mark.long  # its Java process, session and Python workers are all new
def test_the_same_through_connect(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, enabled_words.__file__, json.dumps(SESSION_SETTINGS), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},  # a port that the kernel chooses
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert done.returncode == 0 and lines, done.stderr
    assert json.loads(lines[0].removeprefix("said ")) == EXPECTED


def test_a_frame_is_read_as_spark_reads_parquet(words: Words) -> None:
    """With its column pruning and its filters; a task of Python would be seen in the plan."""
    path = f"{words.folder}/native"
    words.writer((1, 1, "a"), (2, 1, "b")).option("hoodie.datasource.write.operation", "bulk_insert").save(path)
    frame = words.spark.read.format("lakelatch").load(path).where("ts > 0").select("v")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert (
        "FileScan parquet" in plan and "GreaterThan(ts,0)" in plan and "ReadSchema: struct<ts:bigint,v:string>" in plan
    )
    assert "Python" not in plan and "MapInArrow" not in plan
    assert sorted(row.v for row in frame.collect()) == ["a", "b"]


def test_a_copy_on_write_table_is_written_by_sparks_words(words: Words) -> None:
    path = f"{words.folder}/cow"
    words.writer((1, 1, "a")).option("hoodie.datasource.write.table.type", "COPY_ON_WRITE").save(path)
    words.writer((1, 2, "A"), (2, 1, "b")).mode("append").save(path)
    assert words.rows(f"lakelatch.`{path}`") == [[1, 2, "A"], [2, 1, "b"]]
    assert lakelatch.Table(words.spark, path).detail().table_type == "COPY_ON_WRITE"


def test_a_table_keeps_its_options_in_the_catalog_and_no_secret(words: Words) -> None:
    lock, secret = "hoodie.write.lock.wait_time_ms", "lakelatch.storage.secret_access_key"
    words.writer((1, 1, "it's")).options(**{lock: "1234", secret: "hush"}).saveAsTable("kept")
    found = words.spark.sql("SHOW TABLE EXTENDED LIKE 'kept'").collect()[0].information
    assert f"{lock}=1234" in found and "secret_access_key" not in found
    assert words.rows("kept") == [[1, 1, "it's"]]


def test_types_of_all_kinds_are_entered_into_the_catalog(words: Words) -> None:
    columns = "id long, ts long, `select` struct<`größe`: array<decimal(5,2)>>, m map<string, struct<n: int>>"
    frame = words.spark.createDataFrame([], columns)
    frame.write.format("lakelatch").options(**enabled_words.OPTIONS).saveAsTable("typed")
    assert words.spark.table("typed").schema == frame.schema
    entered = words.spark.catalog.listColumns("typed")
    assert [(one.name, one.dataType) for one in entered] == [
        (one.name, one.dataType.simpleString()) for one in frame.schema
    ]


def test_a_table_is_replaced_as_a_whole_whatever_the_session_says_of_partitions(words: Words) -> None:
    path = f"{words.folder}/replaced"
    words.writer((1, 1, "a"), (2, 1, "b")).partitionBy("v").option("path", path).saveAsTable("replaced")
    setting = "spark.sql.sources.partitionOverwriteMode"
    words.spark.conf.set(setting, "dynamic")
    try:
        words.frame((3, 1, "c")).writeTo("replaced").createOrReplace()
        assert words.rows("replaced") == [[3, 1, "c"]]
        words.frame((4, 1, "d")).writeTo("replaced").using("lakelatch").replace()
        assert words.rows("replaced") == [[4, 1, "d"]]
    finally:
        words.spark.conf.unset(setting)


def test_a_name_goes_again_if_its_first_write_fails_at_a_table_that_is_there(words: Words) -> None:
    path = f"{words.folder}/first"
    words.writer((1, 1, "a")).save(path)
    for mode in ("append", "overwrite"):
        other = words.frame((2, 1, "b")).withColumnRenamed("v", "w").write.format("lakelatch").mode(mode)
        with pytest.raises(InvalidRequest, match="w"):
            other.options(**enabled_words.OPTIONS).option("path", path).saveAsTable("late")
        assert not words.spark.catalog.tableExists("late")
    assert words.rows(f"lakelatch.`{path}`") == [[1, 1, "a"]]


def test_a_name_is_looked_up_anew_in_another_schema(words: Words, spark: SparkSession) -> None:
    """Where the catalog's words have made another schema the current one, as where `USE` has."""
    path, catalog = f"{words.folder}/same_name", words.spark.catalog
    words.writer((1, 1, "a")).option("path", path).saveAsTable("same_name")
    words.spark.sql("CREATE DATABASE of_parquet")
    try:
        words.spark.sql("CREATE TABLE of_parquet.same_name (n INT) USING parquet")
        catalog.setCurrentDatabase("of_parquet")
        assert words.spark.sql("SELECT * FROM same_name").columns == ["n"]
        catalog.setCurrentDatabase("of_words")
        assert words.spark.sql("SELECT v FROM same_name").collect() == [("a",)]
        catalog.setCurrentDatabase("of_parquet")
        assert words.spark.sql("SELECT * FROM same_name").columns == ["n"]
        spark.sql("DROP TABLE of_parquet.same_name")
        spark.sql(f"CREATE TABLE of_parquet.same_name (n INT) USING lakelatch LOCATION '{path}'")
        catalog.setCurrentCatalog("spark_catalog")
        assert words.spark.sql("SELECT * FROM of_parquet.same_name").columns == ["id", "ts", "v"]
    finally:
        catalog.setCurrentDatabase("of_words")
        words.spark.sql("DROP DATABASE of_parquet CASCADE")


def test_other_sessions_and_formats_are_as_they_were(words: Words, spark: SparkSession, tmp_path: Path) -> None:
    kind: Any = type(spark.range(1))
    classes = (type(spark), type(spark.read), type(spark.range(1).write))
    assert not any("lakelatch" in base.__module__ for one in classes for base in one.__mro__)
    assert type(words.spark.newSession()) is type(spark)
    assert isinstance(kind.write, property) and kind.writeTo.__name__ == "writeTo"
    with pytest.raises(PySparkException, match='either the "Append" or "Overwrite" mode'):
        frame = spark.createDataFrame([(1, 1, "a")], "id long, ts long, v string")
        frame.write.format("lakelatch").options(**enabled_words.OPTIONS).save(str(tmp_path / "t"))
    plain = words.spark.range(3).selectExpr("id", "id AS n").write.option("compression", "none")
    plain.partitionBy("id").mode("overwrite").parquet(str(tmp_path / "plain"))
    read = words.spark.read.option("basePath", str(tmp_path / "plain")).parquet(str(tmp_path / "plain" / "id=1"))
    assert [(row.n, row.id) for row in read.collect()] == [(1, 1)]


def test_twice_is_once_and_what_was_enabled_can_be_disabled(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    lakelatch.disable(session)
    kind = type(session)
    assert lakelatch.enable(session) is session
    enabled = type(session)
    assert lakelatch.enable(session) is session and type(session) is enabled is not kind
    frame = session.createDataFrame([(1, 1, "a")], "id long, ts long, v string")
    lakelatch.disable(session)
    lakelatch.disable(session)
    assert type(session) is kind
    with pytest.raises(PySparkException, match='either the "Append" or "Overwrite" mode'):
        frame.write.format("lakelatch").options(**enabled_words.OPTIONS).save(str(tmp_path / "t"))


def test_another_version_and_what_is_no_session_are_told(spark: SparkSession) -> None:
    session = spark.newSession()
    lakelatch.enable(session)
    ours = type(session)
    session.__class__ = type("SparkSession", (ours,), {"lakelatch_version": "0.0.9", "lakelatch_base": type(spark)})
    with pytest.raises(InvalidRequest, match=r"enabled by lakelatch 0\.0\.9.*lakelatch\.disable\(spark\)"):
        lakelatch.enable(session)
    lakelatch.disable(session)
    assert type(session) is type(spark)
    nothing: Any = None
    with pytest.raises(InvalidRequest, match="NoneType is no Spark session"):
        lakelatch.enable(nothing)


def test_a_stopped_session_is_told(run_python: Callable[..., subprocess.Popen[str]]) -> None:
    script = "spark.stop()\ntry:\n    lakelatch.enable(spark)\nexcept Exception as error:\n    print(error)\n"
    said, errors = run_python(script).communicate(timeout=PATIENCE_S)
    assert "the Spark session has been stopped: make another one" in said, errors


def test_frames_of_foreach_batch_are_of_an_enabled_session(words: Words, tmp_path: Path) -> None:
    path = str(tmp_path / "batches")

    def write(frame: DataFrame, number: int) -> None:
        frame.write.format("lakelatch").options(**enabled_words.OPTIONS).mode("ignore").save(path)

    source = str(tmp_path / "source")
    words.frame((1, 1, "a")).write.parquet(source)
    stream = words.spark.readStream.schema("id long, ts long, v string").parquet(source).writeStream
    stream = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.foreachBatch(write).start().awaitTermination()
    assert words.rows(f"lakelatch.`{path}`") == [[1, 1, "a"]]


def test_a_path_is_asked_for_and_only_one(words: Words) -> None:
    load: Any = words.spark.read.format("lakelatch").load
    for call, told in (
        (load, "the option 'path' is missing"),
        (lambda: load(["/a", "/b"]), "load one path"),
        (words.writer((1, 1, "a")).save, "the option 'path' is missing"),
        (lambda: words.writer((1, 1, "a")).mode("append").save("/nowhere", partitionBy=["w"]), "'w'"),
    ):
        with pytest.raises(InvalidRequest, match=told):
            call()
