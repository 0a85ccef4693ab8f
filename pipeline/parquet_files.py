"""Parquet files as bytes: sealed when they are made, and read so that whatever is wrong with them is one error."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.storage.seals import SEAL_KEY, UNSEALED, check_seal


def encode_parquet(rows: pa.Table, footer: Mapping[str, str]) -> bytes:
    """The file's bytes, to be sealed under its path."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(rows)
        # That of a schema is dropped with `store_schema=False`. The seal is the last text in the file.
        writer.add_key_value_metadata({**footer, SEAL_KEY: UNSEALED})
    return sink.getvalue()


def read_parquet(
    data: bytes, path: str, columns: Sequence[str] | None = None, what: str = "file"
) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """The rows, and the texts of the footer. Of `columns` those that the file has. Errors: `CorruptTable`."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        footer = file.metadata.metadata or {}
        # Another writer's footer may hold the same text as the least or the greatest value of a column.
        sealed = SEAL_KEY.encode() in footer and check_seal(data, path)
        names = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        rows = file.read(columns=names)
        if not sealed:
            rows.validate(full=True)  # texts, for one, are not looked at otherwise
        return rows, footer
    except CorruptTable:
        raise
    except Exception as error:  # the library raises whatever the bytes provoke
        raise CorruptTable(f"the {what} {path} does not decode ({error}): restore it from a copy", path=path) from error
