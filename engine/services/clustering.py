"""Clustering: file groups are rewritten with their rows in another order, each as one file of the same bucket.

Planned at one point of the log, and carried out later by anybody: names and content follow from the plan, as those of a
compaction do. It completes as a replace commit, so writers that come later go on in the new file groups.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from lakelatch.engine.options.cancellation import CancellationOptions
from lakelatch.engine.options.clustering import ClusteringOptions
from lakelatch.engine.options.compaction import KEEP_DELETES
from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.read.forgotten_deletes import ForgottenDeletes
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.cancelling import tidy_cancelled
from lakelatch.engine.services.clustering_commit import Clustered, ClusteringCommit, place_of
from lakelatch.engine.services.clustering_task import ClusterTask, clustering_stats, target_of
from lakelatch.engine.services.left_over_bases import remove_left_over_bases
from lakelatch.engine.services.planned import (
    begin_plan,
    busy_groups,
    completions_of,
    ensure_names,
    leave_to_others,
    operation_on,
    pending_plans,
    refuse_missing,
)
from lakelatch.engine.table.opening import as_of_now
from lakelatch.engine.table.schema import keeps_schema, learn_schema
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, LakelatchError, TransactionEnded, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.file_groups import replace_commits
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.sorting.row_order import LINEAR, check_columns
from lakelatch.timeline.actions import CLUSTER, CLUSTERING, REPLACE_COMMIT
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata, CompactionOperation, FileGroup
from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS, ClusteringGroup, ClusteringPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.timeline import TimelineFolder, requested
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.cancellation_requests import request_cancel
from lakelatch.transactions.claims import release_claim
from lakelatch.transactions.conflicts.report import record_loss
from lakelatch.transactions.manager import PlanBusy, TransactionManager
from lakelatch.transactions.transaction import Transaction

_log = logging.getLogger("lakelatch.engine")
_LEFT = (TransactionEnded, PlanBusy, WriteConflict)
_SORTED_BY = "lakelatch.clustered.by"  # in a clustering's commit: how the rows of its files are sorted
_PLAN_KEY, _PLAN_OF_BUCKETS = "lakelatch.clustering", "buckets"  # in plans of ours


def cluster(
    executor: Executor, table: OpenedTable, manager: TransactionManager, options: ServiceOptions
) -> list[CommitResult]:
    """See `lakelatch.cluster`; the executor runs a task for each file group."""
    results = [execute_or_leave(executor, table, manager, instant) for instant in plans_of_ours(table, manager)]
    instant = schedule(table, manager, options.clustering, options.cancellation)
    if instant is not None:
        results.append(execute_or_leave(executor, table, manager, instant))

    return [result for result in results if result is not None]


def plans_of_ours(table: OpenedTable, manager: TransactionManager) -> list[str]:
    """Requested times of our plans that have not completed, oldest first; Java's are left to Java."""
    manager.folder.refresh(0)
    return [
        instant
        for instant in pending_plans(manager.folder, CLUSTERING)
        if _is_ours(ClusteringPlan.read(table.storage, requested(instant, CLUSTERING).path))
    ]


def schedule(
    table: OpenedTable, manager: TransactionManager, options: ClusteringOptions, cancellation: CancellationOptions
) -> str | None:
    """See `schedule_clustering`."""
    options.check_buckets(table.config.bucket_count)
    check_columns(table.schema, options.columns, SORT_COLUMNS)

    def build(folder: TimelineFolder) -> bytes | None:
        if options.least_commits and _writes_since_clustering(table, folder) < options.least_commits:
            return None
        view = TableView.load(table.storage, table.config)
        groups = tuple(_due(view, busy_groups(table.storage, folder), options))
        if not groups:
            return None
        view.ensure_whole({one.partition for one in groups})
        # Never empty: a plan that says nothing of it is taken for another engine's.
        policy = cancellation.policy_of(CLUSTERING, planned_against=folder.latest_completion or folder.latest_time)
        extra = {_PLAN_KEY: _PLAN_OF_BUCKETS, KEEP_DELETES: "true", **policy.to_extra()}
        return ClusteringPlan(groups, options.params(), extra, table.storage.uri).to_avro()

    return manager.schedule(build, CLUSTERING)


def execute_or_leave(
    executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str
) -> CommitResult | None:
    """The same as `execute`, but None if others have done it, are at it, or have written to what it was to rewrite."""
    return leave_to_others(CLUSTERING, instant, lambda: execute(executor, table, manager, instant), _LEFT)


def execute(executor: Executor, table: OpenedTable, manager: TransactionManager, instant: str) -> CommitResult:
    """See `execute_clustering`; the executor runs a task for each file group."""
    transaction = begin_plan(manager, instant, CLUSTERING)
    operations: tuple[CompactionOperation, ...] = ()
    try:
        path = requested(instant, CLUSTERING).path
        plan = ClusteringPlan.read(table.storage, path)
        if not _is_ours(plan):
            raise InvalidRequest(f"{path} is the plan of another engine: let that carry it out")
        operations = tuple(map(_operation_of, plan.groups))
        ensure_names(operations, path)
        in_part = PlanPolicy.of(plan.extra).in_part
        table = as_of_now(table)
        task = _task_of(table, instant, plan, operations, in_part)
        reports = {(report.partition, report.file_id): report for report in task.run_all(executor, operations)}
        failpoint("cluster.before_commit")
        clustered = []
        for one in operations:
            target = target_of(one, instant)
            report = reports.get((one.partition, target))
            stats = () if report is None else clustering_stats(report, one, instant)
            clustered.append(Clustered(one, target, stats))
        extra = {SCHEMA_KEY: table.avro_schema, WRITER_KEY: manager.writer, _SORTED_BY: _order_of(plan.params)}
        metadata = CommitMetadata((), CLUSTER, extra)
        commit = ClusteringCommit(table.storage, instant, metadata, tuple(clustered), in_part)
        committed = transaction.commit(metadata, [keeps_schema(table, adds_columns=False), commit.check], commit.work)
    except (WriteConflict, PlanCancelled) as error:
        _give_up(manager, transaction, error)
        raise
    except BaseException as error:
        transaction.release()
        tidy_cancelled(manager, instant)
        refuse_missing(table, requested(instant, CLUSTERING), operations, error)
        raise
    learn_schema(table.storage, CLUSTERING, committed)
    remove_left_over_bases(table, instant, committed.metadata.file_groups())
    return CommitResult.of(instant, committed.completion, committed.metadata)


