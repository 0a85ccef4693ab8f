"""The plan of the demo with `--tables`: flights, their aggregates, and the writers that are killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.console.demo.plan import KEPT_WHOLE, KEY_FIELDS, MODES, DemoPlan
from lakelatch.failpoints import NAMES

FLIGHTS, MAKER, READER = "flights", "maker", "reader"
#: The keys of each aggregate; a demo of three tables has the first two.
AGGREGATES = {"airlines": ("carrier",), "days": ("month", "day"), "routes": ("origin", "dest")}
TABLES_MOST = len(AGGREGATES) + 1
BEFORE, AFTER = (point for point in NAMES if point.startswith("several."))  # the decision
ROWS = 50  # of flights, in each transaction
_DATA = tuple(dict.fromkeys((*KEY_FIELDS, "origin", "dest", "distance")))
_COUNTED = ("flights", "miles")


@dataclass(frozen=True)
class SeveralPlan(DemoPlan):
    """Settings of one run. Two writers are killed and begin again, one on each side of a decision.

    Writers read the aggregates and add to them, so the tables are under optimistic control: of two at once one loses.
    """

    mode: str = "occ"
    tables: int = 3
    writers: int = 4
    seconds: float = 10.0

    @property
    def aggregates(self) -> Mapping[str, tuple[str, ...]]:
        """Those of this demo, with their keys."""
        return dict(list(AGGREGATES.items())[: self.tables - 1])

    @property
    def paths(self) -> Mapping[str, str]:
        """The tables, by their names."""
        place = self.place.rstrip("/") or str(self.root / "tables")
        return {name: f"{place}/{name}" for name in (FLIGHTS, *self.aggregates)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the writers."""
        return tuple(f"writer {number}" for number in range(1, self.writers + 1))

    @property
    def workers(self) -> tuple[str, ...]:
        return *self.names, READER

    @property
    def killed(self) -> Mapping[str, str]:
        """Which writers are killed, and where."""
        return dict(zip(self.names, (BEFORE, AFTER), strict=False))

    @property
    def pictures(self) -> tuple[Path, ...]:
        return tuple(self.root / f"tables.{suffix}" for suffix in ("svg", "png"))

    @property
    def source(self) -> Path:
        """The flights that are to be moved."""
        return self.root / "input" / "flights.parquet"

    @property
    def end_file(self) -> Path:
        """Says that all writers have ended, once it is there."""
        return self.root / "events" / "end"

    def options(self, worker: str) -> dict[str, object]:
        return {
            "hoodie.write.concurrency.mode": MODES[self.mode],
            "hoodie.client.heartbeat.interval_in_ms": 500,  # whoever is dead is not waited for long
            "hoodie.client.heartbeat.tolerable.misses": 3,
            "lakelatch.writer.name": worker,
            **KEPT_WHOLE,
            **self.extra,
        }

    def table_options(self, name: str) -> dict[str, object]:
        """With what one of the tables is made."""
        return {
            **self.options(MAKER),
            "hoodie.table.name": name,
            "hoodie.datasource.write.recordkey.field": ",".join(self.keys(name)),
            "hoodie.bucket.index.num.buckets": self.buckets if name == FLIGHTS else 1,
        }

    def keys(self, name: str) -> tuple[str, ...]:
        """The record keys of one of the tables."""
        return KEY_FIELDS if name == FLIGHTS else self.aggregates[name]

    def batch(self, writer: str, number: int) -> pa.Table:
        """The flights of one transaction, counted from 1; none once all are moved. The first ones are the maker's."""
        turn = 0 if writer == MAKER else 1 + (number - 1) * self.writers + self.names.index(writer)
        rows = pq.read_table(self.source, columns=list(_DATA), memory_map=True).slice(turn * ROWS, ROWS)
        rows = rows.append_column("writer", pa.repeat(writer, rows.num_rows))
        return rows.append_column("batch", pa.repeat(number, rows.num_rows))

    def first_rows(self, name: str) -> pa.Table:
        """With which one of the tables begins."""
        flights = self.batch(MAKER, 1)
        return flights if name == FLIGHTS else added(None, flights, self.keys(name))

    @classmethod
    def from_json(cls, text: str) -> SeveralPlan:
        return cls(**json.loads(text))


def added(aggregate: pa.Table | None, flights: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows of an aggregate that these flights change, as they are with them."""
    grouped = flights.group_by(keys).aggregate([("distance", "count"), ("distance", "sum")])
    fresh = grouped.select([*keys, "distance_count", "distance_sum"]).rename_columns([*keys, *_COUNTED])
    if aggregate is None:
        return fresh
    both = pa.concat_tables([aggregate.select(fresh.column_names).cast(fresh.schema), fresh])
    summed = both.group_by(keys).aggregate([(name, "sum") for name in _COUNTED])
    summed = summed.select([*keys, *(f"{name}_sum" for name in _COUNTED)]).rename_columns(fresh.column_names)
    return summed.join(fresh.select(keys), list(keys), join_type="left semi")
