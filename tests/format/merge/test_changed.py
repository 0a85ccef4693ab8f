"""What logs say of a slice, and the rest of its base file, are its rows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables.made_slice import Delete, MadeSlice, Row

from lakelatch.format.base_files import BaseFileRows
from lakelatch.format.merge import stream
from lakelatch.format.merge.slice import merge_slice, read_changed, superseded_of
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME


class Slice(MadeSlice):
    """A made slice, read as its changed rows and the others."""

    def whole(self) -> list[Any]:
        rows = merge_slice(self.storage, self.slice, self.schema, self.config, {}).rows
        return sorted(map(str, rows.to_pylist()))

    def changed(self) -> pa.Table:
        parts = read_changed(self.storage, self.slice, self.schema, self.config, self.schema.names)
        return pa.concat_tables([self.schema.empty_table(), *parts])

    def joined(self) -> list[Any]:
        """The changed rows, and those of the base file with other keys."""
        rows = [self.changed()]
        if self.base:
            superseded = superseded_of(self.storage, self.slice, self.schema)
            base = pq.read_table(io.BytesIO(self.storage.read(f"p/{self.base}")), schema=self.schema)
            rows.append(base.filter(pa.array(~superseded)))
        return sorted(map(str, pa.concat_tables(rows).to_pylist()))


keys = st.sampled_from("abcdef")
ordering = st.none() | st.integers(-2, 2)
row = st.tuples(keys, st.integers(0, 99), ordering)
block = st.tuples(st.lists(row, max_size=4), st.lists(st.tuples(keys, ordering), max_size=3), st.lists(row, max_size=2))
kinds = st.sampled_from([pa.int64(), pa.int32(), pa.string(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32()])


@settings(deadline=None)
@given(st.lists(row, max_size=7), st.lists(block, max_size=4), kinds, st.sampled_from([EVENT_TIME, COMMIT_TIME]))
def test_changed_rows_and_the_rest_of_the_base_file_are_the_slice(
    base: list[Row], blocks: list[tuple[list[Row], list[Delete], list[Row]]], kind: pa.DataType, mode: str
) -> None:
    made = Slice(base, kind, mode)
    for rows, deletes, gone in blocks:
        made.log(rows, deletes, gone)
    assert made.joined() == made.whole()


@pytest.fixture
def parts_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many columns each part of a base file had that was read."""
    found: list[int] = []
    whole = BaseFileRows.parts

    def parts(self: BaseFileRows, low_memory: bool = False) -> Iterator[pa.Table]:
        for part in whole(self, low_memory):
            found.append(part.num_columns)
            yield part

    monkeypatch.setattr(BaseFileRows, "parts", parts)
    yield found


def test_of_the_base_file_only_what_may_win_is_read(parts_read: list[int]) -> None:
    made = Slice([("a", 1, 5), ("b", 1, 5), ("c", 1, 5), ("d", 1, 9)])
    made.log([("a", 2, 6), ("d", 2, 6)])
    assert made.changed().select(["_hoodie_record_key", "v"]).to_pydict() == {
        "_hoodie_record_key": ["d", "a"],
        "v": [1, 2],
    }
    assert parts_read == [2 + 1, len(made.schema)]  # keys, ordering values and flags of c and d; then these as they are
    parts_read.clear()
    made = Slice([("a", 1, 5), ("b", 1, 5)])
    made.log([("a", 2, 6)], [("b", 7)])
    assert made.changed()["v"].to_pylist() == [2]
    assert parts_read == []
    made = Slice([("a", 1, 5), ("b", 1, 5)], mode=COMMIT_TIME)
    made.log([("a", 2, 4)])
    assert made.changed()["v"].to_pylist() == [2]
    assert parts_read == []


def test_a_whole_number_that_is_null_counts_as_0_and_may_win() -> None:
    made = Slice([("a", 1, None), ("b", 1, -9)])
    made.log([("a", 2, -5), ("b", 2, -5)])
    assert sorted(made.changed().select(["_hoodie_record_key", "v"]).to_pylist(), key=str) == [
        {"_hoodie_record_key": "a", "v": 1},
        {"_hoodie_record_key": "b", "v": 2},
    ]


@given(st.lists(st.text("abc", max_size=2), max_size=9), st.lists(st.text("abc", max_size=2), max_size=9))
def test_of_many_keys_those_in_reach_are_enough(values: list[str], others: list[str]) -> None:
    column = pa.chunked_array([values], pa.string())
    among_few = stream.among(column, pa.array(sorted(set(others)), pa.string())).to_pylist()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "_LOOKED_AT_MAX", 0)
        assert stream.among(column, pa.array(sorted(set(others)), pa.string())).to_pylist() == among_few
