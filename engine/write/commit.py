"""Committing the files of tasks, under the file ids that are current at the commit's slot in the log.

A write reads the file id of each bucket when it begins. If a replace commit completes before it does, its files in
replaced file groups would never be read. Under non-blocking control they are copied under the successors' ids, and the
same transaction commits them there; under optimistic control that is a conflict.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport, work_of
from lakelatch.engine.table.making import makes_table
from lakelatch.engine.table.schema import keeps_schema
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.first_bases import first_bases
from lakelatch.engine.write.grouped import GroupedFiles
from lakelatch.engine.write.placement import Placement
from lakelatch.engine.write.relocation import (
    PlaceholderTask,
    Relocation,
    RelocationTask,
    relocate,
    relocations_to,
)
from lakelatch.engine.write.replace import Choice, Replacement, every, none_else, only
from lakelatch.engine.write.tasks.append_task import AppendTask
from lakelatch.engine.write.tasks.bulk_task import BulkTask, loads_in_bulk
from lakelatch.engine.write.tasks.merge_task import MergeTask
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import InvariantBroken
from lakelatch.format.file_groups import FileIds, cancelled_plans, replace_commits
from lakelatch.format.log.blocks import data_block_format
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import BULK_INSERT, INSERT_OVERWRITE_TABLE, REPLACE_COMMIT, REPLACING_OPERATIONS
from lakelatch.timeline.metadata import CALLED_KEY, SCHEMA_KEY, WRITER_KEY, CommitMetadata, FileGroup
from lakelatch.timeline.recorded_options import GROUPING_LOG_VERSION
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import renewed
from lakelatch.transactions.attempts.checks import At, in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.context import TransactionState
from lakelatch.transactions.base.outcome import Changed, Displaced, Staged, Verdict
from lakelatch.transactions.several.part import Part
from lakelatch.transactions.transaction import Transaction

_log = logging.getLogger("lakelatch.engine")


def file_ids_of(table: OpenedTable, state: TransactionState) -> FileIds:
    """The file ids under which a transaction's tasks write, as of its beginning."""
    if state.action == REPLACE_COMMIT:
        return FileIds.of_replace(state.instant)
    moving = state.seen.moving
    return FileIds.after(replace_commits(table.storage, moving), cancelled_plans(moving))


def write_task(table: OpenedTable, options: WriteOptions, transaction: Transaction, in_bulk: bool = False) -> WriteTask:
    """The task of a transaction, for this process or others.

    `in_bulk`: rows may become base files at once in empty buckets; the caller sorts them as the task requires.
    """
    task = WriteTask(
        table.storage,
        table.config,
        table.schema,
        table.avro_schema,
        transaction.instant,
        options.operation,
        options.block_format or data_block_format(table.config, table.schema),
        file_ids_of(table, transaction.state),
        transaction.early_detection(),
    )
    mark = transaction.state.seen
    sort_columns = options.sort_columns if options.operation == BULK_INSERT else ()
    of_bases: dict[str, Any] = {
        "mark": mark,
        "base_files": table.base_files,
        "sort_columns": sort_columns,
    }
    if table.config.appends_only:
        return AppendTask(**vars(task), **of_bases)
    if in_bulk and loads_in_bulk(table.config, table.schema, options, mark):
        return BulkTask(**vars(task), **of_bases)
    return MergeTask(**vars(task), **of_bases) if table.config.copies_on_write else task


def commit_metadata(
    table: OpenedTable, options: WriteOptions, reports: list[FileReport], transaction: Transaction
) -> CommitMetadata:
    """The commit's metadata from its tasks' reports."""
    stats = tuple(
        report.to_stat(transaction.instant) for report in sorted(reports, key=lambda report: report.file_name)
    )
    extra = {
        SCHEMA_KEY: table.avro_schema,
        WRITER_KEY: transaction.writer,
        **(options.batch.extra if options.batch else {}),
        **({CALLED_KEY: options.called} if options.called else {}),
    }
    return CommitMetadata(stats, options.operation.upper(), extra)


def _replaced_by(options: WriteOptions) -> Choice:
    if options.operation == INSERT_OVERWRITE_TABLE:
        return every
    return none_else if options.static_partition is None else only(options.static_partition)


