"""Compaction: planned at one point of the log, carried out later, by anybody, any number of times to the same end.

A plan names, for each file group, the base file and exactly the log files that completed before the plan's time.
Carrying it out creates one base file for each group, put-if-absent under a name that depends on nothing but the plan:
tasks that are retried, executors that were paused, and two executors of one plan all make the same file once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lakelatch.engine.options.cancellation import CancellationOptions
from lakelatch.engine.options.compaction import KEEP_DELETES, CompactionOptions
from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import log_compaction
from lakelatch.engine.services.compaction_choice import chosen
from lakelatch.engine.services.compaction_task import CompactTask, stats_of
from lakelatch.engine.services.foreign_compactions import finish_foreign_compactions
from lakelatch.engine.services.planned import (
    Service,
    carry_out,
    carry_out_or_leave,
    due_operations,
    ensure_has_logs,
    pending_plans,
)
from lakelatch.engine.table.table import OpenedTable
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timeline.actions import COMPACT, COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager


def compact(
    executor: Executor, table: OpenedTable, manager: TransactionManager, options: ServiceOptions
) -> list[CommitResult]:
    """See `lakelatch.compact`; the executor runs a task for each operation."""
    ensure_has_logs(table)
    results = [
        carry_out_or_leave(service, executor, table, manager, instant)
        for service in (log_compaction.SERVICE, SERVICE)
        for instant in pending_plans(manager.snapshot, service.action)
        if service is SERVICE or log_compaction.is_ours(table.storage, instant)
    ]
    finish_foreign_compactions(executor, table)
    instant = schedule(table, manager, options.compaction, options.cancellation)
    if instant is not None:
        results.append(carry_out_or_leave(SERVICE, executor, table, manager, instant))
    if options.compaction.log_compaction:
        instant = log_compaction.schedule(table, manager, options.compaction)
        if instant is not None:
            results.append(carry_out_or_leave(log_compaction.SERVICE, executor, table, manager, instant))

    return [result for result in results if result is not None]


def schedule(
    table: OpenedTable,
    manager: TransactionManager,
    options: CompactionOptions,
    cancellation: CancellationOptions | None = None,
) -> str | None:
    """See `schedule_compaction`."""
    keep = str(options.keep_deletes).lower()  # all executors must do the same
    cancelling = cancellation or CancellationOptions()

    def base_bytes(operations: Sequence[CompactionOperation]) -> list[int]:
        found = table.storage.together(*(partial(_base_bytes, table.storage, operation) for operation in operations))
        return list(found)

    def build(snapshot: Snapshot) -> bytes | None:
        operations = tuple(chosen(due_operations(table, snapshot, options.least_logs), options, base_bytes))
        policy = cancelling.policy_of(COMPACTION, snapshot.latest_completion)
        return CompactionPlan(operations, {KEEP_DELETES: keep, **policy.to_extra()}).to_avro() if operations else None

    return manager.schedule(build, COMPACTION)


def _base_bytes(storage: Storage, operation: CompactionOperation) -> int:
    if operation.base_file is None:
        return 0
    return storage.stat(path_below(operation.partition, operation.base_file)).size_bytes


def execute(executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str) -> CommitResult:
    """See `execute_compaction`; the executor runs a task for each operation."""
    return carry_out(SERVICE, executor, table, manager, instant)


def _task_of(table: OpenedTable, instant: str, completions: Mapping[str, str], plan: CompactionPlan) -> CompactTask:
    return CompactTask(table, instant, completions, plan.extra.get(KEEP_DELETES) == "true")


SERVICE = Service(COMPACTION, COMPACT.lower(), True, _task_of, stats_of)
