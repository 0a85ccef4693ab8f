"""Parquet files as bytes, with a place for a checksum; whatever is wrong with one that is read is `CorruptTable`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, verify_checksum


def encode_parquet(rows: pa.Table, footer: Mapping[str, str]) -> bytes:
    """The file's bytes, to which `add_checksum` adds that of its path."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(rows)
        # That of a schema is dropped with `store_schema=False`. The checksum is the last text in the file.
        writer.add_key_value_metadata({**footer, CHECKSUM_KEY: NO_CHECKSUM})
    return sink.getvalue()


def read_parquet(
    data: bytes, path: str, columns: Sequence[str] | None = None, what: str = "file"
) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """The rows, and the texts of the footer. Of `columns` those that the file has. Errors: `CorruptTable`."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        footer = file.metadata.metadata or {}
        # Another writer's footer may hold the same text as the least or the greatest value of a column.
        checksummed = CHECKSUM_KEY.encode() in footer and verify_checksum(data, path)
        names = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        rows = file.read(columns=names)
        if not checksummed:
            rows.validate(full=True)  # texts, for one, are not looked at otherwise
        return rows, footer
    except CorruptTable:
        raise
    except Exception as error:  # the library raises whatever the bytes provoke
        raise CorruptTable(f"the {what} {path} does not decode ({error}): restore it from a copy", path=path) from error
