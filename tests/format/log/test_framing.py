"""Frames of log blocks: what is written comes back, and nothing torn goes by unseen."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTable
from lakelatch.format.log.framing import DELETE_BLOCK, INSTANT_TIME, PARQUET_BLOCK, SCHEMA, encode_block, read_blocks

HEADERS = {INSTANT_TIME: "20260101000000001", SCHEMA: '{"é": "日"}'}
FIRST = encode_block(PARQUET_BLOCK, HEADERS, b"content")
SECOND = encode_block(DELETE_BLOCK, {INSTANT_TIME: "20260101000000002"}, b"")


def test_bytes_of_a_block() -> None:
    """Field by field as section 'log file bytes' of Hudi's format has them."""
    instant = b"20260101000000002"
    headers = struct.pack(">iii", 1, 0, len(instant)) + instant
    body = struct.pack(">ii", 1, 1) + headers + struct.pack(">q", 0) + struct.pack(">i", 0)
    length = len(body) + 8
    assert b"#HUDI#" + struct.pack(">q", length) + body + struct.pack(">q", length + 6) == SECOND


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.dictionaries(st.integers(0, 8), st.text(max_size=20)), st.binary(max_size=50)),
        max_size=5,
    )
)
def test_blocks_come_back(blocks: list[tuple[int, dict[int, str], bytes]]) -> None:
    data = b"".join(encode_block(*block) for block in blocks)
    assert [(found.kind, dict(found.headers), bytes(found.content)) for found in read_blocks(data, "log")] == blocks


def test_an_empty_file_has_no_blocks() -> None:
    assert list(read_blocks(b"", "log")) == []


def test_every_truncation_is_refused() -> None:
    data = FIRST + SECOND
    for length in range(1, len(data)):
        if length != len(FIRST):
            with pytest.raises(CorruptTable, match=r"the log file p/x\.log is torn at byte"):
                list(read_blocks(data[:length], "p/x.log"))


def test_every_wrong_byte_of_the_frame_is_refused_or_seen() -> None:
    content_at = FIRST.index(b"content")
    for position in range(len(FIRST)):
        if content_at <= position < content_at + 7:
            continue
        broken = bytearray(FIRST)
        broken[position] ^= 0x40
        try:
            (found,) = read_blocks(bytes(broken), "log")
        except CorruptTable:
            continue
        assert (found.kind, dict(found.headers)) != (PARQUET_BLOCK, HEADERS)


@pytest.mark.parametrize("torn", [FIRST[:-9] + SECOND, FIRST + SECOND[:-1], b"junk"])
def test_no_block_behind_a_torn_one_is_read(torn: bytes) -> None:
    with pytest.raises(CorruptTable, match="the log file log is torn at byte"):
        list(read_blocks(torn, "log"))


@pytest.mark.parametrize("length", [-1, 2**62])
def test_impossible_lengths_are_refused(length: int) -> None:
    with pytest.raises(CorruptTable):
        list(read_blocks(b"#HUDI#" + struct.pack(">q", length) + FIRST[14:], "log"))
