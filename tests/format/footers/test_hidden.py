"""What a footer says of floating point columns is true of NaN and of both zeros; all else that it says stays."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lakelatch.errors import InvariantBroken
from lakelatch.format import parquet
from lakelatch.format.base_file_options import BaseFileOptions, BloomFilter
from lakelatch.format.footers.hidden import FloatLeaves
from lakelatch.format.footers.thrift import without
from lakelatch.format.parquet import encode_parquet, parquet_file, read_parquet
from lakelatch.storage.checksums import add_checksum, verify_checksum

PATH = "p/a.parquet"
doubles = st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.0]) | st.floats()
singles = st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.0]) | st.floats(width=32)
nested = st.none() | st.fixed_dictionaries(
    {"x": doubles, "n": st.none() | st.integers(0, 9), "all": st.lists(doubles, max_size=2)}
)
maps = st.none() | st.lists(st.tuples(st.sampled_from("abc"), doubles), max_size=3)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "v": (pa.string(), st.none() | st.sampled_from(["", "a", "b", "é" * 9])),
    "d": (pa.float64(), doubles),
    "s": (pa.struct([("x", pa.float64()), ("n", pa.int64()), ("all", pa.list_(pa.float64()))]), nested),
    "f": (pa.float32(), singles),
    "m": (pa.map_(pa.string(), pa.float64()), maps),
    "n": (pa.int32(), st.none() | st.integers(-3, 3)),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
FLOATS = {"d", "s.x", "s.all.list.element", "f", "m.key_value.value"}
row_lists = st.lists(
    st.fixed_dictionaries({name: values for name, (_, values) in KINDS.items()}), min_size=1, max_size=6
)


def footer_of(data: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8]


def said(statistics: Any) -> tuple[Any, ...]:
    bounds = (statistics.min, statistics.max) if statistics.has_min_max else None
    return bounds, statistics.null_count if statistics.has_null_count else None


def leaves_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """The numbers in each leaf of floating point numbers."""
    found: dict[str, list[float]] = {name: [] for name in FLOATS}
    for row in rows:
        part, pairs = row["s"] or {"x": None, "all": []}, row["m"] or []
        found["d"].append(row["d"])
        found["f"].append(row["f"])
        found["s.x"].append(part["x"])
        found["s.all.list.element"] += part["all"]
        found["m.key_value.value"] += [value for _, value in pairs]
    return {name: [value for value in values if value is not None] for name, values in found.items()}


@settings(deadline=None)
@given(row_lists, st.sampled_from([1, 2, 4, None]))
def test_bounds_are_of_all_values_or_missing(rows: list[dict[str, Any]], group_rows: int | None) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    data = encode_parquet(table, {"k": "v"}, group_rows)
    there, metadata = pq.read_table(io.BytesIO(data)), pq.read_metadata(io.BytesIO(data))
    assert str(there.to_pylist()) == str(table.to_pylist()) and metadata.metadata[b"k"] == b"v"
    start = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        own = rows[start : start + group.num_rows]
        start += group.num_rows
        plain = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(own, SCHEMA), plain, store_schema=False)
        other = pq.read_metadata(plain).row_group(0)
        for leaf in range(metadata.num_columns):
            here, there_ = group.column(leaf), other.column(leaf)
            name = here.path_in_schema
            values = leaves_of(own).get(name, [])
            bounds, nulls = said(here.statistics)
            if any(map(math.isnan, values)):
                event("a NaN")
                assert bounds is None
            elif name != "m.key_value.value":  # of which a slice of rows has the values of the others as well
                assert bounds == said(there_.statistics)[0]
            assert nulls == said(there_.statistics)[1]
            if bounds is not None and name in FLOATS:
                event("bounds of numbers")
                assert all(bounds[0] <= value <= bounds[1] for value in values)


@settings(deadline=None)
@given(row_lists)
def test_a_chunk_with_zeros_does_not_say_that_its_dictionary_is_all(rows: list[dict[str, Any]]) -> None:
    data = encode_parquet(pa.Table.from_pylist(rows, SCHEMA), {})
    footer = footer_of(data)
    metadata = pq.read_metadata(io.BytesIO(data))
    zeros = {name: 0 in values for name, values in leaves_of(rows).items()}
    for leaf in range(metadata.num_columns):
        name = metadata.row_group(0).column(leaf).path_in_schema
        is_said = without(footer, [(4, 0, 1, leaf, 3, 13)]) != footer
        assert is_said == (not zeros.get(name, False)), name


def test_whoever_has_nan_or_a_zero_has_no_bloom_filter() -> None:
    table = pa.table({"d": [1.0, math.nan], "e": [1.0, -0.0], "g": [1.0, 2.0]})
    options = BaseFileOptions(bloom_filters=tuple(BloomFilter(name) for name in table.column_names))
    group = pq.read_metadata(io.BytesIO(encode_parquet(table, {}, options=options))).row_group(0)
    assert [group.column(leaf).bloom_filter_offset is not None for leaf in range(3)] == [False, False, True]


def test_large_files_keep_the_checksums_of_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the checksum of the whole file is that of what it has become."""
    monkeypatch.setattr(parquet, "LARGE_ROWS_BYTES", 0)
    values = np.where(np.arange(1000) % 7 == 3, np.nan, np.arange(1000))
    table = pa.table({"d": values, "id": np.arange(1000)})
    with parquet_file(table, {}, PATH, group_rows=100) as file:
        file.seek(0)
        data = file.read()
    assert verify_checksum(data, PATH)
    rows, _ = read_parquet(data, PATH)
    assert rows.equals(table) or str(rows.to_pydict()) == str(table.to_pydict())
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.num_row_groups == 10
    assert not any(metadata.row_group(group).column(0).statistics.has_min_max for group in range(10))
    assert all(metadata.row_group(group).column(1).statistics.has_min_max for group in range(10))


def test_a_file_without_nan_and_zeros_is_as_the_library_writes_it() -> None:
    table = pa.table({"d": [1.0, 2.0], "n": [0, 0]})
    assert FloatLeaves.of(table.schema).misleading_in(table, 0) == set()
    data = add_checksum(encode_parquet(table, {}), PATH)
    assert said(pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).statistics) == ((1.0, 2.0), 0)


def _numbers(limit: int) -> Iterator[bytes]:
    table = pa.table({"d": [math.nan] * 3, "v": ["a", None, "b"]})
    footer = footer_of(encode_parquet(table, {"long": "x" * 300}))
    yield from (footer[:size] for size in range(min(len(footer) - 1, limit)))


def test_a_message_that_ends_too_soon_is_refused() -> None:
    for message in _numbers(200):
        with pytest.raises(InvariantBroken):
            without(message, [(4, 0, 1, 0, 3, 12)])
    with pytest.raises(InvariantBroken, match="of that kind"):
        without(b"\x1f\x00", [])


def test_what_is_taken_out_is_gone_and_what_is_missing_is_passed_over() -> None:
    footer = footer_of(encode_parquet(pa.table({"d": [1.0], "n": [1]}), {}))
    assert without(footer, [(4, 7, 1, 0, 3), (99,), (4, 0, 1, 9, 3, 12)]) == footer
    assert without(footer, []) == footer
    less = without(footer, [(4, 0, 1, 0, 3, 12), (6,)])
    data = b"PAR1" + less + len(less).to_bytes(4, "little") + b"PAR1"
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.row_group(0).column(0).statistics is None and metadata.created_by == ""
    assert said(metadata.row_group(0).column(1).statistics) == ((1, 1), 0)
