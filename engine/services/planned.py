"""Plans of table services that rewrite file groups: which wait, what is due, and how one is carried out."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import pyarrow as pa

from lakelatch.engine.read.forgotten_deletes import ForgottenDeletes
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.cancelling import tidy_cancelled
from lakelatch.engine.services.left_over_bases import remove_left_over_bases
from lakelatch.engine.table.opening import as_of_now, open_existing_storage
from lakelatch.engine.table.schema import keeps_schema, learn_schema
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.base_file import put_base_file
from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.tombstones import ensure_tombstone
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import (
    SCHEMA_KEY,
    WRITER_KEY,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    FileGroup,
    WriteStat,
)
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, read_service_plan
from lakelatch.timeline.timeline import Instant, TimelineFolder, requested
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.cancellation_requests import is_cancelled
from lakelatch.transactions.manager import PlanBusy, TransactionManager
from lakelatch.transactions.transaction import Transaction

Operations: TypeAlias = tuple[CompactionOperation, ...]
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class RewriteTask(ABC):
    """What carries out planned operations, wherever it runs. Pickles.

    `completions` has what the merge of a table with column groups needs, and is empty for other tables.
    """

    #: What it is a part of, as people call it.
    service: ClassVar[str]

    table: OpenedTable
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

    def __call__(self, operation: CompactionOperation, token: str) -> FileReport | None:
        """`run`, as an executor calls it. Errors: also `PlanCancelled`, so that a cancelled plan stops early."""
        self.ensure_wanted()
        return self.run(operation)

    def run_all(self, executor: Executor, operations: Operations) -> list[FileReport]:
        """Runs the operations wherever the executor does, and says for what."""
        what = f"lakelatch: {self.service} of {self.table.config.name!r}"
        return executor.map(self, operations, FileReport, what)

    def ensure_wanted(self) -> None:
        """Errors: `PlanCancelled`."""
        if is_cancelled(self.table.storage, self.instant):
            raise PlanCancelled.of("the plan", self.instant)

    def put(self, operation: CompactionOperation, name: str, data: bytes) -> None:
        """Puts a file of the operation, unless it is there already."""
        ensure_beating(self.table.storage, self.instant)
        path = path_below(operation.partition, name)
        self.table.storage.put_if_absent(path, add_checksum(data, path))

    def put_parquet(
        self,
        operation: CompactionOperation,
        name: str,
        parts: Iterator[pa.Table],
        footer: Callable[[], Mapping[str, str]],
        group_rows: int | None = None,
    ) -> int:
        """Puts rows that come in parts as a file of the operation, unless it is there already; how many bytes it has.

        See `put_base_file`.
        """
        path = path_below(operation.partition, name)
        ensure_wanted = partial(ensure_beating, self.table.storage, self.instant)
        table = self.table
        return put_base_file(
            table.storage, path, table.full_schema, parts, footer, ensure_wanted, table.base_files, group_rows
        )


@dataclass(frozen=True)
class Service:
    """One kind of plan: its action on the timeline, what its tasks do, and how its commit names what they made.

    `task_of` is called with the table, the plan's instant, completion times for the merge, and the plan.
    """

    action: str
    operation: str
    compacted: bool
    task_of: Callable[[OpenedTable, str, Mapping[str, str], CompactionPlan], RewriteTask]
    stats_of: Callable[[FileReport, CompactionOperation, str], tuple[WriteStat, ...]]


def pending_plans(folder: TimelineFolder, action: str) -> list[str]:
    """Requested times of the plans of this action that have not completed, oldest first."""
    return [instant.requested for instant in folder.pending() if instant.action == action]


def waiting(path: str, actions: Collection[str], options: Mapping[str, object] | None = None) -> list[str]:
    """Requested times of the plans of these actions that have not completed, oldest first, those of Java among them.

    One that is there may be at work right now. Errors: `InvalidRequest` where there is no table.
    """
    folder = TimelineFolder(open_existing_storage(path, options))
    folder.refresh(0)
    return sorted(instant for action in actions for instant in pending_plans(folder, action))


def read_plan(storage: Storage, instant: str, action: str = COMPACTION) -> CompactionPlan:
    """The plan as it was scheduled."""
    return CompactionPlan.read(storage, requested(instant, action).path)


def busy_groups(storage: Storage, folder: TimelineFolder) -> set[FileGroup]:
    """(partition, file id) of every file group in a plan that waits: two plans of one would read the same files."""
    return {
        group
        for action in REWRITING_SERVICES
        for instant in pending_plans(folder, action)
        for group in read_service_plan(storage, instant, action).groups
    }


def due_operations(table: OpenedTable, folder: TimelineFolder, least_logs: int) -> list[CompactionOperation]:
    """An operation for each file group with so many logs to merge that is in no plan that waits.

    Without those whose deletes another engine has forgotten and nobody has kept since: nobody could after that. Errors:
    `CorruptTable` if a file is missing in one of their partitions: without it, the loss would be for good.
    """
    busy = busy_groups(table.storage, folder)
    view = TableView.load(table.storage, table.config)
    forgotten = ForgottenDeletes(view)
    due = []
    for found in view.slices():
        if len(found.fresh_logs) >= least_logs and (found.partition, found.file_id) not in busy:
            known = forgotten.kept(found)
            if known is None:
                continue
            operation = operation_on(view, known)
            if len(set(operation.delta_files) & set(found.fresh_logs)) >= least_logs:  # tombstones are none
                due.append(operation)
    if due:
        view.ensure_whole({one.partition for one in due})
    return due


def ensure_has_logs(table: OpenedTable) -> None:
    """`InvalidRequest` for a copy-on-write table, in which a compaction would find nothing, ever."""
    if table.config.copies_on_write:
        raise InvalidRequest(
            f"the table {table.config.name!r} is {table.config.table_type}: each commit writes base files, so there "
            "are no log files to compact. Leave compactions out; a clean removes old base files"
        )


def operation_on(view: TableView, found: FileSlice) -> CompactionOperation:
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
    service: Service, executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str
) -> CommitResult | None:
    """The same as `carry_out`, but None if another process has done it or is at it."""
    return leave_to_others(service.action, instant, lambda: carry_out(service, executor, table, manager, instant))


def leave_to_others(
    action: str,
    instant: str,
    work: Callable[[], CommitResult],
    errors: tuple[type[LakelatchError], ...] = (TransactionEnded, PlanBusy),
) -> CommitResult | None:
    """What `work` on a plan gives; None if it has ended, or another process is at it, as one of the errors says."""
    try:
        return work()
    except errors as error:
        _log.warning("%s %s is left to others: %s", action, instant, error.message)
        return None


def begin_plan(manager: TransactionManager, instant: str, action: str) -> Transaction:
    """Begins to carry a plan out; one that was cancelled is tidied up instead. Errors: those of `manager.execute`."""
    try:
        return manager.execute(instant, action)
    except PlanCancelled:
        tidy_cancelled(manager, instant)
        raise


def carry_out(
    service: Service, executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str
) -> CommitResult:
    """Carries out one plan, with a task for each operation."""
    transaction = begin_plan(manager, instant, service.action)
    plan: CompactionPlan | None = None
    try:
        plan = read_plan(table.storage, instant, service.action)
        ensure_names(plan.operations, requested(instant, service.action).path)
        operations = _still_there(table, plan.operations)
        completions = completions_of(table)
        table = as_of_now(table)
        task = service.task_of(table, instant, completions, plan)
        reports = task.run_all(executor, operations)
        failpoint("compact.before_commit")
        by_name = {(operation.partition, task.name_of(operation)): operation for operation in operations}
        pairs = [(report, by_name[report.partition, report.file_name]) for report in reports]
        stats = tuple(stat for report, operation in pairs for stat in service.stats_of(report, operation, instant))
        extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: manager.writer}
        metadata = CommitMetadata(stats, service.operation.upper(), extra, compacted=service.compacted)
        committed = transaction.commit(metadata, [keeps_schema(table, adds_columns=False)])
    except BaseException as error:
        transaction.release()
        tidy_cancelled(manager, instant)
        ended = isinstance(error, TransactionEnded) and service.compacted
        if ended and plan is not None:  # by an engine with other names for its files
            remove_left_over_bases(table, instant, plan.file_groups)
        if plan is not None:
            refuse_missing(table, requested(instant, service.action), plan.operations, error)
        raise
    learn_schema(table.storage, service.action, committed)
    if service.compacted:
        remove_left_over_bases(table, instant, committed.metadata.file_groups())
    return CommitResult.of(instant, committed.completion, committed.metadata)


def refuse_missing(table: OpenedTable, plan: Instant, operations: Operations, error: BaseException) -> None:
    """`CorruptTable` in the place of a `NotFound` if what is gone is needed: by a plan that waits, of live file groups.

    Whoever is slow finds files gone that were cleaned after others had carried the plan out.
    """
    if not isinstance(error, NotFound):
        return
    storage = table.storage
    wanted = [
        path_below(one.partition, name)
        for one in _still_there(table, operations)
        for name in (*one.delta_files, *([one.base_file] if one.base_file else ()))
    ]
    there = storage.together(*(partial(storage.exists, path) for path in wanted))
    whole = WholeTimeline.load(storage)
    waits = any(one.requested == plan.requested and one.action == plan.action for one in whole.active.pending)
    for path in (path for path, is_there in zip(wanted, there, strict=True) if not is_there and waits):
        raise CorruptTable(
            f"the file {path!r} is missing, which {plan.path} is to rewrite: its rows would be left out for good. "
            "Restore it from a copy, or call the plan off (`lakelatch cancel request`)",
            path=path,
            instant=plan.requested,
        ) from error


def completions_of(table: OpenedTable) -> Mapping[str, str]:
    """What tasks are given for their merges (`RewriteTask.completions`)."""
    return WholeTimeline.load(table.storage).all_completion_times() if table.config.column_groups else {}


def ensure_names(operations: Operations, path: str) -> None:
    """`CorruptTable` for a plan whose files could not lie in a table."""
    for one in operations:
        files = [parse_data_file(name) for name in one.delta_files]
        bases = [] if one.base_file is None else [parse_data_file(one.base_file)]
        logs = all(isinstance(file, LogFile) and file.file_id == one.file_id for file in files)
        if not logs or not all(isinstance(file, BaseFile) and file.file_id == one.file_id for file in bases):
            raise CorruptTable(f"{path} plans files that are no data files: restore it from a copy", path=path)


def _still_there(table: OpenedTable, operations: Operations) -> Operations:
    """Without file groups that were replaced since they were planned: nobody would read what became of them."""
    replaced = TableView.load(table.storage, table.config).replaced()
    return tuple(one for one in operations if (one.partition, one.file_id) not in replaced)
