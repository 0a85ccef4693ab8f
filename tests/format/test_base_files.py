"""Base files by parts: how much is asked of the storage, and that nothing is believed that was not written there."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from whole_rows import merge_rows, read_base_file

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.format.avro import RECORD_KEY_COLUMN, with_meta_columns
from lakelatch.format.base_files import END_BYTES, open_base_file
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile
from lakelatch.format.parquet import LARGE_ROWS_BYTES, chunks_of, encode_parquet, parquet_file
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, PARTS_KEY, add_checksum, strip_checksum
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.testing.faults.storage import FaultyStorage

PATH = "p/" + BaseFile("f-0", "0-0-0", "20260101000000000").name
COLUMNS = [f"c{number:02}" for number in range(30)]
NESTED = pa.struct([("x", pa.int64()), ("list", pa.list_(pa.int64()))])
FULL = with_meta_columns(pa.schema([*((name, pa.float64()) for name in COLUMNS), ("n", NESTED)]))


class Asked(LocalStorage):
    """Notes each request, and how many bytes its answer has."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.answers: list[int] = []

    def read(self, path: str) -> bytes:
        return self._noted(super().read(path))

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        found = super().read_range(path, start, size_bytes)
        return found if size_bytes < 0 else self._noted(found)

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        data, whole = super().read_end(path, size_bytes)
        return self._noted(data), whole

    def _noted(self, data: bytes) -> bytes:
        self.answers.append(len(data))
        return data

    def taken(self) -> list[int]:
        """The sizes of the answers since the last time."""
        found: list[int] = list(self.answers)
        self.answers.clear()
        return found


