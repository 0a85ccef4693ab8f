"""Large slices with few logs: Spark reads their base files by itself, but for the rows of whose keys the logs speak.

Those are left out by an anti join with their places, the numbers of files and rows, which Spark sends to all executors.
So there is a bound for the logs; and since each log is read twice, and one more stage of Python costs what some
megabytes of rows do, small slices are better merged whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import changed_places_of, read_changed
from lakelatch.spark.read.native import (
    PATH,
    PLACE,
    ROWS_MAX,
    have_places,
    path_number,
    path_number_in_spark,
    place_of,
    read_natively,
)
from lakelatch.spark.read.tasks import ReadTask, packed_for
from lakelatch.spark.spark_types import cores_of, for_each, for_spark, to_spark
from lakelatch.storage.contract import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakelatch.spark.read.reader import ReadPlan

#: What the logs of one read have at most, compressed: the places of their rows are in the memory of each executor.
LOGS_MAX_BYTES = 256 * 1024 * 1024
#: Base files of fewer bytes are merged as soon as a further stage of Python is through.
BASE_MIN_BYTES = 128 * 1024 * 1024
#: Of more bytes the keys might take longer to read than Spark waits for what it sends to all (300 s, as it is set).
BASE_MAX_BYTES = 32 * 1024 * 1024 * 1024
_BASE_TO_LOGS = 4  # as many times as large
_TASK_BYTES = 256 * 1024 * 1024  # of base files, of which a tenth or so is read
_ASKED_MAX = 64  # of so many files sizes are asked for, of some slices; the others are taken to be like them
_NUMBER = "_lakelatch_path_number"
#: Names of columns, in lower case, that a frame of this kind cannot have: Spark's own one, and those here.
RESERVED = frozenset(["_metadata", PLACE, PATH, _NUMBER])
_PLACES = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in (PLACE, _NUMBER)])


def have_few_logs(storage: Storage, slices: Sequence[FileSlice]) -> bool:
    """Whether slices, all with base files and logs, are read sooner this way, and can be."""
    if not have_places(slices):
        return False
    files = sum(1 + len(found.fresh_logs) for found in slices)
    asked = slices[:: -(-files // _ASKED_MAX)]
    bases = [partial(storage.stat, found.base_path or "") for found in asked]
    logs = [partial(storage.stat, found.path_of(name)) for found in asked for name in found.fresh_logs]
    sizes = [found.size_bytes * len(slices) // len(asked) for found in storage.together(*bases, *logs)]
    base_bytes, logs_bytes = sum(sizes[: len(bases)]), sum(sizes[len(bases) :])
    is_worth_it = max(BASE_MIN_BYTES, _BASE_TO_LOGS * logs_bytes) <= base_bytes <= BASE_MAX_BYTES
    return is_worth_it and logs_bytes <= LOGS_MAX_BYTES


def read_beside_logs(spark: SparkSession, plan: ReadPlan, slices: Sequence[FileSlice]) -> DataFrame | None:
    """The rows of a snapshot's slices, all with base files and logs; None if Spark does not read the base files."""
    from pyspark.sql import functions

    plan = replace(plan, slices=tuple(slices))
    base = read_natively(spark, plan.table, plan.schema, None, slices, with_places=True)
    if base is None:
        return None
    tasks = packed_for(plan.table.storage, plan.slices, cores_of(spark), _TASK_BYTES)
    places = for_each(spark, tasks, partial(_places, plan), to_spark(_PLACES))
    # As a difference, Spark makes it no second part of the key, and computes it where places are the same.
    is_same = path_number_in_spark(base[PATH], slices) - places[_NUMBER] == 0
    others = base.join(functions.broadcast(places), (base[PLACE] == places[PLACE]) & is_same, "left_anti")
    changed = for_each(spark, tasks, partial(_changed, plan), to_spark(plan.schema))
    return others.select(*plan.schema.names).unionByName(changed)


def _places(plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Those of the rows of whose keys the logs speak."""
    for index in task.indexes:
        found = plan.slices[index]
        rows = changed_places_of(plan.table.storage, found, plan.table.full_schema)
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
