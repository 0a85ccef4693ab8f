"""Plans that can be cancelled, for tests: of file groups that are called `a`, `b`, ..., with files that they fix."""

from __future__ import annotations

from collections.abc import Sequence

from one_table import Table

from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.metadata import CommitMetadata, CompactionOperation, CompactionPlan, WriteStat
from lakelatch.timeline.plans.clustering_plan import ClusteringGroup, ClusteringPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.transactions.attempts.cancellation import PlanOutputs, execute_cancel, request_cancel
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

CANCELLABLE = PlanPolicy(cancellable=True, after_hours=24.0, in_part=True, planned_against="1")
WHOLE_ONLY = PlanPolicy(cancellable=True, after_hours=24.0, planned_against="1")
IMMUTABLE = PlanPolicy(planned_against="1")
FOREIGN = PlanPolicy()


def outputs_of(plan: ServicePlan) -> PlanOutputs:
    """The file that each group of a plan becomes. A compaction's names have to stay free."""
    names = tuple(output(plan.instant, group) for _, group in sorted(plan.groups))
    return PlanOutputs(removed=names) if plan.action == COMPACTION else PlanOutputs(tombstones=names)


def output(instant: str, group: str) -> str:
    return f"{group}_new_{instant}.parquet"


def schedule(
    manager: TransactionManager, *groups: str, policy: PlanPolicy = CANCELLABLE, action: str = CLUSTERING
) -> str:
    def build(_: object) -> bytes:
        if action == CLUSTERING:
            inside = tuple(ClusteringGroup("", group, None, ()) for group in groups)
            return ClusteringPlan(inside, extra=policy.to_extra()).to_avro()
        operations = tuple(CompactionOperation("", group, "1", None, ()) for group in groups)
        return CompactionPlan(operations, policy.to_extra()).to_avro()

    plan = manager.schedule(build, action)
    assert plan is not None
    return plan


def make_files(table: Table, execution: Transaction, *groups: str) -> None:
    """What an executor's tasks do."""
    for group in groups:
        table.storage.put_if_absent(output(execution.instant, group), b"rows")


def finish(execution: Transaction, groups: Sequence[str], dropped: Sequence[str] = ()) -> Committed:
    """The commit of an executor: what was made takes the place of the groups, and of dropped ones nothing does."""
    stats = tuple(WriteStat("", f"{group}_new", output(execution.instant, group)) for group in groups)
    replaced = (*groups, *(f"{group}_new" for group in dropped))
    if execution.state.action == COMPACTION:
        return execution.commit(CommitMetadata(stats, "COMPACT", compacted=True))
    return execution.commit(CommitMetadata(stats, "CLUSTER", replaced={"": replaced}))


def request(manager: TransactionManager, plan: str, *groups: str) -> object:
    return request_cancel(manager.context, plan, [("", group) for group in groups] if groups else None)


def execute(manager: TransactionManager, plan: str) -> bool:
    return execute_cancel(manager.context, plan, outputs_of)
