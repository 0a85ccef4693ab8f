"""Columns are added and widened by writes that ask for it; every reader has them, and no commit forgets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.format.avro import avro_to_arrow
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot

MakeTable = Callable[..., Any]
TreeHash = Callable[[str], dict[str, str]]

MERGE = {"mergeSchema": "true"}
TEXTS = {**MERGE, "lakelatch.write.numbers.to.text": "true"}
NULLS = {"hoodie.write.set.null.for.missing.columns": "true"}
OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
RETRIES = {"hoodie.write.num.retries.on.conflict.failures": 2}
OLD = "id long, ts long, n int, d int, s int, f float, p struct<x:int>"
NEW = "w string, p struct<y:string,x:bigint>, f double, s string, d double, n bigint, ts long, id long"
OLD_ROWS = [(1, 1, 1, 2, 3, 1.5, (7,)), (2, 1, 1, 2, 3, 1.5, (7,)), (3, 1, 1, 2, 3, 1.5, None)]
THEN = ("id", "n", "d", "s", "f", "p")
NOW = (*THEN, "w")
KEPT = [(1, 1, 2.0, "3", 1.5, (7, None), None), (3, 1, 2.0, "3", 1.5, None, None)]
CHANGED = (2, 1 << 40, 0.5, "x", 0.1, (1 << 40, "y"), "w")


@pytest.mark.spark
def test_every_reader_has_old_rows_in_new_columns(spark: SparkSession, make_table: MakeTable) -> None:
    table = make_table(OLD, hoodie__bucket__index__num__buckets="1")
    first = table.write(OLD_ROWS, local=False)
    new_row = [("w", ("y", 1 << 40), 0.1, "x", 0.5, 1 << 40, 2, 2)]
    table.write(new_row, NEW, local=False, **TEXTS)
    everything = sorted([*KEPT, CHANGED], key=repr)

    def check() -> None:
        assert table.read(None, *NOW) == everything
        rows = spark.read.format("lakelatch").load(table.path).select(*NOW).collect()
        assert sorted(map(tuple, rows), key=repr) == everything
        arrow = lakelatch.open(table.path).to_arrow(columns=NOW).to_pylist()
        assert sorted(row["s"] for row in arrow) == ["3", "3", "x"] and arrow[0]["p"] in ({"x": 7, "y": None}, None)
        then = {"as.of.instant": first.completion}
        assert table.read(then, *THEN) == sorted(((row[0], *row[2:]) for row in OLD_ROWS), key=repr)
        assert spark.read.format("lakelatch").options(**then).load(table.path).columns == ["id", "ts", *THEN[1:]]
        since = {"hoodie.datasource.query.type": "incremental"}
        since["hoodie.datasource.read.begin.instanttime"] = first.completion
        assert table.read(since, *NOW) == [CHANGED]

    check()
    run = lakelatch.schedule_log_compaction(table.path, {"hoodie.log.compaction.blocks.threshold": "2"})
    assert run is not None
    lakelatch.execute_log_compaction(spark, table.path, run)
    check()
    assert table.compact()
    check()
    assert lakelatch.cluster(spark, table.path, {"hoodie.clustering.plan.strategy.sort.columns": "s"})
    check()


@pytest.mark.spark
def test_base_files_of_before_are_read_by_spark_where_it_can_and_by_arrow_elsewhere(
    spark: SparkSession, make_table: MakeTable
) -> None:
    table = make_table(OLD, hoodie__bucket__index__num__buckets="2", partition="ts")
    table.write(OLD_ROWS)
    table.compact()
    table.write([("w", ("y", 1 << 40), 0.1, "x", 0.5, 1 << 40, 2, 2)], NEW, **TEXTS)
    assert table.read(None, *NOW) == sorted([*KEPT, (2, 1, 2.0, "3", 1.5, (7, None), None), CHANGED], key=repr)
    plain = lakelatch.read(spark, table.path, {**OPTIMIZED, "columns": "id,n,d,f,w"})
    plan = plain._jdf.queryExecution().toString()
    assert "FileScan parquet" in plan and "MapInArrow" not in plan
    assert sorted(plain.collect())[0] == (1, 1, 2.0, 1.5, None)
    texts = lakelatch.read(spark, table.path, {**OPTIMIZED, "columns": "s"})
    assert [row.s for row in texts.collect()] == ["3"] * 3


@pytest.mark.spark
def test_columns_that_a_frame_lacks_are_null_where_that_is_asked_for(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(1, 2)], "id long, ts long", **NULLS)
    assert table.read() == [(1, 2, None), (2, 1, "b")]
    table.write([(3, 2, 5)], "id long, ts long, w int", hoodie__datasource__write__reconcile__schema="true")
    assert table.read(None, "id", "v", "w") == [(1, None, None), (2, "b", None), (3, None, 5)]


COLUMNS = "id long, ts long, n int, v string"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "more", "named"),
    [
        ("id long, ts long, n int", MERGE, "lacks the column(s) v of the table 'trips': add them, or set hoodie.write"),
        ("id long, ts long, n int, w string", MERGE, "(w are not in it: a column keeps its name)"),
        ("id long, n int, v string", {**MERGE, **NULLS}, "lacks the column(s) ts of the table 'trips': add them"),
        (f"{COLUMNS}, w string", {}, "drop or rename them, or add them with mergeSchema=true"),
        (
            "id long, ts long, n long, v string",
            {},
            "'n' is bigint, and in the table 'trips' it is int: cast it, or",
        ),
        ("id long, ts long, n float, v string", MERGE, "'n' is float, and in the table 'trips' it is int: cast it"),
        ("id long, ts string, n int, v string", MERGE, "an ordering field keeps its type"),
        ("id string, ts long, n int, v string", MERGE, "may only become bigint, from int"),
        ("id long, ts long, n int, v int", MERGE, "'v' is int, and in the table 'trips' it is string: cast it"),
        (
            "id long, ts long, n string, v string",
            {},
            "'n' is string, and in the table 'trips' it is int: cast it, or look",
        ),
        (
            "id long, ts long, n string, v string",
            MERGE,
            "mergeSchema=true together with lakelatch.write.numbers.to.text=true would make the column a text",
        ),
        (
            "id long, ts long, n string, v string",
            {"hoodie__datasource__write__reconcile__schema": "true"},
            "for every reader and for good",
        ),
        ("id long, ts long, n string, v string", {"lakelatch__write__numbers__to__text": "true"}, "cast it, or look"),
        (COLUMNS, {"hoodie__bucket__index__num__buckets": "3"}, "num.buckets=3, and the table 'trips' was made with 2"),
        (COLUMNS, {"hoodie__datasource__write__schema__allow__auto__evolution__column__drop": "true"}, "stays in"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_changes_nothing(
    make_table: MakeTable, tree_hash: TreeHash, columns: str, more: dict[str, str], named: str
) -> None:
    table = make_table(COLUMNS)
    table.write([(1, 1, 1, "a")])
    before = tree_hash(table.path)
    with pytest.raises(InvalidRequest) as caught:
        table.write([], columns, **more)
    assert named in caught.value.message
    assert tree_hash(table.path) == before


# -- several writers --------------------------------------------------------------------------------------------------


def rows(key: int, **values: Any) -> pa.Table:
    return pa.table({"id": [key], "ts": pa.array([1], pa.int64()), **{name: [one] for name, one in values.items()}})


def said_by(path: str) -> list[list[str]]:
    """The columns that each completed write names, by requested time, which is how other engines take them."""
    storage = LocalStorage(path)
    found = (
        CommitMetadata.read(storage, one.path)
        for one in Snapshot.load(storage).completed
        if one.action in WRITE_ACTIONS
    )
    return [avro_to_arrow(metadata.schema or "").names for metadata in found]


@pytest.fixture
def table(tmp_path: Path) -> lakelatch.ArrowTable:
    made = lakelatch.ArrowTable(tmp_path / "t", OPTIONS)
    made.upsert(rows(1, v="a"))
    return made


def meanwhile(work: Callable[[], object], begin: Callable[[], object]) -> object:
    """Does the work while a write is under way: after it has begun, and before its first row."""
    done: list[bool] = []

    def once(_: str) -> None:
        if not done:
            done.append(True)
            work()

    with calling(once, ["write.before_rows"]):
        return begin()


@pytest.mark.parametrize("more", [NON_BLOCKING, RETRIES], ids=["non-blocking", "optimistic"])
def test_two_writers_that_add_columns_at_once_are_both_heard(
    table: lakelatch.ArrowTable, more: dict[str, object]
) -> None:
    inner = {**more, **MERGE}
    meanwhile(
        lambda: table.upsert(rows(2, v="b", inner=2), inner), lambda: table.upsert(rows(3, v="c", outer="3"), inner)
    )
    names = ["id", "ts", "v", "inner", "outer"]
    assert table.schema.names == names
    found = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert found == [(1, 1, "a", None, None), (2, 1, "b", 2, None), (3, 1, "c", None, "3")]
    assert said_by(table.path)[-1] == names, "the write that was requested last names all"


def test_a_writer_that_knows_nothing_of_new_columns_does_not_forget_them(table: lakelatch.ArrowTable) -> None:
    def inner() -> None:
        table.upsert(rows(2, v="b", w=1 << 40), {**MERGE, **NON_BLOCKING})

    meanwhile(inner, lambda: table.upsert(rows(3, v="c"), NON_BLOCKING))
    assert table.schema.names == ["id", "ts", "v", "w"]
    assert said_by(table.path)[-1] == ["id", "ts", "v", "w"]


def test_of_two_columns_of_one_name_the_first_to_complete_is_the_table_s(table: lakelatch.ArrowTable) -> None:
    inner = {**NON_BLOCKING, **MERGE}

    def write() -> None:
        table.upsert(rows(3, v="c", w="text"), {**inner, **RETRIES})

    with pytest.raises(InvalidRequest, match="'w' is string, and in the table 't' it is double: cast it"):
        meanwhile(lambda: table.upsert(rows(2, v="b", w=0.5), inner), write)
    with pytest.raises(WriteConflict):
        meanwhile(
            lambda: table.upsert(rows(2, v="b", w=0.5, x=0.5), inner),
            lambda: table.upsert(rows(3, v="c", w=0.5, x="text"), inner),
        )
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2]


def test_a_compaction_that_was_planned_before_takes_no_column_away(table: lakelatch.ArrowTable) -> None:
    from lakelatch.engine.options.table_services.compaction import CompactionOptions
    from lakelatch.engine.table.manager import table_at_rest
    from lakelatch.engine.table.opening import open_table
    from lakelatch.system import REAL_SYSTEM

    stale = open_table(LocalStorage(table.path))
    table.upsert(rows(2, v="b", w=1), MERGE)
    with table_at_rest(table.path, OPTIONS, REAL_SYSTEM) as (_, manager, __):
        plan = Compaction(CompactionOptions(least_logs=1)).schedule(ServiceContext(stale, manager))
        assert plan is not None
        Compaction().execute(ServiceContext(stale, manager), plan)
    assert [row["w"] for row in table.to_arrow().to_pylist()] == [None, 1]
    assert said_by(table.path)[-1][-1] == "w"


def test_a_first_write_that_fails_leaves_no_table(tmp_path: Path) -> None:
    table = lakelatch.ArrowTable(tmp_path / "t", OPTIONS)
    partitioned = {"hoodie.datasource.write.partitionpath.field": "v"}
    bad = pa.table({"id": [1, None], "ts": [1, 1], "v": ["p", "q"]})
    with pytest.raises(InvalidRequest, match="record key"):
        table.upsert(bad, partitioned)
    with pytest.raises(InvalidRequest, match="there is no table"):
        lakelatch.open(table.path)
    with pytest.raises(RuntimeError), calling(_fail, ["commit.after_lock"]):
        table.upsert(rows(1, v="a"), partitioned)
    table.upsert(rows(1, w=2), {"hoodie.bucket.index.num.buckets": 3})
    assert table.to_arrow().to_pylist() == [{"id": 1, "ts": 1, "w": 2}]


def _fail(name: str) -> None:
    raise RuntimeError(name)


def test_of_two_first_writers_one_makes_the_table_and_the_other_agrees_or_is_told(tmp_path: Path) -> None:
    table = lakelatch.ArrowTable(tmp_path / "t", OPTIONS)
    meanwhile(lambda: table.upsert(rows(2, v="b"), NON_BLOCKING), lambda: table.upsert(rows(1, v="a"), NON_BLOCKING))
    assert table.to_arrow().column("v").to_pylist() == ["a", "b"]
    other = lakelatch.ArrowTable(tmp_path / "u", {**OPTIONS, **RETRIES})
    with pytest.raises(InvalidRequest, match=r"num\.buckets=1, and the table 'u' was made with 2"):
        meanwhile(
            lambda: other.upsert(rows(2, v="b"), {"hoodie.bucket.index.num.buckets": 2}),
            lambda: other.upsert(rows(1, v="a")),
        )
    assert other.to_arrow().column("v").to_pylist() == ["b"]


@pytest.mark.spark
def test_a_frame_that_was_loaded_before_has_the_columns_that_it_was_loaded_with(
    spark: SparkSession, make_table: MakeTable
) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    loaded = spark.read.format("lakelatch").load(table.path)
    table.write([(2, 1, "b", 5)], "id long, ts long, v string, w int", **MERGE)
    assert sorted(tuple(row) for row in loaded.collect()) == [(1, 1, "a"), (2, 1, "b")]


@pytest.mark.spark
def test_a_function_that_reads_the_table_keeps_columns_that_came_after_it_was_called(
    spark: SparkSession, table: lakelatch.ArrowTable
) -> None:
    calls: list[int] = []

    def doubled() -> Any:
        calls.append(1)
        if len(calls) == 2:  # inside its transaction, before it reads
            table.upsert(rows(1, v="b", w=7), MERGE)
        frame = lakelatch.read(spark, table.path)
        return frame.withColumn("v", frame.v.substr(1, 1))

    lakelatch.write(doubled, table.path, {**OPTIONS, **RETRIES})
    assert table.to_arrow().to_pylist() == [{"id": 1, "ts": 1, "v": "b", "w": 7}]
