"""Compaction: planned at one slot of the log and executed later, by any process, as often as it likes.

A plan names, for each file group, the base file and exactly the log files that completed before the plan's time.
Executing it creates one base file for each group, put-if-absent under a name that depends on nothing but the plan:
retried tasks, paused executors, and two executors of one plan all make the same file once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import ClassVar

from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.engine.options.table_services.compaction import KEEP_DELETES, CompactionOptions
from lakelatch.engine.options.table_services.inline import (
    AFTER_LAST_REQUEST,
    NUM_AND_TIME,
    NUM_OR_TIME,
    TIME_ELAPSED,
    CompactionTrigger,
)
from lakelatch.engine.read.forgotten_deletes import carried_out_by_others, note_of, put_note
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.counters import Counters, last_requested
from lakelatch.engine.services.rewrites.compaction_choice import chosen
from lakelatch.engine.services.rewrites.rewriting import (
    Execution,
    Operations,
    RewriteTask,
    RewritingService,
    due_operations,
    ensure_has_logs,
    remove_left_over_bases,
    view_at,
)
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.tasks.base_file import GatheredRows
from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import AVRO_SCHEMA_FOOTER, encode_log_file
from lakelatch.format.merge.column_groups import KEPT_DELETES_FOOTER, encode_kept_deletes, kept_deletes_name
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.slice import merge_in_order, merge_slice
from lakelatch.format.merge.stream import joined_deletes, joined_group_deletes
from lakelatch.format.names import check_own_file, keeps_deletes_of, kept_deletes_file, planned_base_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import COMMIT, COMPACT, COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan, WriteStat
from lakelatch.timeline.snapshot import Snapshot

_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class Compaction(RewritingService):
    """Merges the log files of file groups into a new base file each."""

    options: CompactionOptions = field(default_factory=CompactionOptions)
    cancellation: CancellationOptions = field(default_factory=CancellationOptions)
    trigger: CompactionTrigger = field(default_factory=CompactionTrigger)

    action, operation, compacts = COMPACTION, COMPACT, True

    def due(self, counters: Counters) -> bool:
        """Whether Hudi's trigger fires. While a plan waits, only the one that counts from the last request can."""
        trigger, waiting = self.trigger, counters.waiting(COMPACTION)
        if waiting and trigger.strategy != AFTER_LAST_REQUEST:
            return False
        last = last_requested(counters.completed(COMMIT))
        since = list(islice(counters.deltas_after(max([last, *waiting])), max(trigger.commits, 1)))
        if not since:
            return False
        counted = len(since) >= trigger.commits
        elapsed = counters.now_ms - to_ms(last or since[0].requested) >= trigger.seconds * 1000
        if trigger.strategy in (NUM_AND_TIME, NUM_OR_TIME):
            return (counted and elapsed) if trigger.strategy == NUM_AND_TIME else (counted or elapsed)
        return elapsed if trigger.strategy == TIME_ELAPSED else counted

    def check(self, table: OpenedTable) -> None:
        ensure_has_logs(table)

    def prepare(self, context: ServiceContext) -> None:
        """Finishes compactions that other engines executed, where tasks may run."""
        if context.executor.tasks:
            finish_foreign_compactions(context.executor, context.table, context.manager.snapshot)

    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        due = due_operations(view_at(context.table, snapshot), snapshot, self.options.least_logs)
        return self.plan_of(chosen(due, self.options, partial(base_bytes, context.table.storage)), snapshot)

    def plan_of(
        self, operations: Sequence[CompactionOperation], snapshot: Snapshot, extra: Mapping[str, str] | None = None
    ) -> bytes | None:
        """The plan of these operations; None if there are none."""
        policy = self.cancellation.policy_of(COMPACTION, snapshot.latest_completion)
        keep = str(self.options.keep_deletes).lower()  # all executors must do the same
        said = {KEEP_DELETES: keep, **policy.to_extra(), **(extra or {})}
        return CompactionPlan(tuple(operations), said).to_avro() if operations else None

    def task(self, plan: CompactionPlan, table: OpenedTable, instant: str, times: Mapping[str, str]) -> CompactTask:
        return CompactTask(table, instant, times, plan.extra.get(KEEP_DELETES) == "true")

    def give_up(self, run: Execution, error: BaseException) -> None:
        """See `RewritingService`. Another engine may have executed the plan, with other names for its files."""
        super().give_up(run, error)
        if isinstance(error, TransactionEnded):
            remove_left_over_bases(run.context.table, run.instant, run.plan.file_groups)


def base_bytes(storage: Storage, operations: Sequence[CompactionOperation]) -> list[int]:
    """The size of each operation's base file; 0 if it has none."""
    return list(storage.together(*(partial(_base_bytes, storage, operation) for operation in operations)))


def _base_bytes(storage: Storage, operation: CompactionOperation) -> int:
    if operation.base_file is None:
        return 0
    return storage.stat(path_below(operation.partition, operation.base_file)).size_bytes


