"""Schema evolution: added columns, widened types, and conversion of old values.

A type is widened only to one that holds each of its values unchanged, in every reader of the table. Hudi allows more:
texts of floating point numbers, which each engine prints in its own way, and numbers that lose digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakelatch.format.avro import comment_of, with_comment

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_BECOMES = {
    "int32": ("int64", "double", "string"),
    "int64": ("string",),
    "float": ("double",),
}


@dataclass(frozen=True)
class Mismatch:
    """A column whose type is not the table's. `column` has dots before parts of nested types."""

    column: str
    stored: pa.DataType
    given: pa.DataType

    @property
    def makes_text(self) -> bool:
        """Whether text is given for another type: the column would be text for good."""
        return _is_text(self.given) and not _is_text(self.stored)


@dataclass(frozen=True)
class Comparison:
    """A comparison of given columns with those of a table, by name, whatever their order.

    `schema` has the table's columns first, as they become if all given ones are written: with the `added` ones, and the
    types of the `widened` ones, but without `unfit` ones; the table's columns keep their comments. `alike` are pairs of
    an added name and an existing one that differ only in case: most engines treat them as one.
    """

    schema: pa.Schema
    added: tuple[str, ...]
    missing: tuple[str, ...]
    widened: tuple[Mismatch, ...]
    unfit: tuple[Mismatch, ...]
    alike: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, stored: pa.Schema, given: pa.Schema) -> Comparison:
        walk = _Walk([], [], [], [], [])
        schema = pa.schema(walk.fields(stored, given, ""))
        return cls(
            schema,
            added=tuple(walk.added),
            missing=tuple(walk.missing),
            widened=tuple(walk.widened),
            unfit=tuple(walk.unfit),
            alike=tuple(walk.alike),
        )


def may_become(stored: pa.DataType, given: pa.DataType) -> bool:
    """Whether a column of one plain type may be widened to another."""
    if pa.types.is_decimal128(stored) and pa.types.is_decimal128(given):
        return bool(given.scale >= stored.scale and given.precision - given.scale >= stored.precision - stored.scale)
    name = "string" if pa.types.is_large_string(given) else str(given)
    return name in _BECOMES.get(str(stored), ())


def fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether values of one plain type can be stored as another without loss, as narrower numbers can."""
    types = pa.types
    if given == stored or types.is_null(given):
        return True
    if types.is_timestamp(given) and types.is_timestamp(stored):
        return (given.tz is None) == (stored.tz is None)
    if str(given) in _BITS and str(stored) in _BITS:
        return _BITS[str(given)] <= _BITS[str(stored)]
    if str(given) in _BITS and types.is_float64(stored):
        return _BITS[str(given)] <= 32
    if types.is_floating(given) and types.is_floating(stored):
        return bool(given.bit_width <= stored.bit_width)
    if types.is_decimal128(given) and types.is_decimal128(stored):
        return may_become(given, stored)
    return _is_text(given) and _is_text(stored)


def conform(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Converts values of an older type to this one; fields that nested types lack are null.

    Errors: `pa.ArrowException` for a value that this type cannot hold.
    """
    if values.type == kind:
        return values
    if not pa.types.is_nested(kind):
        return values.cast(kind)
    return pa.chunked_array([_conform(chunk, kind) for chunk in values.chunks], kind)


@dataclass
class _Walk:
    added: list[str]
    missing: list[str]
    widened: list[Mismatch]
    unfit: list[Mismatch]
    alike: list[tuple[str, str]]

    def fields(self, stored: Iterable[pa.Field], given: Iterable[pa.Field], path: str) -> list[pa.Field]:
        left = {field.name: field for field in given}
        found = []
        for field in stored:
            other = left.pop(field.name, None)
            column = f"{path}{field.name}"
            if other is None:
                self.missing.append(column)
            kind = field.type if other is None else self.type(field.type, other.type, column)
            found.append(with_comment(field.name, kind, comment_of(field)))
        known = {field.name.lower(): field.name for field in found}
        for name in left:
            self.added.append(f"{path}{name}")
            other = known.setdefault(name.lower(), name)
            if other != name:
                self.alike.append((f"{path}{name}", f"{path}{other}"))
        return [*found, *(with_comment(field.name, field.type, comment_of(field)) for field in left.values())]

    def type(self, stored: pa.DataType, given: pa.DataType, column: str) -> pa.DataType:
        types = pa.types
        if fits(given, stored):
            return stored
        if types.is_struct(stored) and types.is_struct(given):
            return pa.struct(self.fields(stored, given, f"{column}."))
        if types.is_list(stored) and (types.is_list(given) or types.is_large_list(given)):
            element = self.type(stored.value_type, given.value_type, f"{column}.element")
            return pa.list_(pa.field(stored.value_field.name, element))
        if types.is_map(stored) and types.is_map(given) and fits(given.key_type, stored.key_type):
            return pa.map_(stored.key_type, self.type(stored.item_type, given.item_type, f"{column}.value"))
        if may_become(stored, given):
            self.widened.append(Mismatch(column, stored, given))
            return given
        self.unfit.append(Mismatch(column, stored, given))
        return stored


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _conform(values: pa.Array, kind: pa.DataType) -> pa.Array:
    types, given = pa.types, values.type
    if given == kind:
        return values
    if types.is_struct(kind) and types.is_struct(given):
        parts = []
        for field in kind:
            place = given.get_field_index(field.name)
            parts.append(pa.nulls(len(values), field.type) if place < 0 else _conform(values.field(place), field.type))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if types.is_list(kind) and types.is_list(given):
        rows = _unsliced(values)
        return pa.ListArray.from_arrays(rows.offsets, _conform(rows.values, kind.value_type), kind, mask=rows.is_null())
    if types.is_map(kind) and types.is_map(given):
        rows = _unsliced(values)
        parts = [_conform(rows.keys, kind.key_type), _conform(rows.items, kind.item_type)]
        return pa.MapArray.from_arrays(rows.offsets, *parts, kind, mask=rows.is_null())
    return values.cast(kind)


def _unsliced(values: pa.Array) -> pa.Array:
    """The same values with offsets that begin at 0, as masks require."""
    return values.take(pa.array(range(len(values)), pa.int64())) if values.offset else values
