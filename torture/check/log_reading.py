"""Reads rows of a table's data files, by code that has nothing in common with the code that wrote them.

It reads the parts of Hudi's format that the clients of a torture run write: log files of Avro or parquet blocks, and
base files. Anything else is an error, because none of the clients has written it.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable

_MAGIC = b"#HUDI#"
_AVRO, _PARQUET = 3, 5
_INSTANT, _SCHEMA = 0, 2
_LOG_NAME = re.compile(r"\.[^_/]+_([0-9]{17})\.log\.[0-9]+(?:_[0-9-]+)?")
_COLUMNS = ("key", "version", "balance", "work", "kind")


class Row(NamedTuple):
    """One row of a torture table, without the meta columns."""

    key: str
    version: int
    balance: int
    work: str
    kind: str


def read_rows(data: bytes, path: str) -> list[Row]:
    """The rows of a data file, in the order in which they lie there; an empty log file has none.

    `path` is relative to the table. Errors: `CorruptTable` for anything that is not whole, and for a log file which
    says that its rows are another instant's.
    """
    try:
        if path.endswith(".parquet"):
            return _rows_of(pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS)).to_pylist())
        return list(_log_rows(data, path))
    except CorruptTable:
        raise
    except Exception as error:  # the libraries raise whatever the bytes provoke
        raise CorruptTable(f"{path} does not decode: {type(error).__name__}: {error}", path=path) from error


def _log_rows(data: bytes, path: str) -> Iterator[Row]:
    named = _LOG_NAME.fullmatch(path.rpartition("/")[2])
    if named is None:
        raise CorruptTable(f"{path} is no name of a log file", path=path)
    reader = _Reader(data, path)
    while reader.position < len(data):
        kind, headers, content = _block(reader)
        if headers.get(_INSTANT) != named[1]:
            raise CorruptTable(f"{path} holds a block of the instant {headers.get(_INSTANT)}", path=path)
        if kind == _PARQUET:
            yield from _rows_of(pq.read_table(pa.BufferReader(content), columns=list(_COLUMNS)).to_pylist())
        elif kind == _AVRO:
            yield from _rows_of(_avro_rows(content, headers[_SCHEMA]))
        else:
            raise CorruptTable(f"{path} holds a block of kind {kind}, which no client writes", path=path)


class _Reader:
    """Reads bytes from the front, and never more than there are."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self.position = data, path, 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise CorruptTable(f"{self._path} is torn at byte {self.position} of {len(self._data)}", path=self._path)
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def headers(self) -> dict[int, str]:
        found = {}
        for _ in range(self.number(">i")):
            key, size = self.number(">i"), self.number(">i")
            found[key] = self.take(size).decode("utf-8")
        return found

    def torn_unless(self, holds: bool) -> None:
        if not holds:
            raise CorruptTable(f"{self._path} is torn before byte {self.position}", path=self._path)


def _block(reader: _Reader) -> tuple[int, dict[int, str], bytes]:
    """Kind, headers and content: magic, length, version, kind, headers, content, footers, and the length once more."""
    reader.torn_unless(reader.take(len(_MAGIC)) == _MAGIC)
    length = reader.number(">q")
    start = reader.position
    reader.torn_unless(reader.number(">i") == 1)
    kind = reader.number(">i")
    headers = reader.headers()
    content = reader.take(reader.number(">q"))
    reader.headers()
    total = reader.number(">q")
    reader.torn_unless(reader.position - start == length and total == length + len(_MAGIC))
    return kind, headers, content


def _avro_rows(content: bytes, schema_text: str) -> list[dict[str, Any]]:
    schema = fastavro.parse_schema(json.loads(schema_text))
    _, count = struct.unpack_from(">ii", content, 0)
    stream = io.BytesIO(content[8:])
    found = []
    for _ in range(count):
        (size,) = struct.unpack(">i", stream.read(4))
        row: Any = fastavro.schemaless_reader(io.BytesIO(stream.read(size)), schema, None)
        found.append(row)
    return found


def _rows_of(values: list[dict[str, Any]]) -> list[Row]:
    return [Row(*(row[name] for name in _COLUMNS)) for row in values]
