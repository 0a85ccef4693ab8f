"""Between Arrow's schemas and Avro's, which Hudi keeps in commits and log files; and Hudi's five meta columns.

Every column and every nested value is nullable, as Spark writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pyarrow as pa

from lakelatch.errors import CorruptTable, InvalidRequest

COMMIT_TIME_COLUMN = "_hoodie_commit_time"
COMMIT_SEQUENCE_COLUMN = "_hoodie_commit_seqno"
RECORD_KEY_COLUMN = "_hoodie_record_key"
PARTITION_PATH_COLUMN = "_hoodie_partition_path"
FILE_NAME_COLUMN = "_hoodie_file_name"
META_COLUMNS = (
    COMMIT_TIME_COLUMN,
    COMMIT_SEQUENCE_COLUMN,
    RECORD_KEY_COLUMN,
    PARTITION_PATH_COLUMN,
    FILE_NAME_COLUMN,
)
IS_DELETED_COLUMN = "_hoodie_is_deleted"
COMMENT = b"comment"  # of an Arrow field's metadata; Avro calls it `doc`, as Hudi's Spark writer does

_RECORD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL_DIGITS_MAX = 38


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The five meta columns first, then the schema's own, whether or not it had meta columns already."""
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return pa.schema([*meta, *without_meta_columns(schema)])


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that belong to the data."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def with_comment(name: str, kind: pa.DataType, comment: object) -> pa.Field:
    """A nullable column of that name and type; what is no text, or an empty one, is no comment."""
    if not (isinstance(comment, str) and comment):
        return pa.field(name, kind)
    return pa.field(name, kind, metadata={COMMENT: comment.encode(errors="replace")})


def comment_of(field: pa.Field) -> str:
    """The comment of a column, or of a field of a nested one; empty where nobody has said one."""
    comment: bytes = (field.metadata or {}).get(COMMENT, b"")
    return comment.decode(errors="replace")


def arrow_to_avro(schema: pa.Schema, table_name: str) -> str:
    """The schema as Avro JSON, with the record names that Hudi's Spark writer gives.

    Errors: `InvalidRequest` naming a column whose name or type Hudi's readers cannot take, or would change.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "__", table_name)
    name = name if _RECORD_NAME.fullmatch(name) else f"_{name}"
    record = {
        "type": "record",
        "name": f"{name}_record",
        "namespace": f"hoodie.{name}",
        "fields": _avro_fields(schema, f"hoodie.{name}.{name}_record", ""),
    }
    return json.dumps(record, separators=(",", ":"))


def avro_to_arrow(avro_schema: str) -> pa.Schema:
    """The columns of an Avro record schema, meta columns included if it has them.

    Errors: `CorruptTable` for text that is no record schema, `InvalidRequest` naming a column of a type that Spark
    has not.
    """
    try:
        record = json.loads(avro_schema)
        parsed: Any = fastavro.parse_schema({**record, "fields": record["fields"]}, _write_hint=False)
    except Exception as error:  # the library raises whatever the text provokes
        raise CorruptTable(f"the table's schema is no Avro record schema ({error}): {avro_schema[:200]!r}") from error
    named: dict[str, Any] = {}
    return pa.schema(_arrow_fields(parsed["fields"], "", named))


def avro_with_meta_columns(avro_schema: str, properties: Mapping[str, str] | None = None) -> str:
    """The Avro schema with the five meta columns first, as log blocks and base files carry it; the rest untouched.

    `properties` are added to the record's own.
    """
    record = {**json.loads(avro_schema), **(properties or {})}
    own = [field for field in record["fields"] if field["name"] not in META_COLUMNS]
    meta = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
    return json.dumps({**record, "fields": [*meta, *own]}, separators=(",", ":"))


def _avro_fields(fields: Any, namespace: str, path: str) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        column = f"{path}.{field.name}" if path else field.name
        if not _is_name(field.name):
            raise InvalidRequest(
                f"the column name {column!r} cannot be stored: Hudi's schemas take letters and digits of any script "
                "and '_', with no digit first. Rename it"
            )
        comment = comment_of(field)
        doc = {"doc": comment} if comment or (not path and field.name in META_COLUMNS) else {}
        kind = ["null", _avro_type(field.type, field.name, namespace, column)]
        found.append({"name": field.name, "type": kind, **doc, "default": None})
    names = [field["name"] for field in found]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidRequest(f"the column(s) {', '.join(twice)} occur more than once: drop or rename them")
    return found


_SPARK_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "large_string": "string",
    "large_binary": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
}
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
)


def _avro_type(kind: pa.DataType, name: str, namespace: str, column: str) -> Any:
    for matches, avro in _PLAIN:
        if matches(kind):
            return avro
    if pa.types.is_dictionary(kind):
        return _avro_type(kind.value_type, name, namespace, column)
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        unit = "millis" if kind.unit == "ms" else "micros"
        return {"type": "long", "logicalType": f"timestamp-{unit}" if kind.tz else f"local-timestamp-{unit}"}
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, name, namespace, column)]}
    if pa.types.is_map(kind) and (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, name, namespace, column)]}
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = _avro_fields(kind.fields, f"{namespace}.{name}", column)
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    raise InvalidRequest(
        f"the column {column!r} is {shown_type(kind)}, which Hudi's tables do not have: cast it to {_nearest(kind)}"
    )


def shown_type(kind: pa.DataType) -> str:
    """The name of a type in Spark, or in Arrow if Spark does not have it."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{shown_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{shown_type(kind.key_type)},{shown_type(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{shown_type(field.type)}' for field in kind)}>"
    return _SPARK_NAMES.get(str(kind), str(kind))