class StagedFiles:
    """The files of a write before its commit, and the checks that decide what it commits."""

    def __init__(
        self,
        transaction: Transaction,
        table: OpenedTable,
        options: WriteOptions,
        reports: list[FileReport],
        executor: Executor,
        choose: Choice | None = None,
    ) -> None:
        _ensure_once(reports)
        self.transaction, self.table, self.reports = transaction, table, reports
        self._options, self._executor = options, executor
        self._replacement: Replacement | None = None
        if options.operation in REPLACING_OPERATIONS:
            choose = choose or _replaced_by(options)
            metadata = self._metadata()
            self._replacement = Replacement(table, transaction.instant, metadata, choose, options.non_blocking)
            self._place_holders(self._replacement.lacking(metadata))
        staged = work_of(reports)
        _log.debug("%s: %d rows are staged, in %d files", transaction.instant, staged.rows, len(reports))

    @property
    def may_become_logs(self) -> bool:
        """Whether log files instead of these base files could not conflict."""
        return bool(self._options.non_blocking and first_bases(self.table.config, self.reports))

    def seen_in(self, storage: Storage) -> CommitMetadata:
        """What would be committed behind what this storage shows of the table; its files are there.

        Called while the write waits.
        """
        if self.transaction.own_files is not None:
            self.transaction.own_files.place()
        metadata = self._metadata()
        if self._replacement is None:
            return metadata
        return self._replacement.seen_in(TableView.load(storage, self.table.config), metadata)

    def start(self, commit: Commit, keep_files: bool = False, part: Part[Commit] | None = None) -> Commit:
        """Prepares the commit of these files. If it loses, they are kept if `keep_files`, unless they were merged."""
        placed = self._is_placed if self._replacement is None else self._replacement.check
        checks = in_order([keeps_schema(self.table), placed], makes_table(self.table))
        keep_files = keep_files and not self.table.config.copies_on_write
        member = GroupedFiles(self.table, self._options, self.reports) if self._can_be_grouped() else None
        return commit.start(self.transaction, self._staged(), checks, self._relocate, keep_files, member, part)

    def _can_be_grouped(self) -> bool:
        """Whether others can decide the commit by its files: they cannot if it replaces any, or changes the table."""
        table = self.table
        grouped = table.config.log_version >= GROUPING_LOG_VERSION and not table.is_new and not table.changes_schema
        return grouped and self._replacement is None

    def _staged(self) -> Staged:
        """The staged files as they are committed if nothing has changed since they were written."""
        return Staged(self._metadata(), work_of(self.reports))

    def _relocate(self, displaced: Displaced) -> Staged:
        """Copies displaced files to their successors; the copies are committed instead."""
        if self._replacement is not None:
            self._place_holders(displaced.successors)
        else:
            self.reports = _relocated(self.transaction, self.reports, displaced.successors, self._executor)
        return self._staged()

    def _metadata(self) -> CommitMetadata:
        return commit_metadata(self.table, self._options, self.reports, self.transaction)

    def _is_placed(self, snapshot: Snapshot, at: At) -> Verdict | Changed | None:
        mark = self.transaction.state.seen
        non_blocking = self._options.non_blocking
        table = replace(self.table, storage=renewed(self.table.storage, at.place.before))
        return Placement(table, at.state.instant, self.reports, non_blocking, mark).check(snapshot, at)

    def _place_holders(self, successors: Mapping[FileGroup, str]) -> None:
        """Adds an empty successor for each file group that is replaced without new rows."""
        work = PlaceholderTask(self.transaction.markers, self.table.avro_schema).run
        by_successor = {(partition, file_id): old for (partition, old), file_id in sorted(successors.items())}
        places = [
            Relocation(FileReport(partition, old, "", 0, 0, 0, 1), file_id, 1)
            for (partition, file_id), old in sorted(by_successor.items())
        ]
        if places:
            self.reports = [*self.reports, *relocate(self._executor, self.transaction.instant, work, places)]


def _ensure_once(reports: list[FileReport]) -> None:
    """Ensures that no two tasks made the same base file: it would have the rows of only one of them."""
    paths = Counter((report.partition, report.file_name) for report in reports)
    for partition, name in (path for path, count in paths.items() if count > 1):
        raise InvariantBroken(f"two tasks have written {name!r} in the partition {partition!r}")


def _relocated(
    transaction: Transaction, reports: list[FileReport], successors: Mapping[FileGroup, str], executor: Executor
) -> list[FileReport]:
    """Copies the files in replaced file groups to their successors; returns all reports."""
    displaced = [report for report in reports if (report.partition, report.file_id) in successors]
    stay = [report for report in reports if (report.partition, report.file_id) not in successors]
    relocations = relocations_to(lambda partition, file_id: successors[partition, file_id], displaced)
    _log.info("%s: %d files move, because their file groups were replaced", transaction.instant, len(relocations))
    return [*stay, *relocate(executor, transaction.instant, RelocationTask(transaction.markers).run, relocations)]
