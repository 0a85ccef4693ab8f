"""What the index says of the values in a base file: never less than there is, and nothing that is not sure."""

from __future__ import annotations

import datetime
import json
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.format.avro import META_COLUMNS
from lakelatch.format.index import statistics
from lakelatch.format.index.file_index import FileIndex
from lakelatch.format.index.statistics import ColumnRange, Statistics, ranges_of
from lakelatch.format.merge.conditions import Bound, Condition, OneOf, Present, fulfilling
from lakelatch.format.parquet import encode_parquet
from lakelatch.storage import MemoryStorage
from lakelatch.storage.checksums import add_checksum, checksummed_json, open_checksummed_json

PATH, FILE = "p/a.parquet", ("p", "a.parquet")
DAY = datetime.date(2024, 1, 31)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int32(), st.integers(-3, 3)),
    "text": (
        pa.string(),
        st.sampled_from(["", "a", "é", "z" * 40, "\U0010ffff" * 40])
        | st.text("ab\u00e9\ud7ff\ue000\U0010ffff", max_size=40),
    ),
    "day": (pa.date32(), st.dates()),
    "open": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


def ranges(rows: pa.Table, group_rows: int | None = None) -> dict[str, ColumnRange]:
    storage = MemoryStorage("statistics")
    storage.put(PATH, add_checksum(encode_parquet(rows, {}, group_rows), PATH))
    found = ranges_of(storage, PATH)
    assert found is not None
    return {one.column: one for one in found}


def of(rows: pa.Table, group_rows: int | None = None) -> Statistics:
    return Statistics.of({FILE: list(ranges(rows, group_rows).values())})


def read_back(known: Statistics) -> Statistics:
    index = FileIndex("20261121000000000", frozenset(), {}, {"p": ("a.parquet",)}, known)
    return FileIndex.from_bytes(index.to_bytes(), index.path).statistics


def conditions_on(column: str) -> st.SearchStrategy[Condition]:
    values = KINDS[column][1]
    lists = st.builds(OneOf, st.just(column), st.lists(st.none() | values, max_size=3).map(tuple))
    found: st.SearchStrategy[Condition] = st.one_of(lists, st.just(Present(column)))
    if column == "open":
        return found
    return found | st.builds(Bound, st.just(column), st.sampled_from(["<", "<=", ">", ">="]), values)


rows_of_each_kind = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}), max_size=7
)


@given(rows_of_each_kind, st.sampled_from(list(KINDS)).flatmap(conditions_on), st.sampled_from([1, 3, None]))
def test_a_file_with_a_row_that_fulfils_a_condition_is_kept(
    rows: list[dict[str, Any]], condition: Condition, group_rows: int | None
) -> None:
    data = pa.Table.from_pylist(rows, SCHEMA)
    known = read_back(of(data, group_rows))
    assert known.by_file() == {FILE: list(ranges(data, group_rows).values())}
    if fulfilling(data, [condition]).num_rows:
        assert known.ruled_out([condition], SCHEMA) == frozenset()


ROWS = pa.Table.from_pylist(
    [
        {"number": 3, "small": None, "text": "b", "day": DAY, "open": True},
        {"number": 9, "small": None, "text": "d", "day": DAY, "open": True},
        {"number": 5, "small": None, "text": None, "day": DAY, "open": True},
    ],
    SCHEMA,
)
RULED_OUT: list[Condition] = [
    *(OneOf("number", (1, 2, 10)), Bound("number", "<", 3), Bound("number", ">", 9), OneOf("number", (None,))),
    *(OneOf("text", ("a", "e")), Bound("text", ">=", "e"), OneOf("text", ())),
    *(OneOf("small", (1,)), Present("small"), Bound("small", ">", 0)),
    *(OneOf("day", (DAY + datetime.timedelta(1),)), Bound("day", "<", DAY), OneOf("open", (False,))),
]
KEPT: list[Condition] = [
    *(OneOf("number", (4,)), Bound("number", "<=", 3), Present("number"), OneOf("text", (None,)), Present("text")),
    *(OneOf("small", (None,)), OneOf("small", (1, None)), OneOf("day", (DAY,)), OneOf("open", (True,))),
]


@pytest.mark.parametrize("condition", RULED_OUT, ids=str)
def test_what_no_row_can_fulfil_rules_a_file_out(condition: Condition) -> None:
    known = read_back(of(ROWS, 1))
    assert known.ruled_out([Present("number"), condition], SCHEMA) == {FILE}
    more = read_back(Statistics.of({("p", "b.parquet"): (), **known.by_file(), ("q", "a.parquet"): ()}))
    assert more.ruled_out([condition], SCHEMA) == {FILE}, "of the others nothing is known"


@pytest.mark.parametrize("condition", KEPT, ids=str)
def test_what_a_row_may_fulfil_keeps_it(condition: Condition) -> None:
    assert read_back(of(ROWS, 2)).ruled_out([condition], SCHEMA) == frozenset()


