"""Several writers whose columns differ, and tables that are made while others make them; without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from storages.counting import CountingStorage
from table import BuiltTable, write_arrow

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.read.by_reader import split_by_types
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.table import making
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.spark.session.spark_types import to_spark
from lakelatch.spark.streams.stream_reader import LakelatchStreamReader, WindowPartition
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline import properties_file
from lakelatch.timeline.instant import TIMELINE_FOLDER

T = TypeVar("T")
OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
MERGE = {"mergeSchema": "true"}
TEXTS = {**MERGE, "lakelatch.write.numbers.to.text": "true"}


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    return ArrowTable(tmp_path / "t", OPTIONS)


def row(key: int, ts: int = 1, **more: pa.Array) -> pa.Table:
    return pa.table({"id": [key], "ts": [ts], **more})


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def meanwhile(work: Callable[[], object], begin: Callable[[], T], point: str = "write.before_rows") -> T:
    """`begin`, and `work` in the middle of it."""
    waiting = [work]
    with calling(lambda _: waiting.pop()() if waiting else None, [point]):
        return begin()


def test_a_writer_goes_on_whose_column_others_made_wider(table: ArrowTable) -> None:
    table.upsert(row(1, n=ints(5)))
    meanwhile(lambda: table.upsert(row(2, n=pa.array([0.5])), MERGE), lambda: table.upsert(row(3, n=ints(7))))
    assert [found["n"] for found in table.to_arrow().sort_by("id").to_pylist()] == [5.0, 0.5, 7.0]
    meanwhile(lambda: table.upsert(row(5, n=pa.array([1.5])), MERGE), lambda: table.delete(row(1, 2)))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 5]


def test_an_optimistic_writer_that_loses_to_one_that_made_its_column_wider_writes_again(table: ArrowTable) -> None:
    once = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    again = {**once, "hoodie.write.num.retries.on.conflict.failures": 3}
    table.upsert(row(1, n=ints(5)), once)
    meanwhile(
        lambda: table.upsert(row(2, n=pa.array([0.5])), {**MERGE, **once}),
        lambda: table.upsert(row(3, n=ints(7)), again),
    )
    assert [found["n"] for found in table.to_arrow().sort_by("id").to_pylist()] == [5.0, 0.5, 7.0]


def test_names_that_differ_only_in_case_are_one(table: ArrowTable) -> None:
    table.upsert(row(1, p=pa.array([{"x": 1}])))
    with pytest.raises(WriteConflict):
        meanwhile(
            lambda: table.upsert(row(2, p=pa.array([{"x": 1}]), w=ints(1)), MERGE),
            lambda: table.upsert(row(3, p=pa.array([{"x": 1}]), W=ints(1)), MERGE),
            "mark.after",
        )
    nulls = {**MERGE, "hoodie.write.set.null.for.missing.columns": "true"}
    for name, data in (("W", row(3, W=ints(1))), ("p.X", row(3, p=pa.array([{"X": 1}])))):
        with pytest.raises(InvalidRequest, match=f"{name}' differs from .* only in the case"):
            table.upsert(data, nulls)
    assert table.schema.names == ["id", "ts", "p", "w"] and table.to_arrow().num_rows == 2


def test_files_for_a_new_table_are_not_kept_for_the_table_of_another(tmp_path: Path) -> None:
    """The other one may have more buckets or fewer, and then each key would be twice."""
    plain = {key: value for key, value in OPTIONS.items() if "buckets" not in key and "mode" not in key}
    table = ArrowTable(tmp_path / "t", {**plain, "hoodie.write.num.retries.on.conflict.failures": 4})
    others = {**plain, "hoodie.bucket.index.num.buckets": 1}
    tries: list[int] = []

    def disturb(_: object) -> None:
        tries.append(1)
        if len(tries) == 1:
            for operation in ("upsert", "insert_overwrite", "upsert"):
                options = {**others, "hoodie.datasource.write.operation": operation}
                write_arrow(table.path, many("b", 1), options)
        elif len(tries) == 5:
            raise WriteConflict("early detection has found a conflict")

    def many(value: str, ts: int) -> pa.Table:
        return pa.table({"id": list(range(8)), "ts": [ts] * 8, "v": [value] * 8})

    with calling(disturb, ["write.before_rows"]):
        table.upsert(many("a", 2))
    assert sorted(found["v"] for found in table.to_arrow().to_pylist()) == ["a"] * 8


def test_a_first_writer_that_sees_the_other_late_writes_to_its_table(
    table: ArrowTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its look for the table came before the other's first commit, and its look for other files after it."""
    first = [True]

    def is_table(storage: Storage) -> bool:
        if first:
            first.clear()
            table.upsert(row(1))
            return False
        return properties_file.is_table(storage)

    monkeypatch.setattr(making, "is_table", is_table)
    table.upsert(row(2))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_column_that_came_while_a_compaction_was_at_work_is_read_here(table: ArrowTable) -> None:
    """Nobody knows with which type its file has it, so it is not left to Spark's own reader."""
    table.upsert(row(1))
    path = str(table.path)
    built = BuiltTable.at(plan_read(path).table.storage, OPTIONS)
    plan = built.plan()
    assert plan is not None
    table.upsert(row(2, w=ints(5)), MERGE)
    built.execute(plan)
    table.upsert(row(3, w=pa.array(["x"])), TEXTS)
    read = plan_read(path)
    native, merged = split_by_types(read, [found.without_logs() for found in read.slices])
    assert (len(native), len(merged)) == (0, 1)
    assert [found["w"] for found in table.to_arrow().sort_by("id").to_pylist()] == [None, "5", "x"]


def test_a_read_that_was_confirmed_lists_the_timeline_no_more(table: ArrowTable) -> None:
    table.upsert(row(1, n=ints(5)))
    table.upsert(row(2, n=pa.array([2.5])), MERGE)
    storage = LocalStorage(str(table.path))
    far = CountingStorage("confirmed")
    for path in list(storage.walk("")):
        far.put(path, storage.read(path))
    read = plan_read(far.uri)
    far.forget()
    slices = [found.without_logs() for found in read.slices]
    split = split_by_types(read, slices)
    assert far.calls and not [call for call in far.calls if call.path == TIMELINE_FOLDER], far.story()
    carried = pickle.loads(pickle.dumps(replace(read, table=replace(read.table, storage=storage))))
    assert carried.timeline is None and split_by_types(carried, slices) == split


def test_a_stream_reads_windows_of_other_columns(table: ArrowTable) -> None:
    first = table.upsert(row(1, n=ints(5)))
    stale = LakelatchStreamReader(str(table.path), {}, to_spark(table.schema))
    table.upsert(row(2, n=pa.array([2.5]), w=pa.array(["x"])), MERGE)
    window = {"completion": "0" * 17}, {"completion": first.completion}
    reader = LakelatchStreamReader(str(table.path), {}, to_spark(table.schema))
    assert rows_of(reader, *window) == [{"id": 1, "ts": 1, "n": 5.0, "w": None}]
    assert rows_of(stale, *window) == [{"id": 1, "ts": 1, "n": 5}]
    with pytest.raises(InvalidRequest, match=r"'n' is double by now.*takes it for int: start the query again"):
        rows_of(stale, window[1], stale.reportLatestOffset())


def rows_of(reader: LakelatchStreamReader, start: dict[str, str], end: dict[str, str]) -> list[dict[str, object]]:
    found = [one for one in reader.partitions(start, end) if isinstance(one, WindowPartition)]
    return [values for one in found for batch in reader.read(one) for values in batch.to_pylist()]
