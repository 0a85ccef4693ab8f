"""A checksum inside a file, so that a damaged file, or one in another one's place, is not believed.

A file of ours holds the mark and eight digits somewhere: the CRC-32 of the path in the table that it belongs to (of
a record, the name) and of all its bytes, in which the digits count as zeros. Where a format has room for a text that
other readers pass over, that is all it takes. A file without a mark was written by others, and one with zeros never
got a checksum: there is nothing to check.

A parquet file may be read in parts, so that a large one of ours has a second mark in its footer: the CRC-32 of the path
and of the footer, and behind it that of each of its parts, of which the rows consist. Both marks' digits count as zeros
in it. A reader of the whole file needs the first mark only.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO
from zlib import crc32

from lakelatch.errors import CorruptTable

CHECKSUM_KEY = "lakelatch.seal"
NO_CHECKSUM = "lakelatch-crc32:00000000"
PARTS_KEY = "lakelatch.parts"
NO_PARTS = "lakelatch-parts-crc32:00000000"  # and eight digits for each part

_ZEROS = b"00000000"


def _mark(key: str, value: str) -> re.Pattern[bytes]:
    """A value directly behind its key, with what the format puts between the two."""
    return re.compile(re.escape(key.encode()) + b".{1,8}" + re.escape(value.rpartition(":")[0].encode()) + b":", re.S)


_MARK, _PARTS_MARK = _mark(CHECKSUM_KEY, NO_CHECKSUM), _mark(PARTS_KEY, NO_PARTS)
_PART_DIGITS = re.compile(rb"[0-9a-f]*")
_PARQUET = b"PAR1"
_PARQUET_TAIL = struct.Struct("<I4s")  # how long the footer is, and the magic
_PIECE_BYTES = 1024 * 1024
_LOG = b"#HUDI#"
_INT = struct.Struct(">i")
_LOG_HEADER = struct.Struct(">ii")  # key and length of one entry
_LOG_HEADER_AT = len(_LOG) + 8 + 4 + 4 + 4  # behind the block's length, the version, the kind and the count of entries
_HEADERS_MAX = 1000


def add_checksum(data: bytes, path: str) -> bytes:
    """The same bytes with the checksum of this path in the table; without a mark in them, as they are."""
    data = _with_footer_digits(data, path)
    start = _digits_at(data)
    return data if start is None else _with_digits(data, start, _checksum(memoryview(data), start, path))


def add_checksum_to(file: BinaryIO, path: str) -> None:
    """The same as `add_checksum`, in a parquet file of ours that need not fit into memory."""
    file.seek(-_PARQUET_TAIL.size, os.SEEK_END)
    size, _ = _PARQUET_TAIL.unpack(file.read())
    first = file.seek(-_PARQUET_TAIL.size - size, os.SEEK_END)
    end = file.read()
    found = _footer_digits_at(end[:size])
    if found is not None:
        end = _with_digits(end, found[0], _footer_checksum(end[:size], *found, path))
    start = list(_MARK.finditer(end))[-1].end()
    file.seek(0)
    checksum = crc32(path.encode("utf-8", "replace"))
    for at in range(0, first, _PIECE_BYTES):
        checksum = crc32(file.read(min(_PIECE_BYTES, first - at)), checksum)
    file.seek(first)
    file.write(_with_digits(end, start, b"%08x" % crc32(_with_digits(end, start, _ZEROS), checksum)))


def strip_checksum(data: bytes) -> bytes:
    """The same bytes without their checksum, so that they can be changed."""
    data = _with_footer_digits(data, None)
    start = _digits_at(data)
    return data if start is None else _with_digits(data, start, _ZEROS)


def verify_footer(footer: bytes, path: str) -> list[bytes] | None:
    """The checksums of a parquet file's parts, of a footer that is this path's; None for one that names no parts.

    Errors: `CorruptTable` for a footer that has the checksum of other bytes or of another path.
    """
    found = _footer_digits_at(footer)
    if found is None:
        return None
    start, own = found
    if footer[start : start + len(_ZEROS)] != _footer_checksum(footer, start, own, path):
        raise damaged(path)
    first = start + len(_ZEROS)
    length = _PART_DIGITS.match(footer, first, own)
    digits = footer[first : length.end() if length else first]
    return [digits[at : at + len(_ZEROS)] for at in range(0, len(digits) - len(digits) % len(_ZEROS), len(_ZEROS))]


def part_checksum(data: bytes | memoryview) -> bytes:
    """The checksum of a part of a parquet file."""
    return b"%08x" % crc32(data)


def damaged(path: str) -> CorruptTable:
    """The error for a file that has another checksum than its bytes."""
    return CorruptTable(
        f"{path} is not as it was written (its checksum is that of other bytes, or of another file): restore it from a "
        "copy",
        path=path,
    )


def verify_checksum(data: bytes, path: str) -> bool:
    """Whether a file has the checksum of its bytes and of this path in the table. False says nothing about the file.

    Errors: `CorruptTable` for a file that has the checksum of other bytes or of another path.
    """
    start = _digits_at(data)
    if start is None or data[start : start + len(_ZEROS)] == _ZEROS:
        return False
    if data[start : start + len(_ZEROS)] != _checksum(memoryview(data), start, path):
        raise damaged(path)
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
    found = _MARK.search(data, *_own_texts(data))
    if found is None:
        return None
    if data.startswith(_PARQUET):  # in a footer it comes last, behind the least and the greatest values of columns
        *_, found = _MARK.finditer(data, found.start(), _own_texts(data)[1])
    return None if found.end() + len(_ZEROS) > len(data) else found.end()


def _footer_digits_at(footer: bytes) -> tuple[int, int] | None:
    """Where the digits of a footer are, and those of the file; None for a footer that names no parts."""
    parts, own = list(_PARTS_MARK.finditer(footer)), list(_MARK.finditer(footer))
    if not parts or not own or parts[-1].end() + len(_ZEROS) > own[-1].start():
        return None
    return parts[-1].end(), own[-1].end()


def _with_footer_digits(data: bytes, path: str | None) -> bytes:
    """The same bytes with the footer's checksum, or without it for no path; nothing changes if it names no parts."""
    first, end = _own_texts(data)
    whole = data.startswith(_PARQUET) and data.endswith(_PARQUET)
    found = _footer_digits_at(data[first : end - _PARQUET_TAIL.size]) if whole else None
    if found is None:
        return data
    start, own = found
    digits = _ZEROS if path is None else _footer_checksum(data[first : end - _PARQUET_TAIL.size], start, own, path)
    return _with_digits(data, first + start, digits)


def _footer_checksum(footer: bytes, start: int, own: int, path: str) -> bytes:
    plain = _with_digits(_with_digits(footer, start, _ZEROS), own, _ZEROS)
    return b"%08x" % crc32(plain, crc32(path.encode("utf-8", "replace")))


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
