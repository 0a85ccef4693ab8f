"""Writes from beginning to result: rows of any origin, and deletions of partitions."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER, refuse_batch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.options.write import OPERATION, PARTITIONS_TO_DELETE, WriteOptions
from lakelatch.engine.run.executor import HERE, NO_TASKS, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.making import made_by_others, prepare_existing, prepare_table
from lakelatch.engine.table.manager import fitted_to_last_written, keep_written, open_manager, takes_other_locks
from lakelatch.engine.table.opening import open_existing
from lakelatch.engine.table.schema import say_schema_again
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import Write, part_of_thread
from lakelatch.engine.write.batches import written_once
from lakelatch.engine.write.commit import StagedFiles, write_task
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.replace import Choice, matching
from lakelatch.engine.write.tasks.bulk_task import BulkTask
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import InvalidRequest, InvariantBroken, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE_PARTITION, REPLACING_OPERATIONS
from lakelatch.timeline.table_config import TableConfig, load_table_config
from lakelatch.transactions.base.context import MemoryCheck
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.next_write import NotConfirmed
from lakelatch.transactions.several.part import Part
from lakelatch.transactions.transaction import Transaction

_log = logging.getLogger("lakelatch.engine")


class Rows(Protocol):
    """The rows of a write, and the executor of its work."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, without meta columns; after `begin`, those of its rows."""
        ...

    @property
    def read_anew(self) -> bool:
        """Whether each try evaluates the rows again, because they may have changed."""
        ...

    @property
    def skipped(self) -> int:
        """How many rows the last `write` left out."""
        ...

    def use_names_of(self, table: pa.Schema) -> None:
        """Renames the columns to the table's names, where the session ignores their case."""
        ...

    def are_here(self, options: WriteOptions) -> bool:
        """Whether it is known before `begin` that this process writes the rows, without tasks."""
        ...

    def partitions(self, config: TableConfig) -> Collection[str]:
        """The partitions of rows that are here, if they are known before `begin`; their folders are looked at."""
        ...

    def begin(self) -> None:
        """Called inside each try, before anything is written."""
        ...

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        """Writes the rows as data files."""
        ...

    @property
    def executor(self) -> Executor:
        """The executor that relocates files, and runs the table services after the commit."""
        ...


def parse_write(options: Mapping[str, object] | None) -> tuple[WriteOptions, ServiceOptions]:
    """The options of a write with rows, and of the services after it. Errors: `InvalidRequest`."""
    call = Call(options)
    write_options = call.write()
    if write_options.operation == DELETE_PARTITION:
        raise InvalidRequest(
            f"{OPERATION}={DELETE_PARTITION} writes no rows: call lakelatch.delete_partitions(path, partitions)",
            option=OPERATION,
        )
    return write_options, call.services()


def write_rows(
    make: Callable[[WriteOptions], Rows],
    path: str,
    options: Mapping[str, object] | None,
    system: System,
    called: str = "",
    stays_open: bool = False,
) -> CommitResult:
    """Writes rows to the table at `path`, as `write` does for a frame. The options are parsed before `make`.

    `called` names a change that uses an operation of Hudi with another name. If the table `stays_open`, its next write
    is made ready.
    """
    write_options, service_options = parse_write(options)
    write_options = replace(write_options, called=called)
    rows = make(write_options)
    storage = open_storage(path, write_options.manager.storage)
    part = part_of_thread()
    if part is not None and not part.leads:
        return _write_after(part, rows, storage, write_options, service_options, system)
    # A part that finds its time used would have all others begin again. Who is refused should have claimed nothing.
    last = fitted_to_last_written(storage, write_options, rows.schema) if part is None else None
    opening = partial(open_manager, storage, write_options.manager, system, remembers=True, begins=last is not None)
    # The manager first, so that wrong lock options make no table.
    with opening(stays_open=stays_open) as manager:
        if last is not None and _may_be_believed(rows, last, write_options) and manager.believe(partial(_is, last)):
            try:
                return _write(rows, last, manager, write_options, service_options)
            except NotConfirmed as error:
                _log.info("%s", error.message)
                manager.doubt()
        # Before recovery, as a refused write leaves the table as it was, including pending instants of others.
        table = open_fitted(storage, write_options, rows, memory_check=manager.memory_check)
        if not takes_other_locks(manager, table, write_options.manager):
            return _write(rows, table, manager, write_options, service_options)
    with opening(stays_open=stays_open) as manager:
        table = open_fitted(storage, write_options, rows, memory_check=manager.memory_check)
        return _write(rows, table, manager, write_options, service_options)


