"""Parquet files as bytes, with a place for a checksum; a damaged one is `CorruptTable`.

Large files hold the checksums of their column chunks as well, by which they are read in parts (`format/base_files.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, InvariantBroken, LakelatchError
from lakelatch.format.base_file_options import GZIP, SNAPPY, UNCOMPRESSED, ZSTD, BaseFileOptions
from lakelatch.format.footers.hidden import FloatLeaves, leaf_values, take_out
from lakelatch.format.footers.thrift import Path
from lakelatch.format.sorting.spill import temporary_file, writing_temporary_file
from lakelatch.storage.checksums import (
    CHECKSUM_KEY,
    NO_CHECKSUM,
    NO_PARTS,
    PARTS_KEY,
    add_checksum_to,
    part_checksum,
    verify_checksum,
)

#: Rows of which so many bytes are held in memory may become a file that is worth reading in parts.
LARGE_ROWS_BYTES = 1024 * 1024
#: Larger tables become files by way of a temporary one, so that memory need not hold the file besides the rows.
IN_MEMORY_ROWS_BYTES = 16 * 1024 * 1024
#: A row group has at most as many rows as have so many bytes in memory, unless it is said otherwise.
GROUP_BYTES = 16 * 1024 * 1024
_FULL = 0.75  # of that: the next part would be torn apart for little
_GROUP_ROWS_MAX = 1024 * 1024
_DIGITS = 8
_SAMPLE_ROWS = 4096
_DISTINCT = 0.9
_CODECS = {UNCOMPRESSED: "none", **{name: name for name in (ZSTD, SNAPPY, GZIP)}}
_AS_USUAL = BaseFileOptions()


def encode_parquet(
    rows: pa.Table,
    footer: Mapping[str, str],
    group_rows: int | None = None,
    options: BaseFileOptions = _AS_USUAL,
) -> bytes:
    """The file's bytes, to which `add_checksum` adds that of its path.

    Row groups have at most so many rows, unless the options say how many bytes.
    """
    sink = io.BytesIO()
    _write(sink, rows.schema, (rows,), lambda: footer, group_rows, options)
    return sink.getvalue()


@contextmanager
def parquet_file(
    rows: pa.Table,
    footer: Mapping[str, str],
    path: str,
    group_rows: int | None = None,
    options: BaseFileOptions = _AS_USUAL,
) -> Iterator[BinaryIO]:
    """The file of `encode_parquet`, with the checksum of its path, as a local file that ends with this context.

    Errors: `Unavailable` where such files lie and nothing can be written.
    """
    with parquet_file_of(rows.schema, (rows,), lambda: footer, path, group_rows, options) as file:
        yield file


@contextmanager
def parquet_file_of(
    schema: pa.Schema,
    parts: Iterable[pa.Table],
    footer: Callable[[], Mapping[str, str]],
    path: str,
    group_rows: int | None = None,
    options: BaseFileOptions = _AS_USUAL,
) -> Iterator[BinaryIO]:
    """As `parquet_file`, of rows that come in parts: a row group at a time is in memory.

    `footer` is called when all rows have come.
    """
    with ExitStack() as opened:
        with writing_temporary_file(path, path):
            file: Any = opened.enter_context(temporary_file())
            _write(file, schema, parts, footer, group_rows, options)
            add_checksum_to(file, path)
            file.flush()
        yield file


def _write(
    sink: BinaryIO,
    schema: pa.Schema,
    parts: Iterable[pa.Table],
    footer: Callable[[], Mapping[str, str]],
    group_rows: int | None,
    options: BaseFileOptions,
) -> None:
    """Writes to a file that can be read as well."""
    size_bytes = groups = 0
    wanted_rows = group_rows if options.block_bytes is None else None
    rows_max = min(wanted_rows or _GROUP_ROWS_MAX, _GROUP_ROWS_MAX)
    found = _row_groups(schema, parts, rows_max, options.block_bytes or GROUP_BYTES)
    first = next(found)
    leaves, floats = _leaves(schema), FloatLeaves.of(schema)
    misleading: set[Path] = set()
    with pq.ParquetWriter(sink, schema, store_schema=False, **_layout(options, first, rows_max)) as writer:
        for group in chain([first], found):
            size_bytes += group.nbytes
            misleading |= floats.misleading_in(group, groups)
            groups += 1
            writer.write_table(group, max(group.num_rows, 1))
            pa.default_memory_pool().release_unused()  # else it keeps as much as was ever needed at once
        texts = dict(footer())
        if size_bytes >= LARGE_ROWS_BYTES:
            texts[PARTS_KEY] = f"{NO_PARTS}{'0' * _DIGITS * groups * len(leaves)}"
        # That of a schema is dropped with `store_schema=False`. The checksum is the last text in the file.
        writer.add_key_value_metadata({**texts, CHECKSUM_KEY: NO_CHECKSUM})
    if misleading:
        take_out(sink, misleading)
    if PARTS_KEY in texts:
        _fill_parts(sink, texts[PARTS_KEY].encode())


def _layout(options: BaseFileOptions, first: pa.Table, rows_max: int) -> dict[str, Any]:
    """The options as the library takes them; `first` is the first row group, by which the others are guessed."""
    found: dict[str, Any] = {
        "compression": _CODECS[options.codec],
        "data_page_size": options.page_bytes,
        "use_dictionary": repeating_leaves(first) if options.dictionary else [],
    }
    if options.bloom_filters:  # which an older library does not know
        found["bloom_filter_options"] = {
            one.column: {"ndv": min(one.values or max(first.num_rows, 1), rows_max), "fpp": one.false_positives}
            for one in options.bloom_filters
        }
    return found


def _row_groups(schema: pa.Schema, parts: Iterable[pa.Table], group_rows: int, group_bytes: int) -> Iterator[pa.Table]:
    """The rows, so many of them together as are a row group; one without rows if there are none."""
    pending = [schema.empty_table()]
    count = size_bytes = groups = 0
    for part in parts:
        row_bytes = max(part.nbytes, 1) / max(part.num_rows, 1)
        at = 0
        while at < part.num_rows:
            fitting = max(int((group_bytes - size_bytes) / row_bytes), 1)
            taken = part.slice(at, min(group_rows - count, fitting))
            at += taken.num_rows
            pending.append(taken)
            count += taken.num_rows
            size_bytes += taken.nbytes
            if count >= group_rows or size_bytes >= group_bytes * _FULL:
                yield pa.concat_tables(pending)
                pending, count, size_bytes, groups = [schema.empty_table()], 0, 0, groups + 1
    if count or not groups:
        yield pa.concat_tables(pending)


def read_parquet(data: bytes, path: str) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """The rows, and the texts of the footer. Errors: `CorruptTable`."""
    with decoding(path):
        file, checksummed = open_parquet(data, path)
        rows = file.read()
        if not checksummed:
            rows.validate(full=True)  # texts, for one, are not looked at otherwise
        return rows, file.metadata.metadata or {}


def open_parquet(data: bytes, path: str) -> tuple[Any, bool]:
    """A file in memory, and whether it has a checksum, which is right then.

    Errors: `CorruptTable`, and those of the library.
    """
    file = pq.ParquetFile(pa.BufferReader(data))
    footer = file.metadata.metadata or {}
    # Another writer's footer may hold the same text as the least or the greatest value of a column.
    return file, CHECKSUM_KEY.encode() in footer and verify_checksum(data, path)


@contextmanager
def decoding(path: str) -> Iterator[None]:
    """Turns the library's errors about a file into `CorruptTable`."""
    try:
        yield
    except LakelatchError:
        raise
    except Exception as error:  # the library raises whatever the bytes provoke
        raise CorruptTable(
            f"the data file {path} does not decode ({error}): restore it from a copy", path=path
        ) from error


