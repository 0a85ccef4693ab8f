"""Compactions that were planned as cancellable, and called off."""

from __future__ import annotations

from live_table import LiveTable

from lakelatch.engine.services.cancelling import execute_cancel, request_cancel
from lakelatch.engine.services.rewrites.rewriting import due_operations, view_at
from lakelatch.engine.table.opening import open_table
from lakelatch.timeline.metadata import CompactionPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.snapshot import Snapshot


def cancelled_compaction(table: LiveTable) -> str:
    """The requested time of a compaction that has ended as aborted."""

    def build(snapshot: Snapshot) -> bytes:
        operations = tuple(due_operations(view_at(open_table(table.storage), snapshot), snapshot, 1))
        return CompactionPlan(operations, PlanPolicy(cancellable=True, after_hours=24).to_extra()).to_avro()

    manager = table.manager()
    plan = manager.schedule(build)
    assert plan is not None
    request_cancel(manager, plan)
    assert execute_cancel(manager, plan)
    return plan