@dataclass(frozen=True)
class CompactTask(RewriteTask):
    """The task of a compaction."""

    service = "compaction"

    #: The most rows of a row group; None for the default.
    group_rows: ClassVar[int | None] = None

    keep_deletes: bool

    def target_of(self, operation: CompactionOperation) -> str:
        """The file id of the base file."""
        return operation.file_id

    def name_of(self, operation: CompactionOperation) -> str:
        """The base file's name."""
        file = planned_base_file(operation.partition, self.target_of(operation), self.instant)
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`.

        Winning deletes are kept in a file of their own. Without them, a row that is older than its delete and completes
        after this plan would come back, as it would not without the compaction. It is a log file, except for deletes
        of column groups, which Hudi's readers would take for rows.
        """
        name, file_id = self.name_of(operation), self.target_of(operation)
        gathered = GatheredRows()
        kept_bytes = 0

        def footer() -> Mapping[str, str]:
            nonlocal kept_bytes
            texts = {AVRO_SCHEMA_FOOTER: self.table.full_avro_schema, **gathered.key_bounds()}
            deletes, group_deletes = joined_deletes(gathered.parts), joined_group_deletes(gathered.parts)
            if self.keep_deletes and group_deletes is not None:
                texts[KEPT_DELETES_FOOTER] = kept_deletes_name(file_id, self.instant)
                self.put(operation, texts[KEPT_DELETES_FOOTER], encode_kept_deletes(group_deletes))
            if self.keep_deletes and deletes is not None:
                log = encode_log_file(self.instant, self.table.full_avro_schema, None, deletes)
                self.put(operation, kept_deletes_file(operation.partition, file_id, self.instant).name, log)
                kept_bytes = len(log)
            return texts

        rows = gathered.noting(self.merged(operation), name)
        size_bytes = self.put_parquet(operation, name, rows, footer, self.group_rows)
        failpoint("compact.after_base_file")
        return FileReport(operation.partition, file_id, name, gathered.records, 0, size_bytes, 0, kept_bytes=kept_bytes)

    def merged(self, operation: CompactionOperation) -> Iterator[Merged]:
        """The rows of the base file, in its order."""
        table = self.table
        return merge_in_order(table.storage, slice_of(operation), table.full_schema, table.config, self.completions)

    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
        """The commit's entry for the base file, after that for the log file of kept deletes, if there is one.

        Java's incremental reads merge only files that a window's commits name. The base file comes last, as Java takes
        the last file of a group where it wants one.
        """
        base = WriteStat(
            partition=report.partition,
            file_id=report.file_id,
            path=path_below(report.partition, report.file_name),
            previous_commit=operation.base_instant,
            num_writes=report.records,
            total_write_bytes=report.size_bytes,
            file_size_bytes=report.size_bytes,
            total_log_files=len(operation.delta_files),
        )
        if not report.kept_bytes:
            return (base,)
        name = kept_deletes_file(report.partition, report.file_id, self.instant).name
        kept = WriteStat(
            partition=report.partition,
            file_id=report.file_id,
            path=path_below(report.partition, name),
            previous_commit=self.instant,
            total_write_bytes=report.kept_bytes,
            file_size_bytes=report.kept_bytes,
            log_version=1,
            base_file="",
            log_files=(name,),
        )
        return kept, base


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that a planned operation compacts."""
    return FileSlice(
        partition=operation.partition,
        file_id=operation.file_id,
        base_instant=operation.base_instant,
        base_file=operation.base_file,
        log_files=operation.delta_files,
    )


# -- finishing plans that another engine executed ---------------------------------------------------------------------
#
# An engine that ignores our heartbeats (Java Hudi below 1.2, and any version as a single writer) takes a plan over from
# a live executor of ours; any engine does so from a dead one. Then both leave base files of the same instant, which
# hudi-rs refuses to read. And no other engine keeps the deletes of a plan that asks for it.


@dataclass(frozen=True)
class KeepDeletes(CompactTask):
    """Keeps the deletes of a compaction that another engine executed, as ours would have kept them."""

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`; makes no base file to report. The plan has ended, so claims do not matter."""
        table = self.table
        name = kept_deletes_file(operation.partition, operation.file_id, self.instant).name
        try:
            merged = merge_slice(table.storage, slice_of(operation), table.full_schema, table.config, self.completions)
        except NotFound as error:
            _log.warning("deletes of compaction %s are lost, their files were cleaned: %s", self.instant, error)
            return None
        if merged.deletes is not None:
            data = encode_log_file(self.instant, table.full_avro_schema, None, merged.deletes)
            path = path_below(operation.partition, name)
            table.storage.put_if_absent(path, add_checksum(data, path))
        return None


def finish_foreign_compactions(executor: Executor, table: OpenedTable, known: Snapshot) -> None:
    """Removes base files that no commit names, and keeps the deletes that the plans asked for.

    It covers the compactions on a known timeline that others completed, and makes no request if there are none. Those
    that are not on it yet are for the next call. Repeated and concurrent calls are safe.
    """
    for instant, plan in carried_out_by_others(table.storage, known):
        remove_left_over_bases(table, instant, plan.file_groups)
        if plan.extra.get(KEEP_DELETES) != "true" or table.config.column_groups:
            continue
        if not table.storage.exists(note_of(instant)):
            view = TableView.load(table.storage, table.config)
            missing = _without_kept_deletes(view, instant, plan.operations)
            KeepDeletes(table, instant, {}, True).run_all(executor, missing)
            put_note(table.storage, instant, (one.partition for one in plan.operations))


def _without_kept_deletes(view: TableView, instant: str, operations: Operations) -> Operations:
    """Operations without kept deletes whose base file is still the newest of its group: older ones are too late."""
    newest = {
        (found.partition, found.file_id): found
        for found in view.slices(sorted({one.partition for one in operations}))
        if found.base_instant == instant
    }
    kept = {
        group for group, found in newest.items() if any(keeps_deletes_of(name, instant) for name in found.log_files)
    }
    return tuple(one for one in operations if (one.partition, one.file_id) in newest.keys() - kept)
