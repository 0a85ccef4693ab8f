"""Rows of a table of any layout, and as Arrow."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from option_space import Layout
from plain_oracle import PlainOracle, Values

TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "struct": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "array": pa.list_(pa.string()),
    "decimal": pa.decimal128(12, 2),
}
NAMES = ("a", "b c", "x:y", "50%", "q")
PARTS = {"plain": ("p", "q", None), "hive": ("p", "q", None)}
ENCODED = ("p/q", "x=1", "q", None)
_EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class RandomRows:
    """Of few keys. Ordering values are even or odd if the `parity` says so, 0 or 1: then no two of both are equal."""

    layout: Layout
    chance: random.Random
    oracle: PlainOracle
    parity: int | None = None

    def rows(self, most: int = 5) -> list[Values]:
        """New ones, of different keys."""
        found = {}
        for _ in range(self.chance.randint(1, most)):
            row = self.row()
            found[self.oracle.key_of(row)] = row
        return list(found.values())

    def row(self) -> Values:
        number = self.chance.randrange(100)
        parts = ENCODED if "encoded" in self.layout["folders"] else PARTS[self.layout["folders"]]
        made: Values = {"id": self.chance.randrange(4), "name": self.chance.choice(NAMES[:4])}
        made["part"] = self.chance.choice(parts)
        made["day"] = self.chance.choice([1, 20])
        for name in ("ts", "at", "ct"):
            if name in self.oracle.columns:
                made[name] = self.order_value(self.oracle.columns[name])
        for name, kind in self.oracle.columns.items():
            if name not in made:
                made[name] = _value(kind, number)
        return {name: made[name] for name in self.oracle.columns}

    def order_value(self, kind: str) -> Any:
        number = self.chance.randint(1, 15) * 2 + (self.chance.randrange(2) if self.parity is None else self.parity)
        if kind == "string":
            return f"{number:03d}"
        if kind == "timestamp":
            return _EPOCH + timedelta(seconds=number)
        return number / 2 if kind == "double" else number

    def arrow(self, rows: list[Values], *without: str, **more: str) -> pa.Table:
        columns = {name: kind for name, kind in {**self.oracle.columns, **more}.items() if name not in without}
        schema = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])
        return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _value(kind: str, number: int) -> Any:
    if number % 5 == 0:
        return None
    if kind == "struct":
        return {"x": number, "y": f"y{number}"}
    if kind == "array":
        return [f"e{number}", None] if number % 2 else []
    if kind == "timestamp":
        return _EPOCH + timedelta(days=number)
    if kind == "boolean":
        return number % 2 == 0
    return f"v{number}" if kind == "string" else number / 2 if kind == "double" else number
