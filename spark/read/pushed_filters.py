"""Spark's filters as conditions of a read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lakelatch.spark.read.pruning import Bound, Condition, OneOf, Present

_COMPARISONS = {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<="}


def conditions_of(filters: Iterable[Any]) -> Iterator[Condition]:
    """What is understood of the filters that PySpark 4.1 and later hands to a data source; all of them hold at once.

    They are told by the names of their classes, which earlier versions have not.
    """
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) == 1:
            condition = _condition(type(one).__name__, column[0], getattr(one, "value", None))
            if condition is not None:
                yield condition


def _condition(name: str, column: str, value: Any) -> Condition | None:
    if name == "EqualNullSafe" or (name == "EqualTo" and value is not None):
        return OneOf(column, (value,))
    if name == "In":  # null is in no list, not even in one that has it
        return OneOf(column, tuple(one for one in value if one is not None))
    if name == "IsNull":
        return OneOf(column, (None,))
    if name == "IsNotNull":
        return Present(column)
    return Bound(column, _COMPARISONS[name], value) if name in _COMPARISONS and value is not None else None
