"""Runs the tasks of writes and of table services on the executors of a session, and brings back their reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.run.file_report import REPORT_SCHEMA, FileReport, ensure_none_refused, reports_to_batch
from lakelatch.engine.services import cleaning
from lakelatch.engine.services.planned import Operations, RewriteTask
from lakelatch.engine.write.relocation import FileTask, Relocation, Relocator, relocate_here
from lakelatch.errors import reraise
from lakelatch.format.names import NO_TASK
from lakelatch.spark.progress import told
from lakelatch.spark.spark_types import for_each
from lakelatch.storage.contract import Storage
from lakelatch.timeline.metadata import CompactionOperation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_REMOVED = pa.schema([("size_bytes", pa.int64())])
_HERE_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SparkRunner:
    """Runs tasks on the executors of a session."""

    spark: SparkSession

    def __call__(self, task: RewriteTask, operations: Operations) -> list[FileReport]:
        """See `Runner`."""
        if not operations:
            return []
        reports = for_each(self.spark, operations, partial(_rewrite, task), report_type())
        return collect_reports(reports, f"lakelatch: {task.service} of {task.table.config.name!r}")

    def remove(self, storage: Storage, parallelism: int, parts: Sequence[Sequence[str]]) -> int:
        """See `RemovesFiles`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        work = partial(_remove_part, storage, parallelism)
        try:
            return sum(
                row.size_bytes for row in for_each(self.spark, parts, work, from_arrow_schema(_REMOVED)).collect()
            )
        except Exception as error:
            reraise(error)


def runner_of(spark: SparkSession) -> SparkRunner:
    """Runs the tasks on the executors."""
    return SparkRunner(spark)


def _rewrite(task: RewriteTask, operation: CompactionOperation) -> Iterator[pa.RecordBatch]:
    task.ensure_wanted()
    report = task.run(operation)
    if report is not None:
        yield reports_to_batch([report])


def relocator_of(spark: SparkSession) -> Relocator:
    """Copies files on the executors, or here if they are small."""

    def relocate_files(task: FileTask, relocations: Sequence[Relocation]) -> list[FileReport]:
        if sum(relocation.report.size_bytes for relocation in relocations) <= _HERE_MAX_BYTES:
            return relocate_here(task, relocations)
        reports = for_each(spark, relocations, partial(_relocate_file, task), report_type())
        return collect_reports(reports, "lakelatch: files copied to where they belong by now")

    return relocate_files


def _relocate_file(task: FileTask, relocation: Relocation) -> Iterator[pa.RecordBatch]:
    yield reports_to_batch([task.run(relocation, write_token())])


def write_token() -> str:
    """This task attempt's part of a file name: partition, stage, attempt; no other attempt has the same."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return NO_TASK
    return f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"


def report_type() -> StructType:
    """What Spark calls a report's columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(REPORT_SCHEMA)


def collect_reports(reports: DataFrame, what: str) -> list[FileReport]:
    """Runs what makes these reports, and brings them to the driver. `what` says it to those who wait.

    Errors: `InvalidRequest` for rows that a task has refused.
    """
    with told(reports.sparkSession, what):
        found = [FileReport(**row.asDict()) for row in reports.collect()]
    ensure_none_refused(found)
    return found


def _remove_part(storage: Storage, parallelism: int, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    size = cleaning.in_threads(storage, parallelism)(paths)
    yield pa.RecordBatch.from_pylist([{"size_bytes": size}], schema=_REMOVED)
