"""Reading a table: native plans for slices without logs, merging on the executors for the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import COMMIT_TIME_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.table_view import TableView
from lakelatch.spark.open_table import open_table
from lakelatch.spark.options import AS_OF, END_INSTANT, INCREMENTAL, READ_OPTIMIZED, ReadOptions
from lakelatch.spark.spark_types import for_spark, to_spark
from lakelatch.spark.table import Table
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.instant_time import to_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_MAX = 10_000


@dataclass(frozen=True)
class ReadPlan:
    """What a read comes to: slices, columns, and for an incremental read the instants whose rows are wanted.

    `completions` has what the merge of a table with column groups needs, and is empty for other tables.
    """

    table: Table
    slices: tuple[FileSlice, ...]
    schema: pa.Schema
    instants: tuple[str, ...] | None = None
    completions: Mapping[str, str] = field(default_factory=dict)

    def read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, on whichever machine this is called."""
        table = self.table
        more = [] if self.instants is None else [COMMIT_TIME_COLUMN]
        columns = list(dict.fromkeys([*self.schema.names, *more]))
        rows = merge_slice(table.storage, file_slice, table.full_schema, table.config, self.completions, columns).rows
        if self.instants is not None:
            wanted = pa.array(self.instants, pa.string())
            rows = rows.filter(pc.is_in(rows[COMMIT_TIME_COLUMN], value_set=wanted))
        yield from for_spark(rows.select(self.schema.names), self.schema)


def plan_read(path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> ReadPlan:
    """Resolves a read to slices, as of one listing of the timeline. Errors: `InvalidRequest`, `CorruptTable`."""
    read_options = ReadOptions.parse(options)
    table = open_table(open_storage(path))
    now_ms = system.realtime_ms()  # before the listing, which then has all that completed by then
    view = TableView.load(table.storage, table.config, read_options.end or read_options.as_of)
    _refuse_future(view, read_options, now_ms)
    schema = _selected(table.full_schema, read_options.columns)
    completions = view.whole.all_completion_times() if table.config.column_groups else {}
    if read_options.query_type == INCREMENTAL:
        written = view.completed_between(read_options.begin or "", read_options.end)
        groups = frozenset(group for instant in written for group in view.metadata(instant).file_groups())
        partitions = sorted({partition for partition, _ in groups})
        there = view.slices(partitions)
        slices = [found for found in there if (found.partition, found.file_id) in groups and not found.is_empty]
        view.ensure_there(slices)
        view.ensure_recorded(slices, read_options.begin or "")
        _check_mergeable(table, slices)
        return ReadPlan(table, tuple(slices), schema, tuple(instant.requested for instant in written), completions)
    slices = [found for found in view.slices() if not found.is_empty]
    if read_options.query_type == READ_OPTIMIZED:
        slices = [_base_only(group) for group in view.groups() if any(found.base_file for found in group)]
    _check_mergeable(table, slices)
    view.ensure_there(slices)
    return ReadPlan(table, tuple(slices), schema, completions=completions)


def _refuse_future(view: TableView, options: ReadOptions, now_ms: int) -> None:
    """`InvalidRequest` for a moment that is still to come: the same read would give other rows later.

    The table's times may be ahead of this clock, and what they have passed is no future.
    """
    for option, time in ((AS_OF, options.as_of), (END_INSTANT, options.end)):
        if time is None or time <= to_instant(now_ms):
            continue
        latest = max((instant.completion or instant.requested for instant in view.timeline.instants), default="")
        if time > latest:
            raise InvalidRequest(
                f"{option}={time} is in the future: by this machine's clock it is {to_instant(now_ms)}, and the "
                f"table's latest time is {latest or 'none'}. What completes until then would change the answer: take a "
                "time that has passed (one without milliseconds is the end of its second), or leave the option out",
                option=option,
            )


def _check_mergeable(table: Table, slices: list[FileSlice]) -> None:
    """Here, so that it is the caller who learns of it and not an executor."""
    if any(found.log_files for found in slices):
        table.config.check_mergeable()


def read(spark: SparkSession, path: str, options: Mapping[str, object] | None = None) -> DataFrame:
    """The table as a frame, with Hudi's five meta columns: the rows of one moment, fixed when this is called.

    Slices without logs are read by Spark itself, with its column pruning and pushdown; the others are merged in
    Python, so name `columns` if few are needed. `as.of.instant` and incremental bounds speak of *completion* times.
    One that is still to come is refused (`InvalidRequest`), since what completes until then would change the answer.
    """
    plan = plan_read(path, options)
    native = [found for found in plan.slices if found.base_file and not found.fresh_logs]
    merged = [found for found in plan.slices if found.fresh_logs]
    frames = []
    if native:
        frames.append(_native(spark, plan, native))
    if merged:
        frames.append(_merged(spark, plan, merged))
    if not frames:
        return spark.createDataFrame([], to_spark(plan.schema))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame)
    return result


def _native(spark: SparkSession, plan: ReadPlan, slices: list[FileSlice]) -> DataFrame:
    from pyspark.sql import functions

    names = list(dict.fromkeys([*plan.schema.names, COMMIT_TIME_COLUMN]))
    full = plan.table.full_schema
    schema = to_spark(pa.schema([full.field(name) for name in names]))
    paths = [_literal(plan.table.storage.full_path(found.base_path or "")) for found in slices]
    frame = spark.read.schema(schema).parquet(*paths)
    if plan.instants is not None:
        frame = frame.where(functions.col(COMMIT_TIME_COLUMN).isin(list(plan.instants)))
    return frame.select(*plan.schema.names)


def _literal(path: str) -> str:
    """The path for Spark, which takes paths for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _merged(spark: SparkSession, plan: ReadPlan, slices: list[FileSlice]) -> DataFrame:
    tasks = spark.range(0, len(slices), 1, numPartitions=min(len(slices), _TASKS_MAX))
    return tasks.mapInArrow(partial(_read_slices, plan, tuple(slices)), to_spark(plan.schema))


def _read_slices(
    plan: ReadPlan, slices: tuple[FileSlice, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from plan.read(slices[index])


def _base_only(group: list[FileSlice]) -> FileSlice:
    """The latest slice of the group that has a base file, without its logs."""
    latest = next(found for found in group if found.base_file)
    return latest.without_logs()


def _selected(schema: pa.Schema, columns: tuple[str, ...] | None) -> pa.Schema:
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise InvalidRequest(f"columns={','.join(missing)} are not in the table ({', '.join(schema.names)})")
    return pa.schema([schema.field(name) for name in columns])
