"""Clustering: file groups are rewritten with their rows in another order, each as one file of the same bucket.

In a table without a record key, which has no buckets, small files are joined, and each set of them becomes one file.

It is planned at one slot of the log, and any process may execute it later: the plan determines names and content, as
for a compaction. It completes as a replace commit, so later writers write to the new file groups.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.engine.options.table_services.clustering import ClusteringOptions
from lakelatch.engine.options.table_services.compaction import KEEP_DELETES
from lakelatch.engine.read.forgotten_deletes import ForgottenDeletes
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.cancelling import tidy_cancelled
from lakelatch.engine.services.counters import Counters, has_so_many, last_requested
from lakelatch.engine.services.rewrites.clustering_commit import (
    Clustered,
    ClusteringCommit,
    Place,
    is_cancel_requested,
    place_of,
    touched_since,
)
from lakelatch.engine.services.rewrites.compaction import CompactTask, slice_of
from lakelatch.engine.services.rewrites.joining import joined, small_files
from lakelatch.engine.services.rewrites.rewriting import (
    Execution,
    Made,
    Operations,
    RewritingService,
    busy_groups,
    operations_on,
)
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.tasks.base_file import SORTED_GROUP_ROWS
from lakelatch.errors import InvalidRequest, LakelatchError, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.bucket_index import bucket_of_file_id, successor_of
from lakelatch.format.file_groups import replace_commits
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.slice import merge_in_base_order
from lakelatch.format.merge.stream import in_another_order
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.sorting.row_order import LINEAR, check_columns, order_of
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import CLUSTER, CLUSTERING, COMMIT, COMPACTION, REPLACE_COMMIT
from lakelatch.timeline.instant import requested
from lakelatch.timeline.metadata import CommitMetadata, CompactionOperation, CompactionPlan, FileGroup, WriteStat
from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS, ClusteringGroup, ClusteringPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.cancellation import request_cancel
from lakelatch.transactions.attempts.checks import Check
from lakelatch.transactions.attempts.claims import release_claim
from lakelatch.transactions.base.outcome import PlanCancelled, Staged
from lakelatch.transactions.conflicts.report import record_loss

_log = logging.getLogger("lakelatch.engine")
_SORTED_BY = "lakelatch.clustered.by"  # in a clustering's commit: how the rows of its files are sorted
_SETS = "lakelatch.clustered.together"  # how many operations become one file group each, one set after the other
_PLAN_KEY = "lakelatch.clustering"  # in plans of ours: of what
_PLAN_OF_BUCKETS, _PLAN_OF_FILES = "buckets", "files"


@dataclass(frozen=True)
class Clustering(RewritingService):
    """Replaces file groups by successors with sorted rows. It is due after `commits` writes."""

    options: ClusteringOptions = field(default_factory=ClusteringOptions)
    cancellation: CancellationOptions = field(default_factory=CancellationOptions)
    commits: int = 4

    action, operation, before_commit = CLUSTERING, CLUSTER, "cluster.before_commit"
    leaves_after = (*PlannedService.leaves_after, WriteConflict)

    def due(self, counters: Counters) -> bool:
        """Whether `commits` writes completed since the last clustering, and none waits."""
        if counters.waiting(CLUSTERING):
            return False
        ours = {one for one in counters.completed(REPLACE_COMMIT) if counters.has_plan(one, CLUSTERING)}
        last = last_requested(ours)
        others = (one for one in counters.completed_after(last, REPLACE_COMMIT) if one not in ours)
        of_rows = (one for one in counters.completed_after(last, COMMIT) if not counters.has_plan(one, COMPACTION))
        return has_so_many(chain(counters.deltas_after(last), others, of_rows), self.commits)

    def check(self, table: OpenedTable) -> None:
        self.options.check_buckets(table.config.bucket_count)
        check_columns(table.schema, self.options.columns, SORT_COLUMNS)

    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        table, options = context.table, self.options
        if options.least_commits and _writes_since_clustering(table, snapshot) < options.least_commits:
            return None
        view = TableView.load(table.storage, table.config)
        busy = busy_groups(table.storage, snapshot)
        if table.config.appends_only:
            sets = islice(
                small_files(view, busy, options.chosen(view.partitions()), options.small_bytes), options.groups_max
            )
            return self.plan_of(view, chain.from_iterable(map(joined, sets)), snapshot)
        return self.plan_of(view, _due(view, busy, options), snapshot)

    def plan_of(
        self,
        view: TableView,
        groups: Iterable[ClusteringGroup],
        snapshot: Snapshot,
        more: Mapping[str, str] | None = None,
    ) -> bytes | None:
        """The plan of these groups; None if there are none."""
        found = tuple(groups)
        if not found:
            return None
        view.ensure_whole({one.partition for one in found})
        # Never empty: a plan without it is taken for another engine's.
        policy = self.cancellation.policy_of(
            CLUSTERING, planned_against=snapshot.latest_completion or snapshot.latest_time
        )
        kind = _PLAN_OF_FILES if view.config.appends_only else _PLAN_OF_BUCKETS
        extra = {_PLAN_KEY: kind, KEEP_DELETES: "true", **policy.to_extra(), **(more or {})}
        return ClusteringPlan(found, self.options.params(), extra, view.storage.uri).to_avro()

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether the plan exists and is ours; Java's are left to Java."""
        try:
            return _is_ours(ClusteringPlan.read(context.table.storage, requested(instant, CLUSTERING).path))
        except NotFound:
            return False

    def read(self, storage: Storage, instant: str) -> CompactionPlan:
        """The plan as tasks take it, with the order of rows, and what is joined, in its extra metadata."""
        path = requested(instant, CLUSTERING).path
        plan = ClusteringPlan.read(storage, path)
        if not _is_ours(plan):
            raise InvalidRequest(f"{path} is the plan of another engine: let that engine execute it")
        sizes = ",".join(str(len(groups)) for groups in plan.sets())
        return CompactionPlan(tuple(map(_operation_of, plan.groups)), {**plan.params, **plan.extra, _SETS: sizes})

    def wanted(self, view: TableView, operations: Operations) -> Operations:
        """All operations: each task checks its own, and the commit decides."""
        return operations

    def task(self, plan: CompactionPlan, table: OpenedTable, instant: str, times: Mapping[str, str]) -> ClusterTask:
        places = (place_of((one.partition, one.file_id)) for one in plan.operations)
        return ClusterTask(
            table=table,
            instant=instant,
            completions=times,
            keep_deletes=plan.extra.get(KEEP_DELETES) == "true",
            columns=_columns_of(plan.extra),
            layout=plan.extra.get(LAYOUT, LINEAR),
            together=frozenset() if PlanPolicy.of(plan.extra).in_part else frozenset(places),
            sets=tuple(_sets_of(plan)),
        )

    def staged(self, run: Execution, metadata: CommitMetadata, made: Made) -> tuple[Staged, tuple[Check, ...]]:
        extra, in_part = run.plan.extra, PlanPolicy.of(run.plan.extra).in_part
        metadata = replace(metadata, extra={**metadata.extra, _SORTED_BY: _order_of(extra)})
        stats = {(one.partition, one.file_id): found for one, found in made}
        clustered = tuple(
            Clustered(
                operations, _target_of(operations, run.instant), stats[operations[0].partition, operations[0].file_id]
            )
            for operations in _sets_of(run.plan)
        )
        commit = ClusteringCommit(run.context.table.storage, run.instant, metadata, clustered, in_part)
        return Staged(metadata, commit.work), (commit.check,)

    def give_up(self, run: Execution, error: BaseException) -> None:
        """Ends a plan that lost to a conflict or was cancelled, as cancelled, so that its names get tombstones.

        If that fails, the next executor, or the next clean, does it.
        """
        if not isinstance(error, WriteConflict | PlanCancelled):
            super().give_up(run, error)
            return
        manager, instant = run.context.manager, run.instant
        run.transaction.release()
        release_claim(manager.context, instant, run.transaction.state.operation_id)
        try:
            if isinstance(error, WriteConflict):
                record_loss(manager.storage, manager.writer, error, manager.context.conflict_labels)
                request_cancel(manager.context, instant, by_executor=True)
                failpoint("cluster.after_given_up")
            tidy_cancelled(manager, instant)
        except LakelatchError as failed:
            _log.warning("clustering %s is left to the next executor: %s", instant, failed.message)


