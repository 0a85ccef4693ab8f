"""The builder of tables for tests: managers, writes that stand still before their commit, plans, services.

What a test needs of the write pipeline, of transactions and of table services it calls here, so that another way of
writing moves this file and no test. Each call of a table's verbs is another process, but for a `Writing`, which is one
from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bare_table import data_files, expire, manager_of, provider_of, timeline_names
from executors import Run, executor_of

from lakelatch.engine.arrow import ArrowRows
from lakelatch.engine.options.batch import Batch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.write import OPERATION, WriteOptions
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import cancelling, restoring, savepoints
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.archiving import Archived
from lakelatch.engine.services.removals.cleaning import Clean, CleanResult
from lakelatch.engine.services.restoring import Undone
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.savepoints import Savepoint
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import Write, abort_after, commit_files
from lakelatch.engine.write.batches import BatchRegister, written_once
from lakelatch.engine.write.commit import StagedFiles, write_task
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.replace import matching
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN, WriteTask
from lakelatch.engine.writing import write_rows
from lakelatch.errors import Unavailable, WriteConflict
from lakelatch.failpoints import active, calling
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage import LocalStorage, Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE_PARTITION
from lakelatch.timeline.plans.clustering_plan import SORT_COLUMNS
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.attempt import run as run_attempt
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Conflicted
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

LOGS_OF_RUN = {"hoodie.log.compaction.blocks.threshold": "2"}


@contextmanager
def stops_at(point: str) -> Iterator[None]:
    """Inside the block, what comes to a failpoint ends there, as if its process had died, and so does the block."""
    with active(f"{point}=raise"), pytest.raises(Unavailable):
        yield


@contextmanager
def meanwhile(step: Callable[[], object], *points: str) -> Iterator[None]:
    """Inside the block, does a step at the first of these failpoints that anything comes to, and not within itself."""
    left = [step]

    def at(_: str) -> None:
        if left:
            left.pop()()

    with calling(at, points):
        yield


# -- writes with rows --------------------------------------------------------------------------------------------


@dataclass
class Writing:
    """A write between its beginning and its commit."""

    table: BuiltTable
    manager: TransactionManager
    transaction: Transaction
    options: WriteOptions
    reports: list[FileReport] = field(default_factory=list)
    taken_over: LostFiles | None = None  # of the try before

    @property
    def instant(self) -> str:
        return self.transaction.instant

    def task(self, in_bulk: bool = False) -> WriteTask:
        """What its tasks work with; in bulk, they may make base files."""
        return write_task(self.table.opened, self.options, self.transaction, in_bulk)

    def put_table(self, data: pa.Table, token: str = "0-0-0") -> Writing:
        """Writes rows, as a task does."""
        task = self.task()
        for batch in data.to_batches():
            self.reports += task.write(iter([task.tag(batch)]), token)
        return self

    def put(self, partition: str, rows: Sequence[tuple[Any, ...]], token: str = "0-0-0") -> Writing:
        """Writes rows of all columns but the last one, which is the partition's."""
        values = [(*row, partition) for row in rows]
        columns = [list(column) for column in zip(*values, strict=True)]
        return self.put_table(pa.Table.from_arrays(columns, schema=self.table.schema), token)

    def put_sorted(self, data: pa.Table) -> Writing:
        """Writes rows, as a task of a bulk load does."""
        task = self.task(in_bulk=True)
        self.reports += task.write(iter(sorted_batches(task, data)), "0-0-0")
        return self

    def put_rows(self, *rows: Mapping[str, Any]) -> Writing:
        """Writes rows, all with the columns of the first one."""
        schema = pa.schema([one for one in self.table.opened.schema if one.name in rows[0]])
        return self.put_table(pa.Table.from_pylist(list(rows), schema=schema))

    def commit(self, partitions: Sequence[str] = (), run: Run | None = None) -> CommitResult:
        """Commits, in one try. Errors: those of a write."""
        try:
            choose = matching(partitions) if self.options.operation == DELETE_PARTITION else None
            opened, executor = self.table.opened, executor_of(run)
            return commit_files(self.transaction, opened, self.options, self.reports, executor, choose)
        finally:
            if self.taken_over is not None:
                self.taken_over.drop()

    def staged(self) -> StagedFiles:
        """Its files as they are held against the log."""
        return StagedFiles(self.transaction, self.table.opened, self.options, self.reports, HERE)

    def loses_to_itself(self, again: Writing) -> Writing:
        """Loses at its commit, and hands its files over to its next try, which returns."""
        context, files = self.manager.context, self.staged()
        outcome = run_attempt(context, files.start(Commit(context), keep_files=True))
        assert isinstance(outcome, Conflicted) and outcome.files_kept
        again.taken_over = LostFiles(self.transaction, outcome.conflict, files.reports)
        again.reports = again.taken_over.rewrite(again.task(), HERE)
        return again

    def loses(self, partitions: Sequence[str] = ()) -> WriteConflict:
        """Tries to commit, and loses; the conflict, which names the winner."""
        with pytest.raises(WriteConflict) as caught:
            self.commit(partitions)
        return caught.value

    def abort(self) -> None:
        self.transaction.abort()

    def die(self) -> None:
        """Leaves it as it is: nothing beats for it any more."""
        self.transaction._heartbeat.stop()