def end_writes(path: str, options: Mapping[str, object] | None, system: System) -> None:
    """Gives back what the writes of a table that has stayed open have made ready for another one."""
    asked = parse_write(options)[0].manager
    storage = open_storage(path, asked.storage)
    with open_manager(storage, asked, system, remembers=True) as manager:
        manager.withdraw_next()


def _is(table: OpenedTable) -> bool:
    """Whether there is such a table, with these properties."""
    try:
        return load_table_config(table.storage) == table.config
    except InvalidRequest:
        return False


def _may_be_believed(rows: Rows, table: OpenedTable, options: WriteOptions) -> bool:
    """Whether a write needs only what this process remembers of its table, until its files are announced."""
    if options.batch is not None or rows.read_anew or not rows.are_here(options):
        return False
    return not table.config.copies_on_write and options.operation not in REPLACING_OPERATIONS


def _write_after(
    part: Part[Write],
    rows: Rows,
    storage: Storage,
    options: WriteOptions,
    services: ServiceOptions,
    system: System,
) -> CommitResult:
    """A write that sees what earlier parts of its transaction have staged in the same table."""
    if options.batch != part.leader.batch:
        raise InvalidRequest(
            f"two changes of {without_secrets(storage.uri)} in one transaction belong to different batches "
            f"({BATCH_APPLICATION}, {BATCH_NUMBER}): give both to the transaction itself",
            option=BATCH_NUMBER,
        )
    options = replace(options, batch=None)  # the first one is registered, and all of them are committed or none
    with open_manager(storage, options.manager, system) as manager:
        return _write(rows, open_fitted(part.sees or storage, options, rows), manager, options, services)


class _RowsWrite(Write):
    """A write of rows; later tries may find other columns than the first, or a table that another writer made."""

    def __init__(self, rows: Rows, table: OpenedTable, manager: TransactionManager, options: WriteOptions) -> None:
        super().__init__(manager.context)
        self._rows, self.table, self._manager, self._options = rows, table, manager, options
        self._known = frozenset(table.schema.names)
        self._found_first: OpenedTable | None = table  # None in later tries
        self._in_bulk, self._loads = True, False  # in bulk until its base files conflicted twice

    def begin(self, kept: LostFiles | None) -> Transaction:
        options = self._options
        here = kept is None and options.operation not in REPLACING_OPERATIONS and self._rows.are_here(options)
        config = self.table.config
        folders = self._rows.partitions(config) if here else ()
        return self._manager.begin(options.action_on(config.table_type), for_tasks=not here, folders=folders)

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        rows, options, first = self._rows, self._options, self.instants == 1
        before = self.table = replace(self.table, storage=self.storage_for(transaction) or self.table.storage)
        self._found_first = before if first else None
        rows.begin()
        # A merge uses the files, and so the columns, as of the write's beginning. Columns that others have added since
        # the first try are null if the rows lack them.
        if not first or rows.read_anew or before.config.copies_on_write:
            self.table = open_fitted(before.storage, options, rows, self._known)
        if options.action_on(self.table.config.table_type) != transaction.state.action:
            raise made_by_others(before) or InvariantBroken(f"{before.config.name} has become another type of table")
        task = write_task(self.table, options, transaction, self._in_bulk)
        self._loads = isinstance(task, BulkTask)
        if kept is None or before.is_new:  # a table that another writer made may have other buckets
            failpoint("write.before_rows")
            reports = rows.write(task, options, transaction)
        else:
            reports = kept.rewrite(task, rows.executor)
        return StagedFiles(transaction, self.table, options, reports, rows.executor)

    def keeps(self, files: StagedFiles, again: bool) -> bool:
        again = again or (self._loads and self._options.non_blocking)
        return again and not self._rows.read_anew and not self.table.is_new

    def write_logs(self, kept: bool) -> None:
        self._in_bulk = kept

    def explain(self, error: InvalidRequest) -> WriteConflict | None:
        return made_by_others(self._found_first) if self._found_first is not None else None


