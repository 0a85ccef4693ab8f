"""Rows as JSON texts, as Hudi renders the images of its change queries.

Dates are days and timestamps microseconds since 1970, as Spark holds them; decimals are numbers with all digits of
their scale, binary values Base64, and numbers that JSON does not have are texts. A null is written as one.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

_Writer = Callable[[Any], str]


def json_texts(rows: pa.RecordBatch) -> list[str]:
    """One object for each row, with its columns in their order. Timestamps come in microseconds."""
    if not rows.num_columns:
        return ["{}"] * rows.num_rows
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        name, writer = json.dumps(field.name, ensure_ascii=False), _writer(field.type)
        values = column.cast(_with_numbers(field.type)).to_pylist()
        columns.append([f"{name}:{writer(value)}" for value in values])
    return ["{" + ",".join(cells) + "}" for cells in zip(*columns, strict=True)]


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with dates and times as the numbers that stand for them."""
    types = pa.types
    if types.is_date32(kind):
        return pa.int32()
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _with_numbers(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_numbers(field.type)) for field in kind])
    return kind


def _writer(kind: pa.DataType) -> _Writer:
    """Renders values of a type, as `to_pylist` gives them."""
    written = _writer_of_values(kind)
    return lambda value: "null" if value is None else written(value)


def _writer_of_values(kind: pa.DataType) -> _Writer:
    types = pa.types
    if types.is_decimal(kind):
        return lambda value: format(value, "f")
    if types.is_float32(kind):
        return lambda value: _number(float(str(np.float32(value))))
    if types.is_floating(kind):
        return _number
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: f'"{b64encode(value).decode()}"'
    if types.is_list(kind):
        item = _writer(kind.value_type)
        return lambda values: "[" + ",".join(map(item, values)) + "]"
    if types.is_map(kind):
        of_value = _writer(kind.item_type)
        return lambda pairs: _object((str(key), of_value(value)) for key, value in pairs)
    if types.is_struct(kind):
        writers = {field.name: _writer(field.type) for field in kind}
        return lambda row: _object((name, write(row[name])) for name, write in writers.items())
    return lambda value: json.dumps(value, ensure_ascii=False)


def _object(members: Any) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members) + "}"


def _number(value: float) -> str:
    text = json.dumps(value)  # or NaN and its like, which are texts in Jackson's JSON
    return f'"{text}"' if text.lstrip("-")[0].isalpha() else text