def chunks_of(metadata: Any) -> Iterator[tuple[str, int, int]]:
    """Each column chunk in the order of the file: the leaf's path, where it begins, and of how many bytes it is.

    One without rows may have no page, and then begins nowhere.
    """
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(leaf)
            starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
            yield chunk.path_in_schema, min(filter(None, starts), default=0), chunk.total_compressed_size


def repeating_leaves(rows: pa.Table, sample_rows: int = _SAMPLE_ROWS) -> list[str]:
    """The leaves but those of which a sample has hardly a value twice: who reads them would pay for a dictionary.

    One that is nearly as long as its column, and still short enough for the format, doubles the time of a read.
    """
    leaves = _leaves(rows.schema)
    if rows.num_rows < sample_rows:
        return leaves
    sample = rows.take(pa.array(np.arange(0, rows.num_rows, rows.num_rows // sample_rows))).combine_chunks()
    values = (leaf for column in sample.columns for leaf in leaf_values(pa.concat_arrays(column.chunks)))
    return [leaf for leaf, found in zip(leaves, values, strict=True) if not _is_distinct(found, sample_rows)]


def _is_distinct(sample: pa.Array, sample_rows: int) -> bool:
    count = len(sample) - sample.null_count
    return count >= sample_rows // 4 and bool(pc.count_distinct(sample).as_py() > count * _DISTINCT)


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns that a file of this schema has."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    found = pq.read_metadata(io.BytesIO(sink.getvalue())).schema
    return [found.column(place).path for place in range(len(found))]


def _fill_parts(file: BinaryIO, value: bytes) -> None:
    """Puts the checksums of the column chunks in the place that the footer has for them."""
    file.seek(0)
    metadata = pq.read_metadata(file)
    digits = b"".join(_checksum_of(file, start, size) for _, start, size in chunks_of(metadata))
    end = file.seek(0, io.SEEK_END)
    first = end - metadata.serialized_size
    file.seek(first)
    place = file.read().rfind(value)
    if place < 0 or len(digits) != len(value) - len(NO_PARTS):
        raise InvariantBroken(f"a parquet file has {len(digits) // _DIGITS} column chunks, and no place for as many")
    file.seek(first + place + len(NO_PARTS))
    file.write(digits)
    file.seek(0, io.SEEK_END)


def _checksum_of(file: BinaryIO, start: int, size_bytes: int) -> bytes:
    file.seek(start)
    return part_checksum(file.read(size_bytes))