def _write(
    rows: Rows, table: OpenedTable, manager: TransactionManager, options: WriteOptions, services: ServiceOptions
) -> CommitResult:
    manager.recover_before_write()
    options = options.on(table.config)
    part = part_of_thread()
    if part is not None and part.leads:
        part.batch = options.batch
    write = _RowsWrite(rows, table, manager, options)
    result = written_once(manager, options.batch, write.committed)
    made = replace(write.table, storage=manager.storage, is_new=False)
    keep_written(made)
    if not result.repeated:
        result = replace(result, rows_skipped=rows.skipped)
        say_schema_again(manager, made, result.instant)
    if part is not None and not part.is_last:
        return result
    return after_commit(result, ServiceContext(made, manager, rows.executor), services)


def open_fitted(
    storage: Storage,
    options: WriteOptions,
    rows: Rows,
    known: frozenset[str] | None = None,
    memory_check: MemoryCheck | None = None,
) -> OpenedTable:
    """The table as a write of these rows leaves it; see `prepare_table` and `fitted`.

    Errors: `InvalidRequest`, also for a part of a transaction over several tables whose table is gone.
    """
    if part_of_thread() is None:
        table = prepare_table(storage, options, rows.schema, memory_check)
    else:  # which makes no table: it was there when the transaction began
        table = prepare_existing(storage, options, memory_check)
    rows.use_names_of(table.schema)
    return fitted(table, rows.schema, options.on(table.config), known)


class _Deletion(Write):
    """A deletion of partitions, which are chosen at its slot in the log."""

    def __init__(self, table: OpenedTable, manager: TransactionManager, options: WriteOptions, choose: Choice) -> None:
        super().__init__(manager.context)
        self._table, self._manager, self._options, self._choose = table, manager, options, choose

    def begin(self, kept: LostFiles | None) -> Transaction:
        return self._manager.begin(self._options.action_on(self._table.config.table_type))

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        return StagedFiles(transaction, self._table, self._options, [], HERE, self._choose)


def delete_partitions(
    path: str,
    partitions: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Deletes all rows of partitions, in one commit and without a Spark job; rows that commit later are read.

    `partitions` are folders below the table (`2026/11`, `day=2026-11-21`), in which `*` stands for any text. If it is
    None, hoodie.datasource.write.partitions.to.delete names them, separated by commas. The files stay until they are
    cleaned, and time travel reads them. Errors: `InvalidRequest` if there is no such partition, and those of `write`.
    """
    call = Call({**(options or {}), OPERATION: DELETE_PARTITION})
    write_options, service_options = call.write(), call.services()
    refuse_batch(write_options.batch, "a deletion of partitions")
    names = _names(write_options, partitions)
    table = open_existing(open_storage(path, write_options.manager.storage), write_options)
    _check_names(table, names)
    with open_manager(table.storage, write_options.manager, system, config=table.config) as manager:
        manager.recover_before_write()
        result = _Deletion(table, manager, write_options, matching(names)).committed()
        return after_commit(result, ServiceContext(table, manager, NO_TASKS), service_options)


def _names(options: WriteOptions, partitions: str | Sequence[str] | None) -> tuple[str, ...]:
    if partitions is None:
        partitions = options.partitions_to_delete or ()
    elif options.partitions_to_delete is not None:
        raise InvalidRequest(f"the partitions are given twice: as an argument and as {PARTITIONS_TO_DELETE}")
    given = [partitions] if isinstance(partitions, str) else partitions
    names = tuple(dict.fromkeys(name for part in given if (name := part.strip().strip("/"))))
    if not names:
        raise InvalidRequest(f"no partition is named: give some, or set {PARTITIONS_TO_DELETE}")
    return names


def _check_names(table: OpenedTable, names: tuple[str, ...]) -> None:
    """`InvalidRequest` for names that match no partition, so that a typing error does not pass for a deletion."""
    if not table.config.partition_fields:
        raise InvalidRequest(
            f"the table {table.config.name!r} has no partitions: write an empty frame with "
            f"{OPERATION}=insert_overwrite_table to empty it"
        )
    existing = TableView.load(table.storage, table.config).partitions()
    for name in names:
        if not matching([name])(existing) & set(existing):
            near = difflib.get_close_matches(name, existing, n=3, cutoff=0)
            hint = f": the nearest are {', '.join(near)}" if near else ": it is empty"
            raise InvalidRequest(f"the table {table.config.name!r} has no partition {name!r}{hint}")