@cache
def rows_of(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    keys = pa.array([f"k{number:07}" for number in range(count)])
    columns = [keys if name == RECORD_KEY_COLUMN else pa.nulls(count, pa.string()) for name in FULL.names[:5]]
    nested = pa.array([{"x": number, "list": [number] * (number % 3)} for number in range(count)], NESTED)
    return pa.table([*columns, *(pa.array(random.random(count)) for _ in COLUMNS), nested], schema=FULL)


@cache
def large_file(group_rows: int | None = None) -> bytes:
    return add_checksum(encode_parquet(rows_of(30_000), {"made": "here"}, group_rows), PATH)


def without_parts() -> bytes:
    """The file as it was written before there were checksums of parts."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, FULL, compression="zstd", store_schema=False) as writer:
        writer.write_table(rows_of(30_000))
        writer.add_key_value_metadata({CHECKSUM_KEY: NO_CHECKSUM})
    return add_checksum(sink.getvalue(), PATH)


def foreign() -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows_of(30_000), sink, row_group_size=7000)
    return sink.getvalue()


@pytest.fixture
def storage(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def merged(storage: Storage, columns: list[str], path: str = PATH) -> pa.Table:
    found = FileSlice("p", "f-0", "20260101000000000", path.removeprefix("p/"), ())
    return merge_rows(storage, found, FULL, None, columns).rows


def chunks(data: bytes) -> list[tuple[str, int, int]]:
    return list(chunks_of(pq.read_metadata(io.BytesIO(data))))


def chunk_of(data: bytes, column: str) -> tuple[int, int]:
    """Where the middle of a column's first chunk is, and how large the chunk."""
    return next((start + size // 2, size) for leaf, start, size in chunks(data) if leaf == column)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize("made", [large_file, lambda: large_file(7000), foreign])
def test_of_a_large_file_only_the_wanted_columns_are_read(storage: Asked, made: Callable[[], bytes]) -> None:
    data = made()
    assert len(data) > 4 * END_BYTES
    storage.put(PATH, data)
    names = [RECORD_KEY_COLUMN, "c03", "n"]
    wanted_bytes = sum(size for leaf, _, size in chunks(data) if leaf.partition(".")[0] in names)
    assert wanted_bytes < len(data) / 8
    assert merged(storage, names).equals(rows_of(30_000).select(names))
    assert sum(storage.taken()) <= END_BYTES + 1.1 * wanted_bytes
    assert merged(storage, FULL.names).equals(rows_of(30_000))
    asked = storage.taken()
    assert len(asked) == 2 and sum(asked) < 1.1 * len(data)


def test_a_small_file_is_one_request(storage: Asked) -> None:
    for count, checksummed in ((1, True), (2000, True), (2000, False)):
        data = encode_parquet(rows_of(count), {})
        storage.put(PATH, add_checksum(data, PATH) if checksummed else data)
        assert len(data) < END_BYTES
        assert merged(storage, ["c03"]).equals(rows_of(count).select(["c03"]))
        assert storage.taken() == [len(data)]


def test_parts_are_measured_as_they_are_in_memory(storage: Asked) -> None:
    """A text that is the same in each row takes nothing in the file, and all of its bytes in memory, row by row."""
    rows = rows_of(30_000).select(COLUMNS[:6]).append_column("same", pa.repeat("x" * 1000, 30_000))
    storage.put(PATH, add_checksum(encode_parquet(rows, {}), PATH))
    base = open_base_file(storage, PATH, rows.schema.names)
    assert base.held is not None and base.file.metadata.num_row_groups > 1
    parts = list(base.parts(low_memory=True))
    assert max(part.nbytes for part in parts[:4]) < 5 * 1024 * 1024  # as long as no row is known
    assert max(part.nbytes for part in parts[-4:]) < 2.5 * 1024 * 1024
    assert pa.concat_tables(parts).combine_chunks().equals(rows.combine_chunks())
    assert max(part.nbytes for part in base.parts()) > 10 * 1024 * 1024


def test_a_file_without_rows_has_no_parts(storage: Asked) -> None:
    """All rows of its file group were deleted before a compaction. A column of booleans has no page then."""
    schema = pa.schema([*FULL, ("ok", pa.bool_())])
    storage.put(PATH, add_checksum(encode_parquet(schema.empty_table(), {"made": "here"}), PATH))
    rows, footer = read_base_file(storage, PATH, ["ok", RECORD_KEY_COLUMN])
    assert (rows.num_rows, rows.column_names, footer[b"made"]) == (0, ["ok", RECORD_KEY_COLUMN], b"here")


def test_small_rows_are_written_as_before() -> None:
    rows = rows_of(2000)
    assert rows.nbytes < LARGE_ROWS_BYTES and PARTS_KEY.encode() not in encode_parquet(rows, {})
    assert PARTS_KEY.encode() in large_file()


def test_damage_in_what_is_read_is_seen_and_elsewhere_it_is_no_matter(storage: Asked) -> None:
    data = large_file()
    at, size = chunk_of(data, "c03")
    assert size > 1000
    storage.put(PATH, flipped(data, at))
    with pytest.raises(CorruptTable, match=f"{PATH} is not as it was written"):
        merged(storage, ["c03"])
    assert merged(storage, ["c04"]).equals(rows_of(30_000).select(["c04"]))


def test_each_damage_of_the_footer_is_seen(storage: Asked) -> None:
    data = large_file()
    size = pq.read_metadata(io.BytesIO(data)).serialized_size
    marks = data.rfind(PARTS_KEY.encode()), len(data) - 8
    for at in [*range(len(data) - 8 - size, len(data) - 8, 61), *range(*marks, 97)]:
        storage.put(PATH, flipped(data, at))
        with pytest.raises(CorruptTable, match=PATH):
            merged(storage, ["c03"])


def test_a_file_in_another_ones_place_is_refused(storage: Asked) -> None:
    other = PATH.replace("f-0", "f-1")
    storage.put(other, large_file())
    with pytest.raises(CorruptTable, match=f"{other} is not as it was written"):
        merged(storage, ["c03"], other)


def test_a_large_file_that_has_no_checksums_of_parts_is_read_whole(storage: Asked) -> None:
    data = without_parts()
    storage.put(PATH, data)
    assert merged(storage, ["c03"]).equals(rows_of(30_000).select(["c03"]))
    assert len(data) in storage.taken()
    storage.put(PATH, flipped(data, chunk_of(data, "c04")[0]))
    with pytest.raises(CorruptTable, match=f"{PATH} is not as it was written"):
        merged(storage, ["c03"])


def test_a_footer_that_is_longer_than_what_is_read_first(storage: Asked) -> None:
    rows = rows_of(30_000).select([RECORD_KEY_COLUMN, "c03", "c04"])
    storage.put(PATH, add_checksum(encode_parquet(rows, {"long": "x" * 2 * END_BYTES}), PATH))
    found, footer = read_base_file(storage, PATH, ["c03"])
    assert found.equals(rows.select(["c03"])) and len(footer[b"long"]) == 2 * END_BYTES


def test_a_storage_that_fails_in_the_middle_is_no_damaged_file(storage: Asked) -> None:
    storage.put(PATH, foreign())
    asked: list[str] = []

    def fail_the_second(operation: str, path: str) -> None:
        asked.append(operation)
        if len(asked) == 2:
            raise Unavailable("not now")

    with pytest.raises(Unavailable, match="not now"):
        merged(FaultyStorage(storage, before=fail_the_second), ["c03"])
    assert asked == ["read", "read"]


@pytest.mark.parametrize(("count", "group_rows"), [(0, None), (2000, None), (30_000, 7000)])
def test_a_temporary_file_has_the_same_bytes(count: int, group_rows: int | None) -> None:
    with parquet_file(rows_of(count), {"made": "here"}, PATH, group_rows) as file:
        file.seek(0)
        assert file.read() == add_checksum(encode_parquet(rows_of(count), {"made": "here"}, group_rows), PATH)
    assert file.closed


def test_without_its_checksum_the_file_is_as_it_was_encoded() -> None:
    assert strip_checksum(large_file()) == encode_parquet(rows_of(30_000), {"made": "here"})


def test_columns_whose_values_repeat_have_a_dictionary_and_others_none() -> None:
    count = 20_000
    pair = pa.struct([("key", pa.int64()), ("kind", pa.string())])
    schema = pa.schema(
        [
            *[("key", pa.string()), ("kind", pa.string()), ("nested", pa.struct([("pair", pair)]))],
            *[("items", pa.list_(pair)), ("marks", pa.map_(pa.string(), pa.float64())), ("rare", pa.int64())],
        ]
    )
    pairs = [{"key": row, "kind": "ab"[row % 2]} for row in range(count)]
    values = [
        *[[f"key-{row}" for row in range(count)], ["a", "b"] * (count // 2), [{"pair": found} for found in pairs]],
        *[[[found] for found in pairs], [[("a", row / 7)] for row in range(count)]],
        [row if row % 100 == 0 else None for row in range(count)],
    ]
    rows = pa.table([pa.array(found, field.type) for found, field in zip(values, schema, strict=True)], schema=schema)
    data = encode_parquet(rows, {})
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    leaves = [group.column(place) for place in range(group.num_columns)]
    with_dictionary = {leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page}
    assert with_dictionary == {"kind", "nested.pair.kind", "items.list.element.kind", "marks.key_value.key", "rare"}
    assert pq.read_table(io.BytesIO(data)) == rows
