"""Reading base files in parts: of a large file, only the footer and the chunks of the wanted columns are read.

A small one is read whole, in one request. A large one is read some row groups at a time, so that its rows need not fit
into memory. Each chunk has a checksum in the footer, and the footer has one with the file's path, so that only what was
written there is trusted. A file of ours without them is read whole, since its only checksum is that of all bytes; one
of another writer has none.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.format.parquet import chunks_of, decoding, open_parquet
from lakelatch.range_file import RangeFile
from lakelatch.storage.checksums import CHECKSUM_KEY, PARTS_KEY, damaged, part_checksum, verify_footer
from lakelatch.storage.contract import Storage

#: The bytes of the first request: a file up to this size is read whole, and of a larger one this end, with the footer.
END_BYTES = 1024 * 1024
#: Compressed bytes that are held at once, unless a row group alone has more.
HELD_BYTES = 16 * 1024 * 1024
#: The most rows of a part; fewer, if they are long.
BATCH_ROWS_MAX = 64 * 1024
_BATCH_ROWS_MIN = 1024
_BATCH_BYTES = 4 * 1024 * 1024
_LOW_MEMORY_BYTES = 2 * 1024 * 1024
_ROW_BYTES = 512  # of a row in memory, until one is known
_GAP_BYTES = 64 * 1024  # a gap up to this size is read with its neighbours, as another request would take longer
_TAIL_BYTES = 8  # the footer's length, and the magic


def open_base_file(
    storage: Storage,
    path: str,
    columns: Sequence[str],
    wanted: Callable[[int, Any], bool] | None = None,
    end_bytes: int = END_BYTES,
) -> BaseFileRows:
    """Opens a base file, reading only its end, with the footer. Its rows have those of the `columns` that it has.

    `wanted` is called with the number and the footer's metadata of each row group; others are not read. The first
    request is for `end_bytes`. Errors: `CorruptTable`, and those of the storage.
    """
    end, size_bytes = storage.read_end(path, end_bytes)
    with decoding(path):
        if size_bytes <= len(end):
            return _of_bytes(end, path, columns, wanted)
        held = _HeldParts(storage, path, size_bytes, end)
        file = pq.ParquetFile(held, pre_buffer=False)
        texts = file.metadata.metadata or {}
        if PARTS_KEY.encode() not in texts and CHECKSUM_KEY.encode() in texts:
            return _of_bytes(storage.read(path), path, columns, wanted)
        checksums = _checksums_of(held, file.metadata, path) if PARTS_KEY.encode() in texts else None
        return BaseFileRows(file, path, _known(file, columns), wanted, checksums is not None, held, checksums)


@dataclass(frozen=True)
class BaseFileRows:
    """An open base file: the texts of its footer, and its rows in parts.

    For a file that is not in memory, `held` has the bytes read so far, and `checksums` those of the column chunks.
    """

    file: Any
    path: str
    names: Sequence[str]
    wanted: Callable[[int, Any], bool] | None
    checksummed: bool
    held: _HeldParts | None = None
    checksums: Sequence[bytes] | None = None

    @property
    def footer(self) -> Mapping[bytes, bytes]:
        """The texts of the footer."""
        return self.file.metadata.metadata or {}

    @property
    def count(self) -> int:
        """How many rows the file has."""
        return int(self.file.metadata.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self.file.schema_arrow.field(name) for name in self.names])

    def parts(self, low_memory: bool = False) -> Iterator[pa.Table]:
        """The rows in their order, in parts, each of whose bytes are verified first. Errors: as `open_base_file`.

        With `low_memory` one row group is held at a time, and parts have some 2 MiB in memory (not in the file) and are
        decoded in this thread, since the pool keeps memory that other threads have freed.
        """
        metadata = self.file.metadata
        with decoding(self.path):
            chunks = list(chunks_of(metadata))
        row_bytes = 0.0  # in memory, of the last part
        for groups in self._spans(chunks, 0 if low_memory else HELD_BYTES):
            with decoding(self.path):
                self._hold(groups, chunks)
                if not self.names:  # batches without columns have no number of rows
                    yield self.file.read_row_groups(groups, columns=[])
                    continue
                rows = sum(metadata.row_group(group).num_rows for group in groups)
                size_bytes = sum(metadata.row_group(group).total_byte_size for group in groups)
                batch_rows = min(max(_BATCH_BYTES * rows // max(size_bytes, 1), _BATCH_ROWS_MIN), BATCH_ROWS_MAX)
                if low_memory:
                    batch_rows = min(
                        max(int(_LOW_MEMORY_BYTES / (row_bytes or _ROW_BYTES)), _BATCH_ROWS_MIN), batch_rows
                    )
                names = list(self.names)
                for batch in self.file.iter_batches(batch_rows, groups, names, use_threads=not low_memory):
                    row_bytes = batch.nbytes / batch.num_rows if batch.num_rows else row_bytes
                    part = pa.Table.from_batches([batch])
                    if not self.checksummed:
                        part.validate(full=True)  # texts, for one, are not looked at otherwise
                    yield part
            if self.held is not None:
                self.held.release()
                pa.default_memory_pool().release_unused()  # else the pool keeps as much as was ever needed at once

    def _spans(self, chunks: Sequence[tuple[str, int, int]], held_bytes: int) -> Iterator[list[int]]:
        """The wanted row groups, in spans of at most `held_bytes` compressed, or of one."""
        metadata = self.file.metadata
        span: list[int] = []
        size_bytes = 0
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group)
            if not found.num_rows or (self.wanted is not None and not self.wanted(group, found)):
                continue
            own = sum(chunks[number][2] for number in self._numbers(group, chunks))
            if span and size_bytes + own > held_bytes:
                yield span
                span, size_bytes = [], 0
            span.append(group)
            size_bytes += own
        if span:
            yield span

    def _numbers(self, group: int, chunks: Sequence[tuple[str, int, int]]) -> list[int]:
        """The numbers of the chunks with the wanted columns of a row group."""
        count = self.file.metadata.num_columns
        return [
            number for number in range(group * count, (group + 1) * count) if _belongs(chunks[number][0], self.names)
        ]

    def _hold(self, groups: Sequence[int], chunks: Sequence[tuple[str, int, int]]) -> None:
        if self.held is None:
            return
        wanted = [number for group in groups for number in self._numbers(group, chunks)]
        self.held.hold([chunks[number][1:] for number in wanted])
        if self.checksums is None:
            return
        for number in wanted:
            _, start, count = chunks[number]
            if part_checksum(self.held.part(start, count)) != self.checksums[number]:
                raise damaged(self.path)


def _of_bytes(
    data: bytes, path: str, columns: Sequence[str], wanted: Callable[[int, Any], bool] | None
) -> BaseFileRows:
    """A file that is in memory."""
    file, checksummed = open_parquet(data, path)
    return BaseFileRows(file, path, _known(file, columns), wanted, checksummed)


def _known(file: Any, columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name in file.schema_arrow.names]


class _HeldParts(RangeFile):
    """A file with some parts in memory; the others are read on demand."""

    def __init__(self, storage: Storage, path: str, size_bytes: int, end: bytes) -> None:
        super().__init__(size_bytes)
        self._storage = storage
        self._path = path
        self._end = {size_bytes - len(end): memoryview(end)}
        self._parts = dict(self._end)

    def release(self) -> None:
        """Drops all parts but the end."""
        self._parts = dict(self._end)

    def hold(self, parts: Collection[tuple[int, int]]) -> None:
        """Reads those of these parts (start, size) that are not in memory, concurrently; near ones in one request."""
        missing: list[list[int]] = []
        for start, size in sorted(parts):
            self._ensure_inside(start, size)
            if self._found(start, size) is not None:
                continue
            if missing and start - missing[-1][1] <= _GAP_BYTES:
                missing[-1][1] = max(missing[-1][1], start + size)
            else:
                missing.append([start, start + size])
        asked = [partial(self._storage.read_range, self._path, start, stop - start) for start, stop in missing]
        for (start, stop), data in zip(missing, self._storage.together(*asked), strict=True):
            if len(data) != stop - start:
                raise CorruptTable(f"{self._path} has become shorter while it was read: restore it", path=self._path)
            self._parts[start] = memoryview(data)

    def part(self, start: int, size_bytes: int) -> memoryview:
        """These bytes, read if they are not in memory."""
        found = self._found(start, size_bytes)
        if found is None:
            self.hold([(start, size_bytes)])
            found = self._found(start, size_bytes)
        return found if found is not None else memoryview(b"")

    def read(self, size: int | None = -1) -> bytes:
        """Without a copy: the library takes anything that has bytes."""
        left = max(0, self._size_bytes - self._at)
        found = self.part(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(found)
        return cast("bytes", found)

    def _found(self, start: int, size_bytes: int) -> memoryview | None:
        for first, data in self._parts.items():
            if first <= start and start + size_bytes <= first + len(data):
                return data[start - first : start - first + size_bytes]
        return None

    def _ensure_inside(self, start: int, size_bytes: int) -> None:
        if start < 0 or size_bytes < 0 or start + size_bytes > self._size_bytes:
            raise CorruptTable(
                f"{self._path} names bytes {start} to {start + size_bytes} of its own, and has {self._size_bytes}: "
                "restore it from a copy",
                path=self._path,
            )


def _checksums_of(held: _HeldParts, metadata: Any, path: str) -> list[bytes]:
    """The checksums of the file's column chunks, from its verified footer. Errors: `CorruptTable`."""
    size = int(metadata.serialized_size)
    end = held.seek(0, io.SEEK_END) - _TAIL_BYTES
    found = verify_footer(bytes(held.part(end - size, size)), path)
    if found is None or len(found) != metadata.num_row_groups * metadata.num_columns:
        raise damaged(path)
    return found


def _belongs(leaf: str, names: Sequence[str]) -> bool:
    """Whether a leaf is a column, or a part of one. A column whose name has a dot may seem to be, too."""
    return any(leaf == name or leaf.startswith(f"{name}.") for name in names)
