"""From what tasks have written to a commit, under the file ids that hold at its place in the log.

A write learns which file id each bucket has when it begins. If a replace commit completes before it, those of its files
that lie in replaced file groups would never be read. Under non-blocking control they are copied under the successors'
ids, and the same transaction commits them there; under optimistic control that is a conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakelatch.errors import CommitUnknown, LakelatchError, Unavailable, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.pipeline.batches import batch_extra
from lakelatch.pipeline.file_ids import REPLACE, FileIds, replace_commits
from lakelatch.pipeline.losing import abort_after, work_of
from lakelatch.pipeline.moving import Mover, MoveTask, move_here, moves_to
from lakelatch.pipeline.options import INSERT_OVERWRITE_TABLE, REPLACING, WriteOptions
from lakelatch.pipeline.replacing import Choice, Replacement, every, none_else
from lakelatch.pipeline.salvage import Salvage, keep_if_lost
from lakelatch.pipeline.tables import Table
from lakelatch.pipeline.write_task import FileReport, WriteTask
from lakelatch.system import System
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata
from lakelatch.transactions.conflicts import OtherWrite
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import LOST, Committed, Transaction, TransactionState
from lakelatch.transactions.waiting import wait_for_winner

_log = logging.getLogger("lakelatch.pipeline")
_RETRY_WAIT_S = 0.1
_RETRY_WAIT_MAX_S = 10.0
_MOVES_MAX = 1000


@dataclass(frozen=True)
class CommitResult:
    """What was committed: visible to every reader from `completion` on. Counts are rows of this write.

    `file_groups_replaced` is what an overwrite or a deletion of partitions took away. `repeated` says that the batch
    was committed before: this is the result of that commit, and nothing was written now.
    """

    instant: str
    completion: str
    operation: str
    rows_written: int
    rows_deleted: int
    files: tuple[str, ...]
    bytes_written: int
    conflicts_retried: int = 0
    file_groups_replaced: int = 0
    repeated: bool = False


def file_ids_of(table: Table, state: TransactionState) -> FileIds:
    """The file ids under which a transaction's tasks write, as of its beginning."""
    if state.action == REPLACE:
        return FileIds.of_replace(state.instant)
    return FileIds.after(replace_commits(table.storage, state.known_files))


def write_task(table: Table, asked: WriteOptions, transaction: Transaction) -> WriteTask:
    """What each task of a transaction writes with, wherever it runs."""
    return WriteTask(
        table.storage,
        table.config,
        table.schema,
        table.avro_schema,
        transaction.instant,
        asked.operation,
        asked.block_format,
        file_ids_of(table, transaction.state),
        transaction.early_detection(),
    )


def commit_metadata(
    table: Table, asked: WriteOptions, reports: list[FileReport], instant: str, writer: str
) -> CommitMetadata:
    """The commit's metadata from its tasks' reports."""
    stats = tuple(report.to_stat(instant) for report in sorted(reports, key=lambda report: report.file_name))
    extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: writer, **batch_extra(asked.raw)}
    return CommitMetadata(stats, asked.operation.upper(), extra)


def commit_files(
    transaction: Transaction,
    table: Table,
    asked: WriteOptions,
    reports: list[FileReport],
    writer: str,
    mover: Mover = move_here,
    choose: Choice | None = None,
    salvage: Salvage | None = None,
) -> CommitResult:
    """Commits what tasks have written, moving it as often as a replace commit comes first.

    `choose` says which partitions a deletion of partitions takes away, and `salvage` keeps the files after a conflict.
    Errors: those of `Transaction.commit`.
    """
    transaction.work = work_of(reports)
    transaction.keeps_lost_files = salvage is not None and salvage.wanted
    try:
        return _commit_files(transaction, table, asked, reports, writer, mover, choose)
    except WriteConflict as conflict:
        keep_if_lost(salvage, transaction, conflict, reports)
        raise


