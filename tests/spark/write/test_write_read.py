"""What is written is what is read: operations, keys, partitions, types, orderings, moments."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.format.avro import META_COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.stores]
MakeTable = Callable[..., Any]


@pytest.mark.parametrize("local", [True, False])
def test_upsert_keeps_the_row_with_the_greater_ordering_value(make_table: MakeTable, local: bool) -> None:
    table = make_table()
    table.write([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")], local=local)
    result = table.write([(1, 9, "older"), (2, 10, "equal"), (3, 11, "newer"), (4, 1, "new")], local=local)
    assert table.read() == [(1, 10, "a"), (2, 10, "equal"), (3, 11, "newer"), (4, 1, "new")]
    assert (result.rows_written, result.deletes_written, result.operation) == (4, 0, "upsert")
    assert result.instant < result.completion
    table.compact()
    assert table.read() == [(1, 10, "a"), (2, 10, "equal"), (3, 11, "newer"), (4, 1, "new")]
    table.write([(1, 9, "older"), (3, 12, "newest")], local=local)
    assert table.read() == [(1, 10, "a"), (2, 10, "equal"), (3, 12, "newest"), (4, 1, "new")]


def test_commit_time_ordering_lets_the_later_write_win(make_table: MakeTable) -> None:
    table = make_table(ordering=None)
    table.write([(1, 10, "a"), (2, 10, "b")])
    table.write([(1, 9, "later")])
    assert table.read() == [(1, 9, "later"), (2, 10, "b")]
    table.compact()
    table.write([(2, 1, "latest")])
    assert table.read() == [(1, 9, "later"), (2, 1, "latest")]


@pytest.mark.parametrize("ordering, winner", [("ts", (1, 12, "greatest")), (None, (1, 11, "last"))])
def test_one_row_remains_of_duplicates_in_one_frame(
    make_table: MakeTable, ordering: str | None, winner: tuple[Any, ...]
) -> None:
    table = make_table(ordering=ordering)
    result = table.write([(1, 10, "first"), (1, 12, "greatest"), (1, 11, "last")])
    assert table.read() == [winner]
    assert result.rows_written == 1


def test_insert_and_bulk_insert_of_a_key_that_exists_update_it(make_table: MakeTable) -> None:
    table = make_table()
    table.operate("insert", [(1, 1, "a"), (2, 1, "b")])
    table.operate("bulk_insert", [(2, 2, "B"), (3, 2, "c")])
    assert table.read() == [(1, 1, "a"), (2, 2, "B"), (3, 2, "c")]


def test_a_delete_needs_only_the_key_and_respects_the_ordering_value_if_it_is_given(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 10, "a"), (2, 10, "b"), (3, 10, "c"), (4, 10, "d")])
    result = table.operate("delete", [(1,), (9,), (9,)], "id long")
    assert (result.rows_written, result.deletes_written) == (0, 3)  # asked for: 9 is not there, and nobody looks
    table.operate("delete", [(2, 9), (3, 11)], "id long, ts long")
    assert table.read() == [(2, 10, "b"), (4, 10, "d")]
    table.compact()
    assert table.read() == [(2, 10, "b"), (4, 10, "d")]
    table.write([(1, 1, "again")])
    assert table.read() == [(1, 1, "again"), (2, 10, "b"), (4, 10, "d")]


@pytest.mark.parametrize("hive_style", ["true", "false"])
def test_partitions_hold_keys_of_their_own(make_table: MakeTable, hive_style: str) -> None:
    table = make_table(
        "id long, ts long, v string, day date, hour int",
        partition="day,hour",
        hoodie__datasource__write__hive_style_partitioning=hive_style,
    )
    monday, tuesday = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
    table.write([(1, 1, "a", monday, 5), (1, 1, "b", tuesday, 5), (1, 1, "c", monday, 6)], local=False)
    table.write([(1, 2, "B", tuesday, 5)])
    table.operate("delete", [(1, monday, 6)], "id long, day date, hour int")
    assert table.read() == [(1, 1, "a", monday, 5), (1, 2, "B", tuesday, 5)]
    paths = {path for (path,) in table.read(None, "_hoodie_partition_path")}
    if hive_style == "true":
        assert paths == {"day=2024-01-01/hour=5", "day=2024-01-02/hour=5"}
    else:
        assert paths == {"2024-01-01/5", "2024-01-02/5"}


def test_composite_keys(make_table: MakeTable) -> None:
    table = make_table("a string, b int, ts long", key="a,b")
    table.write([("x", 1, 1), ("x", 2, 1), ("y", 1, 1), ("z", None, 1)], local=False)
    table.write([("x", 2, 5), ("z", None, 6)])
    assert table.read() == [("x", 1, 1), ("x", 2, 5), ("y", 1, 1), ("z", None, 6)]
    keys = {key for (key,) in table.read(None, "_hoodie_record_key")}
    assert keys == {"a:x,b:1", "a:x,b:2", "a:y,b:1", "a:z,b:__null__"}


ALL_TYPES = (
    "id long, ts long, flag boolean, number int, single float, double double, "
    "price decimal(18,4), wide decimal(38,10), day date, at timestamp, local timestamp_ntz, name string, data binary, "
    "numbers array<int>, words map<string,string>, place struct<lat:double,tags:array<string>>, "
    "deep array<struct<k:string,m:map<string,decimal(9,2)>>>"
)


def _all_types(key: int) -> tuple[Any, ...]:
    at = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
    return (
        *(key, 5, True, -(2**31), 1.5, 1e300, decimal.Decimal("-12.3400"), decimal.Decimal("9" * 20)),
        *(
            dt.date(1969, 12, 31),
            at.replace(tzinfo=dt.timezone.utc),
            at,
            "\u00e9\n\u4e16\U0001f600",
            bytearray(b"\x00\xff"),
        ),
        *([1, None, 3], {"a": "b", "n": None}, (1.25, ["x", None])),
        [("k", {"m": decimal.Decimal("1.10")}), None],
    )


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_every_type_and_null_comes_back_as_it_went_in(
    make_table: MakeTable, spark: SparkSession, block_format: str
) -> None:
    table = make_table(ALL_TYPES, hoodie__logfile__data__block__format=block_format)
    nulls = (2, 5, *[None] * 15)
    frame = spark.createDataFrame([_all_types(1), nulls], ALL_TYPES)
    wanted = sorted((tuple(row) for row in frame.collect()), key=repr)
    lakelatch.write(frame, table.path, table.options)
    assert _names_and_values(table, wanted)
    table.compact()
    assert _names_and_values(table, wanted)
    table.write([_all_types(3)])
    assert len(table.read(None, "id")) == 3


def _names_and_values(table: Any, wanted: list[tuple[Any, ...]]) -> bool:
    frame = lakelatch.read(table.spark, table.path)
    assert frame.dtypes == table.frame([]).dtypes
    assert sorted((tuple(row) for row in frame.collect()), key=repr) == wanted
    return True


WITH_META: dict[str, object] = {"lakelatch.read.meta.columns": "true"}


def test_meta_columns_are_read_and_dropped_again_on_write_back(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    frame = lakelatch.read(spark, table.path, WITH_META)
    assert frame.columns == [*META_COLUMNS, "id", "ts", "v"]
    assert {row["_hoodie_commit_time"] for row in frame.collect()} == {first.instant}
    second = lakelatch.write(frame.where("id = 1"), table.path, table.options)
    times = table.read(None, "id", "_hoodie_commit_time")
    assert times == [(1, second.instant), (2, first.instant)]
    for options in ({}, WITH_META):
        change = functools.partial(lambda more: lakelatch.read(spark, table.path, more).where("id = 2"), options)
        third = lakelatch.write(change, table.path, table.options)
        assert table.read(None, "id", "_hoodie_commit_time") == [(1, second.instant), (2, third.instant)]


def test_columns_option_selects_and_orders(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    wanted = {"columns": "v, _hoodie_record_key"}
    for _ in range(2):
        frame = lakelatch.read(spark, table.path, wanted)
        assert [tuple(row) for row in frame.collect()] == [("a", "1")]
        assert frame.columns == ["v", "_hoodie_record_key"]
        table.compact()


@pytest.mark.parametrize("local", [True, False])
def test_an_empty_frame_commits_and_changes_nothing(make_table: MakeTable, local: bool) -> None:
    table = make_table()
    first = table.write([], local=local)
    assert (first.rows_written, first.files, table.read()) == (0, (), [])
    table.write([(1, 1, "a")])
    assert table.write([], local=local).completion > first.completion
    assert table.read() == [(1, 1, "a")]


def test_small_rows_decides_where_rows_become_files(make_table: MakeTable) -> None:
    """Files that the driver wrote have the write token 0-0-0; a task's token names its stage and attempt."""
    table = make_table()

    def by_driver(local: bool, limit: str | None) -> bool:
        more = {} if limit is None else {"lakelatch__write__small__rows": limit}
        result = table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")], local=local, **more)
        return all(name.endswith("_0-0-0") for name in result.files)

    assert by_driver(local=True, limit=None)
    assert not by_driver(local=False, limit=None)
    assert by_driver(local=False, limit="3")
    assert not by_driver(local=False, limit="2")
    assert not by_driver(local=True, limit="0")
    assert table.read() == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


def test_an_emptied_table_reads_as_empty(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    table.operate("delete", [(1,)], "id long")
    assert table.read() == []
    table.compact()
    assert table.read() == []
    table.write([(1, 0, "b")])
    assert table.read() == [(1, 0, "b")]
