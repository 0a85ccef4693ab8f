"""Rows of every type, and conditions on them in SQL, drawn from a seed; which rows conditions find, many in one job."""

from __future__ import annotations

import datetime
import math
import random  # noqa: TID251  (seeded)
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as functions

NAN, INF = math.nan, math.inf
_LABEL = "_condition"
UTC = datetime.timezone.utc


def _double(value: float) -> str:
    return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"


def _float(value: float) -> str:
    return f"CAST({value!r}D AS FLOAT)" if math.isfinite(value) else f"float('{value}')"


def _time(value: datetime.datetime) -> str:
    return f"TIMESTAMP'{value.isoformat(' ')}'"


def _local_time(value: datetime.datetime) -> str:
    return f"TIMESTAMP_NTZ'{value.isoformat(' ')}'"


def _days(*texts: str) -> list[datetime.date]:
    return [datetime.date.fromisoformat(text) for text in texts]


def _moments(*texts: str, zone: datetime.timezone | None) -> list[datetime.datetime]:
    return [datetime.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]


@dataclass(frozen=True)
class Column:
    """A column by its SQL type: its values in their order, NaN last, and how one is written in SQL."""

    name: str
    kind: str
    values: Sequence[Any]
    literal: Any

    def drawn(self, draw: random.Random, place: float) -> Any:
        """A value of a row at this place among all, from 0 to 1: near ones have near values, but for a few."""
        if draw.random() < 0.12:
            return None
        if draw.random() < 0.12:
            return draw.choice(self.values)
        if self.name in FLOATS and draw.random() < 0.15:
            return NAN
        width = max(len(self.values) // 4, 1)
        start = int(place * (len(self.values) - width + 1))
        return self.values[min(start + draw.randrange(width), len(self.values) - 1)]


FLOATS = ("f", "d", "s.x")
_NUMBERS = [-INF, -1.7976931348623157e308, -2.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.5, 1e300, INF, NAN]
_SINGLES = [-INF, -3.0e38, -2.5, -0.0, 0.0, 0.5, 1.0, 2.5, 16777216.0, INF, NAN]
_TEXTS = ["", " ", "A", "a", "a%", "aa", "ab", "b", "m" * 70, "z" * 5000, "é", "\ud7ff", "\ue000", "\U0001f600"]
# None of the days that the Julian calendar lacks: Spark loses them in its own files, as it asks for others.
_MOMENTS = ("0001-01-01T00:00:00", "1582-10-15T12:00:00", "1899-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999")
_LATER = ("1970-01-01T00:00:00", "2024-03-10T02:30:00", "2024-11-03T01:30:00.000001", "9999-12-31T23:59:59.999999")
COLUMNS = [
    Column("yes", "boolean", [False, True], str),
    Column("n", "int", [-(2**31), -7, -1, 0, 1, 2, 3, 1000, 2**31 - 1], str),
    Column("m", "long", [-(2**63), -(2**31) - 1, -1, 0, 1, 2**31, 2**63 - 1], lambda value: f"CAST('{value}' AS LONG)"),
    Column("f", "float", _SINGLES, _float),
    Column("d", "double", _NUMBERS, _double),
    Column("price", "decimal(9,2)", [Decimal(v) for v in ("-9999999.99", "-0.01", "0", "0.01", "1.5", "9999999.99")],
           lambda value: f"{value}BD"),
    Column("huge", "decimal(38,4)", [Decimal(v) for v in (f"-{'9' * 34}.9999", "-1", "0", "0.0001", f"{'9' * 34}")],
           lambda value: f"CAST('{value}' AS DECIMAL(38,4))"),
    Column("v", "string", _TEXTS, lambda value: f"'{value}'"),
    Column("bytes", "binary", [b"", b"\x00", b"\x7f", b"\x80", b"a" * 100, b"\xff\xff"], lambda v: f"X'{v.hex()}'"),
    Column("day", "date", _days("0001-01-01", "1582-10-15", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"),
           lambda value: f"DATE'{value.isoformat()}'"),
    Column("at", "timestamp", _moments(*_MOMENTS, *_LATER, zone=UTC), _time),
    Column("local", "timestamp_ntz", _moments(*_MOMENTS, *_LATER, zone=None), _local_time),
    Column("s.x", "double", _NUMBERS, _double),
    Column("s.v", "string", _TEXTS, lambda value: f"'{value}'"),
]  # fmt: skip
_PLAIN = [one for one in COLUMNS if "." not in one.name]
SCHEMA = ", ".join(
    ["id long", "ts long", "part long", *(f"{one.name} {one.kind}" for one in _PLAIN), "s struct<x: double, v: string>"]
)


def rows_of(seed: int, count: int, parts: int) -> list[tuple[Any, ...]]:
    """Rows in some partitions, each with a part of the values of each column, so that there is something to skip."""
    draw = random.Random(seed)
    found = []
    for key in range(count):
        part = key * parts // count
        values = {one.name: one.drawn(draw, part / max(parts - 1, 1)) for one in COLUMNS}
        nested = None if draw.random() < 0.1 else (values["s.x"], values["s.v"])
        found.append((key, 1, part, *(values[one.name] for one in _PLAIN), nested))
    return found


@dataclass(frozen=True)
class Predicate:
    """A condition, and the columns with NaN, and with zeros, of which it speaks, as far as that matters."""

    text: str
    columns: frozenset[str]
    #: Whether it compares a floating point column with a zero.
    of_zero: bool = False

    @property
    def of_floats(self) -> bool:
        return bool(self.columns & {*FLOATS})


def predicates_of(seed: int, count: int) -> list[Predicate]:
    """As many conditions: comparisons of each column in turn, of those with NaN twice, and what joins such."""
    draw = random.Random(seed)
    columns = [*COLUMNS, *(one for one in COLUMNS if one.name in FLOATS)]
    found = [_comparison(draw, columns[number % len(columns)]) for number in range(count)]
    return [one if draw.random() < 0.7 else _joined(draw, one, draw.choice(found)) for one in found]


def _comparison(draw: random.Random, column: Column) -> Predicate:
    name, values = column.name, [draw.choice(column.values) for _ in range(3)]
    first, second, third = (column.literal(value) for value in values)
    sign = draw.choice(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    forms = [
        *(f"{name} {sign} {first}", f"{first} {sign} {name}", f"NOT ({name} {sign} {first})") * 2,
        *(f"{name} IN ({first}, {second})", f"{name} NOT IN ({first}, {second})"),
        *(f"{name} IN ({first}, {second}, {third}, NULL)", f"NOT ({name} IN ({first}))"),
        *(f"{name} BETWEEN {first} AND {second}", f"{name} NOT BETWEEN {first} AND {second}"),
        *(f"{name} IS NULL", f"{name} IS NOT NULL", f"NOT ({name} IS NULL)"),
    ]
    if column.kind == "string":
        start = values[0][:2].replace("%", "")
        forms += [f"{name} LIKE '{start}%'", f"{name} NOT LIKE '{start}%'", f"startswith({name}, '{start}')"] * 2
    text = draw.choice(forms)
    of_zero = name in FLOATS and any(value == 0 for value in values)
    return Predicate(text, frozenset([name]), of_zero)


def _joined(draw: random.Random, one: Predicate, other: Predicate) -> Predicate:
    form = draw.choice(["{} AND {}", "({}) OR ({})", "NOT (({}) OR ({}))", "NOT (({}) AND ({}))", "{} AND NOT ({})"])
    return Predicate(form.format(one.text, other.text), one.columns | other.columns, one.of_zero or other.of_zero)


def found_by(frames: Sequence[DataFrame]) -> list[list[int]]:
    """The ids of the rows of each frame, sorted, found in one job."""
    labelled = [frame.select(functions.lit(number).alias(_LABEL), "id") for number, frame in enumerate(frames)]
    return _by_label(reduce(DataFrame.unionAll, labelled).collect(), len(frames))


def found_and_scanned(frames: Sequence[DataFrame]) -> tuple[list[list[int]], list[int]]:
    """As `found_by`, and how many rows Spark read in each of its scans of parquet files."""
    labelled = [frame.select(functions.lit(number).alias(_LABEL), "id") for number, frame in enumerate(frames)]
    whole = reduce(DataFrame.unionAll, labelled)
    rows = whole.collect()
    found = whole._jdf.queryExecution().executedPlan().collectLeaves()
    leaves = [found.apply(place) for place in range(found.size())]
    scans = [leaf for leaf in leaves if leaf.nodeName().startswith("Scan parquet")]
    return _by_label(rows, len(frames)), [leaf.metrics().apply("numOutputRows").value() for leaf in scans]


def _by_label(rows: Sequence[Row], count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for row in rows:
        found[row[_LABEL]].append(row["id"])
    return [sorted(ids) for ids in found]