def _commit_files(
    transaction: Transaction,
    table: Table,
    asked: WriteOptions,
    reports: list[FileReport],
    writer: str,
    mover: Mover,
    choose: Choice | None,
) -> CommitResult:
    if asked.operation in REPLACING:
        metadata = commit_metadata(table, asked, reports, transaction.instant, writer)
        choose = choose or (every if asked.operation == INSERT_OVERWRITE_TABLE else none_else)
        replacement = Replacement(table, metadata, choose, asked.non_blocking)
        committed = transaction.commit(metadata, replacement.settle)
        return replace(_result(committed, asked.operation, reports), file_groups_replaced=replacement.replaced)
    for _ in range(_MOVES_MAX):
        metadata = commit_metadata(table, asked, reports, transaction.instant, writer)
        try:
            committed = transaction.commit(metadata, _Placement(table, metadata, reports, asked.non_blocking).settle)
            return _result(committed, asked.operation, reports)
        except _FilesReplaced as replaced:
            reports = _moved(transaction, table, reports, replaced.details["file_ids"], mover)
    raise Unavailable(f"file groups were replaced faster than {transaction.instant} could follow: try again")


@contextmanager
def aborting(transaction: Transaction) -> Iterator[None]:
    """Rolls the transaction back if the block fails, and gives Spark's errors their types back."""
    try:
        yield
    except CommitUnknown:
        raise
    except BaseException as error:
        if transaction.status == LOST:  # whoever has its files ends it
            raise
        typed = abort_after(transaction, error)
        if typed is not None:
            raise typed from error
        raise


def retried(manager: TransactionManager, system: System, work: Callable[[Salvage], CommitResult]) -> CommitResult:
    """Does the work anew after each conflict, as often as the options say, with what is left of the try before."""
    retries = manager.settings.conflict_retries
    salvage = Salvage()
    try:
        for attempt in range(retries + 1):
            salvage.wanted = attempt < retries
            try:
                return replace(work(salvage), conflicts_retried=attempt)
            except WriteConflict as conflict:
                if attempt == retries:
                    raise
                _log.info("try %d of %d: %s", attempt + 1, retries + 1, conflict)
                wait_for_winner(manager.observer, conflict, manager.settings.lock_timeout_s, system)
                system.sleep(min(_RETRY_WAIT_S * 2**attempt, _RETRY_WAIT_MAX_S) * system.random())
    finally:
        salvage.drop()
    raise AssertionError("unreachable")


class _FilesReplaced(LakelatchError):
    """Some of the files lie in file groups that were replaced; its `file_ids` say where they belong."""


@dataclass(frozen=True)
class _Placement:
    """The file ids of a write's files, held against those at its place in the log."""

    table: Table
    metadata: CommitMetadata
    reports: list[FileReport]
    non_blocking: bool

    def settle(self, folder: TimelineFolder, completed: list[OtherWrite]) -> tuple[CommitMetadata, list[OtherWrite]]:
        """See `Settle`. Free unless a replace commit has completed since the write began."""
        if all(write.action != REPLACE for write in completed):
            return self.metadata, completed
        replaces = replace_commits(self.table.storage, folder.names)
        file_ids = FileIds.after(replaces)
        moves = moves_to(file_ids, self.reports)
        if self.non_blocking:
            if moves:
                raise _FilesReplaced("file groups of this write were replaced since it began", file_ids=file_ids)
            return self.metadata, [write for write in completed if write.action != REPLACE]
        stale = frozenset((move.report.partition, move.report.file_id) for move in moves)
        moved = {one.instant.requested: frozenset(g for g in stale if g[0] in one.partitions) for one in replaces}
        # A bucket without a file was not replaced by name, and yet its file id is not the one to write to any more.
        return self.metadata, [
            replace(write, file_groups=write.file_groups | moved.get(write.instant, frozenset())) for write in completed
        ]


def _moved(
    transaction: Transaction, table: Table, reports: list[FileReport], file_ids: FileIds, mover: Mover
) -> list[FileReport]:
    """The reports after those files were copied that belong elsewhere."""
    moves = moves_to(file_ids, reports)
    _log.info("%s: %d files move, because their file groups were replaced", transaction.instant, len(moves))
    transaction.reopen()
    failpoint("move.after_reopen")
    gone = {(move.report.partition, move.report.file_name) for move in moves}
    stay = [report for report in reports if (report.partition, report.file_name) not in gone]
    return [*stay, *mover(MoveTask(transaction.markers), moves)]


def _result(committed: Committed, operation: str, reports: list[FileReport]) -> CommitResult:
    return CommitResult(
        instant=committed.instant,
        completion=committed.completion,
        operation=operation,
        rows_written=sum(report.records for report in reports),
        rows_deleted=sum(report.deletes for report in reports),
        files=tuple(sorted(report.file_name for report in reports)),
        bytes_written=sum(report.size_bytes for report in reports),
    )
