"""Table schemas: Arrow for data, Avro for Hudi's metadata, with and without Hudi's five meta columns."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from lakelatch.errors import CorruptTable, InvalidRequest

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
COMMIT_TIME_COLUMN, SEQUENCE_COLUMN, RECORD_KEY_COLUMN, PARTITION_PATH_COLUMN, FILE_NAME_COLUMN = META_COLUMNS
IS_DELETED_COLUMN = "_hoodie_is_deleted"

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: tuple[tuple[pa.DataType, Any], ...] = (
    (pa.bool_(), "boolean"),
    (pa.int8(), "int"),
    (pa.int16(), "int"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.large_string(), "string"),
    (pa.binary(), "bytes"),
    (pa.large_binary(), "bytes"),
    (pa.date32(), {"type": "int", "logicalType": "date"}),
    (pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-micros"}),
    (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-micros"}),
)
_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "null": pa.null(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "time-micros": pa.time64("us"),
    "time-millis": pa.time32("ms"),
    "uuid": pa.string(),
}


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The schema with the five meta columns in front."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])


def arrow_to_avro(schema: pa.Schema, table_name: str) -> str:
    """The Avro schema as JSON; every column may be null. `InvalidRequest` names a column whose type has no place in it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", table_name)
    fields = [_avro_field(field, f"hoodie.{name}.{name}_record") for field in schema]
    return json.dumps({"type": "record", "name": f"{name}_record", "namespace": f"hoodie.{name}", "fields": fields})


def avro_to_arrow(text: str) -> pa.Schema:
    """The Arrow schema of an Avro record schema, meta columns left out. `CorruptTable` for what is no such schema."""
    try:
        parsed = json.loads(text)
        fields = [(field["name"], _arrow_type(field["type"])) for field in parsed["fields"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTable(f"the table's schema is no Avro record schema ({error})") from error
    return pa.schema([pa.field(name, kind) for name, kind in fields if name not in META_COLUMNS])


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns, by name; columns that it lacks are null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        position = table.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            columns.append(table.column(position).cast(field.type))
    return pa.table(columns, schema=schema)


def _avro_field(field: pa.Field, scope: str) -> dict[str, Any]:
    if not _AVRO_NAME.fullmatch(field.name):
        raise InvalidRequest(
            f"the column {field.name!r} cannot be stored: Hudi's schemas take letters, digits and '_' in names; rename it"
        )
    return {"name": field.name, "type": ["null", _avro_type(field.type, f"{scope}.{field.name}")], "default": None}


def _avro_type(kind: pa.DataType, scope: str) -> Any:
    for arrow, avro in _SIMPLE:
        if kind == arrow:
            return avro
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(kind):
        size = _decimal_bytes(kind.precision)
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": "fixed", "namespace": scope, "size": size, **logical}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, f"{scope}.element")]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, f"{scope}.value")]}
    if pa.types.is_struct(kind):
        fields = [_avro_field(kind.field(index), scope) for index in range(kind.num_fields)]
        namespace, _, name = scope.rpartition(".")
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    column = scope.rpartition("_record.")[2]
    raise InvalidRequest(f"the column {column!r} is {kind}, for which Hudi's tables have no type: cast it")


def _arrow_type(avro: Any) -> pa.DataType:
    if isinstance(avro, list):
        kinds = [branch for branch in avro if branch != "null"]
        if len(kinds) != 1:
            raise TypeError(f"the union {avro} has not one type")
        return _arrow_type(kinds[0])
    if isinstance(avro, str):
        return _PRIMITIVES[avro]
    logical = avro.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if avro["type"] == "array":
        return pa.list_(_arrow_type(avro["items"]))
    if avro["type"] == "map":
        return pa.map_(pa.string(), _arrow_type(avro["values"]))
    if avro["type"] == "record":
        return pa.struct([pa.field(field["name"], _arrow_type(field["type"])) for field in avro["fields"]])
    if avro["type"] == "fixed":
        return pa.binary(avro["size"])
    return _arrow_type(avro["type"])


def _decimal_bytes(precision: int) -> int:
    """The least bytes that hold every number of this precision, as Spark's Avro converter counts them."""
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size
