"""What operators of SQL come to on values of Arrow, as Spark has it: nulls, NaN, texts beside numbers and times.

A value is an array or, for the same one in all rows, a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type

Value: TypeAlias = Any  # pa.Array | pa.ChunkedArray | pa.Scalar


def compared(sign: str, one: Value, other: Value) -> Value:
    """A comparison, null if a side is null; NaN equals itself and is greater than all other numbers."""
    one, other = alike(one, other)
    if pa.types.is_null(one.type):
        return pa.scalar(None, pa.bool_())
    if not (pa.types.is_floating(one.type) or pa.types.is_floating(other.type)):
        return pc.call_function(_COMPARISONS[sign], [one, other])
    left, right = (value.cast(pa.float64()) for value in (one, other))
    nan, both = pc.is_nan(left), pc.and_(pc.is_nan(left), pc.is_nan(right))
    equal = pc.or_(pc.equal(left, right), both)
    greater = pc.or_(pc.greater(left, right), pc.and_not(nan, both))
    wanted: Mapping[str, Callable[[], Value]] = {
        "=": lambda: equal,
        "!=": lambda: pc.invert(equal),
        ">": lambda: greater,
        ">=": lambda: pc.or_(greater, equal),
        "<": lambda: pc.invert(pc.or_(greater, equal)),
        "<=": lambda: pc.invert(greater),
    }
    return wanted[sign]()


_COMPARISONS = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def same(one: Value, other: Value) -> Value:
    """Whether two values are equal, or both null; never null."""
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.fill_null(compared("=", one, other), False))


def alike(one: Value, other: Value) -> tuple[Value, Value]:
    """Two values of types that can be compared or chosen between: a literal takes the other one's type.

    Errors: `InvalidRequest` for a text beside a number, and the like.
    """
    types, kinds = pa.types, (one.type, other.type)
    if kinds[0] == kinds[1]:
        return one, other
    if types.is_null(kinds[0]) or (not types.is_null(kinds[1]) and _is_literal_for(one, kinds[1])):
        return converted(one, kinds[1]), other
    if types.is_null(kinds[1]) or _is_literal_for(other, kinds[0]):
        return one, converted(other, kinds[0])
    if types.is_date(kinds[0]) and types.is_timestamp(kinds[1]):
        return converted(one, kinds[1]), other
    if types.is_timestamp(kinds[0]) and types.is_date(kinds[1]):
        return one, converted(other, kinds[0])
    if types.is_timestamp(kinds[0]) and types.is_timestamp(kinds[1]):
        return converted(one, pa.timestamp("us", "UTC")), converted(other, pa.timestamp("us", "UTC"))
    if not (_is_number(kinds[0]) and _is_number(kinds[1])):
        shown = " and ".join(map(shown_type, kinds))
        raise InvalidRequest(f"{shown} do not go together: CAST one of them to the other's type")
    return one, other


def converted(value: Value, kind: pa.DataType, loses: bool = False) -> Value:
    """The value in another type; texts of times without a zone are in UTC.

    `loses` cuts off fractions, as CAST does. Errors: `pa.ArrowException` for a value that this type cannot hold, and
    `InvalidRequest` for types between which it is not the same everywhere.
    """
    types = pa.types
    if value.type == kind:
        return value
    if types.is_null(value.type):
        return pa.scalar(None, kind) if isinstance(value, pa.Scalar) else pa.nulls(len(value), kind)
    _refuse_unclear(value.type, kind)
    if types.is_timestamp(kind) and types.is_string(value.type):
        return _moments(value, kind)
    if types.is_timestamp(kind) and (types.is_date(value.type) or (kind.tz and value.type.tz is None)):
        naive = value.cast(pa.timestamp(kind.unit))
        return pc.assume_timezone(naive, kind.tz) if kind.tz else naive
    if types.is_string(kind) and types.is_boolean(value.type):
        return pc.if_else(value, "true", "false")
    options = pc.CastOptions(kind, allow_float_truncate=loses, allow_decimal_truncate=loses, allow_time_truncate=loses)
    return value.cast(options=options) if not isinstance(value, pa.Scalar) else pc.cast(value, options=options)


def _refuse_unclear(given: pa.DataType, kind: pa.DataType) -> None:
    types = pa.types
    as_text = types.is_string(kind) and (types.is_floating(given) or types.is_timestamp(given))
    as_number = types.is_temporal(given) != types.is_temporal(kind) and (_is_number(given) or _is_number(kind))
    if as_text or as_number:
        raise InvalidRequest(
            f"{shown_type(given)} as {shown_type(kind)} is not the same everywhere: compute it with pyarrow, pandas, "
            "Polars or DuckDB, and upsert the rows"
        )


def _moments(texts: Value, kind: pa.DataType) -> Value:
    zoned = pc.match_substring_regex(texts, r"[0-9]\s*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    day_alone = pc.match_substring_regex(texts, r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\s*$")
    zoned = pc.and_not(zoned, day_alone)
    utc = pc.if_else(zoned, texts, pc.binary_join_element_wise(pc.utf8_trim_whitespace(texts), "Z", ""))
    utc = pc.if_else(day_alone, pc.binary_join_element_wise(pc.utf8_trim_whitespace(texts), " 00:00:00Z", ""), utc)
    moments = pc.cast(utc, pa.timestamp(kind.unit, "UTC"))
    return moments if kind.tz else pc.cast(moments, pa.timestamp(kind.unit))


def chosen(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where a condition holds, and `no` where it does not or is null."""
    yes, no = alike(yes, no)
    return pc.if_else(pc.fill_null(condition, False), yes, no)


