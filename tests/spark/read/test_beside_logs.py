"""Slices with few logs, whose base files Spark reads by itself, have the rows that a merge gives."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.engine.read import by_reader, places
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.overlays import OVERLAYS_FOLDER
from lakelatch.engine.read.plan import plan_read

URLS = {"hoodie__datasource__write__partitionpath__urlencode": "true"}
Make = Callable[..., Any]


@pytest.fixture(autouse=True, params=["small", "overlaid", "few"])
def logs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the process that plans reads the logs, or tasks do, once or with each query; these tables are small."""
    if request.param != "small":
        monkeypatch.setattr(by_reader, "SMALL_LOGS_MAX_BYTES", -1)
    if request.param == "few":
        monkeypatch.setattr(by_reader, "OVERLAID_MAX_BYTES", -1)
        monkeypatch.setattr(by_reader, "BASE_MIN_BYTES", 0)
        monkeypatch.setattr(by_reader, "_BASE_TO_LOGS", 0)
    return str(request.param)


@pytest.fixture(scope="module")
def table(make_shared_table: Make) -> Any:
    """Base files in two partitions with the same keys, and logs: newer and older values, deletes, new keys."""
    return with_logs(make_shared_table)


def with_logs(make_table: Make) -> Any:
    made = make_table("id long, ts long, v string, p string, q string", partition="p,q")
    made.write([(key, 5, f"v{key}", p, "x-1") for key in range(20) for p in ("a", "c")])
    made.compact()
    new = [(1, 6, "newer", "a"), (2, 4, "older", "a"), (3, 5, "equal", "c"), (30, 1, "more", "c")]
    made.write([(*row, "x-1") for row in new])
    made.operate("delete", [(4, 6, "", "a", "x-1"), (5, 4, "", "c", "x-1")])
    return made


def is_joined(frame: DataFrame) -> bool:
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain()
    plan = shown.getvalue()
    return "LeftAnti" in plan if "MapInArrow" in plan else "row_index" in plan


def rows_of(table: Any, options: Mapping[str, object] | None = None, where: str | None = None) -> list[Any]:
    """The rows of a read, which are those of a merge."""
    frame = lakelatch.read(table.spark, table.path, options, where)
    assert is_joined(frame)
    found = sorted(map(tuple, frame.collect()), key=repr)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(by_reader, "LOGS_MAX_BYTES", -1)
        patched.setattr(by_reader, "SMALL_LOGS_MAX_BYTES", -1)
        merged = lakelatch.read(table.spark, table.path, options, where)
        assert not is_joined(merged)
        assert found == sorted(map(tuple, merged.collect()), key=repr)
    return found


def test_the_rows_are_those_of_a_merge(table: Any) -> None:
    assert len(rows_of(table)) == 40
    values = {(key, p): v for key, v, p in rows_of(table, {"columns": "id,v,p"})}
    assert values[1, "a"] == "newer" and values[1, "c"] == "v1"
    assert values[2, "a"] == "v2" and values[3, "c"] == "equal" and values[30, "c"] == "more"
    assert (4, "a") not in values and values[4, "c"] == "v4" and values[5, "c"] == "v5"


def test_an_explanation_says_so(table: Any) -> None:
    shown = lakelatch.Table(table.spark, table.path).explain()
    assert (shown.native, shown.beside_logs, shown.merged) == (1, 3, 0)
    assert "1 read by Spark itself, 3 but for what their logs change, 0 merged" in repr(shown)


def test_a_condition_holds_for_what_wins(table: Any) -> None:
    assert [row[0] for row in rows_of(table, {"columns": "id"}, "v = 'newer' OR v = 'v1'")] == [1, 1]
    assert rows_of(table, {"columns": "id"}, "v = 'v4' AND p = 'a'") == []
    assert [row[0] for row in rows_of(table, {"columns": "id"}, "ts < 5")] == [30]


def test_columns_that_came_later_and_wider_ones(make_table: Make) -> None:
    table = make_table("id long, ts long, v int")
    table.write([(key, 1, key) for key in range(10)])
    table.compact()
    table.write([(3, 2, 30, "x")], "id long, ts long, v int, w string", mergeSchema="true")
    assert {row[:2] for row in rows_of(table, {"columns": "id,w"})} == {(k, "x" if k == 3 else None) for k in range(10)}
    table.write([(4, 2, 1 << 40, "y")], "id long, ts long, v long, w string", mergeSchema="true")
    assert dict(row for row in rows_of(table, {"columns": "id,v"}))[4] == 1 << 40


