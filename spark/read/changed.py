"""Slices with few logs: Spark reads their base files by itself, but for the rows of whose keys the logs speak.

Where the logs are small, this process finds these rows and what became of them, and Spark is told both. Otherwise
tasks find them, once, and keep them as overlays, which Spark reads like base files. In neither way a task of Python
runs with a query. Where no overlay can be made, tasks find them with each query: those that are left out are an anti
join with their places, the numbers of files and rows, which Spark sends to all executors. So there is a bound for the
logs; and since each log is read twice, and one more stage of Python costs what some megabytes of rows do, small slices
are better merged whole then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakelatch.engine.read.by_reader import Sizes
from lakelatch.engine.read.overlays import Overlay, ensure_overlays
from lakelatch.engine.read.places import NUMBER, PATH, PLACE, ROWS_MAX, have_places, path_number, place_of
from lakelatch.engine.read.rows.batches import for_spark
from lakelatch.engine.read.rows.tasks import ReadTask, packed_for
from lakelatch.engine.read.small_logs import SmallChanges, small_changes
from lakelatch.errors import InvalidRequest
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import read_changed, superseded_of
from lakelatch.spark.read.native import path_number_in_spark, read_natively, read_overlays, says_places
from lakelatch.spark.session.executor import SparkExecutor
from lakelatch.spark.session.handed import handed_once
from lakelatch.spark.session.spark_types import cores_of, for_each, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakelatch.engine.read.plan import ReadPlan


_TASK_BYTES = 256 * 1024 * 1024  # of base files, of which a tenth or so is read
_PLACES = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in (PLACE, NUMBER)])


def read_beside_logs(
    spark: SparkSession, plan: ReadPlan, slices: Sequence[FileSlice], sizes: Sizes
) -> DataFrame | None:
    """The rows of a snapshot's slices, all with base files and logs; None if Spark does not read the base files, or
    the logs are too large, and there are no overlays."""
    if not says_places(spark):
        return None
    plan = replace(plan, slices=tuple(slices))
    if sizes.logs_are_small:
        changes = small_changes(plan, slices)
        if changes is not None:
            return _with_small(spark, plan, changes)
    if plan.by_overlays and sizes.logs_fit_overlays:

        def reads_base_files() -> bool:
            return read_natively(spark, plan.table, plan.schema, None, plan.slices[:1]) is not None

        overlays = ensure_overlays(plan, SparkExecutor.of(spark), cores_of(spark), reads_base_files)
        if overlays is not None:
            return _overlaid(spark, plan, overlays)
    return _joined(spark, plan) if sizes.logs_are_few and have_places(slices) else None


def _with_small(spark: SparkSession, plan: ReadPlan, changes: SmallChanges) -> DataFrame | None:
    """Without a task of Python."""
    others = read_natively(spark, plan.table, plan.schema, None, plan.slices, left_out=changes.superseded)
    if others is None or not changes.rows.num_rows:
        return others
    # What small logs change is kept as well, and is then the same object.
    of_schema = changes, plan.schema
    changed = handed_once(spark, of_schema, lambda: spark.createDataFrame(changes.rows, to_spark(plan.schema)))
    return others.unionByName(changed)


def _overlaid(spark: SparkSession, plan: ReadPlan, overlays: Sequence[Overlay]) -> DataFrame | None:
    """The same, of which Spark reads all rows from files."""
    left_out = {found.base_path or "": one.superseded for found, one in zip(plan.slices, overlays, strict=True)}
    others = read_natively(spark, plan.table, plan.schema, None, plan.slices, left_out=left_out)
    paths = [one.path for one in overlays if one.count]
    if others is None or not paths:
        return others
    return others.unionByName(read_overlays(spark, plan.table, plan.schema, paths))


def _joined(spark: SparkSession, plan: ReadPlan) -> DataFrame | None:
    from pyspark.sql import functions

    base = read_natively(spark, plan.table, plan.schema, None, plan.slices, with_places=True)
    if base is None:
        return None
    tasks = packed_for(plan.table.storage, plan.slices, cores_of(spark), _TASK_BYTES)
    places = for_each(spark, tasks, partial(_places, plan), to_spark(_PLACES))
    # As a difference, Spark makes it no second part of the key, and computes it where places are the same.
    is_same = path_number_in_spark(base[PATH], plan.slices) - places[NUMBER] == 0
    others = base.join(functions.broadcast(places), (base[PLACE] == places[PLACE]) & is_same, "left_anti")
    changed = for_each(spark, tasks, partial(_changed, plan), to_spark(plan.schema))
    return others.select(*plan.schema.names).unionByName(changed)


def _places(plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Those of the rows of whose keys the logs speak."""
    for index in task.indexes:
        found = plan.slices[index]
        rows = np.flatnonzero(superseded_of(plan.table.storage, found, plan.table.full_schema))
        if len(rows) and rows[-1] >= ROWS_MAX:
            raise InvalidRequest(f"{found.base_path} has more than {ROWS_MAX:,} rows: make a table of more buckets")
        path = found.base_path or ""
        yield from pa.table(
            [rows + place_of(path), pa.repeat(path_number(path), len(rows))], schema=_PLACES
        ).to_batches()


def _changed(plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of these keys."""
    table = plan.table
    for index in task.indexes:
        of_slice = (table.storage, plan.slices[index], table.full_schema, table.config)
        for rows in read_changed(*of_slice, plan.schema.names, plan.conditions):
            yield from for_spark(rows, plan.schema)
