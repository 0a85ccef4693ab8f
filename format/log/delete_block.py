"""The content of delete blocks: record keys, each with an ordering value, or with none and then winning in any case.

Java merges a delete's ordering value with those that rows have in Spark, where a timestamp is a number of microseconds
and a date one of days. So they are written as plain numbers: Java takes the branches that Hudi's schema has for them
for objects of other classes, which compare with nothing. Both kinds of branches are read.
"""

from __future__ import annotations

import decimal
import io
import struct
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import CorruptTable, InvalidRequest

_NAMESPACE = "org.apache.hudi.avro.model"
_CONTENT_VERSION = 3
_HEAD = struct.Struct(">ii")
_DECIMAL_SCALE = 15
_DECIMAL_DIGITS = 30
_WIDE = decimal.Context(prec=2 * _DECIMAL_DIGITS)


@dataclass(frozen=True)
class Deletes:
    """Record keys to delete, of one partition. `ordering` has a value for each key; None, or a null, is the default.

    A delete with the default ordering value wins over every row written before it, whatever that row's own value is.
    In a block that is what a 32-bit 0 means, so a delete ordered by the date 1970-01-01 comes back as one.
    """

    keys: pa.Array | pa.ChunkedArray
    partition: str
    ordering: pa.Array | pa.ChunkedArray | None = None


@dataclass(frozen=True)
class _Wrapper:
    """One branch of Hudi's union of ordering values: a record with one field. Avro's bytes ignore logical types."""

    name: str
    avro: Any
    arrow: pa.DataType


_WRAPPERS = (
    _Wrapper("BooleanWrapper", "boolean", pa.bool_()),
    _Wrapper("IntWrapper", "int", pa.int32()),
    _Wrapper("LongWrapper", "long", pa.int64()),
    _Wrapper("FloatWrapper", "float", pa.float32()),
    _Wrapper("DoubleWrapper", "double", pa.float64()),
    _Wrapper("BytesWrapper", "bytes", pa.binary()),
    _Wrapper("StringWrapper", "string", pa.string()),
    _Wrapper("DateWrapper", "int", pa.date32()),
    _Wrapper("DecimalWrapper", "bytes", pa.decimal128(_DECIMAL_DIGITS, _DECIMAL_SCALE)),
    _Wrapper("TimeMicrosWrapper", "long", pa.time64("us")),
    _Wrapper("TimestampMicrosWrapper", "long", pa.timestamp("us", "UTC")),
)
_BY_NAME = {wrapper.name: wrapper for wrapper in _WRAPPERS}
_DEFAULT_NAME = "IntWrapper"  # an int of 0 is Hudi's default ordering value, indistinguishable from a real one


def _schema() -> Any:
    def wrapper(name: str, field: str, kind: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}

    branches = [wrapper(found.name, "value", found.avro) for found in _WRAPPERS]
    items: list[Any] = ["null", *(found.name for found in _WRAPPERS)]
    items.append(wrapper("LocalDateWrapper", "value", "int"))
    several = wrapper("ArrayWrapper", "wrappedValues", ["null", {"type": "array", "items": items}])
    ordering = {"name": "orderingVal", "type": ["null", *branches, several], "default": None}
    texts = [{"name": name, "type": ["null", "string"], "default": None} for name in ("recordKey", "partitionPath")]
    record = {"type": "record", "name": "HoodieDeleteRecord", "fields": [*texts, ordering]}
    fields = [{"name": "deleteRecordList", "type": {"type": "array", "items": record}}]
    name = "HoodieDeleteRecordList"
    return fastavro.parse_schema({"type": "record", "name": name, "namespace": _NAMESPACE, "fields": fields})


_SCHEMA = _schema()


def encode_deletes(deletes: Deletes) -> list[bytes]:
    """Contents of one delete block, or of two: first the deletes with the default ordering value, then the others."""
    if deletes.ordering is None:
        return [
            _encode(
                deletes.keys, deletes.partition, [(f"{_NAMESPACE}.{_DEFAULT_NAME}", {"value": 0})] * len(deletes.keys)
            )
        ]
    missing = pc.is_null(deletes.ordering)
    contents = []
    if deletes.ordering.null_count:
        contents += encode_deletes(Deletes(deletes.keys.filter(missing), deletes.partition))
    if deletes.ordering.null_count < len(deletes.keys):
        present = pc.invert(missing)
        values = _wrapped(deletes.ordering.filter(present))
        contents.append(_encode(deletes.keys.filter(present), deletes.partition, values))
    return contents


