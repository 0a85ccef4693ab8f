"""Log compaction: runs of log files of a file group are repeated as one, which our readers take in their place.

What a run comes to is written to a *folded log*, whose name puts it directly behind the run's last file. A reader that
knows nothing of it merges the run and then its repetition, and finds the same rows; ours leave the run out. A run never
reaches past the requested time of a write that is under way, so whatever completes later keeps its place before or
behind the whole of it. That is what makes log compaction exact: also for equal ordering values, for deletes without
one, and under commit-time ordering.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.option_values import whole_number
from lakelatch.pipeline.column_groups import fold_group_logs
from lakelatch.pipeline.committing import CommitResult
from lakelatch.pipeline.file_names import LogFile, check_own_file, folded_log, parse_data_file
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.log_blocks import encode_log_file
from lakelatch.pipeline.merge import fold_logs
from lakelatch.pipeline.options import LOG_BLOCKS_THRESHOLD, normalise
from lakelatch.pipeline.plans import (
    Operations,
    Runner,
    Service,
    busy_groups,
    carry_out,
    operation_on,
    read_plan,
    runner_of,
    table_at_rest,
)
from lakelatch.pipeline.schemas import with_meta_columns
from lakelatch.pipeline.tables import Table
from lakelatch.pipeline.views import LOG_COMPACTION, TableView
from lakelatch.pipeline.write_task import FileReport
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.storage.seals import seal
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.instants import Timeline
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan, WriteStat
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import TransactionManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDS_KEY = "lakelatch.log.compaction"  # in plans: these are carried out as is said here, and a Java writer's are not
_FOLDS = "runs"
_THRESHOLD_DEFAULT = 5


def schedule_log_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a log compaction plan on the timeline, for `execute_log_compaction`; None if there is nothing to do.

    Writers may be in flight: files that were requested on different sides of one stay apart.
    """
    values = normalise(options)
    with table_at_rest(path, values, system) as (table, manager):
        return schedule(table, manager, values)


