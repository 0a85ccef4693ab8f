"""The contents of log blocks: rows as parquet or Avro, deletes as keys with ordering values, commands to roll back."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError
from lakelatch.format.avro import avro_to_arrow, avro_with_meta_columns
from lakelatch.format.log.delete_block import Deletes as Deletes
from lakelatch.format.log.delete_block import decode_deletes, encode_deletes
from lakelatch.format.log.framing import (
    AVRO_BLOCK,
    CDC_BLOCK,
    COMMAND_BLOCK,
    CORRUPT_BLOCK,
    DELETE_BLOCK,
    INSTANT_TIME,
    IS_PARTIAL,
    PARQUET_BLOCK,
    SCHEMA,
    TARGET_INSTANT_TIME,
    Block,
    encode_block,
    read_blocks,
)
from lakelatch.format.parquet import repeating_leaves
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, verify_checksum
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

PARQUET_FORMAT = "parquet"
AVRO_FORMAT = "avro"
AVRO_SCHEMA_FOOTER = "parquet.avro.schema"
# In the schema of a block, as the checksum is; Avro lets readers pass over properties that they do not know.
GROUP_DELETES = "lakelatch.group.deletes"

_COUNTS = struct.Struct(">ii")
_INT = struct.Struct(">i")
_CONTENT_VERSION = 3
# For so few a context of zstd for each page costs half of what the block does, and saves nothing.
_FEW_ROWS, _FEW_BYTES = 100, 64 * 1024
_AVRO_ROWS_AT_ONCE = 64 * 1024
_SAMPLE_ROWS = 1024  # by which it is decided which columns have dictionaries


@dataclass(frozen=True)
class LogEntries:
    """A decoded block: rows, or deletes, or the instant whose earlier blocks are rolled back.

    `path` is that of its file. `partial` rows have some of the table's columns, and leave the others unchanged. In rows
    that are `group_deletes`, each ordering column with a value deletes the columns of its group.
    """

    instant: str
    records: pa.Table | None = None
    deletes: Deletes | None = None
    rolled_back: str | None = None
    partial: bool = False
    group_deletes: bool = False
    path: str = ""


def data_block_format(config: TableConfig, schema: pa.Schema) -> str:
    """The default format of a table's rows in log blocks: parquet, or Avro if the ordering values are texts.

    In Java (1.0.2 to 1.2.0) the texts of a parquet block's rows share one buffer, which the next row overwrites: when
    ordering values are compared, all of them are the last row's.
    """
    if config.merge_mode != EVENT_TIME or config.ordering_field not in schema.names:
        return PARQUET_FORMAT
    kind = schema.field(config.ordering_field).type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return AVRO_FORMAT if texts else PARQUET_FORMAT


def encode_log_file(
    instant: str,
    avro_schema: str,
    records: pa.Table | None,
    deletes: Deletes | None,
    data_block_format: str = PARQUET_FORMAT,
    group_deletes: pa.Table | None = None,
) -> bytes:
    """A whole log file: a block of rows, one of rows that delete column groups, one of deletes; any may be missing.

    `avro_schema` is the table's; the meta columns are added to it if they are not there. `records` has the meta
    columns first; if it lacks columns of the table, its block says that it is partial. Deletes without an ordering
    value go into a block of their own: readers refuse a mixture.
    """
    headers = {INSTANT_TIME: instant, SCHEMA: avro_with_meta_columns(avro_schema, {CHECKSUM_KEY: NO_CHECKSUM})}
    blocks = []
    for rows, deleting in ((records, False), (group_deletes, True)):
        if rows is not None and rows.num_rows:
            own = {**headers, **_partial_headers(headers[SCHEMA], rows.column_names, deleting)}
            kind, content = _encode_records(rows, own[SCHEMA], data_block_format)
            blocks.append(encode_block(kind, own, content))
    if deletes is not None and len(deletes.keys):
        blocks += [encode_block(DELETE_BLOCK, headers, content) for content in encode_deletes(deletes)]
    if not blocks:
        raise InvalidRequest("a log file needs rows or deletes: there is nothing to write")
    return b"".join(blocks)


def encode_empty_log(instant: str, avro_schema: str) -> bytes:
    """A log file with neither rows nor deletes, which makes an empty file group for every Hudi reader."""
    headers = {INSTANT_TIME: instant, SCHEMA: avro_with_meta_columns(avro_schema, {CHECKSUM_KEY: NO_CHECKSUM})}
    nothing = Deletes(pa.chunked_array([pa.array([], pa.string())]), "", None)
    return b"".join(encode_block(DELETE_BLOCK, headers, content) for content in encode_deletes(nothing))


def read_log_file(data: bytes, path: str, columns: Collection[str] | None = None) -> Iterator[LogEntries]:
    """The contents of a log file, block by block; of `columns` those that a block has, or all of them.

    A parquet block's other columns are not decoded. A file with a checksum is refused if it is not as it was written.

    Errors: `CorruptTable` for a torn file and for content that does not decode, `InvalidRequest` for kinds of blocks
    that hold no rows of a data table.
    """
    checksummed = verify_checksum(data, path)
    for block in read_blocks(data, path):
        try:
            entries = _decode(block, columns)
            if not checksummed and entries is not None and entries.records is not None:
                entries.records.validate(full=True)  # texts, for one, are not looked at otherwise
        except LakelatchError as error:
            raise type(error)(f"in the log file {path}: {error.message}", path=path) from error
        except Exception as error:  # the libraries raise whatever the bytes provoke
            raise CorruptTable(
                f"a block (kind {block.kind}, instant {block.instant}) of the log file {path} does not decode: {error}",
                path=path,
            ) from error
        if entries is not None:
            yield replace(entries, path=path)
            del entries  # else it stays while the next one is decoded


def with_records(block: Block, change: Callable[[pa.Table], pa.Table]) -> Block:
    """A block with its rows changed, in the same encoding and under the same headers; any other block as it is."""
    entries = _decode(block)
    if entries is None or entries.records is None:
        return block
    block_format = PARQUET_FORMAT if block.kind == PARQUET_BLOCK else AVRO_FORMAT
    kind, content = _encode_records(change(entries.records), block.headers[SCHEMA], block_format)
    return Block(kind, block.headers, content)


def _decode(block: Block, columns: Collection[str] | None = None) -> LogEntries | None:
    if block.kind in (CORRUPT_BLOCK, CDC_BLOCK):
        return None
    if block.kind == COMMAND_BLOCK:
        if TARGET_INSTANT_TIME not in block.headers:
            raise CorruptTable(f"a command block of instant {block.instant} does not say what it rolls back")
        return LogEntries(block.instant, rolled_back=block.headers[TARGET_INSTANT_TIME])
    if block.kind in (PARQUET_BLOCK, AVRO_BLOCK):
        partial = block.headers.get(IS_PARTIAL, "").lower() == "true"
        deleting = partial and bool(json.loads(block.headers[SCHEMA]).get(GROUP_DELETES))
        rows = _decode_parquet(block, columns) if block.kind == PARQUET_BLOCK else _decode_avro(block, columns)
        return LogEntries(block.instant, records=rows, partial=partial, group_deletes=deleting)
    if block.kind == DELETE_BLOCK:
        return LogEntries(block.instant, deletes=decode_deletes(bytes(block.content)))
    raise InvalidRequest(f"a log block of kind {block.kind} (HFile) belongs to Hudi's metadata table: it is no data")


def _partial_headers(avro_schema: str, names: list[str], deleting: bool) -> dict[int, str]:
    """The headers of Hudi's partial updates: the flag, and a schema of the columns that are there."""
    record = json.loads(avro_schema)
    fields = [field for field in record["fields"] if field["name"] in names]
    if len(fields) == len(record["fields"]) and not deleting:
        return {}
    own = {GROUP_DELETES: True} if deleting else {}
    return {IS_PARTIAL: "true", SCHEMA: json.dumps({**record, "fields": fields, **own}, separators=(",", ":"))}