@dataclass(frozen=True)
class ClusterTask(CompactTask):
    """The task of a clustering: of each set, it makes one file for the first operation.

    `together` are the places that must all be untouched if the plan cannot be executed in part; empty if it can.
    """

    service = "clustering"
    group_rows = SORTED_GROUP_ROWS

    columns: tuple[str, ...] = ()
    layout: str = LINEAR
    together: frozenset[Place] = frozenset()
    sets: tuple[Operations, ...] = ()

    def target_of(self, operation: CompactionOperation) -> str:
        """The successor's file id, which follows from the plan's instant: all executors make the same file."""
        return successor_of(operation.file_id, self.instant)

    def run_all(self, executor: Executor, operations: Operations) -> list[FileReport]:
        return super().run_all(executor, tuple(found[0] for found in self.sets))

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`. None also for a group that was written to since, or cancelled."""
        groups = [(one.partition, one.file_id) for one in self._set_of(operation)]
        storage = self.table.storage
        touched = touched_since(storage, self.instant)
        if not touched.isdisjoint(self.together or set(map(place_of, groups))):
            return None
        if any(is_cancel_requested(storage, self.instant, group) for group in groups):
            return None
        return super().run(operation)

    def merged(self, operation: CompactionOperation) -> Iterator[Merged]:
        """The merged rows in the plan's order; equal ones by record key, unless the base file was sorted otherwise.

        Those of a table without a record key keep the order of their files.
        """
        table = self.table
        if not self.columns and not table.config.appends_only:
            return super().merged(operation)
        parts = chain.from_iterable(
            merge_in_base_order(table.storage, slice_of(one), table.full_schema, table.config, self.completions)
            for one in self._set_of(operation)
        )
        if not self.columns:
            return parts
        return in_another_order(parts, self.columns, partial(order_of, columns=self.columns, layout=self.layout))

    def _set_of(self, operation: CompactionOperation) -> Operations:
        return next(found for found in self.sets if found[0] == operation)

    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
        """The commit's entries for the files of one new file group; the base file is its first."""
        *kept, base = super().stats(report, operation)
        return (*kept, replace(base, previous_commit=None, num_inserts=base.num_writes))


def _sets_of(plan: CompactionPlan) -> Iterator[Operations]:
    """The operations by the file group that they become."""
    operations = iter(plan.operations)
    for size in map(int, plan.extra[_SETS].split(",")):
        yield tuple(islice(operations, size))


def _target_of(operations: Operations, instant: str) -> FileGroup:
    return operations[0].partition, successor_of(operations[0].file_id, instant)


def _due(view: TableView, busy: Collection[FileGroup], options: ClusteringOptions) -> Iterator[ClusteringGroup]:
    """The file groups worth clustering: small enough, in no waiting plan, and not sorted this way already."""
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
    """The plan's entry for a slice; None if it has only tombstones."""
    (operation,) = operations_on(view, [found])
    if operation.base_file is None and not operation.delta_files:
        return None
    base_mb = view.storage.stat(found.base_path).size_bytes / 1024 / 1024 if found.base_path is not None else 0.0
    metrics = {**operation.metrics}
    for name in ("TOTAL_IO_MB", "TOTAL_IO_READ_MB"):
        metrics[name] = metrics[name] + base_mb
    return ClusteringGroup(operation.partition, operation.file_id, operation.base_file, operation.delta_files, metrics)


def _operation_of(group: ClusteringGroup) -> CompactionOperation:
    """The operation of a task on a planned file group."""
    names = (*group.delta_files, *([group.base_file] if group.base_file else ()))
    instants = [file.instant for file in map(parse_data_file, names) if file is not None]
    base = parse_data_file(group.base_file) if group.base_file else None
    instant = base.instant if base is not None else min(instants, default="")
    return CompactionOperation(group.partition, group.file_id, instant, group.base_file, group.delta_files)


def _writes_since_clustering(table: OpenedTable, snapshot: Snapshot) -> int:
    """The number of writes completed since the last clustering, including compactions, as Hudi counts."""
    moved = replace_commits(table.storage, snapshot.moving)
    last = max((one.instant.completion or "" for one in moved if one.operation_type == CLUSTER), default="")
    return sum((found.completion or "") > last for found in snapshot.writes)


def _is_ours(plan: ClusteringPlan) -> bool:
    return plan.extra.get(_PLAN_KEY) in (_PLAN_OF_BUCKETS, _PLAN_OF_FILES)


def _columns_of(params: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in params.get(SORT_COLUMNS, "").split(",") if name)


def _order_of(params: Mapping[str, str]) -> str:
    """The order of a plan's rows as one text."""
    return f"{params.get(LAYOUT, LINEAR)}:{','.join(_columns_of(params))}"
