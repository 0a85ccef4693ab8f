"""Table services that rewrite file groups: how they are planned, and how a plan is executed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeAlias

import pyarrow as pa

from lakelatch.engine.read.forgotten_deletes import ForgottenDeletes
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.cancelling import tidy_cancelled
from lakelatch.engine.services.counters import pending_plans
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.engine.table.opening import with_columns_at
from lakelatch.engine.table.schema import keeps_schema, learn_schema
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.tasks.base_file import put_base_file
from lakelatch.errors import CorruptTable, InvalidRequest, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.tombstones import ensure_tombstone
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.progress import count
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.instant import Instant, requested
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
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import Check
from lakelatch.transactions.base.cancel_requests import is_cancelled
from lakelatch.transactions.base.outcome import PlanCancelled, Staged
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

Operations: TypeAlias = tuple[CompactionOperation, ...]
#: Each operation with its new files; none if it was left out, or had no rows.
Made: TypeAlias = list[tuple[CompactionOperation, tuple[WriteStat, ...]]]
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class RewriteTask(ABC):
    """The work on planned operations, in this process or elsewhere. Pickles.

    `completions` are for merges of tables with column groups, and empty for other tables.
    """

    #: The service's name in texts.
    service: ClassVar[str]

    table: OpenedTable
    instant: str
    completions: Mapping[str, str]

    @abstractmethod
    def name_of(self, operation: CompactionOperation) -> str:
        """The name of the operation's file, which is the same for all executors."""

    @abstractmethod
    def run(self, operation: CompactionOperation) -> FileReport | None:
        """Makes the operation's file, or finds that another attempt has made it; None if it would be empty.

        Errors: `TransactionEnded` if the plan has ended.
        """

    @abstractmethod
    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
        """The commit's entries for the operation's files."""

    def __call__(self, operation: CompactionOperation, token: str) -> FileReport | None:
        """`run`, as an executor calls it. Errors: also `PlanCancelled`, so that a cancelled plan stops early."""
        self.ensure_wanted()
        report = self.run(operation)
        if report is not None:
            count(report.rows or report.records + report.deletes, files=1)
        return report

    def run_all(self, executor: Executor, operations: Operations) -> list[FileReport]:
        """Runs the operations on an executor."""
        what = f"lakelatch: {self.service} of {self.table.config.name!r} ({self.instant})"
        return executor.map(self, operations, FileReport, what)

    def ensure_wanted(self) -> None:
        """Raises `PlanCancelled` if the plan was cancelled."""
        if is_cancelled(self.table.storage, self.instant):
            raise PlanCancelled.of("the plan", self.instant)

    def put(self, operation: CompactionOperation, name: str, data: bytes) -> None:
        """Puts a file of the operation, unless it exists."""
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
        """Puts a file of the operation from rows in parts, unless it exists; returns its bytes. See `put_base_file`."""
        path = path_below(operation.partition, name)
        ensure_wanted = partial(ensure_beating, self.table.storage, self.instant)
        table = self.table
        return put_base_file(
            table.storage, path, table.full_schema, parts, footer, ensure_wanted, table.base_files, group_rows
        )


@dataclass(frozen=True)
class Execution:
    """The execution of a plan. `plan` is empty until it was read."""

    context: ServiceContext
    transaction: Transaction
    plan: CompactionPlan = field(default_factory=partial(CompactionPlan, ()))

    @property
    def instant(self) -> str:
        """The plan's requested time."""
        return self.transaction.instant