def execute_log_compaction(
    spark: SparkSession,
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Carries out one plan. `TransactionEnded` if it has completed, `Unavailable` while another process works on it.

    `lakelatch.compact` carries out the plans that wait as well. Errors: `InvalidRequest` for a Java writer's plan.
    """
    values = normalise(options)
    with table_at_rest(path, values, system) as (table, manager):
        return execute(runner_of(spark), table, manager, instant)


def schedule(table: Table, manager: TransactionManager, values: Mapping[str, str]) -> str | None:
    """See `schedule_log_compaction`."""
    least_logs = whole_number(values, LOG_BLOCKS_THRESHOLD, _THRESHOLD_DEFAULT, 2, 1_000_000)

    def build(folder: TimelineFolder) -> bytes | None:
        under_way = instants_under_way(manager, folder)  # first: who completes meanwhile is in both, and does no harm
        busy = busy_groups(table.storage, folder)
        view = TableView.load(table.storage, table.config)
        operations: list[CompactionOperation] = []
        for found in view.slices():
            if len(found.fresh_logs) >= least_logs and (found.partition, found.file_id) not in busy:
                operations += runs_of(operation_on(view, found), under_way)
        return CompactionPlan(tuple(operations), {_FOLDS_KEY: _FOLDS}).to_avro() if operations else None

    return manager.schedule(build, LOG_COMPACTION)


def execute(run: Runner, table: Table, manager: TransactionManager, instant: str) -> CommitResult:
    """See `execute_log_compaction`; `run` runs the task for each operation, wherever that is."""
    if not is_ours(table.storage, instant):
        raise InvalidRequest(f"the log compaction {instant} was planned by another writer: let that carry it out")
    return carry_out(SERVICE, run, table, manager, instant)


def is_ours(storage: Storage, instant: str) -> bool:
    """Whether a plan is one of this kind. Those of Java writers wait for them; True where there is no such plan."""
    try:
        return read_plan(storage, instant, LOG_COMPACTION).extra.get(_FOLDS_KEY) == _FOLDS
    except NotFound:
        return True


def instants_under_way(manager: TransactionManager, folder: TimelineFolder) -> list[str]:
    """Requested times of whatever may still complete, dead writers and claims without a requested file included."""
    return sorted({*manager.observer.instants(), *(instant.requested for instant in folder.pending())})


def runs_of(operation: CompactionOperation, under_way: list[str]) -> Operations:
    """The operation cut where a write is under way; only runs of two files or more, each ordered as it is merged."""

    def write_before(name: str) -> int:
        return bisect_right(under_way, _log_file(name).instant)

    runs = [tuple(names) for _, names in groupby(operation.delta_files, write_before)]
    return tuple(replace(operation, delta_files=names) for names in runs if len(names) > 1)


@dataclass(frozen=True)
class FoldTask:
    """What every task of one log compaction needs. Pickles.

    `completions` has what the merge of a table with column groups needs, and is empty for other tables.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_schema: str
    instant: str
    completions: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, operation: CompactionOperation) -> str:
        """The folded log's name, which depends on the plan alone."""
        file = folded_log(_log_file(operation.delta_files[-1]))
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """Makes the folded log, or finds that another attempt has made it. `TransactionEnded` if the plan ended."""
        run = FileSlice(operation.partition, operation.file_id, operation.base_instant, None, operation.delta_files)
        # The blocks are of the run's last instant, as their file is: whoever reads it, reads them.
        data, rows, deletes = self._folded(run, _log_file(operation.delta_files[-1]).instant)
        if not data:
            return None
        name = self.name_of(operation)
        ensure_beating(self.storage, self.instant)
        path = path_below(operation.partition, name)
        self.storage.put_if_absent(path, seal(data, path))
        failpoint("compact.after_base_file")
        version = _log_file(name).version
        return FileReport(operation.partition, operation.file_id, name, rows, deletes, len(data), version)

    def _folded(self, run: FileSlice, instant: str) -> tuple[bytes, int, int]:
        """The folded log's bytes, and how many rows and deletes are in it."""
        schema, config = with_meta_columns(self.schema), self.config
        if config.column_groups:
            groups = fold_group_logs(self.storage, run, schema, config, self.completions)
            wiped = 0 if groups.wiped is None else len(groups.wiped.keys)
            deletes = wiped + sum(rows.num_rows for rows in groups.deletes)
            return groups.encode(instant, self.avro_schema), sum(rows.num_rows for rows in groups.rows), deletes
        folded = fold_logs(self.storage, run, schema, config.merge_mode, config.ordering_field)
        data = b"" if folded.wiped is None else encode_log_file(instant, self.avro_schema, None, folded.wiped)
        if folded.rows.num_rows or folded.deletes is not None:
            data += encode_log_file(instant, self.avro_schema, folded.rows, folded.deletes)
        deletes = sum(len(one.keys) for one in (folded.wiped, folded.deletes) if one is not None)
        return data, folded.rows.num_rows, deletes


def _log_file(name: str) -> LogFile:
    file = parse_data_file(name)
    if not isinstance(file, LogFile):
        raise InvariantBroken(f"a log compaction names {name!r}, which is no log file")
    return file


def _task_of(table: Table, instant: str, plan: CompactionPlan) -> FoldTask:
    completions = Timeline.load(table.storage).completion_times() if table.config.column_groups else {}
    return FoldTask(table.storage, table.config, table.schema, table.avro_schema, instant, completions)


def _stat_of(report: FileReport, operation: CompactionOperation) -> WriteStat:
    """The folded log as the commit names it."""
    stat = report.to_stat(operation.base_instant)
    return replace(
        stat, num_update_writes=0, base_file=operation.base_file or "", total_log_files=len(operation.delta_files)
    )


SERVICE = Service(LOG_COMPACTION, "log_compact", False, _task_of, _stat_of)
