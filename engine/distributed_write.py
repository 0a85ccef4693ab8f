"""A write that begins in one process, is staged by tasks, and is committed in another, passing only pickled values.

PySpark runs Python data sources this way: no state of one process is there in the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.options.write import PARTITION_FIELD, TABLE_TYPE, WriteOptions, refuse_known_keys
from lakelatch.engine.run.executor import HERE, NO_TASKS
from lakelatch.engine.run.file_report import FileReport, ensure_none_refused, or_refusal
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.making import prepare_table
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.schema import say_schema_again
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import Write
from lakelatch.engine.write.batches import written_once
from lakelatch.engine.write.commit import StagedFiles, write_task
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.format.avro import META_COLUMNS
from lakelatch.heartbeat.beat import TaskHeartbeat
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.table_config import COPY_ON_WRITE
from lakelatch.transactions.base.context import TransactionState
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class BegunWrite:
    """A transaction that has begun, with all that its commit needs. Pickles."""

    table: OpenedTable
    options: WriteOptions
    services: ServiceOptions
    state: TransactionState

    def commit(self, reports: list[FileReport]) -> CommitResult:
        """Commits the files of the tasks; a batch named in `options` is committed once. Errors: those of `write`."""
        with open_manager(self.table.storage, self.options.manager, config=self.table.config) as manager:
            result = written_once(manager, self.options.batch, _DistributedWrite(self, manager, reports).committed)
            if result.repeated:
                self._abort(manager)
                return result
            say_schema_again(manager, self.table, result.instant)
            context = ServiceContext(replace(self.table, is_new=False), manager, NO_TASKS)
            return after_commit(result, context, self.services)

    def abort(self) -> None:
        """Aborts the write; one whose commit has succeeded after all stays committed, as the log decides."""
        with open_manager(self.table.storage, self.options.manager, config=self.table.config) as manager:
            self._abort(manager)

    def _abort(self, manager: TransactionManager) -> None:
        with suppress(LakelatchError):  # left to the next writer's rollback; Spark shows what brought us here
            transaction = manager.resume(self.state)
            conflict = None
            with suppress(LakelatchError):  # it has to end in any case: this process may live on, and beat
                conflict = transaction.found_early()
            transaction.abort(conflict)


class _DistributedWrite(Write):
    """Spark passes the rows once, so a further attempt reuses the files of the one before."""

    def __init__(self, begun: BegunWrite, manager: TransactionManager, reports: list[FileReport]) -> None:
        super().__init__(manager.context)
        self._begun, self._manager, self._reports = begun, manager, reports

    def begin(self, kept: LostFiles | None) -> Transaction:
        state = self._begun.state
        return self._manager.resume(state) if kept is None else self._manager.begin(state.action)

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        ensure_none_refused(self._reports)
        table, options, files = self._begun.table, self._begun.options, self._reports
        if kept is not None:
            files = kept.rewrite(write_task(table, options, transaction), NO_TASKS)
        return StagedFiles(transaction, table, options, files, HERE)

    def keeps(self, files: StagedFiles, again: bool) -> bool:
        return again and not files.table.is_new  # another writer's table may have other buckets

    def gives_up(self) -> bool:
        return self._kept is None


@dataclass(frozen=True)
class TaskWrite:
    """A task of such a write. Pickles."""

    task: WriteTask
    interval_ms: int
    meta: tuple[str, ...]

    def write(self, batches: Iterator[pa.RecordBatch], token: str) -> list[FileReport]:
        """Writes the rows to files whose names have this attempt's token, and reports the files.

        Refused rows are reported as well, and fail the write at its commit.
        """
        heartbeat = TaskHeartbeat(self.task.storage, self.task.instant, token, self.interval_ms)
        heartbeat.start()
        try:
            tagged = (self.task.tag(batch.drop_columns(list(self.meta))) for batch in batches if batch.num_rows)
            reports = list(or_refusal(self.task.write(tagged, token)))
            for _ in batches:  # Spark fails if the rows that it sends are not consumed
                pass
            return reports
        finally:
            heartbeat.stop()


def begin_write(
    path: str, write_options: WriteOptions, services: ServiceOptions, columns: pa.Schema
) -> tuple[BegunWrite, TaskWrite]:
    """Begins a transaction, and makes the table if there is none. Errors: `InvalidRequest`, with nothing changed."""
    refuse_known_keys(write_options, "a Python data source")
    meta = tuple(name for name in columns.names if name in META_COLUMNS)
    data_schema = pa.schema([field for field in columns if field.name not in META_COLUMNS])
    storage = open_storage(path, write_options.manager.storage)
    table = fitted(prepare_table(storage, write_options, data_schema), data_schema, write_options)
    write_options = write_options.on(table.config)
    if table.config.appends_only and table.config.partition_fields:
        raise InvalidRequest(
            f"the table {table.config.name!r} has partitions and no record key: each partition's rows have to come "
            "together, and Spark gives those of a Python data source as they come. Use lakelatch.write(frame, path, "
            "options), or foreachBatch with lakelatch.write_batch",
            option=PARTITION_FIELD,
        )
    if table.config.copies_on_write and not table.config.appends_only:
        raise InvalidRequest(
            f"the table {table.config.name!r} is {COPY_ON_WRITE}: each bucket's rows have to come to one task, and "
            "Spark gives those of a Python data source as they come. Use lakelatch.write(frame, path, options), or "
            "foreachBatch with lakelatch.write_batch",
            option=TABLE_TYPE,
        )
    with open_manager(storage, write_options.manager, config=table.config, is_new=table.is_new) as manager:
        manager.recover_before_write()
        transaction = manager.begin(write_options.action_on(table.config.table_type))
        transaction.hand_over()
        if transaction.asks_for_marker_server:
            _log.warning("the data source has no driver that could serve markers: those of this write are direct")
        task = write_task(table, write_options, transaction)
        begun = BegunWrite(table, write_options, services, transaction.state)
        return begun, TaskWrite(task, manager.settings.heartbeat.interval_ms, meta)