def first_present(values: list[Value]) -> Value:
    """Of each row the first value that is not null."""
    found = values[-1]
    for value in reversed(values[:-1]):
        value, found = alike(value, found)
        if not pa.types.is_null(value.type):
            found = pc.coalesce(value, found)
    return found


def one_of(value: Value, others: list[Value]) -> Value:
    """Whether a value is one of others, which are the same for all rows; null if it is null, or none and one is."""
    present = [other for other in others if not pa.types.is_null(other.type)]
    found: Value = pa.scalar(False)
    if present and not pa.types.is_null(value.type):
        kind = alike(value, present[0])[0].type
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            for other in present:
                found = pc.or_kleene(found, compared("=", value, other))
        else:
            wanted = [alike(value, other)[1].as_py() for other in present]
            found = pc.is_in(value, value_set=pa.array(wanted, kind), skip_nulls=True)
    if len(present) < len(others):
        found = pc.or_kleene(found, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def extreme(sign: str, values: list[Value]) -> Value:
    """Of each row the greatest value, for the sign `>`, or the least one; nulls are passed over."""
    found = values[0]
    for value in values[1:]:
        found, value = alike(found, value)
        better = pc.or_kleene(pc.is_null(found), compared(sign, value, found))
        found = chosen(better, value, found)
    return found


def divided(one: Value, other: Value) -> Value:
    """A quotient, as a double unless a side is decimal. Errors: `pa.ArrowException` for a division by zero."""
    if pa.types.is_decimal(one.type) or pa.types.is_decimal(other.type):
        return pc.divide_checked(*alike(one, other))
    return pc.divide_checked(one.cast(pa.float64()), other.cast(pa.float64()))


def remainder(one: Value, other: Value) -> Value:
    """What a division of whole numbers leaves, with the sign of the first. Errors: those of `divided`."""
    for value in (one, other):
        if not pa.types.is_integer(value.type):
            raise InvalidRequest(f"% is for whole numbers, and not for {shown_type(value.type)}: CAST it")
    return pc.subtract_checked(one, pc.multiply_checked(pc.divide_checked(one, other), other))


def _is_literal_for(value: Value, kind: pa.DataType) -> bool:
    """Whether a text that is the same for all rows stands for a value of another type."""
    return isinstance(value, pa.Scalar) and pa.types.is_string(value.type) and not pa.types.is_nested(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