def _nearest(kind: pa.DataType) -> str:
    """The type that takes such values."""
    types = pa.types
    if types.is_integer(kind):
        return "decimal(20,0)" if types.is_uint64(kind) else "bigint" if types.is_uint32(kind) else "int"
    if types.is_map(kind):
        return "one whose keys are texts"
    return {"halffloat": "float", "duration[us]": "bigint"}.get(str(kind), "string, or drop it")


def _is_name(name: str) -> bool:
    """As Avro's own library for Java has it."""
    starts = name[:1].isalpha() or name[:1] == "_"
    return starts and all(char == "_" or char.isalpha() or char.isdecimal() for char in name)


def decimal_bytes(precision: int) -> int:
    """The least bytes that hold every decimal of so many digits, sign included."""
    size = 1
    while 2 ** (8 * size - 1) <= 10**precision - 1:
        size += 1
    return size


_ARROW_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_ARROW_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
}


def _arrow_fields(fields: Any, path: str, named: dict[str, Any]) -> list[pa.Field]:
    names = [field["name"] for field in fields]
    kinds = [_arrow_type(field["type"], f"{path}{field['name']}", named) for field in fields]
    return [with_comment(*each) for each in zip(names, kinds, [field.get("doc") for field in fields], strict=True)]


def _arrow_type(avro: Any, column: str, named: dict[str, Any]) -> pa.DataType:
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) != 1:
            raise InvalidRequest(f"the column {column!r} is a union of {len(branches)} types, which Spark cannot hold")
        return _arrow_type(branches[0], column, named)
    if isinstance(avro, str):
        if avro in _ARROW_PLAIN:
            return _ARROW_PLAIN[avro]
        if avro in named:
            return _arrow_type(named[avro], column, named)
        raise InvalidRequest(f"the column {column!r} has the Avro type {avro!r}, which Spark cannot hold")
    kind, logical = avro["type"], avro.get("logicalType")
    if "name" in avro:
        named[avro["name"]] = avro
    if logical == "decimal" and avro["precision"] <= _DECIMAL_DIGITS_MAX:
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if (kind, logical) in _ARROW_LOGICAL:
        return _ARROW_LOGICAL[kind, logical]
    if kind == "array":
        return pa.list_(pa.field("element", _arrow_type(avro["items"], column, named)))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(avro["values"], column, named))
    if kind == "record":
        return pa.struct(_arrow_fields(avro["fields"], f"{column}.", named))
    return _arrow_type(kind, column, named)
