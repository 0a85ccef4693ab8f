"""A table at several moments: time travel, incremental reads, read-optimized reads, and what Spark reads by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakelatch
from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"


def _since(begin: str, end: str | None = None) -> dict[str, object]:
    return {QUERY_TYPE: "incremental", BEGIN: begin, **({END: end} if end else {})}


def _plan(table: Any, options: dict[str, object] | None = None) -> str:
    frame = lakelatch.read(table.spark, table.path, options)
    return str(frame._jdf.queryExecution().toString())


@pytest.mark.parametrize("compacted", [False, True])
def test_time_travel_gives_what_had_completed_by_then(make_table: MakeTable, compacted: bool) -> None:
    table = make_table()
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    second = table.write([(1, 2, "A"), (3, 2, "c")])
    if compacted:
        assert table.compact()
    third = table.operate("delete", [(2,)], "id long")
    assert table.read({"as.of.instant": first.completion}) == [(1, 1, "a"), (2, 1, "b")]
    assert table.read({"as.of.instant": second.completion}) == [(1, 2, "A"), (2, 1, "b"), (3, 2, "c")]
    assert table.read({"as.of.instant": third.completion}) == [(1, 2, "A"), (3, 2, "c")]
    assert table.read({"as.of.instant": first.instant}) == []


def test_incremental_bounds_leave_out_the_first_and_take_in_the_last(make_table: MakeTable) -> None:
    table = make_table()
    first, second, third = (table.write([(key, key, "v"), (9, key, "all")]) for key in (1, 2, 3))
    for _ in range(2):
        assert table.read(_since(first.completion, second.completion), "id", "ts") == [(2, 2), (9, 2)]
        assert table.read(_since(first.completion)) == [(2, 2, "v"), (3, 3, "v"), (9, 3, "all")]
        assert table.read(_since("00000000000000000"), "id") == [(1,), (2,), (3,), (9,)]
        assert table.read(_since(third.completion)) == []
        table.compact()


def test_an_incremental_read_up_to_a_moment_sees_rows_as_they_were_then(make_table: MakeTable) -> None:
    table = make_table()
    first = table.write([(1, 1, "a")])
    second = table.write([(1, 2, "b")])
    table.write([(1, 3, "c")])
    assert table.read(_since(first.completion, second.completion)) == [(1, 2, "b")]


def test_a_compaction_is_no_news_for_an_incremental_read(make_table: MakeTable) -> None:
    table = make_table()
    last = table.write([(1, 1, "a"), (2, 1, "b")])
    table.compact()
    assert table.read(_since(last.completion)) == []


def test_read_optimized_sees_base_files_only(make_table: MakeTable) -> None:
    table = make_table()
    optimized: dict[str, object] = {QUERY_TYPE: "read_optimized"}
    table.write([(1, 1, "a"), (2, 1, "b")])
    assert table.read(optimized) == []
    table.compact()
    table.write([(1, 2, "A"), (3, 2, "c")])
    assert table.read(optimized) == [(1, 1, "a"), (2, 1, "b")]
    table.compact()
    assert table.read(optimized) == table.read() == [(1, 2, "A"), (2, 1, "b"), (3, 2, "c")]


def test_spark_reads_slices_without_logs_by_itself(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(key, 1, "a") for key in range(8)])
    assert "MapInArrow" in _plan(table)
    table.compact()
    plan = _plan(table)
    assert "FileScan parquet" in plan and "MapInArrow" not in plan
    table.write([(1, 2, "b")])
    mixed = _plan(table)
    assert "LocalTableScan" in mixed and "row_index" in mixed and "MapInArrow" not in mixed
    slices = plan_read(table.path).slices
    assert sorted(bool(found.log_files) for found in slices) == [False, True]
    assert table.read() == sorted([(1, 2, "b"), *((key, 1, "a") for key in range(8) if key != 1)], key=repr)
    assert "MapInArrow" not in _plan(table, {QUERY_TYPE: "read_optimized"})


def test_filters_and_columns_are_pushed_into_the_native_plan(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(key, key, "a") for key in range(8)])
    table.compact()
    frame = lakelatch.read(table.spark, table.path).where("ts > 5").select("id")
    plan = frame._jdf.queryExecution().toString()
    assert "GreaterThan(ts,5)" in plan
    assert "ReadSchema: struct<id:bigint,ts:bigint>" in plan
    assert sorted(tuple(row) for row in frame.collect()) == [(6,), (7,)]


def test_what_a_read_saw_is_fixed_when_it_is_called(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    before = lakelatch.read(table.spark, table.path)
    table.write([(1, 2, "b"), (2, 2, "c")])
    table.compact()
    assert [row["v"] for row in before.collect()] == ["a"]


@pytest.mark.parametrize(
    "options, named",
    [
        ({QUERY_TYPE: "incremental"}, BEGIN),
        ({BEGIN: "20240101000000000"}, QUERY_TYPE),
        ({QUERY_TYPE: "fast"}, "'fast'"),
        ({"as.of.instant": "yesterday"}, "yesterday"),
        ({"columns": "id,nothing"}, "nothing"),
        ({"columns": " , "}, "columns is empty"),
        ({QUERY_TYPE: "incremental", BEGIN: "20240101000000000", "as.of.instant": "20240101000000000"}, END),
    ],
)
def test_wrong_read_options_are_refused(make_table: MakeTable, options: dict[str, object], named: str) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    with pytest.raises(InvalidRequest, match=named):
        table.read(options)