def decode_deletes(content: bytes) -> Deletes:
    """The deletes of a block; the default ordering value becomes null. `CorruptTable` for anything else."""
    version, size = _HEAD.unpack_from(content, 0)
    if version != _CONTENT_VERSION or size != len(content) - _HEAD.size:
        raise CorruptTable(f"a delete block has content version {version} and {size} of {len(content)} bytes")
    stream = io.BytesIO(content[_HEAD.size :])
    record: Any = fastavro.schemaless_reader(stream, _SCHEMA, None, return_record_name=True)
    found = record["deleteRecordList"]
    values = [_unwrapped(delete["orderingVal"]) for delete in found]
    names = {value[0] for value in values if value is not None}
    if len(names) > 1:
        raise CorruptTable(f"a delete block mixes ordering values of several types ({', '.join(sorted(names))})")
    keys = pa.array([delete["recordKey"] for delete in found], pa.string())
    if keys.null_count:
        raise CorruptTable("a delete block has a delete without a record key")
    partition = (found[0]["partitionPath"] or "") if found else ""
    if not names:
        return Deletes(keys, partition)
    kind = _BY_NAME[names.pop()].arrow
    return Deletes(keys, partition, pa.array([None if value is None else value[1] for value in values], kind))


def _encode(keys: pa.Array | pa.ChunkedArray, partition: str, ordering: list[Any]) -> bytes:
    records = [
        {"recordKey": key, "partitionPath": partition, "orderingVal": value}
        for key, value in zip(keys.to_pylist(), ordering, strict=True)
    ]
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _SCHEMA, {"deleteRecordList": records})
    return _HEAD.pack(_CONTENT_VERSION, stream.tell()) + stream.getvalue()


def _wrapped(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Ordering values as branches of the union, by the column's type."""
    wrapper = _wrapper_of(values.type)
    if wrapper.name == "DecimalWrapper":
        plain: list[Any] = [_decimal_to_bytes(value) for value in values.to_pylist()]
    else:
        plain = _numbers(values).cast(wrapper.arrow).to_pylist()
    return [(f"{_NAMESPACE}.{wrapper.name}", {"value": value}) for value in plain]


def _wrapper_of(kind: pa.DataType) -> _Wrapper:
    types = pa.types
    if types.is_decimal(kind) and kind.scale <= _DECIMAL_SCALE:
        return _BY_NAME["DecimalWrapper"]
    if types.is_timestamp(kind):
        return _BY_NAME["LongWrapper"]
    if types.is_date32(kind):
        return _BY_NAME["IntWrapper"]
    if types.is_integer(kind):
        return _BY_NAME["IntWrapper" if kind.bit_width < 32 or types.is_int32(kind) else "LongWrapper"]
    if types.is_large_string(kind) or types.is_string(kind):
        return _BY_NAME["StringWrapper"]
    for wrapper in _WRAPPERS:
        if wrapper.arrow == kind:
            return wrapper
    raise InvalidRequest(
        f"an ordering field of type {kind} cannot order deletes: use a number, text, date or timestamp"
    )


def _numbers(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Dates as days, and timestamps in the unit in which the column is stored; anything else as it is."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if not pa.types.is_timestamp(kind):
        return values
    return (values if kind.unit == "ms" else values.cast(pa.timestamp("us", kind.tz))).cast(pa.int64())


def _unwrapped(value: Any) -> tuple[str, Any] | None:
    if value is None:
        return None
    name, fields = value
    name = name.rpartition(".")[2]
    if name not in _BY_NAME:
        raise CorruptTable(f"a delete is ordered by {name}, several fields: only one ordering field can be read")
    if name == _DEFAULT_NAME and fields["value"] == 0:
        return None
    if name == "DecimalWrapper":
        return name, _WIDE.scaleb(decimal.Decimal(int.from_bytes(fields["value"], "big", signed=True)), -_DECIMAL_SCALE)
    return name, fields["value"]


def _decimal_to_bytes(value: decimal.Decimal) -> bytes:
    if value.adjusted() >= _DECIMAL_DIGITS - _DECIMAL_SCALE:
        raise InvalidRequest(
            f"the ordering value {value} has more than 15 digits before the point: deletes hold no more"
        )
    unscaled = int(_WIDE.scaleb(value, _DECIMAL_SCALE))
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
