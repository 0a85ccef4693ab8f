"""`format("lakelatch")`: found without registration, appends only, and its errors can be had back typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakelatch
from lakelatch import errors

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
RunPython = Callable[..., "subprocess.Popen[str]"]


def _save(table: Any, rows: list[tuple[Any, ...]], **more: str) -> None:
    options = {**table.options, **{name.replace("__", "."): value for name, value in more.items()}}
    table.frame(rows).write.format("lakelatch").options(**options).mode("append").save(table.path)


def _load(table: Any, **options: str) -> list[tuple[Any, ...]]:
    frame = table.spark.read.format("lakelatch").options(**options).load(table.path)
    return sorted(tuple(row) for row in frame.select("id", "ts", "v").collect())


def _files(path: str) -> list[str]:
    """Data files with content: tombstones are empty."""
    files = (file for file in Path(path).iterdir() if file.is_file() and file.stat().st_size > 0)
    return sorted(file.name for file in files if file.name != ".hoodie_partition_metadata")


def test_writes_and_reads_without_registration(make_table: MakeTable) -> None:
    table = make_table()
    _save(table, [(1, 1, "a"), (2, 1, "b")])
    _save(table, [(1, 2, "A"), (2, 0, "older"), (3, 1, "c")])
    wanted = [(1, 2, "A"), (2, 1, "b"), (3, 1, "c")]
    assert _load(table) == wanted == table.read()
    table.compact()
    _save(table, [(3, 2, "C")])
    assert _load(table) == [*wanted[:2], (3, 2, "C")] == table.read()
    assert _load(table, **{"hoodie.datasource.query.type": "read_optimized"}) == wanted


def test_a_read_that_finds_no_row_is_an_empty_frame(make_table: MakeTable) -> None:
    """Spark calls a reader without partitions all the same."""
    table = make_table()
    lakelatch.write(table.frame([]), table.path, table.options)
    assert _load(table) == [] == table.read(), "a table without any row"
    first = table.write([(1, 1, "a")])
    assert _load(table, **{"as.of.instant": first.instant}) == [], "before the first row was committed"
    begin = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first.completion,
    }
    assert _load(table, **begin) == [], "nothing was written since"
    frame = table.spark.read.format("lakelatch").load(table.path)
    assert frame.where("id = 9").collect() == [] and frame.where("id = 1").count() == 1
    table.operate("delete", [(1,)], "id long")
    assert _load(table) == [] == table.read(), "all rows are deleted"


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.parametrize("pushed", ["false", "true"])
def test_scans_of_one_frame_do_not_take_each_others_filters(make_table: MakeTable, pushed: str) -> None:
    """Spark 4.1 to 4.3 keep what was planned with the filters of one scan, and give it to all others of the frame."""
    table = make_table(hoodie__datasource__write__partitionpath__field="v")
    table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "a")])
    try:
        table.spark.conf.set(PUSHDOWN, pushed)
        frame = table.spark.read.format("lakelatch").load(table.path)
        only_b = frame.where("v = 'b'")
        assert [row.id for row in only_b.collect()] == [2]
        assert frame.count() == 3 and frame.where("v = 'a'").union(only_b).count() == 3
    finally:
        table.spark.conf.unset(PUSHDOWN)


def test_a_schema_is_honoured_or_refused(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    _save(table, [(1, 1, "a"), (2, 1, "b")])

    def rows(schema: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format("lakelatch").schema(schema).load(table.path)
        return sorted(tuple(row) for row in frame.collect())

    assert rows("v string, id long not null") == [("a", 1), ("b", 2)]
    refused = {
        "id string": "'id' the type string, and the table has bigint",
        "x long": "columns=x are not in the table",
    }
    for schema, named in refused.items():
        with pytest.raises(PySparkException) as caught:
            rows(schema)
        with pytest.raises(errors.InvalidRequest, match=named):
            errors.reraise(caught.value)


def test_what_was_read_can_be_appended_again(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    _save(table, [(1, 1, "a"), (2, 1, "b")])
    frame = spark.read.format("lakelatch").load(table.path).where("id = 1")
    frame.write.format("lakelatch").options(**table.options).mode("append").save(table.path)
    times = dict(table.read(None, "id", "_hoodie_commit_time"))
    assert times[1] > times[2]
    assert table.read() == [(1, 1, "a"), (2, 1, "b")]


def test_deletes(make_table: MakeTable) -> None:
    table = make_table()
    _save(table, [(1, 1, "a"), (2, 1, "b")])
    _save(table, [(1, 2, "")], hoodie__datasource__write__operation="delete")
    assert _load(table) == [(2, 1, "b")]


def test_overwrite_replaces_the_table_or_the_partitions_that_it_touches(make_table: MakeTable) -> None:
    table = make_table(hoodie__datasource__write__partitionpath__field="v")

    def overwrite(rows: list[tuple[Any, ...]], operation: str | None = None) -> None:
        options = {**table.options, **({"hoodie.datasource.write.operation": operation} if operation else {})}
        table.frame(rows).write.format("lakelatch").options(**options).mode("overwrite").save(table.path)

    overwrite([(1, 1, "a")])
    overwrite([(2, 1, "a"), (3, 1, "b")])
    assert _load(table) == [(2, 1, "a"), (3, 1, "b")]
    overwrite([(4, 1, "a")], "insert_overwrite")
    assert _load(table) == [(3, 1, "b"), (4, 1, "a")] == table.read()
    with pytest.raises(PySparkException, match="LAKELATCH-INVALID") as caught:
        overwrite([(4, 1, "a")], "delete")
    with pytest.raises(errors.InvalidRequest, match=r'use mode\("append"\)'):
        errors.reraise(caught.value)
    assert _load(table) == [(3, 1, "b"), (4, 1, "a")]


@pytest.mark.long
def test_the_catalog_is_refused_with_the_statements_that_work(make_table: MakeTable, spark: SparkSession) -> None:
    """Spark gives a Python source no options for a table of its catalog, but those that the statement has."""
    table = make_table()
    _save(table, [(1, 1, "a")])
    before = _files(table.path)
    at = f"USING lakelatch LOCATION '{table.path}'"

    def refused(statement: str) -> str:
        with pytest.raises(PySparkException) as caught:
            spark.sql(statement).collect()
        with pytest.raises(errors.InvalidRequest, match="neither the LOCATION nor the OPTIONS") as typed:
            errors.reraise(caught.value)
        return typed.value.message

    def made_of(text: str, begin: str, end: str) -> str:
        return begin + text.partition(begin)[2].partition(end)[0]

    try:
        told = refused(f"CREATE TABLE t {at}")
        refused(f"CREATE TABLE filled {at} AS SELECT 2L AS id, 2L AS ts, 'b' AS v")
        assert not spark.catalog.tableExists("t") and not spark.catalog.tableExists("filled")
        # What is told is done, word for word.
        assert "(`id` bigint, `ts` bigint, `v` string)" in told
        spark.sql(made_of(told, "CREATE TABLE t", ";"))
        spark.sql(made_of(told, "CREATE VIEW trips", ";"))
        rows_of_view = "SELECT id, ts, v FROM trips ORDER BY id"
        assert [tuple(row) for row in spark.sql(rows_of_view).collect()] == [(1, 1, "a")]
        spark.sql(made_of(told, "INSERT INTO t", "SELECT") + "SELECT 2L, 2L, 'b'")
        wanted = [(1, 1, "a"), (2, 2, "b")]
        assert [tuple(row) for row in spark.sql(rows_of_view).collect()] == wanted, "the view follows the table"
        assert table.read() == wanted

        before = _files(table.path)
        reading, writing = refused("SELECT * FROM t"), refused("INSERT INTO t VALUES (3, 3, 'c')")
        assert _files(table.path) == before
        select = made_of(reading, "SELECT * FROM t", ",").replace("/data/trips", table.path)
        assert sorted(tuple(row) for row in spark.sql(select).collect()) == wanted
        insert = made_of(writing, "INSERT INTO t", "SELECT").replace("/data/trips", table.path)
        spark.sql(insert + "SELECT 3L, 3L, 'c'")
        frame = table.frame([(4, 4, "d")])
        frame.writeTo("t").option("path", table.path).append()
        assert [row.id for row in spark.sql(rows_of_view).collect()] == [1, 2, 3, 4]
        with pytest.raises(PySparkException, match="In the place of saveAsTable"):
            frame.write.format("lakelatch").saveAsTable("saved")
        assert not spark.catalog.tableExists("saved")
    finally:
        for statement in ("VIEW IF EXISTS trips", "TABLE IF EXISTS t"):
            spark.sql(f"DROP {statement}")


@pytest.mark.parametrize(
    "rows, more, named",
    [
        ([(1, 1, "a")], {"hoodie__bucket__index__num__bucket": "2"}, "did you mean 'hoodie.bucket.index.num.buckets'"),
        ([(1, 1, "a")], {"hoodie__bucket__index__num__buckets": "3"}, "cannot change later"),
        ([(1, None, "a")], {}, "ordering field 'ts'"),
        ([(None, 1, "a")], {}, "in the record key"),
    ],
)
def test_errors_come_back_typed(
    make_table: MakeTable, rows: list[tuple[Any, ...]], more: dict[str, str], named: str
) -> None:
    table = make_table()
    _save(table, [(9, 9, "z")])
    before = _files(table.path)
    with pytest.raises(Exception, match="LAKELATCH-INVALID") as caught:
        _save(table, rows, **more)
    with pytest.raises(errors.InvalidRequest) as typed:
        errors.reraise(caught.value)
    assert named in str(typed.value)
    assert _load(table) == [(9, 9, "z")]
    assert _files(table.path) == before


def test_a_path_that_is_no_table_is_told_with_what_lies_there(spark: SparkSession, table_path: str) -> None:
    os.makedirs(f"{table_path}/_delta_log")
    told = "it is a table of Delta Lake; read it with spark.read.format('delta'), and write that to another path"
    refused = f"[LAKELATCH-INVALID] there is no table at file://{table_path} (no .hoodie/hoodie.properties): {told}"
    reads: dict[str, Callable[[], Any]] = {
        "load": lambda: spark.read.format("lakelatch").load(table_path),
        "stream": lambda: spark.readStream.format("lakelatch").load(table_path),
        "read": lambda: lakelatch.read(spark, table_path),
        "table": lambda: lakelatch.Table.for_path(spark, table_path),
        "service": lambda: lakelatch.compact(spark, table_path),
    }
    for name, read in reads.items():
        with pytest.raises((PySparkException, errors.InvalidRequest)) as caught:
            read()
        first, *more = str(caught.value).splitlines()
        assert refused in first, name
        assert not [line for line in more if "File" in line], "no stack"
    assert os.listdir(table_path) == ["_delta_log"]


def test_a_path_is_asked_for_and_only_one(spark: SparkSession, table_path: str) -> None:
    for load, told in (
        (lambda: spark.read.format("lakelatch").load(), "the option 'path' is missing"),
        (lambda: spark.read.format("lakelatch").load([table_path, "/other"]), "load one path"),
        (lambda: spark.range(1).write.format("lakelatch").mode("append").save(), "the option 'path' is missing"),
    ):
        with pytest.raises(PySparkException) as caught:
            load()
        assert told in str(caught.value).splitlines()[0]


def test_a_conflict_is_typed_and_leaves_no_file(make_table: MakeTable, tmp_path: Path) -> None:
    """Who loses commits in a process of Spark's, and who wins in this one."""
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 1, "a")])
    began, go = tmp_path / "began", tmp_path / "go"

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            began.touch()
            while not go.exists():
                threading.Event().wait(0.05)
            yield batch

    frame = table.frame([(1, 5, "loser")], local=False).coalesce(1).mapInArrow(slow, table.columns)

    def lose() -> None:
        lakelatch.use_in_thread(table.spark)
        frame.write.format("lakelatch").options(**table.options).mode("append").save(table.path)

    with ThreadPoolExecutor(1) as pool:
        loser = pool.submit(lose)
        try:
            while not began.exists():
                assert not loser.done(), loser.exception()
                threading.Event().wait(0.1)
            winner = table.write([(1, 2, "winner")])
            before = _files(table.path)
        finally:
            go.touch()
        with pytest.raises(PySparkException) as caught:
            loser.result(600)
    with pytest.raises(errors.WriteConflict, match=r"^\[LAKELATCH-CONFLICT\]") as typed:
        errors.reraise(caught.value)
    assert winner.instant in str(typed.value)
    assert _load(table) == [(1, 2, "winner")]
    assert _files(table.path) == before


