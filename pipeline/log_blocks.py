"""What log blocks hold: records (Parquet or Avro) and deletes."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.pipeline import log_format
from lakelatch.pipeline.log_format import Block, decode_blocks, encode_block
from lakelatch.pipeline.schemas import META_COLUMNS, avro_to_arrow, with_meta_columns

_BLOCK_VERSION = 3


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]}


_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPERS = [
    _wrapper("Boolean", "boolean"),
    _wrapper("Int", "int"),
    _wrapper("Long", "long"),
    _wrapper("Float", "float"),
    _wrapper("Double", "double"),
    _wrapper("Bytes", "bytes"),
    _wrapper("String", "string"),
    _wrapper("Date", {"type": "int", "logicalType": "date"}),
    _wrapper("Decimal", _DECIMAL),
    _wrapper("TimeMicros", {"type": "long", "logicalType": "time-micros"}),
    _wrapper("TimestampMicros", {"type": "long", "logicalType": "timestamp-micros"}),
]
_DELETE_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {"name": "orderingVal", "type": ["null", *_WRAPPERS]},
                        ],
                    },
                },
            }
        ],
    }
)


@dataclass(frozen=True)
class Deletes:
    """Keys to delete. Without ordering values such a delete wins over everything before it, whatever its time."""

    keys: pa.Array
    partition: str
    ordering: pa.Array | None = None


@dataclass(frozen=True)
class Entries:
    """The content of one block, for merging: either records with their meta columns, or deletes."""

    records: pa.Table | None = None
    deletes: Deletes | None = None


def encode_log_file(
    instant: str, avro_schema: str, records: pa.Table | None, deletes: Deletes | None, block_format: str = "parquet"
) -> bytes:
    """A whole log file: a data block, a delete block, or both in this order.

    `avro_schema` is the table's, without meta columns; `records` have them.
    """
    schema = _schema_with_meta(avro_schema)
    header = {log_format.INSTANT_TIME: instant, log_format.SCHEMA: schema}
    blocks = []
    if records is not None:
        if block_format == "parquet":
            blocks.append(Block(log_format.PARQUET_DATA, header, _encode_parquet(records)))
        else:
            blocks.append(Block(log_format.AVRO_DATA, header, _encode_avro(records, schema)))
    if deletes is not None:
        blocks.append(Block(log_format.DELETE, header, _encode_deletes(deletes)))
    return b"".join(encode_block(block) for block in blocks)


def decode_log_file(data: bytes, name: str) -> Iterator[Entries]:
    """The entries of one log file, in order; an empty file has none.

    Errors: `CorruptTable` for damaged bytes, `InvalidRequest` for kinds of blocks that are not supported (HFile).
    """
    for block in decode_blocks(data, name):
        try:
            if block.kind == log_format.PARQUET_DATA:
                yield Entries(records=pq.read_table(io.BytesIO(block.content)))
            elif block.kind == log_format.AVRO_DATA:
                yield Entries(records=_decode_avro(block))
            elif block.kind == log_format.DELETE:
                yield Entries(deletes=_decode_deletes(block.content))
            elif block.kind == log_format.HFILE_DATA:
                raise InvalidRequest(f"the log file {name!r} holds HFile blocks, which lakelatch does not read")
        except InvalidRequest:
            raise
        except Exception as error:  # the libraries raise whatever the bytes provoke
            raise CorruptTable(
                f"a block of the log file {name!r} is damaged ({error}): restore it from a copy", file=name
            ) from error


def _schema_with_meta(avro_schema: str) -> str:
    parsed = json.loads(avro_schema)
    meta = [{"name": name, "type": ["null", "string"], "default": None} for name in META_COLUMNS]
    parsed["fields"] = [*meta, *(field for field in parsed["fields"] if field["name"] not in META_COLUMNS)]
    return json.dumps(parsed)


def _encode_parquet(records: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(records, sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def _encode_avro(records: pa.Table, schema: str) -> bytes:
    parsed = fastavro.parse_schema(json.loads(schema))
    parts = [struct.pack(">ii", _BLOCK_VERSION, records.num_rows)]
    for record in records.to_pylist():
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, record)
        parts += [struct.pack(">i", sink.tell()), sink.getvalue()]
    return b"".join(parts)


def _decode_avro(block: Block) -> pa.Table:
    text = block.header[log_format.SCHEMA]
    parsed = fastavro.parse_schema(json.loads(text))
    version, count = struct.unpack_from(">ii", block.content, 0)
    if version > _BLOCK_VERSION:
        raise ValueError(f"data block version {version}")
    position = 8
    records = []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", block.content, position)
        position += 4
        records.append(fastavro.schemaless_reader(io.BytesIO(block.content[position : position + size]), parsed, None))
        position += size
    return pa.Table.from_pylist(records, schema=with_meta_columns(avro_to_arrow(text)))


def _encode_deletes(deletes: Deletes) -> bytes:
    keys = deletes.keys.to_pylist()
    if deletes.ordering is None:
        ordering: list[Any] = [None] * len(keys)
    else:
        branch = _branch_of(deletes.ordering.type)
        ordering = [(branch, {"value": value}) for value in deletes.ordering.to_pylist()]
    records = [
        {"recordKey": key, "partitionPath": deletes.partition, "orderingVal": value}
        for key, value in zip(keys, ordering, strict=True)
    ]
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, _DELETE_SCHEMA, {"deleteRecordList": records})
    return struct.pack(">ii", _BLOCK_VERSION, sink.tell()) + sink.getvalue()


def _decode_deletes(content: bytes) -> Deletes:
    version, size = struct.unpack_from(">ii", content, 0)
    if version != _BLOCK_VERSION:
        raise ValueError(f"delete block version {version}")
    decoded = fastavro.schemaless_reader(io.BytesIO(content[8 : 8 + size]), _DELETE_SCHEMA, None)
    assert isinstance(decoded, dict)
    records: list[dict[str, Any]] = decoded["deleteRecordList"]
    keys = pa.array([record["recordKey"] for record in records], pa.string())
    values = [record["orderingVal"] and record["orderingVal"]["value"] for record in records]
    partition = (records[0]["partitionPath"] or "") if records else ""
    # Hudi writes null or the number 0 where a delete has no ordering value of its own.
    if all(value is None or (isinstance(value, int) and value == 0) for value in values):
        return Deletes(keys, partition)
    return Deletes(keys, partition, pa.array(values))


def _branch_of(kind: pa.DataType) -> str:
    branches = (
        (pa.types.is_boolean, "Boolean"),
        (pa.types.is_int32, "Int"),
        (pa.types.is_int64, "Long"),
        (pa.types.is_float32, "Float"),
        (pa.types.is_float64, "Double"),
        (pa.types.is_binary, "Bytes"),
        (pa.types.is_string, "String"),
        (pa.types.is_date32, "Date"),
        (pa.types.is_decimal, "Decimal"),
        (pa.types.is_timestamp, "TimestampMicros"),
    )
    for is_kind, name in branches:
        if is_kind(kind):
            return f"{name}Wrapper"
    raise InvalidRequest(f"an ordering field of type {kind} cannot be stored with a delete: choose another field")
