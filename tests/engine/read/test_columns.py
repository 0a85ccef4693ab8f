"""A read of some columns decodes no others, and gives the same rows as a read of all columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from grouped_table import A, D, GroupedTable
from live_table import LiveTable

from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import CorruptTable
from lakelatch.format.log.framing import PARQUET_BLOCK, encode_block, read_blocks
from lakelatch.storage import Storage
from lakelatch.storage.checksums import strip_checksum

INCREMENTAL = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.read.begin.instanttime": "00000000000000000",
}


def rows_of(path: str, columns: Sequence[str] | None = None, **more: object) -> list[dict[str, Any]]:
    """The rows as a task of a read makes them, in an order of their own."""
    options = {
        "lakelatch.read.meta.columns": columns is None,
        **more,
        **({} if columns is None else {"columns": ",".join(columns)}),
    }
    plan = plan_read(path, options)
    batches = [batch for found in plan.slices for batch in plan.read(found)]
    return sorted((row for batch in batches for row in batch.to_pylist()), key=repr)


def selected(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in columns} for row in rows), key=repr)


def spoil_column(storage: Storage, name: str) -> int:
    """Makes a column's pages undecodable in all data files; without checksums, so that only decoding finds it."""
    spoiled = 0
    for path in [path for path in storage.walk("") if not path.startswith(".hoodie/")]:
        data = strip_checksum(storage.read(path))
        if ".log." in path:
            blocks = list(read_blocks(data, path))
            spoiled += sum(block.kind == PARQUET_BLOCK for block in blocks)
            parts = [
                _spoil_parquet(bytes(block.content), name) if block.kind == PARQUET_BLOCK else bytes(block.content)
                for block in blocks
            ]
            pairs = zip(blocks, parts, strict=True)
            storage.put(path, b"".join(encode_block(block.kind, block.headers, part) for block, part in pairs))
        elif path.endswith(".parquet"):
            storage.put(path, _spoil_parquet(data, name))
            spoiled += 1
    return spoiled


def _spoil_parquet(data: bytes, name: str) -> bytes:
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    found = bytearray(data)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            if chunk.path_in_schema == name:
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                found[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    return bytes(found)


@pytest.fixture(params=["parquet", "avro"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LiveTable:
    """A base file, and on top of it a log of rows, one of deletes, and one of rows again."""
    made = LiveTable(tmp_path / "t", partitioned=False, buckets=1, hoodie__logfile__data__block__format=request.param)
    made.write([(key, 1, f"v{key}") for key in range(6)], "x")
    made.compact()
    made.write([(0, 2, "newer"), (1, 0, "older"), (7, 1, "new")], "y")
    made.delete([(2, 2, ""), (3, 0, "")], "z")
    made.write([(2, 3, "back")], "z")
    return made


@pytest.mark.parametrize("columns", [["v"], ["id"], ["part", "id"], ["_hoodie_commit_time"], ["ts", "v"]])
def test_some_columns_of_a_merged_slice_are_those_of_all(table: LiveTable, columns: list[str]) -> None:
    path = str(table.root)
    for options in ({}, INCREMENTAL, {"hoodie.datasource.query.type": "read_optimized"}):
        assert rows_of(path, columns, **options) == selected(rows_of(path, **options), columns)


def test_columns_that_nobody_asked_for_are_not_decoded(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=1)
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.compact()
    table.write([(2, 2, "B"), (3, 1, "c")])
    path, columns = str(table.root), ["id", "part"]
    expected = rows_of(path, columns)
    assert [row["id"] for row in expected] == [1, 2, 3]
    assert spoil_column(table.storage, "v") == 3
    with pytest.raises(CorruptTable):
        rows_of(path)
    assert rows_of(path, columns) == expected
    assert rows_of(path, columns, **INCREMENTAL) == expected


def test_groups_of_columns_that_nobody_asked_for_are_not_decoded(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D + A, {"id": 1, "dt": 1, "d": "d", "e": 1, "at": 5, "a": "base"})
    table.compact()
    table.write(A, {"id": 1, "at": 4, "a": "older"}, {"id": 2, "at": 4, "a": "new"})
    table.write(D, {"id": 2, "dt": 4, "d": "new", "e": 2})
    table.delete(("dt",), {"id": 1, "dt": 2})
    path, columns = str(table.root), ["id", "a"]
    expected = rows_of(path, columns)
    assert expected == [{"id": 1, "a": "base"}, {"id": 2, "a": "new"}]
    assert spoil_column(table.storage, "d") > 2
    with pytest.raises(CorruptTable):
        rows_of(path)
    assert rows_of(path, columns) == expected


def test_a_column_that_is_named_twice_is_read_once_or_twice_but_read(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a")])
    plan = plan_read(str(table.root), {"columns": "id,id"})
    (batch,) = (batch for found in plan.slices for batch in plan.read(found))
    assert batch.schema.names == ["id", "id"] and batch.column(1).to_pylist() == [1]