def _encode_records(records: pa.Table, avro_schema: str, block_format: str) -> tuple[int, bytes]:
    if block_format == PARQUET_FORMAT:
        sink = pa.BufferOutputStream()
        footer = records.replace_schema_metadata({AVRO_SCHEMA_FOOTER: avro_schema})
        few = records.num_rows <= _FEW_ROWS and records.nbytes <= _FEW_BYTES
        compression = "snappy" if few else "zstd"
        repeating = records.num_rows < _SAMPLE_ROWS or repeating_leaves(records, _SAMPLE_ROWS)
        pq.write_table(footer, sink, compression=compression, use_dictionary=repeating, store_schema=False)
        return PARQUET_BLOCK, sink.getvalue().to_pybytes()
    if block_format == AVRO_FORMAT:
        return AVRO_BLOCK, _encode_avro(records, avro_schema)
    raise InvalidRequest(f"hoodie.logfile.data.block.format={block_format!r} is neither parquet nor avro")


def _encode_avro(records: pa.Table, avro_schema: str) -> bytes:
    schema = _parse(avro_schema)
    sink = io.BytesIO()
    sink.write(_COUNTS.pack(_CONTENT_VERSION, records.num_rows))
    row = io.BytesIO()
    for batch in records.to_batches(max_chunksize=_AVRO_ROWS_AT_ONCE):
        for values in batch.to_pylist(maps_as_pydicts="strict"):
            row.seek(0)
            row.truncate()
            fastavro.schemaless_writer(row, schema, values)
            sink.write(_INT.pack(row.tell()))
            sink.write(row.getvalue())
    return sink.getvalue()


