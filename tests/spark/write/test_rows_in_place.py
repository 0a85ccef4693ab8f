"""Rows that are written by the tasks that have them: several log files of one commit in each file group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from table import meanwhile

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.spark.write.plan_statistics import PlanNode, plan_nodes
from lakelatch.spark.write.rows_in_place import FILE_BYTES_MIN, TASK_BYTES_MAX, TASKS_MAX, tasks_in_place

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

TASKS, KEYS = 12, 5
IN_PLACE = {"lakelatch.write.shuffle": "false", "lakelatch.write.small.rows": "0"}
UNASKED = {"lakelatch__rewrite__automatic": "false"}  # who compacts, and when, is what is looked at
MODE = "hoodie.write.concurrency.mode"
OPTIMISTIC, NON_BLOCKING = "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"
#: The number of the row that wins, of those of a key. Without an ordering field it is in the last log file, and Hudi
#: orders the names of tasks as texts: 9 comes after 11.
LAST_OF: dict[str | None, Callable[[int], int]] = {
    "ts": lambda key: max(range(key, TASKS * KEYS, KEYS), key=order_of),
    None: lambda key: 9 * KEYS + key,
}


def order_of(number: int) -> int:
    """An ordering value of each row that none of the others has, and that does not go by tasks."""
    return 10 + number * 37 % (TASKS * KEYS)


def spread(spark: SparkSession, *more: str) -> DataFrame:
    """Each of twelve tasks has one row of each key."""
    rows = spark.range(0, TASKS * KEYS, 1, TASKS)
    return rows.selectExpr(f"id % {KEYS} id", f"10 + id * 37 % {TASKS * KEYS} ts", "concat('v', id) v", *more)


def files_of_groups(result: lakelatch.CommitResult) -> Counter[str]:
    found = [parse_data_file(name) for name in result.files]
    assert all(isinstance(file, LogFile) for file in found)
    return Counter(file.file_id for file in found if file is not None)


def all_the_same(table: Any, expected: Sequence[tuple[Any, ...]]) -> None:
    """These are the rows with the logs, after a log compaction, and after a compaction."""
    names = [part.split()[0] for part in table.columns.split(", ")]
    opened = lakelatch.open(table.path, table.options)

    def rows() -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in opened.to_arrow(columns=names).to_pylist()), key=repr)

    assert rows() == list(expected)
    compacts_logs = {"hoodie.log.compaction.enable": "true", "hoodie.log.compaction.blocks.threshold": "2"}
    assert opened.compact({**compacts_logs, "hoodie.compact.inline.max.delta.commits": "1000"})
    assert rows() == list(expected)
    assert opened.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    assert rows() == list(expected)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_equal_keys_of_several_tasks_have_one_winner_for_all(make_table: MakeTable, ordering: str | None) -> None:
    table = make_table(ordering=ordering, **UNASKED)
    table.operate("bulk_insert", [(key, 0, "first") for key in range(KEYS)])
    lakelatch.open(table.path, table.options).compact({"hoodie.compact.inline.max.delta.commits": "1"})
    before = table.write([(key, 1, "second") for key in range(KEYS)])
    result = lakelatch.write(spread(table.spark), table.path, {**table.options, **IN_PLACE})
    assert set(files_of_groups(result).values()) == {TASKS} and len(files_of_groups(result)) == 2
    assert result.rows_written == TASKS * KEYS, "each task writes its rows, and the merge decides"
    wins = [LAST_OF[ordering](key) for key in range(KEYS)]
    expected = [(key, order_of(number), f"v{number}") for key, number in zip(range(KEYS), wins, strict=True)]
    handle = lakelatch.Table(table.spark, table.path)
    window = sorted(tuple(row) for row in handle.changes(before.completion).select("id", "ts", "v").collect())
    assert window == expected, "a row a key"
    images = handle.changes(before.completion, images=True).collect()
    assert sorted((row.op, tuple(row.before), tuple(row.after)) for row in images) == [
        ("u", (key, 1, "second"), row) for key, row in zip(range(KEYS), expected, strict=True)
    ]
    assert table.read() == table.read({"lakelatch.read.overlays": "false"}) == expected
    all_the_same(table, expected)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_a_key_that_one_task_deletes_and_another_writes(make_table: MakeTable, ordering: str | None) -> None:
    table = make_table(ordering=ordering, **UNASKED)
    table.write([(key, 0, "first") for key in range(KEYS)])
    frame = spread(table.spark, "id % 2 = 0 AS _hoodie_is_deleted")
    result = lakelatch.write(frame, table.path, {**table.options, **IN_PLACE})
    assert (result.rows_written, result.deletes_written) == (TASKS * KEYS // 2, TASKS * KEYS // 2)
    wins = [LAST_OF[ordering](key) for key in range(KEYS)]
    assert len({number % 2 for number in wins}) == 2, "some keys go, and some stay"
    all_the_same(table, [(number % KEYS, order_of(number), f"v{number}") for number in wins if number % 2])


def test_column_groups_have_winners_of_several_tasks(make_table: MakeTable) -> None:
    """Each task has values for both groups, and each group's newest row is in another task."""
    groups = {"lakelatch__table__column__groups": "a_ts: a; b_ts: b", "hoodie__write__concurrency__mode": NON_BLOCKING}
    table = make_table("id long, a_ts long, a long, b_ts long, b long", ordering=None, **groups, **UNASKED)
    table.write([(key, 0, 0, 0, 0) for key in range(KEYS)])
    frame = table.spark.range(0, TASKS * KEYS, 1, TASKS).selectExpr(
        f"id % {KEYS} id", "id + 1 a_ts", "id a", f"{TASKS * KEYS} - id b_ts", "id b"
    )
    lakelatch.write(frame, table.path, {**table.options, **IN_PLACE})
    last = KEYS * (TASKS - 1)
    expected = [(key, last + key + 1, last + key, TASKS * KEYS - key, key) for key in range(KEYS)]
    all_the_same(table, expected)


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
def test_files_are_taken_over_in_their_order(make_table: MakeTable, mode: str) -> None:
    """After a conflict as those of another instant, and after an overwrite under the file ids that hold by then."""
    table = make_table(hoodie__write__concurrency__mode=mode, **UNASKED)
    table.write([(key, 0, "first") for key in range(KEYS)])
    operation = "upsert" if mode == OPTIMISTIC else "insert_overwrite_table"

    def other() -> None:
        table.operate(operation, [(key, 9, "other") for key in range(KEYS + 2)])

    with meanwhile(other, "commit.after_lock" if mode == OPTIMISTIC else "close.after"):
        options = {**table.options, **IN_PLACE, "hoodie.write.num.retries.on.conflict.failures": "1"}
        result = lakelatch.write(spread(table.spark), table.path, options)
    assert set(files_of_groups(result).values()) == {TASKS}
    expected = [(number % KEYS, order_of(number), f"v{number}") for number in map(LAST_OF["ts"], range(KEYS))]
    all_the_same(table, [*expected, (5, 9, "other"), (6, 9, "other")])


