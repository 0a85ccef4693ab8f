"""Base files by parts: of a large one the footer is read, and the chunks of the columns that are wanted.

A small one is read whole, in one request. Each part that is read has a checksum in the footer, and the footer has one
with the file's path, so that nothing is believed that was not written there. A file of ours without them is read whole,
since its only checksum is that of all bytes; one of another writer has none.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, LakelatchError
from lakelatch.format.parquet import chunks_of, read_parquet, undecodable
from lakelatch.range_file import RangeFile
from lakelatch.storage.checksums import CHECKSUM_KEY, PARTS_KEY, damaged, part_checksum, verify_footer
from lakelatch.storage.contract import Storage

#: What is read at once: a file of so many bytes is read whole, and of a larger one this end, with the footer.
END_BYTES = 1024 * 1024
_GAP_BYTES = 64 * 1024  # read with what is wanted on both sides, since another request would take longer
_TAIL_BYTES = 8  # how long the footer is, and the magic


def read_base_file(
    storage: Storage, path: str, columns: Sequence[str], what: str = "base file"
) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """The rows, and the texts of the footer. Of `columns` those that the file has.

    Errors: `CorruptTable`, and those of the storage.
    """
    end, size_bytes = storage.read_end(path, END_BYTES)
    if size_bytes <= len(end):
        return read_parquet(end, path, columns, what)
    held = _HeldParts(storage, path, size_bytes, end)
    try:
        file = pq.ParquetFile(held, pre_buffer=False)
        texts = file.metadata.metadata or {}
        if PARTS_KEY.encode() not in texts and CHECKSUM_KEY.encode() in texts:
            return read_parquet(storage.read(path), path, columns, what)
        checksums = _checksums_of(held, file.metadata, path) if PARTS_KEY.encode() in texts else None
        names = [name for name in columns if name in file.schema_arrow.names]
        chunks = list(chunks_of(file.metadata))
        wanted = [number for number, (leaf, _, _) in enumerate(chunks) if _belongs(leaf, names)]
        held.hold([chunks[number][1:] for number in wanted])
        for number in wanted:
            _, start, count = chunks[number]
            if checksums is not None and part_checksum(held.part(start, count)) != checksums[number]:
                raise damaged(path)
        rows = file.read(columns=names)
        if checksums is None:
            rows.validate(full=True)  # texts, for one, are not looked at otherwise
        return rows, texts
    except LakelatchError:
        raise
    except Exception as error:  # the library raises whatever the bytes provoke
        raise undecodable(path, what, error) from error


class _HeldParts(RangeFile):
    """A file of which some parts are in memory; the others are read as they are asked for."""

    def __init__(self, storage: Storage, path: str, size_bytes: int, end: bytes) -> None:
        super().__init__(size_bytes)
        self._storage = storage
        self._path = path
        self._parts = {size_bytes - len(end): memoryview(end)}

    def hold(self, parts: Collection[tuple[int, int]]) -> None:
        """Reads these parts, each a start and a size, that are not in memory: near ones at once, all side by side."""
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
    """The checksums of the file's column chunks, from a footer that is right. Errors: `CorruptTable`."""
    size = int(metadata.serialized_size)
    end = held.seek(0, io.SEEK_END) - _TAIL_BYTES
    found = verify_footer(bytes(held.part(end - size, size)), path)
    if found is None or len(found) != metadata.num_row_groups * metadata.num_columns:
        raise damaged(path)
    return found


def _belongs(leaf: str, names: Sequence[str]) -> bool:
    """Whether a leaf is a column, or a part of one. A column whose name has a dot may seem to be, too."""
    return any(leaf == name or leaf.startswith(f"{name}.") for name in names)