class RewritingService(PlannedService[CommitResult]):
    """A service whose tasks each make one operation's file, under a name that depends on nothing but the plan."""

    #: The operation of its commit.
    operation: ClassVar[str]
    #: Whether its commit is a compaction to Hudi, and whether it makes base files.
    compacts: ClassVar[bool] = False
    makes_bases: ClassVar[bool] = True
    before_commit: ClassVar[str] = "compact.before_commit"

    @abstractmethod
    def task(self, plan: CompactionPlan, table: OpenedTable, instant: str, times: Mapping[str, str]) -> RewriteTask:
        """The task for the plan's operations; `times` are `RewriteTask.completions`."""

    @abstractmethod
    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        """The plan's content, as of its slot in the log; None if there is nothing to do."""

    def planner(self, context: ServiceContext) -> Callable[[Snapshot], bytes | None]:
        """See `PlannedService`."""
        return partial(self.plan, context)

    def describe(self, result: CommitResult) -> str:
        kind = "base" if self.makes_bases else "log"
        return f"{len(result.files):,} {kind} files, {result.rows_written:,} rows, {result.bytes_written:,} bytes"

    def read(self, storage: Storage, instant: str) -> CompactionPlan:
        """The plan as it was scheduled."""
        return CompactionPlan.read(storage, requested(instant, self.action).path)

    def wanted(self, view: TableView, operations: Operations) -> Operations:
        """The operations that are still useful, as of a view that is not older than the plan."""
        return _still_there(view, operations)

    def staged(self, run: Execution, metadata: CommitMetadata, made: Made) -> tuple[Staged, tuple[Check, ...]]:
        """The files to commit, and the checks that decide on them at the commit's slot in the log."""
        metadata = replace(metadata, stats=tuple(stat for _, stats in made for stat in stats))
        return Staged(metadata, Work.of(metadata)), ()

    def execute(self, context: ServiceContext, instant: str) -> CommitResult:
        """See `PlannedService`, with a task for each operation."""
        manager, table, storage = context.manager, context.table, context.table.storage
        transaction = begin_plan(manager, instant, self.action)
        run = Execution(context, transaction)
        try:
            plan = self.read(storage, instant)
            run = replace(run, plan=plan)
            _ensure_names(plan.operations, requested(instant, self.action).path)
            since_plan = manager.snapshot  # which `begin_plan` has taken, so it shows all that the plan names
            operations = self.wanted(view_at(table, since_plan), plan.operations)
            table = with_columns_at(table, since_plan)
            completions = WholeTimeline.load(storage).all_completion_times() if table.config.column_groups else {}
            task = self.task(plan, table, instant, completions)
            by_name = {(one.partition, one.file_name): one for one in task.run_all(context.executor, operations)}
            failpoint(self.before_commit)
            reports = [(one, by_name.get((one.partition, task.name_of(one)))) for one in operations]
            made = [(one, () if report is None else task.stats(report, one)) for one, report in reports]
            extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: manager.writer}
            metadata = CommitMetadata((), self.operation, extra, compacted=self.compacts)
            staged, checks = self.staged(run, metadata, made)
            own = [keeps_schema(table, adds_columns=False), *checks]
            committed = transaction.commit(staged.metadata, own, staged.work)
        except BaseException as error:
            self.give_up(run, error)
            if run.plan.operations and isinstance(error, NotFound):
                _refuse_missing(table, requested(instant, self.action), run.plan.operations, error)
            raise
        learn_schema(storage, self.action, committed)
        if self.makes_bases:
            committed_paths = frozenset(stat.path for stat in committed.metadata.stats)
            remove_left_over_bases(table, instant, committed.metadata.file_groups(), committed_paths)
        return CommitResult.of(instant, committed.completion, committed.metadata)

    def give_up(self, run: Execution, error: BaseException) -> None:
        """Leaves a failed plan to the next executor, or ends it if it was cancelled."""
        run.transaction.release()
        tidy_cancelled(run.context.manager, run.instant)


def busy_groups(storage: Storage, snapshot: Snapshot) -> set[FileGroup]:
    """(partition, file id) of every file group in a waiting plan: a second plan would read the same files."""
    return {
        group
        for action in REWRITING_SERVICES
        for instant in pending_plans(snapshot, action)
        for group in read_service_plan(storage, instant, action).groups
    }


def view_at(table: OpenedTable, snapshot: Snapshot) -> TableView:
    """The table as a plan's place in the log shows it, which lacks nothing, so it is not listed until it rests."""
    return TableView(table.storage, table.config, WholeTimeline.load(table.storage, snapshot))


def due_operations(
    view: TableView, snapshot: Snapshot, least_logs: int, partitions: list[str] | None = None
) -> list[CompactionOperation]:
    """An operation for each file group with logs of at least `least_logs` commits to merge that is in no waiting plan.

    Of all partitions, or of those named. A commit may have several log files in a file group. `snapshot` says which
    plans wait; the view may be later.

    File groups whose deletes another engine dropped are left out until these are kept, as that is not possible later.
    Errors: `CorruptTable` if a file is missing in one of their partitions: its loss would become permanent.
    """
    busy = busy_groups(view.storage, snapshot)
    forgotten = ForgottenDeletes(view)
    asked: list[tuple[FileSlice, FileSlice]] = []
    for found in view.slices(partitions):
        if _commits_of(found.fresh_logs) >= least_logs and (found.partition, found.file_id) not in busy:
            known = forgotten.kept(found)
            if known is not None:
                asked.append((found, known))
    due = [
        operation
        for (found, _), operation in zip(asked, operations_on(view, [known for _, known in asked]), strict=True)
        if _commits_of(set(operation.delta_files) & set(found.fresh_logs)) >= least_logs  # not counting tombstones
    ]
    if due:
        view.ensure_whole({one.partition for one in due})
    return due


def _commits_of(logs: Iterable[str]) -> int:
    """How many commits these log files are of."""
    files = map(parse_data_file, logs)
    return len({file.instant for file in files if file is not None})