def _give_up(manager: TransactionManager, transaction: Transaction, error: WriteConflict | PlanCancelled) -> None:
    """Ends a plan that others were faster than, or have called off: as cancelled, so that its names get tombstones.

    What fails is left to the next executor, which comes to the same end, or to the next clean.
    """
    transaction.release()
    release_claim(manager.context, transaction.instant, transaction.state.operation_id)
    try:
        if isinstance(error, WriteConflict):
            record_loss(manager.storage, manager.writer, error)
            request_cancel(manager.context, transaction.instant, by_executor=True)
            failpoint("cluster.after_given_up")
        tidy_cancelled(manager, transaction.instant)
    except LakelatchError as failed:
        _log.warning("clustering %s is left to the next executor: %s", transaction.instant, failed.message)


def _task_of(
    table: OpenedTable, instant: str, plan: ClusteringPlan, operations: tuple[CompactionOperation, ...], in_part: bool
) -> ClusterTask:
    places = (place_of((one.partition, one.file_id)) for one in operations)
    return ClusterTask(
        table=table,
        instant=instant,
        completions=completions_of(table),
        keep_deletes=plan.extra.get(KEEP_DELETES) == "true",
        columns=_columns_of(plan.params),
        layout=plan.params.get(LAYOUT, LINEAR),
        together=frozenset() if in_part else frozenset(places),
    )


def _due(view: TableView, busy: Collection[FileGroup], options: ClusteringOptions) -> Iterator[ClusteringGroup]:
    """The file groups that pay: small enough, in no plan that waits, and not sorted like this already."""
    wanted = _order_of(options.params())
    left = options.groups_max
    forgotten = ForgottenDeletes(view)
    for partition in options.chosen(view.partitions()):
        for found in view.slices([partition]):
            if left == 0:
                return
            if (partition, found.file_id) in busy or not _pays(view, found, options.columns, wanted):
                continue
            known = forgotten.kept(found)
            if known is None:  # the next compaction keeps its deletes first
                continue
            group = _group_of(view, known)
            if group is not None and group.metrics["TOTAL_IO_READ_MB"] * 1024 * 1024 < options.small_bytes:
                left -= 1
                yield group


def _pays(view: TableView, found: FileSlice, columns: Collection[str], wanted: str) -> bool:
    if found.is_empty or bucket_of_file_id(found.file_id) is None:
        return False
    if found.fresh_logs or found.base_file is None:
        return True
    if not columns:
        return False  # a compaction has sorted it by record key
    made_by = view.whole.find(found.base_instant)
    if made_by is None or made_by.action != REPLACE_COMMIT:
        return True
    return view.metadata(made_by).extra.get(_SORTED_BY) != wanted


def _group_of(view: TableView, found: FileSlice) -> ClusteringGroup | None:
    """The slice as it is planned; None if there are only tombstones in it."""
    operation = operation_on(view, found)
    if operation.base_file is None and not operation.delta_files:
        return None
    base_mb = view.storage.stat(found.base_path).size_bytes / 1024 / 1024 if found.base_path is not None else 0.0
    metrics = {**operation.metrics}
    for name in ("TOTAL_IO_MB", "TOTAL_IO_READ_MB"):
        metrics[name] = metrics[name] + base_mb
    return ClusteringGroup(operation.partition, operation.file_id, operation.base_file, operation.delta_files, metrics)


def _operation_of(group: ClusteringGroup) -> CompactionOperation:
    """A planned file group as tasks take it."""
    names = (*group.delta_files, *([group.base_file] if group.base_file else ()))
    instants = [file.instant for file in map(parse_data_file, names) if file is not None]
    base = parse_data_file(group.base_file) if group.base_file else None
    instant = base.instant if base is not None else min(instants, default="")
    return CompactionOperation(group.partition, group.file_id, instant, group.base_file, group.delta_files)


def _writes_since_clustering(table: OpenedTable, folder: TimelineFolder) -> int:
    """How many writes have completed since the last clustering, compactions among them, as Hudi counts."""
    moved = replace_commits(table.storage, folder.snapshot.moving_files)
    last = max((one.instant.completion or "" for one in moved if one.operation_type == CLUSTER), default="")
    return sum((found.completion or "") > last for found in folder.snapshot.writes)


def _is_ours(plan: ClusteringPlan) -> bool:
    return plan.extra.get(_PLAN_KEY) == _PLAN_OF_BUCKETS


def _columns_of(params: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in params.get(SORT_COLUMNS, "").split(",") if name)


def _order_of(params: Mapping[str, str]) -> str:
    """The order of a plan's rows as one text."""
    return f"{params.get(LAYOUT, LINEAR)}:{','.join(_columns_of(params))}"
