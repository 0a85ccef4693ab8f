"""Native log files of table version 10: parquet files of rows, or of deletes, that say in their footer what a block's
header says (RFC-103).

They are read, and not written. What is known of them is from Hudi's sources of 2026: no release had written one yet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.log.blocks import LogEntries
from lakelatch.format.log.delete_block import Deletes
from lakelatch.format.names import LogFile

_PREFIX = "hudi.log.format."
_AS_ONE = f"{_PREFIX}metadata"  # all headers as one JSON text, as they were at first
_NEWEST_VERSION = 2
_ROWS = "log.parquet"


def read_native_log(
    data: bytes, file: LogFile, path: str, columns: Collection[str] | None = None
) -> Iterator[LogEntries]:
    """The contents of a native log file; of `columns` those that its rows have, or all of them.

    Errors: `CorruptTable` for what does not decode, `InvalidRequest` for what is of a kind that cannot be read here.
    """
    if not file.native.endswith(".parquet"):
        raise InvalidRequest(f"the log file {path} is no parquet file: read the table with Hudi", path=path)
    has_rows = file.native == _ROWS
    try:
        parquet = pq.ParquetFile(io.BytesIO(data))
        headers = _headers(parquet.schema_arrow.metadata or {})
        _check(headers, path)
        known = parquet.schema_arrow.names
        wanted = known if columns is None or not has_rows else [name for name in known if name in columns]
        table = parquet.read(wanted, use_threads=False)
        table.validate(full=True)  # nothing else says whether the bytes are as they were written
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptTable(f"the log file {path} does not decode: {error}", path=path) from error
    instant = headers.get("INSTANT_TIME", file.instant)
    if has_rows:
        yield LogEntries(instant, records=table, partial=headers.get("IS_PARTIAL", "").lower() == "true", path=path)
    else:
        yield LogEntries(instant, deletes=_deletes(table, path), path=path)


def _headers(footer: Mapping[bytes, bytes]) -> dict[str, str]:
    """The headers by Hudi's names for them."""
    texts = {key.decode(): value.decode() for key, value in footer.items() if key.startswith(_PREFIX.encode())}
    as_one = json.loads(texts.pop(_AS_ONE, "{}"))
    return {**as_one, **{key.removeprefix(_PREFIX): value for key, value in texts.items()}}


def _check(headers: Mapping[str, str], path: str) -> None:
    if "SCHEMA" not in headers:
        raise CorruptTable(
            f"the log file {path} has no {_PREFIX}SCHEMA in its footer: restore it from a copy", path=path
        )
    if int(headers.get("VERSION", "1")) > _NEWEST_VERSION:
        raise InvalidRequest(
            f"the log file {path} has the format {headers['VERSION']}, and this version of lakelatch knows those up to "
            f"{_NEWEST_VERSION}: upgrade lakelatch",
            path=path,
        )
    if "COMPACTED_BLOCK_TIMES" in headers:
        raise InvalidRequest(
            f"the log file {path} is of a log compaction, of which it is not known here which files it repeats: have "
            "Hudi compact the table",
            path=path,
        )


def _deletes(table: pa.Table, path: str) -> Deletes:
    """Deletes of these keys, each with the value of the ordering field or null: those are all columns of the file."""
    if RECORD_KEY_COLUMN not in table.column_names or table[RECORD_KEY_COLUMN].null_count:
        raise CorruptTable(f"the log file {path} has deletes without a record key: restore it from a copy", path=path)
    ordering = table.drop_columns([RECORD_KEY_COLUMN])
    if ordering.num_columns > 1:
        names = ", ".join(ordering.column_names)
        raise InvalidRequest(f"the log file {path} orders deletes by {names}: lakelatch knows one field", path=path)
    return Deletes(table[RECORD_KEY_COLUMN], "", ordering.column(0) if ordering.num_columns else None)
