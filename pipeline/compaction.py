"""Compaction: planned at one point of the log, carried out later, by anybody, any number of times to the same end.

A plan names, for each file group, the base file and exactly the log files that completed before the plan's time.
Carrying it out creates one base file for each group, put-if-absent under a name that depends on nothing but the plan:
tasks that are retried, executors that were paused, and two executors of one plan all make the same file once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import CorruptTable, LakelatchError, TransactionEnded, from_text
from lakelatch.failpoints import failpoint
from lakelatch.pipeline.compact_task import CompactTask, stat_of
from lakelatch.pipeline.coordination import open_manager
from lakelatch.pipeline.file_names import parse_data_file
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.options import MIN_DELTA_COMMITS, normalise
from lakelatch.pipeline.schemas import arrow_to_avro, with_meta_columns
from lakelatch.pipeline.tables import Table, require_writable
from lakelatch.pipeline.views import TableView
from lakelatch.pipeline.write_task import REPORT_SCHEMA, FileReport, reports_to_batch
from lakelatch.pipeline.writer import CommitResult
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.instants import requested
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata, CompactionOperation, CompactionPlan
from lakelatch.transactions.manager import PlanBusy, TransactionManager
from lakelatch.transactions.settings import whole_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelatch.pipeline")
_COMPACTION = "compaction"
_WRITE_ACTIONS = ("commit", "deltacommit", "replacecommit")
_TASKS_MAX = 10_000


def compact(
    spark: SparkSession, path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CommitResult]:
    """Carries out the plans that wait, schedules another one, carries that out; returns what this call completed.

    Writers go on meanwhile, under either concurrency mode. A plan that another process is working on is left to it, and
    so is that of a process which died, until its heartbeat has expired; `waiting_plans` names those.
    """
    values = normalise(options)
    table = require_writable(open_storage(path))
    with open_manager(table.storage, values, system) as manager:
        manager.heal()
        results = [_execute_or_leave(spark, table, manager, instant) for instant in pending_plans(manager.folder)]
        instant = _schedule(table, manager, values)
        if instant is not None:
            results.append(_execute_or_leave(spark, table, manager, instant))
    return [result for result in results if result is not None]


def schedule_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a compaction plan on the timeline, for `execute_compaction`; None if there is nothing to compact."""
    values = normalise(options)
    table = require_writable(open_storage(path))
    with open_manager(table.storage, values, system) as manager:
        manager.heal()
        return _schedule(table, manager, values)


