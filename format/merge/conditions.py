"""Conditions on columns, which some rows of a table fulfil: for values, for tables, and by statistics for row groups.

A condition only saves work: its caller filters the rows as well. So a condition that is not understood keeps all rows.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARISONS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
}


@dataclass(frozen=True)
class OneOf:
    """The column has one of these values, of which None is null."""

    column: str
    values: tuple[object, ...]

    def allows(self, value: object) -> bool:
        return value in self.values

    def mask(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which values fulfil it."""
        return pc.is_in(values, value_set=pa.array(self.values, values.type))

    def may_hold(self, least: Any, greatest: Any, nulls: int | None) -> bool:
        """Whether some value between two, or a null, may fulfil it; `nulls` is None if their number is unknown."""
        if None in self.values and nulls != 0:
            return True
        return any(least <= value <= greatest for value in self.values if value is not None)


@dataclass(frozen=True)
class Bound:
    """The column compares so with a value; null never does."""

    column: str
    comparison: str
    value: object

    @property
    def values(self) -> tuple[object, ...]:
        return (self.value,)

    def allows(self, value: object) -> bool:
        return value is not None and _COMPARISONS[self.comparison][0](value, self.value)

    def mask(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """See `OneOf`."""
        found = pc.call_function(_COMPARISONS[self.comparison][1], [values, pa.scalar(self.value, values.type)])
        return pc.fill_null(found, False)

    def may_hold(self, least: Any, greatest: Any, nulls: int | None) -> bool:
        """See `OneOf`."""
        return self.allows(least) or self.allows(greatest)


@dataclass(frozen=True)
class Present:
    """The column is not null."""

    column: str
    values: tuple[object, ...] = ()

    def allows(self, value: object) -> bool:
        return value is not None

    def mask(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """See `OneOf`."""
        return pc.is_valid(values)

    def may_hold(self, least: Any, greatest: Any, nulls: int | None) -> bool:
        """See `OneOf`."""
        return True


Condition = OneOf | Bound | Present


def kind_of(kind: pa.DataType) -> type | None:
    """The type of a column's values in Python; None for values that are compared in more than one way."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_date32(kind):
        return datetime.date
    return bool if pa.types.is_boolean(kind) else None


def understood(conditions: Iterable[Condition], schema: pa.Schema) -> tuple[Condition, ...]:
    """The conditions on columns of this schema, by values that the column can have."""
    return tuple(one for one in conditions if one.column in schema.names and _fits(one, schema.field(one.column).type))


def fulfilling(rows: pa.Table, conditions: Iterable[Condition]) -> pa.Table:
    """The rows that fulfil all conditions, which are `understood`."""
    masks = [one.mask(rows[one.column]) for one in conditions]
    return rows.filter(reduce(pc.and_, masks)) if masks and rows.num_rows else rows


def row_group_may_hold(group: Any, conditions: Iterable[Condition]) -> bool:
    """Whether a row group, as parquet's footer shows it, may have rows that fulfil all conditions.

    A column whose name has a dot looks there like a part of another one, and rules nothing out.
    """
    wanted = [one for one in conditions if "." not in one.column]
    columns = {one.column for one in wanted}
    if not columns:
        return True
    for number in range(group.num_columns):
        chunk = group.column(number)
        found = chunk.statistics if chunk.path_in_schema in columns else None
        if found is None or not found.has_min_max:
            continue
        try:
            least, greatest = found.min, found.max
        except (ValueError, OverflowError):  # a day that Python has not
            continue
        nulls = found.null_count if found.has_null_count else None
        for one in wanted:
            if one.column != chunk.path_in_schema or not all(
                value is None or type(value) is type(least) for value in one.values
            ):
                continue
            if not one.may_hold(least, greatest, nulls):
                return False
    return True


def _fits(one: Condition, kind: pa.DataType) -> bool:
    own = kind_of(kind)
    if own is None or not all(value is None or type(value) is own for value in one.values):
        return False
    try:
        one.mask(pa.chunked_array([], kind))
    except (pa.ArrowException, OverflowError):  # a number that the column cannot hold; booleans that are compared
        return False
    return True
