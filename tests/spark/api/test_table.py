"""A table in the hands of a Spark user: made, read, changed."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from spark_session import local_frame

import lakelatch
from lakelatch import Table
from lakelatch.errors import InvalidRequest

COLUMNS = "id long, ts long, v string, part string"
ROWS = [(1, 1, "a", "p"), (2, 1, "b", "p"), (3, 1, "c", "q")]


def make(spark: SparkSession, path: str | Path, ordering: str | None = "ts", **more: Any) -> Table:
    table = Table.create(spark, path, COLUMNS, key="id", ordering=ordering, partition_by="part", buckets=2, **more)
    table.upsert(frame(spark, ROWS))
    return table


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], columns: str = COLUMNS) -> DataFrame:
    return local_frame(spark, rows, columns)


def rows_of(table: Table, **read: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.to_df(**read).collect())


@pytest.fixture(params=["ts", pytest.param(None, marks=pytest.mark.long)], ids=["event-time", "commit-time"])
def table(spark: SparkSession, table_path: str, request: pytest.FixtureRequest) -> Table:
    return make(spark, table_path, request.param)


def test_a_table_is_made_found_and_described(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b"
    assert not Table.is_table(path)
    with pytest.raises(InvalidRequest, match="no table"):
        Table.for_path(spark, path)
    made = Table.create(spark, path, COLUMNS, key="id", ordering="ts", partition_by=["part"], buckets=3)
    assert Table.is_table(path) and made.to_df().collect() == []
    assert [field.name for field in Table.for_path(spark, path).schema] == ["id", "ts", "v", "part"]
    detail = made.detail()
    assert (detail.key, detail.ordering, detail.partition_by, detail.buckets) == (("id",), "ts", ("part",), 3)
    with pytest.raises(InvalidRequest, match="if_exists='ignore'"):
        Table.create(spark, path, COLUMNS, key="id")
    Table.create(spark, path, COLUMNS, key="id", if_exists="ignore")
    with pytest.raises(InvalidRequest, match="cannot change later"):
        Table.create(spark, path, COLUMNS, key="v", if_exists="ignore")


def test_no_row_of_an_arrow_table_with_an_empty_batch_is_lost(table: Table) -> None:
    some = pa.table({"id": [7], "ts": [1], "v": ["g"], "part": ["p"]})
    table.upsert(pa.concat_tables([some, some.slice(0, 0), some.set_column(0, "id", [[8]])]))
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 7, 8]


@pytest.mark.parametrize(
    ("schema", "more", "words"),
    [
        ("id lung", {}, "cannot be understood"),
        ("long", {}, "columns"),
        (COLUMNS, {"key": "ident"}, "no column of the data"),
        (COLUMNS, {"key": "a,b"}, "may not hold a comma"),
        (COLUMNS, {"if_exists": "replace"}, "'error' or 'ignore'"),
        (COLUMNS, {"options": {"hoodie.write.lock.provider": "nothing"}}, "nothing"),
    ],
)
def test_a_table_that_cannot_be_made_leaves_nothing(
    spark: SparkSession, tmp_path: Path, schema: str, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        Table.create(spark, tmp_path / "t", schema, **{"key": "id", **more})
    assert not Table.is_table(tmp_path / "t")


def test_reading_by_time_by_columns_and_by_changes(spark: SparkSession, table: Table) -> None:
    (first,) = table.history().collect()
    second = table.upsert(frame(spark, [(1, 2, "A", "p"), (4, 2, "d", "q")]))
    assert rows_of(table, columns=["v"]) == [("A",), ("b",), ("c",), ("d",)]
    assert rows_of(table, as_of=first.completion) == sorted(ROWS)
    moment = first.completed.replace(tzinfo=None).astimezone(timezone.utc)
    assert rows_of(table, as_of=moment) == sorted(ROWS)
    changed = table.changes(first.completion, meta_columns=True).collect()
    assert sorted(row.id for row in changed) == [1, 4]
    assert {row["_hoodie_commit_time"] for row in changed} == {second.instant}
    assert table.changes(second.completion).collect() == []
    assert len(table.to_df(meta_columns=True).columns) == 9
    with pytest.raises(InvalidRequest, match="a zone"):
        table.to_df(as_of=datetime(2026, 1, 1))
    with pytest.raises(InvalidRequest, match="in the future"):
        table.to_df(as_of=datetime(2999, 1, 1, tzinfo=timezone.utc))


def test_the_history_says_what_was_done(spark: SparkSession, table: Table) -> None:
    table.delete("id = 2")
    table.overwrite(frame(spark, [(7, 9, "g", "p")]))
    shown = [(row.operation, row.rows_written, row.rows_deleted) for row in table.history().collect()]
    assert shown == [("INSERT_OVERWRITE_TABLE", 1, 0), ("DELETE", 0, 1), ("UPSERT", 3, 0)]
    assert [row.operation for row in table.history(limit=1).collect()] == ["INSERT_OVERWRITE_TABLE"]
    with pytest.raises(InvalidRequest, match="limit=0"):
        table.history(limit=0)


@pytest.mark.parametrize("small", ["0", "100"])
def test_rows_of_one_key_in_a_frame_are_refused_or_counted_wherever_they_stand(
    spark: SparkSession, table: Table, small: str
) -> None:
    options = {"lakelatch.write.small.rows": small}
    twice = [(8, 5, "b", "p"), (8, 7, "a", "p"), (8, 7, "c", "p"), (1, 9, "known", "p"), (9, 1, "n", "p")]
    before = rows_of(table)
    with pytest.raises(InvalidRequest, match="more than one row of the frame has id=8, part=p: leave out all but one"):
        table.insert(frame(spark, twice[:3]), options=options)
    assert rows_of(table) == before
    for rows in (twice, twice[::-1]):
        target = make(spark, f"{table.path}-{small}-{rows[0][1]}", table.detail().ordering)
        done = target.insert(frame(spark, rows), if_exists="skip", options=options)
        assert (done.operation, done.rows_written, done.rows_skipped) == ("insert", 2, 3)
        kept = (8, 7, "c", "p")
        assert rows_of(target) == sorted([*ROWS, kept, (9, 1, "n", "p")])
        assert "2 rows, 3 skipped" in repr(done)
    assert table.insert(frame(spark, [(8, 1, "x", "q"), (8, 1, "x", "p")]), options=options).rows_skipped == 0


def test_rows_of_one_key_in_the_first_insert_and_in_columns_without_an_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.operation": "insert",
    }
    columns = "id long, m map<string,int>, part string"
    rows = [(1, {"a": 1}, ""), (1, {"a": 2}, None), (1, {"a": 1}, None), (2, {}, "x")]
    with pytest.raises(InvalidRequest, match="more than one row of the frame has id=1"):
        lakelatch.write(
            spark.createDataFrame(rows, columns),
            str(tmp_path / "t"),
            {**options, "hoodie.datasource.insert.dup.policy": "fail"},
        )
    assert not Table.is_table(tmp_path / "t")
    for turn, given in enumerate((rows, rows[::-1])):
        path = str(tmp_path / f"t{turn}")
        more = {**options, "hoodie.datasource.write.insert.drop.duplicates": "true"}
        done = lakelatch.write(spark.createDataFrame(given, columns), path, more)
        assert (done.rows_written, done.rows_skipped) == (2, 2)
        found = lakelatch.read(spark, path).collect()
        assert sorted((row.id, row.m) for row in found) == [(1, {"a": 2}), (2, {})]


def test_frames_of_pandas_and_arrow_are_taken(table: Table) -> None:
    table.upsert(pd.DataFrame({"id": [5], "ts": [2], "v": ["pandas"], "part": ["p"]}))
    table.upsert(pa.table({"id": [6], "ts": [2], "v": ["arrow"], "part": ["p"]}))
    assert rows_of(table)[-2:] == [(5, 2, "pandas", "p"), (6, 2, "arrow", "p")]
    some = pd.DataFrame({"id": [6, 7], "ts": [3, 2], "v": ["filtered", "indexed"], "part": ["p", "p"]})
    table.upsert(pa.Table.from_pandas(some[some.id == 6].sample(1)))
    table.upsert(some[some.id == 7].set_index("id"))
    assert rows_of(table)[-2:] == [(6, 3, "filtered", "p"), (7, 2, "indexed", "p")]
    with pytest.raises(InvalidRequest, match="list is no frame"):
        table.upsert([(7, 2, "list", "p")])


def test_inserts_of_what_is_there(spark: SparkSession, table: Table) -> None:
    more = frame(spark, [(1, 2, "again", "p"), (4, 2, "new", "p")])
    before = rows_of(table)
    with pytest.raises(InvalidRequest, match="id=1, part=p already"):
        table.insert(more)
    assert rows_of(table) == before
    table.insert(more, if_exists="skip")
    assert rows_of(table) == sorted([*before, (4, 2, "new", "p")])
    table.insert(frame(spark, [(1, 2, "elsewhere", "q")]))
    assert (1, 2, "elsewhere", "q") in rows_of(table)
    with pytest.raises(InvalidRequest, match="holds one row of each"):
        table.insert(more, if_exists="keep")


def test_updates_change_what_the_condition_names(table: Table) -> None:
    table.update("part = 'p' AND ts = 1", {"v": functions.concat("v", functions.lit("!")), "ts": "ts + 1"})
    assert rows_of(table) == [(1, 2, "a!", "p"), (2, 2, "b!", "p"), (3, 1, "c", "q")]
    table.update(functions.col("id") == 1, {"v": "'only v'"})
    table.update(None, {"v": "upper(v)"})
    assert [row[2] for row in rows_of(table)] == ["ONLY V", "B!", "C"]
    table.compact({"hoodie.compact.inline.max.delta.commits": 1})
    assert [row[2] for row in rows_of(table)] == ["ONLY V", "B!", "C"]


def test_a_row_moves_with_its_partition(table: Table) -> None:
    table.update("id < 3", {"part": "if(id = 1, 'r', part)"})
    assert rows_of(table) == [(1, 1, "a", "r"), (2, 1, "b", "p"), (3, 1, "c", "q")]


def test_a_row_stays_if_its_partition_s_value_becomes_another_one_of_the_same_folder(table: Table) -> None:
    for value, found in (("null", None), ("''", ""), ("'__HIVE_DEFAULT_PARTITION__'", "__HIVE_DEFAULT_PARTITION__")):
        table.update("id = 3", {"part": value})
        assert rows_of(table) == [*ROWS[:2], (3, 1, "c", found)]


def test_an_empty_text_and_null_are_one_partition_to_inserts_merges_and_overwrites(table: Table) -> None:
    table.update("id = 3", {"part": "null"})
    empty = frame(table.spark, [(3, 9, "new", "")])
    table.insert(empty, if_exists="skip")
    with pytest.raises(InvalidRequest, match="already"):
        table.insert(empty)
    assert rows_of(table)[2] == (3, 1, "c", None)
    table.merge(empty).when_matched_update({"v": "source.v"}).execute()
    assert rows_of(table) == [*ROWS[:2], (3, 1, "new", None)]
    table.overwrite(frame(table.spark, [(3, 9, "over", "")]), condition="id = 3")
    assert rows_of(table) == [*ROWS[:2], (3, 9, "over", "")]


@pytest.mark.parametrize(
    ("condition", "values", "words"),
    [
        ("nothing = 1", {"v": "'x'"}, "nothing"),
        ("id = 1", {"v": "unknown"}, "unknown"),
        ("id = ", {"v": "'x'"}, "cannot be carried out"),
        ("id = 1", {"w": "'x'"}, "'w' is no column"),
        ("id = 1", {"id": "id + 1"}, "record key"),
        ("id = 1", {}, "no column"),
    ],
)
def test_updates_that_cannot_be_understood_change_nothing(
    table: Table, condition: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        table.update(condition, values)
    assert rows_of(table) == ROWS and table.history().count() == 1


def test_deletions(table: Table) -> None:
    assert table.delete("v = 'b'").deletes_written == 1
    assert rows_of(table) == [ROWS[0], ROWS[2]]
    table.delete(functions.col("id") > 0)
    assert rows_of(table) == []


def test_overwrites_of_the_table_of_partitions_and_of_a_condition(spark: SparkSession, table: Table) -> None:
    table.overwrite(frame(spark, [(9, 5, "only p", "p")]), partitions="touched")
    assert rows_of(table) == [(3, 1, "c", "q"), (9, 5, "only p", "p")]
    table.upsert(frame(spark, [(1, 1, "a", "p"), (2, 1, "b", "p")]))
    table.overwrite(frame(spark, [(1, 2, "A", "p"), (5, 1, "e", "p")]), condition="part = 'p' AND id < 9")
    assert rows_of(table) == [(1, 2, "A", "p"), (3, 1, "c", "q"), (5, 1, "e", "p"), (9, 5, "only p", "p")]
    with pytest.raises(InvalidRequest, match="does not hold for the new row with id=7, part=q"):
        table.overwrite(frame(spark, [(7, 1, "g", "q")]), condition="part = 'p'")
    table.overwrite(frame(spark, [(8, 1, "h", "r")]))
    assert rows_of(table) == [(8, 1, "h", "r")]
    with pytest.raises(InvalidRequest, match="partitions='some'"):
        table.overwrite(frame(spark, []), partitions="some")


def test_a_restore_to_a_moment(spark: SparkSession, table: Table) -> None:
    (first,) = table.history().collect()
    table.upsert(frame(spark, [(1, 2, "A", "p")]))
    table.restore(first.completion)
    assert rows_of(table) == ROWS
    with pytest.raises(InvalidRequest, match="by then"):
        table.restore("2020-01-01")


class Disturbed(Table):
    """Another one commits between its second reading, which is the first inside the transaction, and its commit."""

    readings = 0

    def to_df(
        self, as_of: Any = None, columns: Any = None, meta_columns: bool | None = None, where: Any = None
    ) -> DataFrame:
        read = super().to_df(as_of, columns, meta_columns, where)
        self.readings += 1
        if self.readings == 2:
            lakelatch.write(frame(self.spark, [(1, 2, "theirs", "p")]), self.path)
        return read


def test_a_change_reads_again_after_a_conflict(spark: SparkSession, table: Table) -> None:
    disturbed = Disturbed(spark, table.path)
    done = disturbed.update("id = 1", {"v": "concat(v, ' and ours')"})
    assert (done.conflicts_retried, disturbed.readings) == (1, 3)
    assert rows_of(table)[0] == (1, 2, "theirs and ours", "p")
    (lost,) = table.conflicts().collect()
    theirs = table.history().where("action = 'deltacommit'").collect()[1].instant
    assert (lost.winner, lost.winner_action, lost.file_groups, lost.early) == (theirs, "deltacommit", 1, False)
    with pytest.raises(InvalidRequest, match="limit=0"):
        table.conflicts(limit=0)


def test_rows_that_say_that_they_delete(spark: SparkSession, table: Table) -> None:
    flagged = [(1, 2, "x", "p", True), (2, 2, "B", "p", False), (5, 2, "e", "p", None), (6, 2, "f", "r", True)]
    done = table.upsert(frame(spark, flagged, f"{COLUMNS}, _hoodie_is_deleted boolean"))
    assert (done.rows_written, done.deletes_written) == (2, 2)
    assert rows_of(table) == [(2, 2, "B", "p"), (3, 1, "c", "q"), (5, 2, "e", "p")]
    with pytest.raises(InvalidRequest, match=r"_hoodie_is_deleted is string: .*cast it"):
        table.upsert(frame(spark, [(1, 2, "x", "p", "yes")], f"{COLUMNS}, _hoodie_is_deleted string"))
    table.compact({"hoodie.compact.inline.max.delta.commits": 1})
    assert rows_of(table) == [(2, 2, "B", "p"), (3, 1, "c", "q"), (5, 2, "e", "p")]