def execute_compaction(
    spark: SparkSession,
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Carries out one plan. `TransactionEnded` if it has completed, `Unavailable` while another process works on it."""
    values = normalise(options)
    table = require_writable(open_storage(path))
    with open_manager(table.storage, values, system) as manager:
        manager.heal()
        return _execute(spark, table, manager, instant)


def waiting_plans(path: str) -> list[str]:
    """Requested times of the compactions of a table that are scheduled and not completed, oldest first."""
    folder = TimelineFolder(open_storage(path))
    folder.refresh(0)
    return pending_plans(folder)


def pending_plans(folder: TimelineFolder) -> list[str]:
    """Requested times of compactions that were scheduled and have not completed, oldest first."""
    return [instant.requested for instant in folder.pending() if instant.action == _COMPACTION]


def read_plan(storage: Storage, instant: str) -> CompactionPlan:
    """The plan as it was scheduled."""
    return CompactionPlan.from_avro(storage.read(requested(instant, _COMPACTION).path))


def _schedule(table: Table, manager: TransactionManager, values: Mapping[str, str]) -> str | None:
    least_logs = whole_number(values, MIN_DELTA_COMMITS, 1, 1, 1_000_000)

    def build(folder: TimelineFolder) -> bytes | None:
        busy = {
            (operation.partition, operation.file_id)
            for instant in pending_plans(folder)
            for operation in read_plan(table.storage, instant).operations
        }
        view = TableView.load(table.storage, table.config)
        due = [
            found
            for found in view.slices()
            if len(found.log_files) >= least_logs and (found.partition, found.file_id) not in busy
        ]
        operations = tuple(_operation(view, found) for found in due)
        return CompactionPlan(operations).to_avro() if operations else None

    return manager.schedule(build, _COMPACTION)


def _operation(view: TableView, found: FileSlice) -> CompactionOperation:
    prefix = f"{found.partition}/" if found.partition else ""
    sizes = {name: view.storage.stat(prefix + name).size_bytes for name in found.log_files}
    logs = tuple(name for name in found.log_files if sizes[name])  # an empty file bars the name of a failed attempt
    for name in set(found.log_files).difference(logs):
        _check_barred(view, prefix + name)
    total_mb = sum(sizes.values()) / 1024 / 1024
    return CompactionOperation(
        partition=found.partition,
        file_id=found.file_id,
        base_instant=found.base_instant,
        base_file=found.base_file,
        delta_files=logs,
        metrics={
            "TOTAL_LOG_FILES": float(len(logs)),
            "TOTAL_LOG_FILES_SIZE": float(sum(sizes.values())),
            "TOTAL_IO_MB": total_mb,
            "TOTAL_IO_READ_MB": total_mb,
            "TOTAL_IO_WRITE_MB": 0.0,
        },
    )


def _check_barred(view: TableView, path: str) -> None:
    """`CorruptTable` if an empty log file is named by its commit: it held rows, and compacting would hide that."""
    file = parse_data_file(path.rpartition("/")[2])
    for instant in view.timeline.completed:
        is_its = file is not None and instant.requested == file.instant and instant.action in _WRITE_ACTIONS
        if is_its and any(stat.path == path for stat in view.metadata(instant).stats):
            raise CorruptTable(f"the log file {path!r} is empty, and {instant.path} says that it is not: restore it")


def _execute_or_leave(
    spark: SparkSession, table: Table, manager: TransactionManager, instant: str
) -> CommitResult | None:
    try:
        return _execute(spark, table, manager, instant)
    except (TransactionEnded, PlanBusy) as error:  # another process was faster, or is at it
        _log.warning("compaction %s is left to others: %s", instant, error.message)
        return None


def _execute(spark: SparkSession, table: Table, manager: TransactionManager, instant: str) -> CommitResult:
    transaction = manager.execute(instant, _COMPACTION)
    try:
        operations = read_plan(table.storage, instant).operations
        task = CompactTask(
            table.storage,
            table.config,
            table.schema,
            arrow_to_avro(with_meta_columns(table.schema), table.config.name),
            instant,
        )
        reports = _run(spark, task, operations)
        failpoint("compact.before_commit")
        by_group = {(operation.partition, operation.file_id): operation for operation in operations}
        stats = tuple(stat_of(report, by_group[report.partition, report.file_id]) for report in reports)
        metadata = CommitMetadata(
            stats, "COMPACT", {SCHEMA_KEY: table.avro_schema, WRITER_KEY: manager.writer}, compacted=True
        )
        committed = transaction.commit(metadata)
    except BaseException as error:
        manager.let_go(transaction)
        typed = None if isinstance(error, LakelatchError) else from_text(str(error))
        if typed is not None:
            raise typed from error
        raise
    return CommitResult(
        instant=instant,
        completion=committed.completion,
        operation="compact",
        rows_written=sum(report.records for report in reports),
        rows_deleted=0,
        files=tuple(sorted(report.file_name for report in reports)),
        bytes_written=sum(report.size_bytes for report in reports),
    )


def _run(spark: SparkSession, task: CompactTask, operations: tuple[CompactionOperation, ...]) -> list[FileReport]:
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks = spark.range(0, len(operations), 1, numPartitions=min(len(operations), _TASKS_MAX))
    rows = tasks.mapInArrow(partial(_compact_groups, task, operations), from_arrow_schema(REPORT_SCHEMA)).collect()
    return [FileReport(**row.asDict()) for row in rows]


def _compact_groups(
    task: CompactTask, operations: tuple[CompactionOperation, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield reports_to_batch([task.run(operations[index])])
