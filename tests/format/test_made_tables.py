"""Tables made with this project's functions alone: hudi-rs reads the same rows from them, meta columns included."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.format.names import LogFile

MakeTable = Callable[..., Any]
SCHEMA = [("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64())]
DELETABLE = [*SCHEMA, ("_hoodie_is_deleted", pa.bool_())]
EVERYTHING = [
    ("id", pa.string()),
    ("decimal", pa.decimal128(38, 10)),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("binary", pa.binary()),
    ("array", pa.list_(pa.field("element", pa.int32()))),
    ("map", pa.map_(pa.string(), pa.float64())),
    ("struct", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.list_(pa.string()))]))])),
    ("array_of_structs", pa.list_(pa.struct([("q", pa.date32())]))),
    ("float", pa.float32()),
    ("boolean", pa.bool_()),
]
UTC = dt.timezone.utc


def rows(*values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "v", "ts", "_hoodie_is_deleted"), value, strict=False)) for value in values]


def shown(found: list[dict[str, Any]]) -> dict[str, int]:
    return {row["id"]: row["v"] for row in found}


def test_the_greater_ordering_value_wins_and_the_later_of_equals(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5), ("c", 1, 5)))
    table.log(3, 4, rows(("a", 2, 4), ("b", 2, 5), ("d", 2, -7)))
    assert shown(table.read_both()) == {"a": 1, "b": 2, "c": 1, "d": 2}


def test_without_ordering_the_later_instant_wins(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.log(1, 9, rows(("a", 1, 5), ("b", 1, 5)), table.deletes(["c"]))
    table.log(3, 4, rows(("a", 2, 4), ("c", 2, 1)), table.deletes(["b"]))
    assert shown(table.read_both()) == {"a": 2, "c": 2}


@pytest.mark.parametrize(("count", "compression"), [(100, "SNAPPY"), (101, "ZSTD")])
def test_parquet_blocks_of_both_compressions_are_read(make_table: MakeTable, count: int, compression: str) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    log = table.log(1, 2, rows(*((f"key{index}", index, index) for index in range(count))))
    data = table.storage.read(log.name)
    block = pq.ParquetFile(io.BytesIO(data[data.index(b"PAR1") : data.rindex(b"PAR1") + 4]))
    assert block.metadata.row_group(0).column(0).compression == compression
    assert len(table.read_both()) == count


def test_a_parquet_block_of_few_large_rows_is_compressed_as_that_of_many(make_table: MakeTable) -> None:
    table = make_table([("id", pa.string()), ("v", pa.string())])
    log = table.log(1, 2, [{"id": "a", "v": "x" * 100_000}])
    data = table.storage.read(log.name)
    block = pq.ParquetFile(io.BytesIO(data[data.index(b"PAR1") : data.rindex(b"PAR1") + 4]))
    assert block.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_every_type_is_read(make_table: MakeTable, block_format: str) -> None:
    table = make_table(EVERYTHING)
    full = {
        "id": "a",
        "decimal": decimal.Decimal("-12345.6789012345"),
        "date": dt.date(1969, 12, 31),
        "timestamp": dt.datetime(1965, 1, 1, 1, 2, 3, 456789, tzinfo=UTC),
        "binary": b"\0\xff",
        "array": [1, None, 3],
        "map": [("k", 1.5), ("z", None)],
        "struct": {"x": 1, "y": {"z": ["p", None]}},
        "array_of_structs": [{"q": dt.date(2024, 1, 1)}, None],
        "float": 1.5,
        "boolean": True,
    }
    log = table.log(1, 2, [full, {"id": "nulls"}], data_block_format=block_format)
    found, nulls = table.read_both()
    assert found == full
    assert nulls == dict.fromkeys(full) | {"id": "nulls"}
    table.compact(3, 4, (log,))
    assert table.read_both() == [found, nulls]


def test_times_in_structs_in_arrays_of_avro_blocks_stop_hudi_rs(make_table: MakeTable) -> None:
    """It takes their zone for another one. Java and we read them; parquet blocks, which are the default, suit all."""
    inner = pa.struct([("at", pa.timestamp("us", "UTC"))])
    table = make_table([("id", pa.string()), ("times", pa.list_(pa.field("element", inner)))])
    row = {"id": "a", "times": [{"at": dt.datetime(2024, 1, 1, tzinfo=UTC)}]}
    table.log(1, 2, [row])
    assert table.read_both() == [row]
    table.log(3, 4, [row], data_block_format="avro")
    with pytest.raises(Exception, match="'times' type List"):
        table.read_both()


def test_zero_byte_logs_beside_good_ones_are_ignored(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    first = table.log(1, 2, rows(("a", 1, 5)))
    for empty in (LogFile(first.file_id, first.instant, 1, "9-0-0"), LogFile(first.file_id, first.instant, 2, "0-0-0")):
        table.storage.put(empty.name, b"")
    assert shown(table.read_both()) == {"a": 1}
    second = table.log(3, 4, rows(("a", 2, 6), ("b", 2, 6)))
    table.storage.put(LogFile(second.file_id, second.instant, 1, "").name + "_0-0-1", b"")
    assert shown(table.read_both()) == {"a": 2, "b": 2}
    table.compact(5, 6, (first, second))
    assert shown(table.read_both()) == {"a": 2, "b": 2}


def test_deletes_with_an_ordering_value_compete_by_it(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    table.log(1, 2, rows(*((key, 1, 5) for key in "abcd")))
    table.log(3, 4, None, table.deletes(["a", "b", "c"], pa.array([4, 5, 6])))
    assert shown(table.read_both()) == {"a": 1, "d": 1}
    table.log(5, 6, rows(("b", 2, 5), ("c", 2, 5)))
    assert shown(table.read_both()) == {"a": 1, "b": 2, "d": 1}


def test_deletes_without_one_win_and_lose_to_whatever_comes_later(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5)))
    table.log(3, 4, rows(("c", 1, 1)), table.deletes(["a", "b", "x"]))
    assert shown(table.read_both()) == {"c": 1}
    table.log(5, 6, rows(("a", 2, 1)))
    assert shown(table.read_both()) == {"a": 2, "c": 1}


def test_deletes_with_and_without_values_in_one_file(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5), ("c", 1, 5)))
    table.log(3, 4, rows(("a", 2, 6)), table.deletes(["b", "c"], pa.array([4, None])))
    assert shown(table.read_both()) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("kind", "low", "middle", "high"),
    [
        (pa.int32(), 4, 5, 6),
        (pa.int64(), -1, 0, 1),
        (pa.float32(), 4.5, 5.5, 6.5),
        (pa.float64(), 4.5, 5.5, 6.5),
        (pa.string(), "a", "b", "c"),
        (pa.date32(), dt.date(1960, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 1, 3)),
        (pa.timestamp("us", "UTC"), *(dt.datetime(year, 1, 1, tzinfo=UTC) for year in (1960, 2024, 2025))),
        (pa.decimal128(10, 2), decimal.Decimal("-1.00"), decimal.Decimal("2.00"), decimal.Decimal("2.01")),
    ],
)
def test_orderings_of_every_type(make_table: MakeTable, kind: pa.DataType, low: Any, middle: Any, high: Any) -> None:
    table = make_table([("id", pa.string()), ("v", pa.int64()), ("ts", kind)], ordering_field="ts")
    table.log(1, 2, rows(*((key, 1, middle) for key in "abcd")))
    table.log(3, 4, None, table.deletes(["a", "b", "c"], pa.array([low, middle, high], kind)))
    assert shown(table.read_both()) == {"a": 1, "d": 1}
    table.log(5, 6, rows(*((key, 2, middle) for key in "abc"), ("d", 2, low)))
    assert shown(table.read_both()) == {"a": 2, "b": 2, "d": 1}


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us", "UTC")])
def test_a_row_without_an_ordering_value_counts_as_zero(make_table: MakeTable, kind: pa.DataType) -> None:
    below, above = pa.array([-3, 3], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind).to_pylist()
    table = make_table([("id", pa.string()), ("v", pa.int64()), ("ts", kind)], ordering_field="ts")
    table.log(1, 2, rows(("a", 1, below), ("b", 1, None), ("c", 1, above), ("d", 1, None)))
    table.log(3, 4, rows(("a", 2, None), ("b", 2, below), ("c", 2, None), ("d", 2, None)))
    assert shown(table.read_both()) == {"a": 2, "b": 1, "c": 1, "d": 2}


def test_not_a_number_is_greater_than_all_numbers(make_table: MakeTable) -> None:
    table = make_table([("id", pa.string()), ("v", pa.int64()), ("ts", pa.float64())], ordering_field="ts")
    table.log(1, 2, rows(("a", 1, float("nan")), ("b", 1, float("inf"))))
    table.log(3, 4, rows(("a", 2, float("inf")), ("b", 2, float("nan"))))
    found = [{**row, "ts": str(row["ts"])} for row in table.read_both()]
    assert shown(found) == {"a": 1, "b": 2}


@pytest.mark.parametrize("ordering_field", ["ts", None])
def test_rows_marked_as_deleted(make_table: MakeTable, ordering_field: str | None) -> None:
    table = make_table(DELETABLE, ordering_field=ordering_field)
    table.log(1, 2, rows(*((key, 1, 5, False) for key in "abcd"), ("e", 1, 5, True)))
    table.log(3, 4, rows(("a", 2, 4, True), ("b", 2, 5, True), ("c", 2, 6, None), ("d", 2, None, True)))
    assert shown(table.read_both()) == ({"a": 1, "c": 2} if ordering_field else {"c": 2})
    table.log(5, 6, rows(("a", 3, 5, None), ("b", 3, 5, None), ("d", 3, 1, None)))
    assert shown(table.read_both()) == {"a": 3, "b": 3, "c": 2, "d": 3}


def test_logs_merge_by_version_as_a_number_and_then_by_token_as_text(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    first = table.log(1, 2, rows(("a", 2, 1), ("b", 2, 1)), version=2, token="2-0-0")
    for version, token, value in ((10, "0-0-0", ("a", 10, 1)), (2, "10-0-0", ("b", 10, 1))):
        name = LogFile(first.file_id, first.instant, version, token)
        table.put_log(name, rows(value))
    assert shown(table.read_both()) == {"a": 10, "b": 2}


def test_a_log_that_completes_after_a_compaction_was_planned_is_in_the_next_slice(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    planned = (
        table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5))),
        table.log(3, 4, rows(("a", 2, 6)), table.deletes(["b"])),
    )
    base = table.compact(6, 8, planned)
    assert shown(table.read_both()) == shown(table.read_both(read_optimized=True)) == {"a": 2}
    late = table.log(5, 9, rows(("a", 3, 7), ("c", 3, 5)))
    assert shown(table.read_both()) == {"a": 3, "c": 3}
    assert shown(table.read_both(read_optimized=True)) == {"a": 2}
    table.compact(10, 11, (late,), base)
    assert shown(table.read_both()) == shown(table.read_both(read_optimized=True)) == {"a": 3, "c": 3}


def test_a_log_that_completes_while_a_compaction_runs_is_in_the_next_slice(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    planned = (table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5))),)
    table.log(3, 7, rows(("a", 2, 6)))
    table.compact(5, 9, planned)
    assert shown(table.read_both()) == {"a": 2, "b": 1}
    assert shown(table.read_both(read_optimized=True)) == {"a": 1, "b": 1}


def test_columns_that_came_later_are_null_in_older_files(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    table.compact(3, 4, (table.log(1, 2, rows(("a", 1, 5), ("b", 1, 5))),))
    table.evolve([*SCHEMA, ("new", pa.string())])
    table.log(5, 6, [{"id": "b", "v": 2, "ts": 6, "new": "x"}])
    assert [row["new"] for row in table.read_both()] == [None, "x"]


def test_orphans_of_a_pending_instant_are_invisible(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ordering_field="ts")
    first = table.log(1, 2, rows(("a", 1, 5)))
    table.put_log(LogFile(first.file_id, "20260101000000003", 1, "0-0-0"), rows(("a", 9, 9)))
    assert shown(table.read_both()) == {"a": 1}