def test_rows_that_one_task_refuses_leave_no_file_of_another(make_table: MakeTable) -> None:
    table = make_table(**UNASKED)
    table.write([(1, 1, "a")])
    before = sorted(Path(table.path).glob(".*.log.*"))
    frame = spread(table.spark).selectExpr("if(v = 'v30', null, id) id", "ts", "v")
    with pytest.raises(InvalidRequest, match="id"):
        lakelatch.write(frame, table.path, {**table.options, **IN_PLACE})
    there = [file for file in sorted(Path(table.path).glob(".*.log.*")) if file.stat().st_size]
    assert there == before and table.read() == [(1, 1, "a")]


def test_a_compaction_is_due_by_commits_and_not_by_files(make_table: MakeTable) -> None:
    table = make_table(**UNASKED)
    assert table.write([], local=True).files == ()
    opened, due = lakelatch.open(table.path, table.options), {"hoodie.compact.inline.max.delta.commits": "3"}
    for _ in range(2):
        lakelatch.write(spread(table.spark), table.path, {**table.options, **IN_PLACE})
    assert opened.compact(due) == []
    lakelatch.write(spread(table.spark), table.path, {**table.options, **IN_PLACE})
    assert len(opened.compact(due)) == 1


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert into base files"])
def test_base_files_are_made_of_all_rows_of_a_bucket(make_table: MakeTable, operation: str) -> None:
    """The option is about log files: a task that makes a base file has to have all of its rows."""
    more = {"hoodie__table__type": "COPY_ON_WRITE"} if operation != "bulk_insert" else {}
    table = make_table(hoodie__datasource__write__operation=operation.split()[0], **more)
    result = lakelatch.write(spread(table.spark), table.path, {**table.options, **IN_PLACE})
    assert len(result.files) == 2 and all(name.endswith(".parquet") for name in result.files)
    assert [row[0] for row in table.read()] == list(range(KEYS))


