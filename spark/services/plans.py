"""Plans of table services that rewrite file groups: which wait, what is due, and how one is carried out."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakelatch.errors import CorruptTable, LakelatchError, TransactionEnded, from_text
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, parse_data_file
from lakelatch.format.table_view import TableView
from lakelatch.format.tombstones import ensure_tombstone
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.spark.open_manager import open_manager
from lakelatch.spark.open_table import require_writable
from lakelatch.spark.options import ManagerOptions
from lakelatch.spark.services.left_over_bases import remove_left_over_bases
from lakelatch.spark.table import Table
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.task import REPORT_SCHEMA, FileReport, reports_to_batch
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import Storage, path_below
from lakelatch.storage.uris import open_storage
from lakelatch.system import System
from lakelatch.timeline.actions import COMPACTION, LOG_COMPACTION
from lakelatch.timeline.history.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import (
    SCHEMA_KEY,
    WRITER_KEY,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    WriteStat,
)
from lakelatch.timeline.timeline import TimelineFolder, requested
from lakelatch.transactions.manager import PlanBusy, TransactionManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelatch.spark")
_TASKS_MAX = 10_000


@dataclass(frozen=True)
class RewriteTask(ABC):
    """What carries out planned operations, wherever it runs. Pickles.

    `completions` has what the merge of a table with column groups needs, and is empty for other tables.
    """

    table: Table
    instant: str
    completions: Mapping[str, str]

    @abstractmethod
    def name_of(self, operation: CompactionOperation) -> str:
        """The one name that the operation's file has, whoever makes it."""

    @abstractmethod
    def run(self, operation: CompactionOperation) -> FileReport | None:
        """Makes the operation's file, or finds that another attempt has made it; None if there is nothing in it.

        Errors: `TransactionEnded` if the plan has ended.
        """

    def put(self, operation: CompactionOperation, name: str, data: bytes) -> None:
        """Puts a file of the operation, unless it is there already."""
        ensure_beating(self.table.storage, self.instant)
        path = path_below(operation.partition, name)
        self.table.storage.put_if_absent(path, add_checksum(data, path))


Operations: TypeAlias = tuple[CompactionOperation, ...]
Runner: TypeAlias = Callable[[RewriteTask, Operations], list[FileReport]]


@dataclass(frozen=True)
class Service:
    """One kind of plan: its action on the timeline, what its tasks do, and how its commit names what they made.

    `task_of` is called with the table, the plan's instant, completion times for the merge, and the plan.
    """

    action: str
    operation: str
    compacted: bool
    task_of: Callable[[Table, str, Mapping[str, str], CompactionPlan], RewriteTask]
    stats_of: Callable[[FileReport, CompactionOperation, str], tuple[WriteStat, ...]]


def pending_plans(folder: TimelineFolder, action: str = COMPACTION) -> list[str]:
    """Requested times of the plans of this action that have not completed, oldest first."""
    return [instant.requested for instant in folder.pending() if instant.action == action]


def read_plan(storage: Storage, instant: str, action: str = COMPACTION) -> CompactionPlan:
    """The plan as it was scheduled."""
    return CompactionPlan.read(storage, requested(instant, action).path)


def busy_groups(storage: Storage, folder: TimelineFolder) -> set[tuple[str, str]]:
    """(partition, file id) of every file group in a plan that waits: two plans of one would read the same files."""
    return {
        (operation.partition, operation.file_id)
        for action in (COMPACTION, LOG_COMPACTION)
        for instant in pending_plans(folder, action)
        for operation in read_plan(storage, instant, action).operations
    }


def due_operations(table: Table, folder: TimelineFolder, least_logs: int) -> list[CompactionOperation]:
    """An operation for each file group with so many logs to merge that is in no plan that waits."""
    busy = busy_groups(table.storage, folder)
    view = TableView.load(table.storage, table.config)
    due = []
    for found in view.slices():
        if len(found.fresh_logs) >= least_logs and (found.partition, found.file_id) not in busy:
            operation = _operation_on(view, found)
            if len(set(operation.delta_files) & set(found.fresh_logs)) >= least_logs:  # tombstones are none
                due.append(operation)
    return due


def _operation_on(view: TableView, found: FileSlice) -> CompactionOperation:
    """A planned operation on all logs of a slice that hold something."""
    sizes = {name: view.storage.stat(found.path_of(name)).size_bytes for name in found.log_files}
    logs = tuple(name for name in found.log_files if sizes[name])  # an empty file is the tombstone of a failed attempt
    for name in set(found.log_files).difference(logs):
        ensure_tombstone(view.whole, found.path_of(name))
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


