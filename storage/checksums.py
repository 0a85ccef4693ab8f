"""A checksum inside a file, so that a damaged file, or one in another one's place, is not believed.

A file of ours holds the mark and eight digits somewhere: the CRC-32 of the path in the table that it belongs to (of
a record, the name) and of all its bytes, in which the digits count as zeros. Where a format has room for a text that
other readers pass over, that is all it takes. A file without a mark is somebody else's, and one with zeros never got a
checksum: there is nothing to check.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from lakelatch.errors import CorruptTable

CHECKSUM_KEY = "lakelatch.seal"
NO_CHECKSUM = "lakelatch-crc32:00000000"

# Directly behind its key, with what the format puts between the two.
_MARK = re.compile(
    re.escape(CHECKSUM_KEY.encode()) + b".{1,8}" + re.escape(NO_CHECKSUM.rpartition(":")[0].encode()) + b":", re.S
)
_ZEROS = b"00000000"
_PARQUET = b"PAR1"
_PARQUET_TAIL = struct.Struct("<I4s")  # how long the footer is, and the magic
_LOG = b"#HUDI#"
_INT = struct.Struct(">i")
_LOG_HEADER = struct.Struct(">ii")  # key and length of one entry
_LOG_HEADER_AT = len(_LOG) + 8 + 4 + 4 + 4  # behind the block's length, the version, the kind and the count of entries
_HEADERS_MAX = 1000


def add_checksum(data: bytes, path: str) -> bytes:
    """The same bytes with the checksum of this path in the table; without a mark in them, as they are."""
    start = _digits_at(data)
    return data if start is None else _with_digits(data, start, _checksum(memoryview(data), start, path))


def strip_checksum(data: bytes) -> bytes:
    """The same bytes without their checksum, so that they can be changed."""
    start = _digits_at(data)
    return data if start is None else _with_digits(data, start, _ZEROS)


def verify_checksum(data: bytes, path: str) -> bool:
    """Whether a file has the checksum of its bytes and of this path in the table. False says nothing about the file.

    Errors: `CorruptTable` for a file that has the checksum of other bytes or of another path.
    """
    start = _digits_at(data)
    if start is None or data[start : start + len(_ZEROS)] == _ZEROS:
        return False
    if data[start : start + len(_ZEROS)] != _checksum(memoryview(data), start, path):
        raise CorruptTable(
            f"{path} is not as it was written (its checksum is that of other bytes, or of another file): restore it "
            "from a copy",
            path=path,
        )
    return True


def checksummed_json(values: Mapping[str, Any], name: str = "") -> bytes:
    """A JSON object that holds the values and a checksum."""
    return add_checksum(json.dumps({CHECKSUM_KEY: NO_CHECKSUM, **values}).encode("ascii"), name)


def open_checksummed_json(data: bytes | str, name: str = "") -> dict[str, Any] | None:
    """The values that `checksummed_json` was given, with this name; None for any other bytes, also if they are JSON."""
    content = data.encode("utf-8", "replace") if isinstance(data, str) else data
    start = _digits_at(content)
    if start is None or content[start : start + len(_ZEROS)] != _checksum(memoryview(content), start, name):
        return None
    values = json_object(content)
    if values is not None:
        values.pop(CHECKSUM_KEY, None)
    return values


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """The JSON object that these bytes are; None for anything else, however it is broken."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, numbers of thousands of digits; brackets in brackets
        return None
    return found if isinstance(found, dict) else None


def _digits_at(data: bytes) -> int | None:
    """Where the checksum's digits are. Rows may hold the same text, so only a format's own parts are searched."""
    found = list(_MARK.finditer(data, *_own_texts(data)))
    if not found:
        return None
    # In a footer it comes last, behind the least and the greatest values of columns.
    start = found[-1 if data.startswith(_PARQUET) else 0].end()
    return None if start + len(_ZEROS) > len(data) else start


def _own_texts(data: bytes) -> tuple[int, int]:
    """The part of a file that holds no rows: the footer of parquet, the first header of a log file, any other file."""
    if data.startswith(_PARQUET) and data.endswith(_PARQUET) and len(data) > _PARQUET_TAIL.size:
        size, _ = _PARQUET_TAIL.unpack(data[-_PARQUET_TAIL.size :])
        return max(len(data) - _PARQUET_TAIL.size - size, 0), len(data)
    if not data.startswith(_LOG):
        return 0, len(data)
    at = _LOG_HEADER_AT
    try:
        (count,) = _INT.unpack_from(data, at - _INT.size)
        for _ in range(count if 0 <= count <= _HEADERS_MAX else 0):
            _, size = _LOG_HEADER.unpack_from(data, at)
            at += _LOG_HEADER.size + max(size, 0)
    except struct.error:  # cut short: it will not decode
        return 0, len(data)
    return 0, at


def _with_digits(data: bytes, start: int, digits: bytes) -> bytes:
    view = memoryview(data)
    return b"".join((view[:start], digits, view[start + len(_ZEROS) :]))


def _checksum(data: memoryview, start: int, name: str) -> bytes:
    found = crc32(data[:start], crc32(name.encode("utf-8", "replace")))
    found = crc32(data[start + len(_ZEROS) :], crc32(_ZEROS, found))
    return b"%08x" % found