def ensure_has_logs(table: OpenedTable) -> None:
    """`InvalidRequest` for a copy-on-write table, which never has log files to compact."""
    if table.config.copies_on_write:
        raise InvalidRequest(
            f"the table {table.config.name!r} is {table.config.table_type}: each commit writes base files, so there "
            "are no log files to compact. Leave compactions out; a clean removes old base files"
        )


def operations_on(view: TableView, slices: Sequence[FileSlice]) -> list[CompactionOperation]:
    """The planned operation on each slice, with all of its logs that are not empty; the sizes of all are one round."""
    paths = [path for found in slices for path in found.log_paths]
    status = iter(view.storage.together(*(partial(view.storage.stat, path) for path in paths)))
    return [_operation_on(view, found, [next(status).size_bytes for _ in found.log_files]) for found in slices]


def _operation_on(view: TableView, found: FileSlice, log_bytes: Sequence[int]) -> CompactionOperation:
    sizes = dict(zip(found.log_files, log_bytes, strict=True))
    logs = tuple(name for name in found.log_files if sizes[name])  # an empty file is the tombstone of a failed attempt
    for name in (name for name in found.log_files if not sizes[name]):
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


def begin_plan(manager: TransactionManager, instant: str, action: str) -> Transaction:
    """Begins to execute a plan; a cancelled one is ended instead. Errors: those of `manager.execute`."""
    try:
        return manager.execute(instant, action)
    except PlanCancelled:
        tidy_cancelled(manager, instant)
        raise


def _refuse_missing(table: OpenedTable, plan: Instant, operations: Operations, error: NotFound) -> None:
    """`CorruptTable` instead of `NotFound` if the plan still waits, and files of live file groups are missing.

    For a slow executor, files are missing that were cleaned after another one had completed the plan.
    """
    storage = table.storage
    wanted = [
        path_below(one.partition, name)
        for one in _still_there(TableView.load(storage, table.config), operations)
        for name in (*one.delta_files, *([one.base_file] if one.base_file else ()))
    ]
    there = storage.together(*(partial(storage.exists, path) for path in wanted))
    whole = WholeTimeline.load(storage)
    waits = any(one.requested == plan.requested and one.action == plan.action for one in whole.active.pending)
    for path in (path for path, is_there in zip(wanted, there, strict=True) if not is_there and waits):
        raise CorruptTable(
            f"the file {path!r} is missing, which {plan.path} is to rewrite: its rows would be left out for good. "
            "Restore it from a copy, or cancel the plan (`lakelatch cancel request`)",
            path=path,
            instant=plan.requested,
        ) from error


def _ensure_names(operations: Operations, path: str) -> None:
    """`CorruptTable` for a plan with names that are no data files of a table."""
    for one in operations:
        files = [parse_data_file(name) for name in one.delta_files]
        bases = [] if one.base_file is None else [parse_data_file(one.base_file)]
        logs = all(isinstance(file, LogFile) and file.file_id == one.file_id for file in files)
        if not logs or not all(isinstance(file, BaseFile) and file.file_id == one.file_id for file in bases):
            raise CorruptTable(f"{path} plans files that are no data files: restore it from a copy", path=path)


def _still_there(view: TableView, operations: Operations) -> Operations:
    """The operations without those on file groups that were replaced since, whose results no reader would read."""
    replaced = view.replaced()
    return tuple(one for one in operations if (one.partition, one.file_id) not in replaced)


def remove_left_over_bases(
    table: OpenedTable, instant: str, groups: Collection[FileGroup], committed: Collection[str] | None = None
) -> None:
    """Removes base files of the instant from file groups for which its commit names another one; none if it is pending.

    `committed` are the paths that the commit names, for a caller who has just made it.
    Our readers ignore them, and hudi-rs refuses two base files of one instant. A process that is still writing one
    leaves it again, for the next call. Files that cannot be removed now are left as well.
    """
    try:
        if committed is None:
            committed = TableView.load(table.storage, table.config).files_of(instant)
        _remove_left_over(table.storage, instant, groups, committed)
    except Unavailable as error:
        _log.warning("base files that the commit of %s does not name may be left: %s", instant, error)


def _remove_left_over(
    storage: Storage, instant: str, groups: Collection[FileGroup], committed: Collection[str]
) -> None:
    partitions = sorted({partition for partition, _ in groups}) if committed else []
    listings = storage.together(*(partial(storage.list, partition) for partition in partitions))
    for partition, listing in zip(partitions, listings, strict=True):
        files = [parse_data_file(name) for name in listing.files]
        bases = [file for file in files if isinstance(file, BaseFile) and file.instant == instant]
        named = {base.file_id for base in bases if path_below(partition, base.name) in committed}
        for base in bases:
            path = path_below(partition, base.name)
            if path not in committed and base.file_id in named and (partition, base.file_id) in groups:
                _log.warning("%s is removed: the plan %s was completed with another base file", path, instant)
                storage.delete(path)