def carry_out_or_leave(
    service: Service, run: Runner, table: Table, manager: TransactionManager, instant: str
) -> CommitResult | None:
    """The same as `carry_out`, but None if another process has done it or is at it."""
    try:
        return carry_out(service, run, table, manager, instant)
    except (TransactionEnded, PlanBusy) as error:
        _log.warning("%s %s is left to others: %s", service.action, instant, error.message)
        return None


def carry_out(service: Service, run: Runner, table: Table, manager: TransactionManager, instant: str) -> CommitResult:
    """Carries out one plan; `run` runs the task for each operation, wherever that is."""
    transaction = manager.execute(instant, service.action)
    plan: CompactionPlan | None = None
    try:
        plan = read_plan(table.storage, instant, service.action)
        _ensure_names(plan, requested(instant, service.action).path)
        operations = _still_there(table, plan.operations)
        completions = _completions(table) if table.config.column_groups else {}
        task = service.task_of(table, instant, completions, plan)
        reports = run(task, operations)
        failpoint("compact.before_commit")
        by_name = {(operation.partition, task.name_of(operation)): operation for operation in operations}
        pairs = [(report, by_name[report.partition, report.file_name]) for report in reports]
        stats = tuple(stat for report, operation in pairs for stat in service.stats_of(report, operation, instant))
        extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: manager.writer}
        metadata = CommitMetadata(stats, service.operation.upper(), extra, compacted=service.compacted)
        committed = transaction.commit(metadata)
    except BaseException as error:
        transaction.release()
        ended = isinstance(error, TransactionEnded) and service.compacted
        if ended and plan is not None:  # by an engine with other names for its files
            remove_left_over_bases(table, instant, plan.operations)
        typed = None if isinstance(error, LakelatchError) else from_text(str(error))
        if typed is not None:
            raise typed from error
        raise
    if service.compacted:
        remove_left_over_bases(table, instant, operations)
    return CommitResult(
        instant=instant,
        completion=committed.completion,
        operation=service.operation,
        rows_written=sum(report.records for report in reports),
        deletes_written=0,
        files=tuple(sorted(report.file_name for report in reports)),
        bytes_written=sum(report.size_bytes for report in reports),
    )


def _completions(table: Table) -> Mapping[str, str]:
    return WholeTimeline.load(table.storage).all_completion_times()


def _ensure_names(plan: CompactionPlan, path: str) -> None:
    """`CorruptTable` for a plan whose files could not lie in a table."""
    for one in plan.operations:
        files = [parse_data_file(name) for name in one.delta_files]
        bases = [] if one.base_file is None else [parse_data_file(one.base_file)]
        logs = all(isinstance(file, LogFile) and file.file_id == one.file_id for file in files)
        if not logs or not all(isinstance(file, BaseFile) and file.file_id == one.file_id for file in bases):
            raise CorruptTable(f"{path} plans files that are no data files: restore it from a copy", path=path)


def _still_there(table: Table, operations: Operations) -> Operations:
    """Without file groups that were replaced since they were planned: nobody would read what became of them."""
    replaced = TableView.load(table.storage, table.config).replaced()
    return tuple(one for one in operations if (one.partition, one.file_id) not in replaced)


def run_here(task: RewriteTask, operations: Operations) -> list[FileReport]:
    """Runs the tasks in this process."""
    return [report for report in map(task.run, operations) if report is not None]


def runner_of(spark: SparkSession) -> Runner:
    """Runs the tasks on the executors."""
    return partial(_run, spark)


def _run(spark: SparkSession, task: RewriteTask, operations: Operations) -> list[FileReport]:
    if not operations:
        return []
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks = spark.range(0, len(operations), 1, numPartitions=min(len(operations), _TASKS_MAX))
    rows = tasks.mapInArrow(partial(_rewrite, task, operations), from_arrow_schema(REPORT_SCHEMA)).collect()
    return [FileReport(**row.asDict()) for row in rows]


def _rewrite(
    task: RewriteTask, operations: Sequence[CompactionOperation], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            report = task.run(operations[index])
            if report is not None:
                yield reports_to_batch([report])


@contextmanager
def table_at_rest(path: str, options: ManagerOptions, system: System) -> Iterator[tuple[Table, TransactionManager]]:
    """An existing table and its manager, after the dead were rolled back. `InvalidRequest` if it may only be read."""
    table = require_writable(open_storage(path))
    with open_manager(table.storage, options, system) as manager:
        manager.recover()
        yield table, manager
