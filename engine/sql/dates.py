"""Functions of dates and times on values of Arrow, as Spark has them in a session whose time zone is UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.sql.operators import Value, converted
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type

_MOMENT = pa.timestamp("us", "UTC")
_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_SHORT_UNITS = {
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}


def as_date(value: Value) -> Value:
    """The day of a date, a time or a text. Errors: `InvalidRequest`, and `pa.ArrowException` for another text."""
    types = pa.types
    if types.is_date(value.type) or types.is_null(value.type):
        return converted(value, pa.date32())
    return pc.cast(_as_time(value), pa.date32())


def part_of(name: str) -> Callable[[Value], Value]:
    """The function that takes a part of dates or times, such as their `YEAR`. Errors: `InvalidRequest` for another."""
    found = _PARTS.get(name.upper())
    if found is None:
        raise InvalidRequest(f"{name} is no part of a date or time that is known: use {', '.join(_PARTS).lower()}")
    return lambda value: pc.cast(found(_as_time(value)), pa.int32())


def cut_time(value: Value, unit: str) -> Value:
    """A time, back to the beginning of a year, a quarter, a month, a week, a day, an hour, a minute or less."""
    moment = converted(_as_time(value), _MOMENT)
    return pc.floor_temporal(moment, unit=_unit(unit, {**_UNITS, **_SHORT_UNITS}))


def cut_date(value: Value, unit: str) -> Value:
    """The day at which the year, quarter, month or week of a date begins."""
    return pc.floor_temporal(as_date(value), unit=_unit(unit, _UNITS))


def days_later(value: Value, days: Value) -> Value:
    """The day so many days after a date. Errors: `InvalidRequest` for days that are no whole number."""
    if not pa.types.is_integer(days.type) and not pa.types.is_null(days.type):
        raise InvalidRequest(f"days are a whole number, and not {shown_type(days.type)}: CAST them to int")
    found = pc.add_checked(_day_number(value), converted(days, pa.int64()))
    return pc.cast(pc.cast(found, pa.int32()), pa.date32())


def days_between(end: Value, start: Value) -> Value:
    """How many days one date is after another."""
    return pc.cast(pc.subtract(_day_number(end), _day_number(start)), pa.int32())


def last_day(value: Value) -> Value:
    """The last day of a date's month."""
    next_month = pc.ceil_temporal(as_date(value), unit="month", ceil_is_strictly_greater=True)
    return days_later(next_month, pa.scalar(-1))


def _day_number(value: Value) -> Value:
    return pc.cast(pc.cast(as_date(value), pa.int32()), pa.int64())


def _as_time(value: Value) -> Value:
    """The moment of a date or a text; a time stays as it is."""
    if pa.types.is_timestamp(value.type):
        return value
    if not any(test(value.type) for test in (pa.types.is_date, pa.types.is_string, pa.types.is_null)):
        raise InvalidRequest(f"{shown_type(value.type)} is no date or time: CAST it")
    return converted(value, _MOMENT)


def _unit(name: str, known: Mapping[str, str]) -> str:
    found = known.get(name.upper())
    if found is None:
        raise InvalidRequest(f"{name!r} is no unit here: use one of {', '.join(dict.fromkeys(known.values()))}")
    return found


_PARTS: Mapping[str, Callable[[Value], Value]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "DAYOFWEEK": lambda value: pc.day_of_week(value, count_from_zero=False, week_start=7),
    "DAYOFYEAR": pc.day_of_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
