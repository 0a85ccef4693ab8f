"""Log compaction: a run of log files of a file group is merged into one, which our readers read instead.

The merged run is written to a *compacted log*, whose name sorts directly after the run's last file. A reader that does
not know it merges the run and then its repetition, and finds the same rows; ours leave the run out. A run never extends
past the requested time of a write in progress, so whatever completes later sorts before or after the whole run. This
makes log compaction exact, even for equal ordering values, for deletes without one, and under commit-time ordering.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain, groupby

from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.counters import Counters, has_so_many, last_requested
from lakelatch.engine.services.rewrites.rewriting import (
    Operations,
    RewriteTask,
    RewritingService,
    due_operations,
    ensure_has_logs,
)
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import data_block_format
from lakelatch.format.merge.slice import compact_logs
from lakelatch.format.names import LogFile, check_own_file, compacted_log, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.actions import COMMIT, DELTA_COMMIT, LOG_COMPACT, LOG_COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

_PLAN_KEY = "lakelatch.log.compaction"  # marks our plans in their extra metadata: those of Java are not for us
_PLAN_OF_RUNS = "runs"


@dataclass(frozen=True)
class LogCompaction(RewritingService):
    """Merges runs of log files into one each, for file groups that are not due for a compaction yet."""

    options: CompactionOptions = field(default_factory=CompactionOptions)

    action, operation, makes_bases = LOG_COMPACTION, LOG_COMPACT, False

    def due(self, counters: Counters) -> bool:
        """Whether a file group may have enough new logs since its last (log) compaction, and no plan waits."""
        if counters.waiting(LOG_COMPACTION):
            return False
        ours = (one for one in counters.completed(DELTA_COMMIT) if counters.has_plan(one, LOG_COMPACTION))
        last = last_requested(chain(counters.completed(COMMIT), ours))
        return has_so_many(counters.deltas_after(last), self.options.least_logs_of_run)

    def check(self, table: OpenedTable) -> None:
        ensure_has_logs(table)

    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        table = context.table
        under_way = instants_under_way(context.manager, snapshot)  # first: a write may be listed twice, but not missed
        view = TableView.load(table.storage, table.config)
        due = due_operations(view, snapshot, self.options.least_logs_of_run)
        runs = (run for operation in due for run in runs_of(operation, under_way))
        # A cancelled plan may have left a tombstone of this name, or its executor a late file.
        operations = tuple(run for run in runs if not table.storage.exists(_path_of(run)))
        return CompactionPlan(operations, {_PLAN_KEY: _PLAN_OF_RUNS}).to_avro() if operations else None

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether the plan is ours; Java's are left to Java. True if there is no such plan."""
        try:
            return self.read(context.table.storage, instant).extra.get(_PLAN_KEY) == _PLAN_OF_RUNS
        except NotFound:
            return True

    def execute(self, context: ServiceContext, instant: str) -> CommitResult:
        """See `RewritingService`. Errors: also `InvalidRequest` for a Java writer's plan."""
        if not self.may_execute(context, instant):
            raise InvalidRequest(f"the log compaction {instant} is another engine's: let that engine execute it")
        return super().execute(context, instant)

    def task(self, plan: CompactionPlan, table: OpenedTable, instant: str, times: Mapping[str, str]) -> RewriteTask:
        return LogCompactionTask(table, instant, times)


def instants_under_way(manager: TransactionManager, snapshot: Snapshot) -> list[str]:
    """Requested times of all that may still complete, including dead writers and claims without a requested file."""
    return sorted({*manager.context.observer.instants(), *(instant.requested for instant in snapshot.pending)})


def runs_of(operation: CompactionOperation, under_way: list[str]) -> Operations:
    """Splits an operation at writes in progress; returns runs of two files or more, each in merge order."""

    def write_before(name: str) -> int:
        return bisect_right(under_way, _log_file(name).instant)

    runs = [tuple(names) for _, names in groupby(operation.delta_files, write_before)]
    return tuple(replace(operation, delta_files=names) for names in runs if len(names) > 1)


def _path_of(run: CompactionOperation) -> str:
    return path_below(run.partition, compacted_log(_log_file(run.delta_files[-1])).name)


class LogCompactionTask(RewriteTask):
    """The task of a log compaction."""

    service = "log compaction"

    def name_of(self, operation: CompactionOperation) -> str:
        """The compacted log's name, which depends only on the plan."""
        file = compacted_log(_log_file(operation.delta_files[-1]))
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`."""
        run = FileSlice(operation.partition, operation.file_id, operation.base_instant, None, operation.delta_files)
        table = self.table
        # The blocks have the instant of the run's last file, as their own file has, so that readers of it read them.
        instant = _log_file(operation.delta_files[-1]).instant
        block_format = data_block_format(table.config, table.schema)
        file = BytesIO()
        row_count = delete_count = 0
        for compacted in compact_logs(table.storage, run, table.full_schema, table.config, self.completions):
            file.write(compacted.encode(instant, table.avro_schema, block_format))
            row_count += compacted.row_count
            delete_count += compacted.delete_count
        data = file.getvalue()
        if not data:
            return None
        name = self.name_of(operation)
        self.put(operation, name, data)
        failpoint("compact.after_base_file")
        version = _log_file(name).version
        counts = row_count, delete_count
        return FileReport(operation.partition, operation.file_id, name, *counts, len(data), version)

    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
        """The commit's entry for the compacted log."""
        stat = report.to_stat(operation.base_instant)
        total = len(operation.delta_files)
        return (replace(stat, num_update_writes=0, base_file=operation.base_file or "", total_log_files=total),)


def _log_file(name: str) -> LogFile:
    file = parse_data_file(name)
    if not isinstance(file, LogFile):
        raise InvariantBroken(f"a log compaction names {name!r}, which is no log file")
    return file
