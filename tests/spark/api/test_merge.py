"""Merges: which clause a row takes, what it becomes, and what is refused."""

from __future__ import annotations

from typing import Any

import hudi
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from spark_session import local_frame

from lakelatch import Table
from lakelatch.errors import InvalidRequest

COLUMNS = "id long, ts long, v string, part string"
ROWS = [(1, 1, "a", "p"), (2, 1, "b", "p"), (3, 1, "c", "q"), (4, 1, "d", "q")]
SOURCE = [(1, 2, "A", "p"), (2, 2, "B", "p"), (3, 2, "C", "q"), (8, 2, "H", "q"), (9, 2, "I", "p")]


@pytest.fixture
def table(spark: SparkSession, table_path: str) -> Table:
    made = Table.create(spark, table_path, COLUMNS, key="id", ordering="ts", partition_by="part", buckets=2)
    made.upsert(frame(spark, ROWS))
    return made


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], columns: str = COLUMNS) -> DataFrame:
    return local_frame(spark, rows, columns)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """The rows, after making sure that hudi-rs sees the same."""
    rows = sorted(tuple(row) for row in table.to_df().collect())
    batches = hudi.HudiTableBuilder.from_base_uri(table.path).build().read(hudi.HudiReadOptions())
    theirs = [row for batch in batches for row in pa.record_batch(batch).to_pylist()]
    assert sorted(tuple(row[name] for name in ("id", "ts", "v", "part")) for row in theirs) == rows
    return rows


def test_an_upsert_by_clauses(spark: SparkSession, table: Table) -> None:
    merge = table.merge(frame(spark, SOURCE)).when_matched_update_all().when_not_matched_insert_all()
    done = merge.execute()
    assert (done.rows_written, done.deletes_written, done.operation) == (5, 0, "merge")
    assert rows_of(table) == sorted([*SOURCE, ROWS[3]])


def test_each_row_takes_the_first_clause_that_applies(spark: SparkSession, table: Table) -> None:
    done = (
        table.merge(frame(spark, SOURCE))
        .when_matched_delete("source.v = 'A'")
        .when_matched_update({"v": "concat(target.v, source.v)", "ts": "source.ts"}, "target.id < 3")
        .when_not_matched_insert({"id": "source.id", "part": "source.part", "ts": functions.lit(7)}, "source.id = 9")
        .when_not_matched_by_source_update({"v": "'left'"}, "target.part = 'q'")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert (done.rows_written, done.deletes_written) == (3, 1)
    assert rows_of(table) == [(2, 2, "bB", "p"), (3, 1, "c", "q"), (4, 1, "left", "q"), (9, 7, None, "p")]


def test_what_the_source_lacks_is_deleted(spark: SparkSession, table: Table) -> None:
    table.merge(frame(spark, SOURCE[:1])).when_not_matched_by_source_delete().execute()
    assert rows_of(table) == [ROWS[0]]


def test_rows_follow_the_source_into_another_partition(spark: SparkSession, table: Table) -> None:
    moved = frame(spark, [(1, 2, "A", "q"), (2, 2, "B", "p")])
    table.merge(moved, "target.id = source.id").when_matched_update_all().execute()
    assert rows_of(table) == [(1, 2, "A", "q"), (2, 2, "B", "p"), *ROWS[2:]]


def test_a_condition_beside_the_key(spark: SparkSession, table: Table) -> None:
    codes = frame(spark, [("a", "one"), ("d", "four"), ("z", "none")], "code string, name string")
    table.merge(codes, "target.v = source.code").when_matched_update({"v": "source.name"}).execute()
    assert [row[2] for row in rows_of(table)] == ["one", "b", "c", "four"]


def test_an_insert_that_would_write_over_a_row_is_refused(spark: SparkSession, table: Table) -> None:
    """The condition does not match the row with this key, so its clause speaks of a new one."""
    source = frame(spark, [(1, 5, "other", "p"), (7, 5, "g", "p")])
    merge = table.merge(source, "target.v = source.v").when_not_matched_insert_all()
    with pytest.raises(InvalidRequest, match="a row with id=1, part=p, which the condition does not match"):
        merge.execute()
    assert rows_of(table) == ROWS
    table.merge(source.where("id = 7"), "target.v = source.v").when_not_matched_insert_all().execute()
    assert rows_of(table) == [*ROWS, (7, 5, "g", "p")]


def test_a_row_that_is_matched_twice_ends_the_merge(spark: SparkSession, table: Table) -> None:
    twice = frame(spark, [(1, 2, "A", "p"), (1, 3, "AA", "p"), (6, 1, "f", "p"), (6, 1, "f", "p")])
    merge = table.merge(twice).when_matched_update_all("source.ts > 0").when_not_matched_insert_all()
    with pytest.raises(InvalidRequest, match="id=1, part=p is matched by more than one row of the source"):
        merge.execute()
    assert rows_of(table) == ROWS
    table.merge(twice).when_matched_update_all("source.ts = 3").execute()
    assert rows_of(table)[0] == (1, 3, "AA", "p")


def test_two_new_rows_of_one_key_end_the_merge(spark: SparkSession, table_path: str) -> None:
    """An ordering value would say which one is wanted; without one, either would be lost without a word."""
    table = Table.create(spark, table_path, COLUMNS, key="id", partition_by="part", buckets=2)
    table.upsert(frame(spark, ROWS))
    twice = frame(spark, [(1, 2, "A", "p"), (6, 1, "f", ""), (6, 1, "g", None), (7, 1, "h", "p"), (7, 1, "h", "q")])
    values = {"id": "source.id", "ts": "source.ts", "v": "source.v", "part": "source.part"}
    for merge in (
        table.merge(twice).when_not_matched_insert_all(),
        table.merge(twice).when_matched_update_all().when_not_matched_insert(values),
        table.merge(twice, "target.v = source.v").when_not_matched_insert({**values, "id": "source.id + 10"}),
    ):
        with pytest.raises(InvalidRequest, match="more than one row of the source would be the new row with id="):
            merge.execute()
    assert rows_of(table) == ROWS
    once = table.merge(twice).when_matched_update_all().when_not_matched_insert_all("source.v <> 'g'")
    assert once.execute().rows_written == 4
    ordered = Table.create(spark, table_path + "-ordered", COLUMNS, key="id", ordering="ts", buckets=1)
    ordered.merge(frame(spark, [(1, 2, "new", "p"), (1, 1, "old", "p")])).when_not_matched_insert_all().execute()
    assert rows_of(ordered) == [(1, 2, "new", "p")]


def test_what_cannot_be_merged_is_said_before_anything_is_written(spark: SparkSession, table: Table) -> None:
    source = frame(spark, SOURCE)
    with pytest.raises(InvalidRequest, match="without a clause"):
        table.merge(source).execute()
    with pytest.raises(InvalidRequest, match=r"lacks the column\(s\) v"):
        table.merge(source.drop("v")).when_matched_update_all().execute()
    with pytest.raises(InvalidRequest, match="no value to part"):
        table.merge(source).when_not_matched_insert({"id": "source.id"})
    with pytest.raises(InvalidRequest, match="record key"):
        table.merge(source).when_matched_update({"id": "source.id"})
    with pytest.raises(InvalidRequest, match="nothing"):
        table.merge(source, "target.nothing = source.id").when_matched_delete().execute()
    assert rows_of(table) == ROWS and table.history().count() == 1