@dataclass
class Steps:
    """What happens while a write is tried again and again. A try that is not the first copies the files of the last."""

    begun: Callable[[Writing], object]
    put: Callable[[Writing], object]
    before_copying: Callable[[], object]
    before_commit: Callable[[], object]


class _Tries(Write):
    """Its rows as files, or those files as files of the next try."""

    def __init__(self, table: BuiltTable, manager: TransactionManager, options: WriteOptions, steps: Steps) -> None:
        super().__init__(manager.context)
        self._table, self._manager, self._options, self._steps = table, manager, options, steps

    def begin(self, kept: LostFiles | None) -> Transaction:
        self._writing = self._table.begin_with(self._options, self._manager)
        self._steps.begun(self._writing)
        return self._writing.transaction

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        if kept is None:
            self._steps.put(self._writing)
        else:
            self._steps.before_copying()
            self._writing.reports = kept.rewrite(self._writing.task(), HERE)
        self._steps.before_commit()
        return self._writing.staged()

    def keeps(self, files: StagedFiles, again: bool) -> bool:
        return again


class BuiltTable:
    """A table with rows, and what tests do to it. Subclasses say which columns it has, and what its rows look like."""

    def __init__(
        self, storage: Storage, schema: pa.Schema, options: Mapping[str, object], system: System = REAL_SYSTEM
    ) -> None:
        self.storage, self.schema, self.system = storage, schema, system
        self.options: dict[str, object] = {
            "hoodie.datasource.write.recordkey.field": "id",
            MODE_OPTION: NON_BLOCKING,
            **options,
        }
        self.mode = str(self.options[MODE_OPTION])
        self.opened: OpenedTable = open_for_write(storage, Call(self.options).write(), schema)

    @classmethod
    def at(cls, storage: Storage, options: Mapping[str, object]) -> BuiltTable:
        """A table that is there."""
        return BuiltTable(storage, open_table(storage).schema, options)

    @cached_property
    def root(self) -> Path:
        """The folder of a table that lies in one."""
        assert isinstance(self.storage, LocalStorage)
        return Path(self.storage.root)

    def manager(self, storage: Storage | None = None, **settings: Any) -> TransactionManager:
        given = {"provider": provider_of(self.storage, self.system), "system": self.system, "mode": self.mode}
        return manager_of(storage or self.storage, **{**given, **settings})

    # -- writes -------------------------------------------------------------------------------------------------------

    def begin(
        self,
        operation: str = "upsert",
        storage: Storage | None = None,
        manager: TransactionManager | None = None,
        **more: object,
    ) -> Writing:
        """Begins a write; `more` are its other options, with `__` in the place of dots."""
        options = Call({**self.options, **dotted(more), OPERATION: operation}).write()
        return self.begin_with(options, manager or self.manager(storage))

    def begin_with(self, options: WriteOptions, manager: TransactionManager) -> Writing:
        return Writing(self, manager, manager.begin(options.action_on(self.opened.config.table_type)), options)

    def write_with_tries(self, manager: TransactionManager, options: WriteOptions, steps: Steps) -> CommitResult:
        """A write that is tried again as often as the manager's settings say."""
        return _Tries(self, manager, options, steps).committed()

    def drop(self, *partitions: str) -> CommitResult:
        return self.begin(DELETE_PARTITION).commit(partitions)

    def begin_batch(
        self, batch: Batch, put: Callable[[Writing], Writing], register: BatchRegister | None = None
    ) -> Writing:
        """A write of a stream's batch up to its commit, in a process of its own unless `register` is given."""
        register = register or BatchRegister(self.manager(), batch)
        writing = self.begin()
        writing.options = replace(writing.options, batch=batch)
        try:
            register.register(writing.transaction)
            return put(writing)
        except BaseException as error:
            raise abort_after(writing.transaction, error) from error

    def commit_batch(self, batch: Batch, put: Callable[[Writing], Writing]) -> CommitResult:
        """Writes a stream's batch, unless it was written already."""
        return written_once(self.manager(), batch, lambda register: self.begin_batch(batch, put, register).commit())

    def context(self, run: Run | None = None, manager: TransactionManager | None = None) -> ServiceContext:
        """What table services work with, in a process of its own."""
        return ServiceContext(open_table(self.storage), manager or self.manager(), executor_of(run))

    # -- services -----------------------------------------------------------------------------------------------------

    def plan(
        self, options: Mapping[str, object] | None = None, manager: TransactionManager | None = None
    ) -> str | None:
        """Plans a compaction; None if there is nothing to do."""
        parsed = Call(options).services()
        return Compaction(parsed.compaction, parsed.cancellation).schedule(self.context(manager=manager))

    def execute(self, plan: str, run: Run | None = None, manager: TransactionManager | None = None) -> CommitResult:
        return Compaction().execute(self.context(run, manager), plan)

    def compact(self, options: Mapping[str, object] | None = None) -> CommitResult | None:
        plan = self.plan(options)
        return None if plan is None else self.execute(plan)

    def plan_logs(self, options: Mapping[str, object] | None = None) -> str | None:
        """Plans a log compaction, from two logs of a file group on."""
        parsed = Call({**LOGS_OF_RUN, **(options or {})}).services()
        return LogCompaction(parsed.compaction).schedule(self.context())

    def execute_logs(self, plan: str, run: Run | None = None) -> CommitResult:
        return LogCompaction().execute(self.context(run), plan)

    def compact_logs(self, options: Mapping[str, object] | None = None) -> CommitResult | None:
        plan = self.plan_logs(options)
        return None if plan is None else self.execute_logs(plan)

    def plan_clustering(self, columns: str = "v", options: Mapping[str, object] | None = None) -> str | None:
        """Plans a clustering that sorts by these columns, or by none."""
        parsed = Call({**({SORT_COLUMNS: columns} if columns else {}), **(options or {})}).services()
        return Clustering(parsed.clustering, parsed.cancellation).schedule(self.context())

    def execute_clustering(self, plan: str, run: Run | None = None) -> CommitResult:
        return Clustering().execute(self.context(run), plan)

    def cluster(self, columns: str = "v", options: Mapping[str, object] | None = None) -> CommitResult | None:
        plan = self.plan_clustering(columns, options)
        return None if plan is None else self.execute_clustering(plan)

    def clean(
        self, options: CleaningOptions | None = None, manager: TransactionManager | None = None
    ) -> list[CleanResult]:
        return Clean(options or CleaningOptions()).run(self.context(manager=manager))

    def archive(self, options: ArchivingOptions | None = None, manager: TransactionManager | None = None) -> Archived:
        config = open_table(self.storage).config
        return archiving.archive(manager or self.manager(), config, options or ArchivingOptions())

    def cancel(self, plan: str) -> bool:
        """Asks for a plan to be cancelled, and ends it; False if it had ended."""
        manager = self.manager()
        cancelling.request_cancel(manager, plan)
        return cancelling.execute_cancel(manager, plan)

    def savepoint(self, instant: str, comment: str = "") -> Savepoint:
        return savepoints.create_savepoint(open_table(self.storage).config, self.manager(), instant, comment)

    def delete_savepoint(self, instant: str) -> None:
        savepoints.delete_savepoint(self.manager(), instant)

    def savepoints(self) -> list[Savepoint]:
        return savepoints.savepoints(self.storage)

    def roll_back(self, instant: str) -> Undone:
        return restoring.roll_back(self.manager(), instant)

    def restore(self, to: str) -> Undone:
        return restoring.restore(open_table(self.storage).config, self.manager(), to)

    # -- who is dead, and what is left ----------------------------------------------------------------------------

    def all_died(self) -> None:
        """Everybody who has a heartbeat counts as dead."""
        for name in self.storage.list(HEARTBEAT_FOLDER).files:
            expire(self.storage, name)

    def timeline(self) -> list[str]:
        return sorted(timeline_names(self.storage))

    def data_files(self, instant: str = "") -> list[str]:
        return data_files(self.storage, instant)

    def nothing_pending(self) -> bool:
        return not Snapshot.load(self.storage).pending and not self.storage.list(HEARTBEAT_FOLDER).files


