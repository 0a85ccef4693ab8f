"""Rows of others that hold the text by which our checksums are found: they are rows, and nothing else."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.errors import CorruptTable
from lakelatch.format.avro import META_COLUMNS, arrow_to_avro
from lakelatch.format.log.blocks import encode_log_file, read_log_file
from lakelatch.format.parquet import read_parquet
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, add_checksum, verify_checksum

TEXT = f"{CHECKSUM_KEY}: lakelatch-crc32:deadbeef"
NAME = ".f_1.log.1_0-0-0"
SCHEMA = pa.schema([("v", pa.string())])


def log_of(block_format: str) -> bytes:
    values = [*(("20260101000000000",) for _ in META_COLUMNS), (TEXT,)]
    rows = pa.table([pa.array(column) for column in values], names=[*META_COLUMNS, "v"])
    return encode_log_file("20260101000000000", arrow_to_avro(SCHEMA, "t"), rows, None, block_format)


def foreign(data: bytes) -> bytes:
    """The same file as somebody writes it who knows no checksums."""
    mark = NO_CHECKSUM.encode()
    assert data.count(mark) == 1
    return data.replace(mark, b"x" * len(mark))


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_a_log_file(block_format: str) -> None:
    data = log_of(block_format)
    (entries,) = read_log_file(foreign(data), NAME)
    assert entries.records is not None and entries.records["v"].to_pylist() == [TEXT]
    checksummed = add_checksum(data, NAME)
    (entries,) = read_log_file(checksummed, NAME)
    assert entries.records is not None and entries.records["v"].to_pylist() == [TEXT]
    with pytest.raises(CorruptTable, match="not as it was written"):
        list(read_log_file(checksummed[:-40] + bytes([checksummed[-40] ^ 1]) + checksummed[-39:], NAME))


def test_a_parquet_file() -> None:
    """Its footer has the least and the greatest value of each column."""
    plain, own = io.BytesIO(), io.BytesIO()
    table = pa.table({"v": [TEXT]})
    pq.write_table(table, plain, use_dictionary=False, compression="none")
    assert plain.getvalue().count(TEXT.encode()) > 1
    rows, _ = read_parquet(plain.getvalue(), "f.parquet")
    assert rows["v"].to_pylist() == [TEXT]
    pq.write_table(
        table.replace_schema_metadata({CHECKSUM_KEY: NO_CHECKSUM}), own, compression="none", use_dictionary=False
    )
    checksummed = add_checksum(own.getvalue(), "f.parquet")
    assert verify_checksum(checksummed, "f.parquet")
    assert checksummed.count(TEXT.encode()) == own.getvalue().count(TEXT.encode())
    rows, _ = read_parquet(checksummed, "f.parquet")
    assert rows["v"].to_pylist() == [TEXT]
    with pytest.raises(CorruptTable, match="not as it was written"):
        read_parquet(checksummed.replace(b"deadbeef", b"deadbeer"), "f.parquet")
