"""Whatever speaks Arrow is rows of a table, in the types that tables store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakelatch.engine.changes.rows import table_of
from lakelatch.errors import InvalidRequest

BATCH = pa.record_batch({"id": [1, 2], "v": pa.array(["a", None], pa.large_string())})
STORED = pa.table({"id": [1, 2], "v": ["a", None]})


@dataclass
class Stream:
    """What Polars' frames and DuckDB's relations are to Arrow."""

    source: Any

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.source.__arrow_c_stream__(requested_schema)


@dataclass
class Array:
    """What a batch of another library is."""

    source: Any

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self.source.__arrow_c_array__(requested_schema)


def test_streams_and_arrays_are_taken() -> None:
    whole = pa.Table.from_batches([BATCH])
    reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    for given in (whole, BATCH, reader, Stream(whole), Array(BATCH), whole.to_pandas(), Stream(Stream(whole))):
        assert table_of(given).equals(STORED)
    with pytest.raises(InvalidRequest, match=r"a builtins\.dict does not speak Arrow: give a table"):
        table_of({"id": [1]})
    with pytest.raises(InvalidRequest, match=r"LazyFrame does not speak Arrow: .* collect\(\) gives"):
        table_of(pl.LazyFrame({"id": [1]}))
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        table_of(Array(pa.array([1])))


def test_texts_of_polars_are_stored() -> None:
    """They are views, and those of its categories are in a dictionary, which Arrow itself cannot cast."""
    views = pa.array(["k", "l"], pa.string_view())
    kept = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.uint32()), views)
    data = pa.table({"kept": kept, "plain": views, "list": pa.array([["x"], None], pa.large_list(pa.large_string()))})
    found = table_of(Stream(data))
    assert found.to_pylist() == [
        {"kept": "l", "plain": "k", "list": ["x"]},
        {"kept": "k", "plain": "l", "list": None},
    ]
    assert [field.type for field in found.schema] == [pa.string(), pa.string(), pa.list_(pa.string())]