@dataclass(frozen=True)
class TaskRows(ArrowRows):
    """Rows that come to a task bucket by bucket and in the order of keys, as from a shuffle: a bulk load wants that."""

    def are_here(self, options: WriteOptions) -> bool:
        return False

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        return list(task.write(iter(sorted_batches(task, self.data)), "0-0-0"))


def write_arrow(path: str, data: pa.Table, options: Mapping[str, object], by_tasks: bool = False) -> CommitResult:
    """A whole write as users call it: by tasks, or here as a table of Arrow."""
    kind = TaskRows if by_tasks else ArrowRows
    return write_rows(lambda _: kind.of(data), path, options, REAL_SYSTEM)


def sorted_batches(task: WriteTask, data: pa.Table) -> list[pa.RecordBatch]:
    """Rows with what a task wants to know of them, in the order in which a bulk load comes; in several batches."""
    tagged = [task.tag(batch) for batch in data.to_batches() if batch.num_rows]
    if not tagged:
        return []
    order = [(name, "ascending") for name in (PARTITION_COLUMN, BUCKET_COLUMN, "_hoodie_record_key")]
    batches: list[pa.RecordBatch] = pa.Table.from_batches(tagged).sort_by(order).to_batches(max_chunksize=100)
    return batches


def dotted(named: Mapping[str, object]) -> dict[str, object]:
    """Options whose keys were given as names of arguments."""
    return {name.replace("__", "."): value for name, value in named.items()}
