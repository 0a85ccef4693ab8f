"""A read as a frame: native plans for slices without logs, merging on the executors for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import ReadOptions
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.plan import ReadPlan, all_columns, plan_read, selected
from lakelatch.engine.read.rows.images import plan_images
from lakelatch.engine.read.rows.tasks import packed_for
from lakelatch.format.file_slices import FileSlice
from lakelatch.spark.read.changed import read_beside_logs
from lakelatch.spark.read.moments import with_moment
from lakelatch.spark.read.native import read_natively
from lakelatch.spark.session.spark_types import cores_of, for_each, to_spark
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.staged import StagedStorage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def read_images(spark: SparkSession, path: str, options: ReadOptions, structs: bool = False) -> DataFrame:
    """The changes of a window's commits as a frame. With `structs` images have the table's types, of any table."""
    storage = open_storage(path, options.storage)
    plan = plan_images(storage, options, of_any_table=structs)
    plan = plan.with_structs() if structs else plan
    if not plan.slices:
        return spark.createDataFrame([], to_spark(plan.schema))
    return for_each(spark, plan.slices, plan.read, to_spark(plan.schema))


def read(
    spark: SparkSession, path: str, options: Options | None = None, where: str | Column | None = None
) -> DataFrame:
    """The table as a frame: the rows of one moment, fixed when this is called.

    Hudi's five meta columns are there with `lakelatch.read.meta.columns=true`, or where `columns` names them.

    Spark itself reads slices without logs, and most of those with logs, with its column pruning and pushdown; where
    logs are large, rows are merged in Python, which Spark tells neither. So name `columns` if few are needed, and say
    as `where` which rows are wanted: of SQL text that joins comparisons of single columns with AND, those of partition
    fields and of the record key say which partitions, buckets and parts of files need no look; the whole condition
    says which rows are returned. `as.of.instant` and
    incremental bounds speak of *completion* times. One that is still to come is refused (`InvalidRequest`), since what
    completes until then would change the answer.
    """
    frame, plan = _read(spark, path, options, where, None)
    if plan is None or plan.instants is not None or plan.timeline is None:
        return frame  # a window of commits says of which moment it is by itself
    return with_moment(frame, plan.table.storage, plan.timeline, Call(options).read().as_of)


def read_staged(
    spark: SparkSession,
    path: str,
    options: Options | None = None,
    where: str | Column | None = None,
    staged: StagedStorage | None = None,
) -> DataFrame:
    """As `read`, in a transaction that has `staged` changes of the table; it does not say of which moment it is."""
    return _read(spark, path, options, where, staged)[0]


def _read(
    spark: SparkSession, path: str, options: Options | None, where: str | Column | None, staged: StagedStorage | None
) -> tuple[DataFrame, ReadPlan | None]:
    """The frame and its plan; without one for what commits changed."""
    call = Call(options)
    asked = call.read()
    if asked.images:
        changes = read_images(spark, path, asked)
        return changes if where is None else changes.where(where), None
    if where is None:
        plan = plan_read(path, call, staged=staged)
        return _frame(spark, plan), plan
    if isinstance(where, str):
        plan = plan_read(path, call, where=where, staged=staged)
    else:
        plan = plan_read(path, all_columns(call), staged=staged)
    frame = _named(plan, _frame(spark, plan)).where(where)
    return frame.select(*selected(plan.table.full_schema, asked).names), plan


def _frame(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    by_reader = SlicesByReader.of(plan)
    native = read_natively(spark, plan.table, plan.schema, plan.instants, by_reader.native)
    beside_logs = None
    if by_reader.beside_logs:
        beside_logs = read_beside_logs(spark, plan, by_reader.beside_logs, by_reader.sizes)
    frames = [frame for frame in (native, beside_logs) if frame is not None]
    merged = [
        *by_reader.in_python,
        *(by_reader.native if native is None else ()),
        *(by_reader.beside_logs if beside_logs is None else ()),
    ]
    if merged:
        frames.append(_merged(spark, plan, merged))
    if not frames:
        return spark.createDataFrame([], to_spark(plan.schema))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame)
    return result


def _named(plan: ReadPlan, frame: DataFrame) -> DataFrame:
    """The frame under a name that says what was left out: `explain(True)` shows it, and Spark's optimizer drops it."""
    if plan.instants is not None:
        return frame
    return frame.alias(f"{plan.table.config.name}: {plan.counts.summary(len(plan.slices))}")


def _merged(spark: SparkSession, plan: ReadPlan, slices: list[FileSlice]) -> DataFrame:
    plan = replace(plan, slices=tuple(slices))
    tasks = packed_for(plan.table.storage, plan.slices, cores_of(spark))
    return for_each(spark, tasks, plan.read_task, to_spark(plan.schema))