def test_a_column_of_another_type_by_now_rules_nothing_out() -> None:
    known, condition = of(ROWS), OneOf("small", ("x",))
    wider = SCHEMA.set(SCHEMA.get_field_index("small"), pa.field("small", pa.string()))
    added = OneOf("new", (1,))
    assert not known.ruled_out([condition], wider)
    assert not known.ruled_out([added], pa.schema([*SCHEMA, ("new", pa.int64())]))


@pytest.mark.parametrize(
    "said",
    [
        *([[1], [1]], [[1], [1], [0, 0]], [["1"], ["2"], [0]], [[1], [2], ["none"]], [[1], [2], [None]]),
        *([[None], [2], [0]], [[True], [True], [0]], "odd", 7, None),
    ],
    ids=str,
)
def test_what_is_not_understood_rules_nothing_out(said: object) -> None:
    column, day = ("number", "int64", json.dumps(said)), ("day", "date32[day]", '[["day"], ["day"], [0]]')
    known = Statistics({"p": ["a"]}, [column, day, ("number", "int64", "no json")])
    assert not known.ruled_out([OneOf("number", (99,)), OneOf("day", (DAY,))], SCHEMA)


def test_long_texts_are_cut_so_that_they_say_no_less() -> None:
    kind = {"text": pa.string()}
    long = "a" * 31
    found = ranges(pa.table({"text": [f"{long}b-least", f"{long}c-greatest"]}, pa.schema(kind)))["text"]
    assert (found.least, found.greatest) == (f"{long}b", f"{long}d")
    found = ranges(pa.table({"text": ["\ud7ff" * 40]}, pa.schema(kind)))["text"]
    assert found.greatest == "\ud7ff" * 31 + "\ue000"
    assert ranges(pa.table({"text": ["\U0010ffff" * 40]}, pa.schema(kind))) == {}
    assert ranges(pa.table({"text": ["a", "x" * 9000]}, pa.schema(kind))) == {}, "parquet has none of such"


def test_what_python_has_no_day_for_is_left_out() -> None:
    days = pa.array([9_000_000, 1], pa.int32()).cast(pa.date32())
    assert list(ranges(pa.table({"day": days, "n": [1, 2]}))) == ["n"]


def test_columns_are_bounded_and_those_of_hudi_are_none() -> None:
    names = [*META_COLUMNS, *(f"c{number}" for number in range(40))]
    data = pa.table({name: ["v"] if name in META_COLUMNS else [1] for name in names})
    assert list(ranges(data)) == [f"c{number}" for number in range(32)]
    nested = pa.table({"s": [{"number": 1}], "d": [1.5], "l": [[1]], "number": [2]})
    assert [(one.column, one.least) for one in ranges(nested).values()] == [("number", 2)]
    assert ranges(pa.table({"s": [{"number": 1}], "s.number": [5]})) == {}, "which of both is it?"


@pytest.mark.parametrize("rows", [10, 200_000])
def test_a_footer_counts_only_if_its_checksum_is_right(rows: int) -> None:
    """Small files are read whole, of large ones the end."""
    storage = MemoryStorage("statistics")
    data = add_checksum(encode_parquet(pa.table({"id": list(range(rows))}), {}), PATH)
    storage.put(PATH, data)
    assert ranges_of(storage, PATH) == (ColumnRange("id", "int64", 0, rows - 1, 0),)
    greatest = data.rindex((rows - 1).to_bytes(8, "little"))
    storage.put(PATH, data[:greatest] + (5).to_bytes(8, "little") + data[greatest + 8 :])
    assert pq.ParquetFile(pa.BufferReader(storage.read(PATH))).metadata.num_rows == rows
    assert ranges_of(storage, PATH) == ()
    storage.put("p/elsewhere.parquet", data)
    assert ranges_of(storage, "p/elsewhere.parquet") == ()
    assert ranges_of(storage, "p/nowhere.parquet") is None


def test_files_of_other_writers_have_none() -> None:
    storage, sink = MemoryStorage("statistics"), pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    storage.put(PATH, sink.getvalue().to_pybytes())
    assert ranges_of(storage, PATH) == ()


def test_an_index_without_statistics_is_read_and_an_older_reader_passes_over_them() -> None:
    index = FileIndex("20261121000000000", frozenset({"w"}), {"1": "2"}, {"p": ("a.parquet",)}, of(ROWS))
    values = open_checksummed_json(zlib.decompress(index.to_bytes()), index.path)
    assert values is not None and values["format"] == 1, "older readers take the names, and nothing else"
    del values["statistics"]
    older = zlib.compress(checksummed_json(values, index.path))
    found = FileIndex.from_bytes(older, index.path)
    assert found.files == index.files and found.statistics == Statistics()


def test_the_footer_of_a_large_file_takes_one_request_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Ends(MemoryStorage):
        def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
            asked.append(size_bytes)
            data = super().read(path)
            return data[-size_bytes:], len(data)

        def read(self, path: str) -> bytes:
            raise AssertionError("a part is enough")

    storage = Ends("ends")
    storage.put(PATH, add_checksum(encode_parquet(pa.table({"id": list(range(200_000))}), {}), PATH))
    assert ranges_of(storage, PATH) and asked == [statistics._END_BYTES]
