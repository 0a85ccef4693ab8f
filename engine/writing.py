"""Writes from their beginning to their result: rows of any origin, and deletions of partitions."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from lakelatch.engine.options.batch import refuse_batch
from lakelatch.engine.options.registry import Call
from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.options.write import OPERATION, PARTITIONS_TO_DELETE, WriteOptions
from lakelatch.engine.run.executor import NO_TASKS, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.making import made_by_others, prepare_table
from lakelatch.engine.table.manager import open_manager, takes_other_locks
from lakelatch.engine.table.opening import open_existing
from lakelatch.engine.table.schema import say_schema_again
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import Lost, attempted, retried
from lakelatch.engine.write.batches import BatchRegister, written_once
from lakelatch.engine.write.bulk_task import BulkTask
from lakelatch.engine.write.commit import commit_files, write_task
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.replace import matching
from lakelatch.engine.write.task import WriteTask
from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE_PARTITION, REPLACING_OPERATIONS
from lakelatch.transactions.base.context import MemoryCheck
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

_log = logging.getLogger("lakelatch.engine")


class Rows(Protocol):
    """What a write is given, and where its work is done."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, without meta columns; after `begin`, those of its rows."""
        ...

    @property
    def read_anew(self) -> bool:
        """Whether each try asks for the rows again, because they may be others by then."""
        ...

    @property
    def skipped(self) -> int:
        """How many rows the last `write` left out."""
        ...

    def use_names_of(self, table: pa.Schema) -> None:
        """Calls its columns as the table does, where the session compares names without their case."""
        ...

    def are_here(self, options: WriteOptions) -> bool:
        """Whether it is known before `begin` that this process writes them, and no task."""
        ...

    def begin(self) -> None:
        """Called inside each try, before anything is written."""
        ...

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        """Writes them as data files."""
        ...

    @property
    def executor(self) -> Executor:
        """What copies files that belong elsewhere by now, and runs the table services after the commit."""
        ...


def parse_write(options: Mapping[str, object] | None) -> tuple[WriteOptions, ServiceOptions]:
    """The options of a write that has rows, and of the services after it. Errors: `InvalidRequest`."""
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
) -> CommitResult:
    """Writes rows into the table at `path`, as `write` says it of a frame. The options are parsed before `make`.

    `called` is the name of a change that writes by an operation of Hudi's with another name.
    """
    write_options, service_options = parse_write(options)
    write_options = replace(write_options, called=called)
    rows = make(write_options)
    storage = open_storage(path, write_options.manager.storage)
    # The manager first, so that wrong lock options make no table.
    with open_manager(storage, write_options.manager, system, remembers=True) as manager:
        # First, since a write that is refused leaves the table as it was, with what others have pending in it.
        table = open_fitted(storage, write_options, rows, beside=manager.memory_check)
        if not takes_other_locks(manager, table, write_options.manager):
            return _write(rows, _Opened(storage, write_options, table), manager, service_options)
    with open_manager(storage, write_options.manager, system, remembers=True) as manager:
        table = open_fitted(storage, write_options, rows, beside=manager.memory_check)
        return _write(rows, _Opened(storage, write_options, table), manager, service_options)


@dataclass
class _Opened:
    """The table of a write, whose later tries may find other columns than the first, or that others have made it."""

    storage: Storage
    options: WriteOptions
    table: OpenedTable
    known: frozenset[str] = frozenset()
    tried: bool = False
    in_bulk: bool = True  # until something was in the way of base files once more

    def __post_init__(self) -> None:
        self.known = frozenset(self.table.schema.names)

    def for_try(self, rows: Rows) -> OpenedTable:
        """As it is now. Columns that others have added since the write began are null where it lacks them."""
        # What is merged is what was there when the write began, and so are the columns.
        if self.tried or rows.read_anew or self.table.config.copies_on_write:
            self.table = open_fitted(self.storage, self.options, rows, self.known)
        self.tried = True
        return self.table


def _write(rows: Rows, opened: _Opened, manager: TransactionManager, service_options: ServiceOptions) -> CommitResult:
    manager.recover()

    def attempt(register: BatchRegister | None, lost: LostFiles | None, again: bool) -> CommitResult | Lost:
        keep_files = again and not rows.read_anew
        outcome = _attempt(rows, opened, manager, lost, keep_files, register)
        moved = False
        while isinstance(outcome, Lost) and outcome.as_logs:
            _log.info("the rows of its base files become files of another instant: %s", outcome.conflict)
            files = outcome.files
            # Once as log files where something is by now, then everywhere; rows that are computed anew at once.
            opened.in_bulk, moved = files is not None and not moved, True
            try:
                outcome = _attempt(rows, opened, manager, files or lost, keep_files, register)
            finally:
                if files is not None:
                    files.drop()
        return outcome

    result = written_once(manager, opened.options.batch, lambda register: retried(manager, partial(attempt, register)))
    if not result.repeated:
        result = replace(result, rows_skipped=rows.skipped)
        say_schema_again(manager, opened.table, result.instant)
    table = replace(opened.table, is_new=False)
    return after_commit(result, ServiceContext(table, manager, rows.executor), service_options)


def open_fitted(
    storage: Storage,
    options: WriteOptions,
    rows: Rows,
    known: frozenset[str] | None = None,
    beside: MemoryCheck | None = None,
) -> OpenedTable:
    """The table as a write of these rows leaves it; see `prepare_table` and `fitted`."""
    table = prepare_table(storage, options, rows.schema, beside)
    rows.use_names_of(table.schema)
    return fitted(table, rows.schema, options, known)


def _attempt(
    rows: Rows,
    opened: _Opened,
    manager: TransactionManager,
    lost: LostFiles | None,
    keep_files: bool,
    register: BatchRegister | None,
) -> CommitResult | Lost:
    options, before, first = opened.options, opened.table, not opened.tried
    action = options.action_on(before.config.table_type)
    here = lost is None and options.operation not in REPLACING_OPERATIONS and rows.are_here(options)
    transaction = manager.begin(action, for_tasks=not here)

    def work() -> CommitResult | Lost:
        if register is not None:
            register.register(transaction)
        rows.begin()
        table = opened.for_try(rows)
        if options.action_on(table.config.table_type) != action:
            raise made_by_others(before) or InvariantBroken(f"{table.config.name} has become another type of table")
        task = write_task(table, options, transaction, opened.in_bulk)
        if lost is None or before.is_new:  # the table that others have made may have other buckets
            failpoint("write.before_rows")
            reports = rows.write(task, options, transaction)
        else:
            reports = lost.rewrite(task, rows.executor)
        keeps = keep_files or (isinstance(task, BulkTask) and options.non_blocking and not rows.read_anew)
        return commit_files(transaction, table, options, reports, rows.executor, keep_files=keeps and not table.is_new)

    try:
        return attempted(transaction, work)
    except InvalidRequest:
        conflict = made_by_others(before) if first else None
        if conflict is None:
            raise
        return Lost(conflict)


def delete_partitions(
    path: str,
    partitions: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Takes away all rows of partitions, at once and without a Spark job; what others commit later is read.

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
        manager.recover()

        def attempt(_: LostFiles | None, __: bool) -> CommitResult | Lost:
            transaction = manager.begin(write_options.action_on(table.config.table_type))
            choose = matching(names)
            return attempted(transaction, lambda: commit_files(transaction, table, write_options, [], choose=choose))

        context = ServiceContext(table, manager, NO_TASKS)
        return after_commit(retried(manager, attempt), context, service_options)


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
    """A slip of the pen must not pass for a deletion."""
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