def _decode_parquet(block: Block, columns: Collection[str] | None) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(block.content)))
    names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
    return file.read(names, use_threads=False)  # a task has one core, and the pool keeps what other threads have freed


def _decode_avro(block: Block, columns: Collection[str] | None) -> pa.Table:
    """Decodes Avro, which has to be read whole; columns that are not wanted are only not converted to Arrow."""
    text = block.headers.get(SCHEMA)
    if text is None:
        raise CorruptTable(f"an Avro log block of instant {block.instant} carries no schema: it cannot be read")
    arrow_schema = avro_to_arrow(text)
    if columns is not None:
        arrow_schema = pa.schema([field for field in arrow_schema if field.name in columns])
    schema = _parse(json.dumps(_without_times(json.loads(text))))
    version, count = _COUNTS.unpack_from(block.content, 0)
    if version != _CONTENT_VERSION:
        raise CorruptTable(f"an Avro log block of instant {block.instant} has content version {version}, not 3")
    position = _COUNTS.size
    batches: list[pa.RecordBatch] = []
    rows: list[Any] = []
    for _ in range(count):
        (size,) = _INT.unpack_from(block.content, position)
        position += _INT.size
        if size < 0 or position + size > len(block.content):
            raise CorruptTable(f"a record of {size} bytes overruns an Avro log block of instant {block.instant}")
        rows.append(fastavro.schemaless_reader(io.BytesIO(block.content[position : position + size]), schema, None))
        position += size
        if len(rows) == _AVRO_ROWS_AT_ONCE:
            batches.append(pa.RecordBatch.from_pylist(rows, schema=arrow_schema))
            rows = []
    batches.append(pa.RecordBatch.from_pylist(rows, schema=arrow_schema))
    return pa.Table.from_batches(batches, schema=arrow_schema)


def _parse(avro_schema: str) -> Any:
    return fastavro.parse_schema(json.loads(avro_schema))


def _without_times(avro: Any) -> Any:
    """Dates and times as the numbers they are: Arrow takes those, and Python's own types cannot hold all of them."""
    if isinstance(avro, list):
        return [_without_times(branch) for branch in avro]
    if isinstance(avro, Mapping):
        plain = {key: _without_times(value) for key, value in avro.items()}
        if avro.get("type") in ("int", "long"):
            plain.pop("logicalType", None)
        return plain
    return avro
