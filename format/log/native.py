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
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def read_native_log(
    data: bytes, file: LogFile, path: str, columns: Collection[str] | None = None, ordering: str = ""
) -> Iterator[LogEntries]:
    """The contents of a native log file; of `columns` those that its rows have, or all of them.

    `ordering` is the field whose values decide between a row and a delete, if any do.

    Errors: `CorruptTable` for what does not decode, `InvalidRequest` for what is of a kind that cannot be read here.
    """
    if not file.native.endswith(".parquet"):
        raise InvalidRequest(f"the log file {path} is no parquet file: read the table with Hudi", path=path)
    has_rows = file.native == _ROWS
    try:
        parquet = pq.ParquetFile(io.BytesIO(data))
        headers = _headers(parquet.schema_arrow.metadata or {})
        _check(headers, file.instant, path)
        known = parquet.schema_arrow.names
        if len(set(known)) < len(known):
            raise ValueError(f"of the columns {', '.join(known)} some have the same name")
        wanted = known if columns is None or not has_rows else [name for name in known if name in columns]
        table = parquet.read(wanted, use_threads=False)
        table.validate(full=True)  # nothing else says whether the bytes are as they were written
        table = _with_text_keys(table)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptTable(f"the log file {path} does not decode: {error}", path=path) from error
    if has_rows:
        partial = headers.get("IS_PARTIAL", "").lower() == "true"
        yield LogEntries(file.instant, records=table, partial=partial, path=path)
    else:
        yield LogEntries(file.instant, deletes=_deletes(table, ordering, path), path=path)


def _headers(footer: Mapping[bytes, bytes]) -> dict[str, str]:
    """The headers by Hudi's names for them, as texts: JSON has numbers and truth values too. Errors: `ValueError`."""
    texts = {key.decode(): value.decode() for key, value in footer.items() if key.startswith(_PREFIX.encode())}
    as_one = json.loads(texts.pop(_AS_ONE, "{}"))
    if not isinstance(as_one, dict):
        raise ValueError(f"its headers are {as_one!r}, and not an object of JSON")
    said = {name: value if isinstance(value, str) else json.dumps(value) for name, value in as_one.items()}
    return {**said, **{key.removeprefix(_PREFIX): value for key, value in texts.items()}}


def _check(headers: Mapping[str, str], instant: str, path: str) -> None:
    if "SCHEMA" not in headers:
        raise CorruptTable(
            f"the log file {path} has no {_PREFIX}SCHEMA in its footer: restore it from a copy", path=path
        )
    if headers.get("INSTANT_TIME", instant) != instant:
        raise CorruptTable(
            f"the log file {path} is of the instant {headers['INSTANT_TIME']} by its footer, and of {instant} by its "
            "name: restore it from a copy",
            path=path,
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


def _with_text_keys(table: pa.Table) -> pa.Table:
    """The rows, with their record keys as plain text. Errors: `ValueError` if these are none."""
    if RECORD_KEY_COLUMN not in table.column_names:
        return table
    at, keys = table.column_names.index(RECORD_KEY_COLUMN), table[RECORD_KEY_COLUMN]
    kind = keys.type.value_type if pa.types.is_dictionary(keys.type) else keys.type
    if kind not in _TEXTS:
        raise ValueError(f"its record keys are of type {kind}, and not texts")
    return table.set_column(at, RECORD_KEY_COLUMN, keys.cast(kind).cast(pa.string()))


def _deletes(table: pa.Table, ordering: str, path: str) -> Deletes:
    """Deletes of these keys, each with the value of the ordering field or null: those are all columns of the file."""
    if RECORD_KEY_COLUMN not in table.column_names or table[RECORD_KEY_COLUMN].null_count:
        raise CorruptTable(f"the log file {path} has deletes without a record key: restore it from a copy", path=path)
    values = table.drop_columns([RECORD_KEY_COLUMN])
    names = ", ".join(values.column_names)
    if values.num_columns > 1:
        raise InvalidRequest(f"the log file {path} orders deletes by {names}: lakelatch knows one field", path=path)
    if names and ordering and names != ordering:
        raise InvalidRequest(
            f"the log file {path} orders deletes by {names}, and the table by {ordering}: have Hudi compact the table",
            path=path,
        )
    return Deletes(table[RECORD_KEY_COLUMN], "", values.column(0) if names else None)