LARGE = 8 * FILE_BYTES_MIN  # for two tasks and four buckets


def test_rows_stay_in_place_where_files_are_few_and_large_enough() -> None:
    def found(size_bytes: float, cores: int = 2, buckets: int = 4) -> int | None:
        return tasks_in_place([PlanNode("Range", size_bytes, None)], cores, buckets)

    assert found(LARGE) == 2 and found(LARGE - 1) is None
    assert found(LARGE, cores=3) is None and found(LARGE, buckets=5) is None
    assert found(100 * LARGE, cores=TASKS_MAX) == TASKS_MAX and found(10_000 * LARGE, cores=TASKS_MAX + 1) is None
    assert found(5 * TASK_BYTES_MAX - 1) == 5, "more tasks than cores, so that none has too much"
    assert found(TASKS_MAX * TASK_BYTES_MAX) == TASKS_MAX and found(TASKS_MAX * TASK_BYTES_MAX + 1) is None
    assert tasks_in_place([], 2, 4) is None


def test_what_is_cached_or_read_from_files_is_measured_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    def measured(frame: DataFrame) -> bool:
        nodes = plan_nodes(frame)
        assert nodes
        return tasks_in_place([PlanNode(nodes[0].kind, LARGE, 1.0), *nodes], 2, 4) is not None

    cached = spread(spark).where("id > 1").cache()
    try:
        assert not measured(cached), "a guess, until it is there"
        assert cached.count() == TASKS * (KEYS - 2)
        assert [(one.kind, one.rows) for one in plan_nodes(cached.select("*"))] == [
            ("InMemoryRelation", TASKS * (KEYS - 2))
        ]
        cached.write.parquet(str(tmp_path / "rows"))
        read = spark.read.parquet(str(tmp_path / "rows"))
        there = cached.select("*")  # of which Spark has not asked before
        for frame in (there, read, there.union(read), read.selectExpr("id", "upper(v) v"), spread(spark)):
            assert measured(frame)
        small = spark.range(3).hint("broadcast")

        def same(batches: Any) -> Any:
            yield from batches

        unknown = (read.where("id > 3"), read.join(small, "id"), read.groupBy("id").count(), read.repartition(3))
        for frame in (*unknown, read.mapInArrow(same, read.schema), read.rdd.toDF(), read.limit(3)):
            assert not measured(frame)
    finally:
        cached.unpersist()


def test_what_decides_without_a_word(make_table: MakeTable, spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(**UNASKED)
    table.write([(1, 1, "a")])
    text = "concat(id, repeat('x', 100)) v"  # 120 bytes a row by Spark's count
    rows = spark.range(0, 40_000, 1, 8).selectExpr("id", "id ts", text).cache()
    rows.count()
    cores, parts = spark.sparkContext.defaultParallelism, rows.rdd.getNumPartitions()

    def files(frame: DataFrame, **more: str) -> set[int]:
        options = {**table.options, **{name.replace("__", "."): value for name, value in more.items()}}
        return set(files_of_groups(lakelatch.write(frame, table.path, options)).values())

    try:
        assert parts == 8 > cores
        assert files(rows) == {cores}, "several partitions a task"
        assert files(rows, lakelatch__write__shuffle="true") == {1}
        assert files(rows, hoodie__upsert__shuffle__parallelism="3") == {1}
        assert files(rows, lakelatch__write__shuffle="false") == {parts}
        assert files(rows.where("id > 1000")) == {1}
        assert len(table.read()) == 40_000
    finally:
        rows.unpersist()