def test_an_aborted_write_leaves_no_file(make_table: MakeTable) -> None:
    """One task writes its file and another fails: the job's abort removes what was written."""
    table = make_table()
    _save(table, [(9, 9, "z")])
    before = _files(table.path)
    frame = table.frame([(key, 1, "a") for key in range(8)], local=False).repartition(2)
    broken = frame.selectExpr("id", "if(id = 3, cast(null as long), ts) as ts", "v")
    with pytest.raises(Exception, match="LAKELATCH-INVALID"):
        broken.write.format("lakelatch").options(**table.options).mode("append").save(table.path)
    assert _files(table.path) == before
    assert _load(table) == [(9, 9, "z")]


def test_a_thread_that_only_writes_says_its_session(make_table: MakeTable) -> None:
    """Classic Spark looks a Python source up through the thread's active session; the function API needs none."""
    table = make_table()
    table.write([(1, 1, "a")])
    frame = table.frame([(2, 1, "b")])
    failures: list[BaseException] = []

    def work() -> None:
        try:
            lakelatch.use_in_thread(table.spark)
            frame.write.format("lakelatch").options(**table.options).mode("append").save(table.path)
            lakelatch.write(table.frame([(3, 1, "c")]), table.path, table.options)
            assert len(_load(table)) == 3
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    assert _load(table) == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


UNACTIVATED_SCRIPT = """
import threading
failures, together = [], threading.Barrier(3)
def work(number):
    try:
        together.wait()
        frame = spark.createDataFrame([(number, 1, "a")], "id long, ts long, v string")
        frame.write.format("lakelatch").options(**json.loads(sys.argv[2])).mode("append").save(sys.argv[1])
    except Exception as error:
        failures.append(str(error))
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failures, spark.read.format("lakelatch").load(sys.argv[1]).count())
"""


@pytest.mark.long
def test_an_environment_need_not_be_activated(make_table: MakeTable, run_python: RunPython) -> None:
    """The `python3` of the PATH is another one, which has no lakelatch; all threads ask for the source at once."""
    table = make_table(hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL")
    table.write([(7, 1, "a")])
    elsewhere = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if folder != os.path.dirname(sys.executable)
    )
    script = "import json\n" + UNACTIVATED_SCRIPT
    done = run_python(script, table.path, json.dumps(table.options), environment={"PATH": elsewhere}, python=None)
    output, complaints = done.communicate(timeout=600)
    assert output.strip().endswith("[] 4"), output + complaints
