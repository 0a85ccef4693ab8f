"""Log compaction: runs of log files of a file group are repeated as one, which our readers take in their place.

What a run comes to is written to a *compacted log*, whose name puts it directly behind the run's last file. A reader
that knows nothing of it merges the run and then its repetition, and finds the same rows; ours leave the run out. A run
never reaches past the requested time of a write that is under way, so whatever completes later keeps its place before
or behind the whole of it. That is what makes log compaction exact: also for equal ordering values, for deletes without
one, and under commit-time ordering.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from itertools import groupby

from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.planned import (
    Operations,
    RewriteTask,
    Service,
    carry_out,
    due_operations,
    read_plan,
)
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import data_block_format
from lakelatch.format.merge.slice import compact_logs
from lakelatch.format.names import LogFile, check_own_file, compacted_log, parse_data_file
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import LOG_COMPACT, LOG_COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

_PLAN_KEY = "lakelatch.log.compaction"  # marks plans of ours in their extra metadata: a Java writer's are not for us
_PLAN_OF_RUNS = "runs"


def schedule(table: OpenedTable, manager: TransactionManager, options: CompactionOptions) -> str | None:
    """See `schedule_log_compaction`."""

    def build(snapshot: Snapshot) -> bytes | None:
        under_way = instants_under_way(manager, snapshot)  # first: who completes meanwhile is in both, and does no harm
        due = due_operations(table, snapshot, options.least_logs_of_run)
        runs = (run for operation in due for run in runs_of(operation, under_way))
        # The name of one that was called off may have a tombstone, or its executor may have come too late.
        operations = tuple(run for run in runs if not table.storage.exists(_path_of(run)))
        return CompactionPlan(operations, {_PLAN_KEY: _PLAN_OF_RUNS}).to_avro() if operations else None

    return manager.schedule(build, LOG_COMPACTION)


def execute(executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str) -> CommitResult:
    """See `execute_log_compaction`; the executor runs a task for each operation."""
    if not is_ours(table.storage, instant):
        raise InvalidRequest(f"the log compaction {instant} was planned by another writer: let that carry it out")
    return carry_out(SERVICE, executor, table, manager, instant)


def is_ours(storage: Storage, instant: str) -> bool:
    """Whether a plan is one of this kind. Those of Java writers wait for them; True where there is no such plan."""
    try:
        return read_plan(storage, instant, LOG_COMPACTION).extra.get(_PLAN_KEY) == _PLAN_OF_RUNS
    except NotFound:
        return True


def instants_under_way(manager: TransactionManager, snapshot: Snapshot) -> list[str]:
    """Requested times of whatever may still complete, dead writers and claims without a requested file included."""
    return sorted({*manager.context.observer.instants(), *(instant.requested for instant in snapshot.pending)})


def runs_of(operation: CompactionOperation, under_way: list[str]) -> Operations:
    """The operation cut where a write is under way; only runs of two files or more, each ordered as it is merged."""

    def write_before(name: str) -> int:
        return bisect_right(under_way, _log_file(name).instant)

    runs = [tuple(names) for _, names in groupby(operation.delta_files, write_before)]
    return tuple(replace(operation, delta_files=names) for names in runs if len(names) > 1)


def _path_of(run: CompactionOperation) -> str:
    return path_below(run.partition, compacted_log(_log_file(run.delta_files[-1])).name)


class LogCompactionTask(RewriteTask):
    """What every task of one log compaction needs."""

    service = "log compaction"

    def name_of(self, operation: CompactionOperation) -> str:
        """The compacted log's name, which depends on the plan alone."""
        file = compacted_log(_log_file(operation.delta_files[-1]))
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`."""
        run = FileSlice(operation.partition, operation.file_id, operation.base_instant, None, operation.delta_files)
        table = self.table
        # The blocks are of the run's last instant, as their file is: whoever reads it, reads them.
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


def _log_file(name: str) -> LogFile:
    file = parse_data_file(name)
    if not isinstance(file, LogFile):
        raise InvariantBroken(f"a log compaction names {name!r}, which is no log file")
    return file


def _task_of(table: OpenedTable, instant: str, completions: Mapping[str, str], _: CompactionPlan) -> LogCompactionTask:
    return LogCompactionTask(table, instant, completions)


def _stats_of(report: FileReport, operation: CompactionOperation, instant: str) -> tuple[WriteStat, ...]:
    """The compacted log as the commit names it."""
    stat = report.to_stat(operation.base_instant)
    total = len(operation.delta_files)
    return (replace(stat, num_update_writes=0, base_file=operation.base_file or "", total_log_files=total),)


SERVICE = Service(LOG_COMPACTION, LOG_COMPACT.lower(), False, _task_of, _stats_of)
