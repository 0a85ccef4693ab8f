"""The bytes of Hudi's log files: a sequence of framed blocks, big-endian (log format version 1).

A block is: magic, length (of all that follows), format version, kind, headers, content length, content, footers, and
the total length again, with which Hudi finds blocks from behind and recognises torn ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakelatch.errors import CorruptTable

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1

COMMAND_BLOCK, DELETE_BLOCK, CORRUPT_BLOCK, AVRO_BLOCK, HFILE_BLOCK, PARQUET_BLOCK, CDC_BLOCK = range(7)

# Header keys, by Hudi's ordinals.
INSTANT_TIME = 0
TARGET_INSTANT_TIME = 1
SCHEMA = 2
IS_PARTIAL = 7

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_ENTRY = struct.Struct(">ii")
_LENGTH_AT = len(MAGIC)
_BODY_AT = _LENGTH_AT + _LONG.size


@dataclass(frozen=True)
class Block:
    """One block as it lies in the file: `kind` is Hudi's ordinal, `headers` are by ordinal too."""

    kind: int
    headers: Mapping[int, str]
    content: memoryview | bytes

    @property
    def instant(self) -> str:
        """The requested time of the write that the block belongs to."""
        return self.headers.get(INSTANT_TIME, "")


def encode_block(kind: int, headers: Mapping[int, str], content: bytes) -> bytes:
    """The bytes of one block, to be written whole or not at all."""
    body = b"".join(
        (
            _ENTRY.pack(FORMAT_VERSION, kind),
            _encode_map(headers),
            _LONG.pack(len(content)),
            content,
            _encode_map({}),
        )
    )
    length = len(body) + _LONG.size
    return b"".join((MAGIC, _LONG.pack(length), body, _LONG.pack(length + len(MAGIC))))


def read_blocks(data: bytes, path: str) -> Iterator[Block]:
    """The blocks of a log file, in order. An empty file, the tombstone of a failed attempt, has none.

    Errors: `CorruptTable` for a torn block, because rows would vanish silently: a writer that completed has left none.
    """
    view = memoryview(data)
    position = 0
    while position < len(data):
        try:
            block, end = _read_block(view, position)
        except (_Torn, struct.error, UnicodeDecodeError) as problem:
            raise CorruptTable(
                f"the log file {path} is torn at byte {position} of {len(data)} ({problem}): restore it from a copy"
            ) from None
        yield block
        position = end


class _Torn(Exception):
    """The bytes are no whole block; never leaves this module."""


def _read_block(view: memoryview, start: int) -> tuple[Block, int]:
    if view[start : start + len(MAGIC)] != MAGIC:
        raise _Torn("there is no block here")
    (length,) = _LONG.unpack_from(view, start + _LENGTH_AT)
    end = start + _BODY_AT + length
    if length < 0 or end > len(view):
        raise _Torn(f"the block needs {length} bytes and {len(view) - start - _BODY_AT} are left")
    body = view[start + _BODY_AT : end]
    version, kind = _ENTRY.unpack_from(body, 0)
    if version != FORMAT_VERSION or not COMMAND_BLOCK <= kind <= CDC_BLOCK:
        raise _Torn(f"format version {version}, block kind {kind}")
    headers, position = _read_map(body, _ENTRY.size)
    (content_length,) = _LONG.unpack_from(body, position)
    position += _LONG.size
    if not 0 <= content_length <= length - position:
        raise _Torn(f"the content's length is {content_length}")
    content = body[position : position + content_length]
    _, position = _read_map(body, position + content_length)
    (total,) = _LONG.unpack_from(body, position)
    if position + _LONG.size != length or total != length + len(MAGIC):
        raise _Torn(f"the lengths at its two ends, {length} and {total}, disagree")
    return Block(kind, headers, content), end


def _encode_map(values: Mapping[int, str]) -> bytes:
    parts = [_INT.pack(len(values))]
    for key, value in values.items():
        encoded = value.encode("utf-8")
        parts += [_ENTRY.pack(key, len(encoded)), encoded]
    return b"".join(parts)


def _read_map(body: memoryview, position: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack_from(body, position)
    position += _INT.size
    values: dict[int, str] = {}
    if not 0 <= count <= len(body):
        raise _Torn(f"{count} headers")
    for _ in range(count):
        key, size = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        if not 0 <= size <= len(body) - position:
            raise _Torn(f"a header of {size} bytes")
        values[key] = str(body[position : position + size], "utf-8")
        position += size
    return values, position
