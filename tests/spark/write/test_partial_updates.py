"""Departures and arrivals of real flights fill their own columns of one table, as two streams that know nothing of each
other; what is read is their full outer join.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import lakelatch
from lakelatch.console.demo.flights import published_flights
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark

FLIGHTS = published_flights()
KEYS = ["id", "day"]
DEPARTURES = ["dep_event_time", "dep_time", "dep_delay"]
ARRIVALS = ["arr_event_time", "arr_time", "arr_delay"]
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "lakelatch.table.column.groups": ("dep_event_time: dep_time, dep_delay; arr_event_time: arr_time, arr_delay"),
    "lakelatch.rewrite.automatic": "false",  # who compacts, and when, is what is looked at
}
SMALL_ROWS = "lakelatch.write.small.rows"
OPERATION = "hoodie.datasource.write.operation"
Batches = list[pd.DataFrame]


def stream(columns: list[str], seeds: count[int], batches: int) -> Batches:
    """Events of one kind: for most flights several, in no order; each says when it happened and what was known then."""
    event_time, time, delay = columns
    found = FLIGHTS[FLIGHTS.month.eq(1) & FLIGHTS.day.le(2)].dropna(subset=[time]).reset_index(drop=True)
    known = found.sample(frac=0.9, random_state=next(seeds))
    date = "2013-01-" + known.day.astype(str).str.zfill(2)
    events = []
    for version in range(3):
        part = known.sample(frac=1 - version / 4, random_state=next(seeds))
        scheduled = pd.to_datetime(date[part.index]) + pd.to_timedelta(part[time] // 100, "h")
        frame = pd.DataFrame(
            {
                "id": part.carrier + part.flight.astype(str) + part.origin + date[part.index],
                "day": date[part.index],
                event_time: scheduled.dt.tz_localize("UTC") + pd.to_timedelta(part.index % 7 + 60 * version, "min"),
                time: part[time].astype("int64") + version,
                delay: part[delay] + version,
            }
        )
        events.append(frame.drop_duplicates(["id", event_time]))
    shuffled = pd.concat(events).drop_duplicates(["id", event_time])
    shuffled = shuffled.sample(frac=1, random_state=next(seeds))
    return [shuffled.iloc[places] for places in np.array_split(np.arange(len(shuffled)), batches)]


def frame_of(spark: SparkSession, rows: pd.DataFrame) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))


def latest(spark: SparkSession, batches: Sequence[pd.DataFrame], event_time: str) -> DataFrame:
    """The latest event of each flight, as Spark finds it."""
    last = Window.partitionBy(*KEYS).orderBy(F.col(event_time).desc())
    events = frame_of(spark, pd.concat(batches)).withColumn("place", F.row_number().over(last))
    return events.where("place = 1").drop("place")


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    table = frame.select(*KEYS, *DEPARTURES, *ARRIVALS).toArrow().sort_by("id").to_pandas()
    return [tuple(row) for row in table.astype(object).where(table.notna(), None).itertuples(index=False)]


def test_departures_and_arrivals_become_one_table(spark: SparkSession, table_path: str) -> None:
    seeds = count(66)
    departures, arrivals = stream(DEPARTURES, seeds, 4), stream(ARRIVALS, seeds, 4)
    both = departures[0].merge(arrivals[0], on=KEYS)
    lakelatch.write(frame_of(spark, both).limit(0), table_path, OPTIONS)  # makes the table
    halfway = threading.Barrier(3)
    again = threading.Barrier(3)

    def write_all(batches: Batches, options: dict[str, str]) -> list[lakelatch.CommitResult]:
        lakelatch.use_in_thread(spark)
        results = []
        for number, batch in enumerate(batches):
            if number == len(batches) // 2:
                halfway.wait()
                again.wait()
            results.append(lakelatch.write(frame_of(spark, batch), table_path, {**OPTIONS, **options}))
        return results

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write_all, departures, {}), pool.submit(write_all, arrivals, {SMALL_ROWS: "0"})]
        halfway.wait()
        plan = lakelatch.schedule_compaction(table_path, OPTIONS)
        again.wait()
        assert plan is not None
        assert lakelatch.execute_compaction(spark, table_path, plan, OPTIONS).rows_written > 0
        left, right = (writer.result() for writer in writers)

    def join(until: str) -> list[tuple[object, ...]]:
        dep = [batch for batch, result in zip(departures, left, strict=True) if result.completion <= until]
        arr = [batch for batch, result in zip(arrivals, right, strict=True) if result.completion <= until]
        return rows_of(latest(spark, dep, DEPARTURES[0]).join(latest(spark, arr, ARRIVALS[0]), KEYS, "full_outer"))

    end = max(left[-1].completion, right[-1].completion)
    expected = join(end)
    assert len(expected) > 1500 and sum(None in row for row in expected) > 100
    assert rows_of(lakelatch.read(spark, table_path)) == expected
    middle = max(left[2].completion, right[1].completion)
    assert rows_of(lakelatch.read(spark, table_path, {"as.of.instant": middle})) == join(middle) != expected
    lakelatch.compact(spark, table_path, OPTIONS)
    optimized = {"hoodie.datasource.query.type": "read_optimized"}
    assert (
        rows_of(lakelatch.read(spark, table_path)) == rows_of(lakelatch.read(spark, table_path, optimized)) == expected
    )
    assert rows_of(spark.read.format("lakelatch").load(table_path)) == expected


def test_the_data_source_fills_groups_too(spark: SparkSession, table_path: str) -> None:
    columns = "id string, day string, dep_event_time long, dep_time long, dep_delay double"
    arrivals = columns.replace("dep_", "arr_").replace("id string, day string, ", "")
    lakelatch.write(spark.createDataFrame([], f"{columns}, {arrivals}"), table_path, OPTIONS)

    def save(rows: list[tuple[object, ...]], names: str, **more: str) -> None:
        frame = spark.createDataFrame(rows, names)
        options = {**OPTIONS, **{name.replace("__", "."): value for name, value in more.items()}}
        frame.write.format("lakelatch").options(**options).mode("append").save(table_path)

    save([("a", "x", 10, 1, 1.0), ("b", "x", 10, 1, 1.0)], columns)
    save([("a", "x", 5, 2, 2.0)], f"id string, day string, {arrivals}")
    save([("b", "x", 11)], "id string, day string, dep_event_time long", hoodie__datasource__write__operation="delete")
    assert rows_of(lakelatch.read(spark, table_path)) == [("a", "x", 10, 1, 1.0, 5, 2, 2.0)]
    with pytest.raises(InvalidRequest, match="whole or not at all"):
        lakelatch.write(
            spark.createDataFrame([("a", "x", 7)], "id string, day string, arr_event_time long"), table_path, OPTIONS
        )