def test_commit_time_decides_where_there_is_no_ordering(make_table: Make) -> None:
    table = make_table("id long, v string", ordering=None)
    table.write([(key, "old") for key in range(6)])
    table.compact()
    table.write([(2, "new")])
    assert rows_of(table, {"columns": "id,v"}) == [(k, "new" if k == 2 else "old") for k in range(6)]


def test_files_that_cannot_be_told_apart_by_their_places_are_merged(
    table: Any, logs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "zlib", SimpleNamespace(crc32=lambda _: 7))
    assert is_joined(lakelatch.read(table.spark, table.path)) == (logs != "few")


def test_folders_whose_names_spark_writes_in_another_way_have_no_places(make_table: Make, logs: str) -> None:
    table = make_table("id long, ts long, v string, p string", partition="p", **URLS)
    table.write([(key, 1, "v", p) for key in range(4) for p in ("a b", "c%d", "e#f")])
    table.compact()
    table.write([(2, 2, "w", p) for p in ("a b", "c%d", "e#f")])
    frame = lakelatch.read(table.spark, table.path)
    assert is_joined(frame) == (logs != "few")
    assert frame.where("v = 'w'").count() == 3 and frame.count() == 12


@pytest.fixture(scope="module")
def with_needed_names(make_shared_table: Make) -> dict[str, Any]:
    """Tables with logs, by a column that each has, whose name is needed to join them."""
    tables = {}
    for name in ("_Metadata", "_lakelatch_place", "_lakelatch_path", "_lakelatch_path_number"):
        tables[name] = table = make_shared_table(f"id long, ts long, v string, {name} string")
        table.path = f"{table.path}-{name}"
        table.write([(key, 1, "v", "m") for key in range(4)])
        table.compact()
        table.write([(2, 2, "w", "n")])
    return tables


def test_columns_with_names_that_are_needed_are_merged(with_needed_names: dict[str, Any]) -> None:
    for name, table in with_needed_names.items():
        assert not is_joined(lakelatch.read(table.spark, table.path))
        assert {row[0]: row[3] for row in table.read(None, "id", "ts", "v", name)} == {0: "m", 1: "m", 2: "n", 3: "m"}
        assert len(rows_of(table, {"columns": "id,v"})) == 4


def test_tables_of_others_are_merged(table: Any) -> None:
    plan = plan_read(table.path)
    assert SlicesByReader.of(plan).beside_logs
    config = replace(plan.table.config, raw={})
    assert not config.made_here
    assert not SlicesByReader.of(replace(plan, table=replace(plan.table, config=config))).beside_logs


def test_lookups_incremental_reads_and_few_bytes_are_merged(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_joined(lakelatch.read(table.spark, table.path, where="id = 3"))
    window = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "0"}
    assert not is_joined(lakelatch.read(table.spark, table.path, window))
    monkeypatch.setattr(by_reader, "SMALL_LOGS_MAX_BYTES", -1)
    monkeypatch.setattr(by_reader, "OVERLAID_MAX_BYTES", -1)
    monkeypatch.setattr(by_reader, "BASE_MIN_BYTES", 1 << 20)
    assert not is_joined(lakelatch.read(table.spark, table.path))
    monkeypatch.setattr(by_reader, "BASE_MIN_BYTES", 0)
    monkeypatch.setattr(by_reader, "_BASE_TO_LOGS", 100)
    assert not is_joined(lakelatch.read(table.spark, table.path))
    monkeypatch.setattr(by_reader, "_BASE_TO_LOGS", 0)
    monkeypatch.setattr(by_reader, "BASE_MAX_BYTES", 1000)
    assert not is_joined(lakelatch.read(table.spark, table.path))


def test_nothing_is_made_of_which_spark_has_no_use(make_table: Make) -> None:
    table = with_logs(make_table)
    table.spark.conf.set("spark.sql.sources.useV1SourceList", "avro,csv")
    try:
        assert not is_joined(lakelatch.read(table.spark, table.path))
    finally:
        table.spark.conf.unset("spark.sql.sources.useV1SourceList")
    assert not Path(table.path, OVERLAYS_FOLDER).exists()


def test_rows_are_merged_where_spark_does_not_say_which_they_are(table: Any) -> None:
    expected = rows_of(table)
    table.spark.conf.set("spark.sql.sources.useV1SourceList", "avro,csv")
    try:
        frame = lakelatch.read(table.spark, table.path)
        assert not is_joined(frame) and sorted(map(tuple, frame.collect()), key=repr) == expected
    finally:
        table.spark.conf.unset("spark.sql.sources.useV1SourceList")
