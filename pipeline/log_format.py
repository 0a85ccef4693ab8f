"""The bytes of a Hudi log file: a sequence of framed blocks, big-endian.

Each block: `#HUDI#`, the block's length, the format version, the block's kind, a header map, the content with its
length, a footer map, and the length again, by which a reader notices a torn block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakelatch.errors import CorruptTable

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1

COMMAND, DELETE, CORRUPT, AVRO_DATA, HFILE_DATA, PARQUET_DATA, CDC_DATA = range(7)
_KINDS = range(7)

INSTANT_TIME, TARGET_INSTANT_TIME, SCHEMA, COMMAND_TYPE = range(4)


@dataclass(frozen=True)
class Block:
    """One block. Header keys are Hudi's ordinals."""

    kind: int
    header: Mapping[int, str]
    content: bytes


def encode_block(block: Block) -> bytes:
    """The block's bytes."""
    header, footer = _encode_map(block.header), _encode_map({})
    length = 4 + 4 + len(header) + 8 + len(block.content) + len(footer) + 8
    return b"".join(
        (
            MAGIC,
            struct.pack(">qii", length, FORMAT_VERSION, block.kind),
            header,
            struct.pack(">q", len(block.content)),
            block.content,
            footer,
            struct.pack(">q", length + len(MAGIC)),
        )
    )


def decode_blocks(data: bytes, name: str) -> Iterator[Block]:
    """The blocks of one file. `CorruptTable`, naming the file and the place, for anything that is no whole block.

    Hudi skips what it cannot read, so a torn block loses its rows in silence; committed files have none.
    """
    position = 0
    while position < len(data):
        block, position = _decode_block(data, position, name)
        yield block


def _decode_block(data: bytes, start: int, name: str) -> tuple[Block, int]:
    try:
        if data[start : start + len(MAGIC)] != MAGIC:
            raise ValueError("no block begins here")
        body = start + len(MAGIC) + 8
        length, version, kind = struct.unpack_from(">qii", data, start + len(MAGIC))
        end = body + length
        if version != FORMAT_VERSION or kind not in _KINDS:
            raise ValueError(f"format version {version}, kind {kind}")
        if length < 32 or end > len(data):
            raise ValueError(f"{length} bytes are announced and {len(data) - body} are there")
        (trailer,) = struct.unpack_from(">q", data, end - 8)
        if trailer != length + len(MAGIC):
            raise ValueError("its two lengths differ")
        header, position = _decode_map(data, body + 8, end)
        (size,) = struct.unpack_from(">q", data, position)
        content = data[position + 8 : position + 8 + size]
        if size < 0 or position + 8 + size > end - 8:
            raise ValueError("its content is longer than the block")
        return Block(kind, header, content), end
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise CorruptTable(
            f"the log file {name!r} is damaged at byte {start} of {len(data)} ({error}): restore it from a copy",
            file=name,
        ) from error


def _encode_map(values: Mapping[int, str]) -> bytes:
    parts = [struct.pack(">i", len(values))]
    for key, value in values.items():
        text = value.encode("utf-8")
        parts += [struct.pack(">ii", key, len(text)), text]
    return b"".join(parts)


def _decode_map(data: bytes, position: int, end: int) -> tuple[dict[int, str], int]:
    (count,) = struct.unpack_from(">i", data, position)
    if not 0 <= count <= 64:
        raise ValueError(f"a header of {count} entries")
    position += 4
    values: dict[int, str] = {}
    for _ in range(count):
        key, size = struct.unpack_from(">ii", data, position)
        position += 8
        if size < 0 or position + size > end:
            raise ValueError("a header entry is longer than the block")
        values[key] = data[position : position + size].decode("utf-8")
        position += size
    return values, position
