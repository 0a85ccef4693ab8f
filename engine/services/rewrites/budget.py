"""What a table's rewriting that nobody asked for has come to on a day, as its plans say: each repeats the day's sum."""

from __future__ import annotations

from itertools import islice

from lakelatch.engine.services.counters import pending_plans
from lakelatch.engine.services.rewrites.compaction_choice import IO_MB
from lakelatch.engine.services.service import ServiceContext
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.actions import CLUSTERING, COMPLETED_ACTIONS
from lakelatch.timeline.instant import REQUESTED, requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_plan
from lakelatch.timeline.metadata import CompactionPlan
from lakelatch.timeline.plans.clustering_plan import ClusteringPlan
from lakelatch.timeline.snapshot import Snapshot

#: In plans that nobody asked for: the bytes that those of the same day, this one included, read and write.
SPENT = "lakelatch.rewrite.spent"
_PLANS_MAX = 20  # plans that were asked for say nothing of a sum, and are passed over


def spent_today(context: ServiceContext, action: str, snapshot: Snapshot) -> int:
    """The bytes that plans of this service have come to since midnight (UTC) by this machine's clock.

    A plan that was cancelled counts no more. Costs a read of the newest plan of the day, if there is one.
    """
    storage = context.table.storage
    midnight = to_instant(context.manager.context.system.realtime_ms())[:8] + "0" * 9
    whole = WholeTimeline.load(storage, snapshot)
    done = whole.completed((COMPLETED_ACTIONS[action],), after=midnight)
    times = {*(one.requested for one in done), *pending_plans(snapshot, action)}
    writes = {one for one in times if snapshot.of(one) and not _has_plan(snapshot, one, action)}  # overwrites, say
    today = sorted((time for time in times - writes if time >= midnight), reverse=True)
    sums = (spent_until(storage, action, time) for time in today)
    return next((found for found in islice(sums, _PLANS_MAX) if found is not None), 0)


def spent_until(storage: Storage, action: str, instant: str) -> int | None:
    """The sum that a plan says; None if there is no such plan, or it was asked for."""
    plan = _plan_of(storage, action, instant)
    said = None if plan is None else plan.extra.get(SPENT)
    return None if said is None else int(said)


def unasked_bytes(storage: Storage, action: str, instant: str) -> int | None:
    """The bytes that a plan reads and writes; None if there is no such plan, or it was asked for."""
    plan = _plan_of(storage, action, instant)
    if plan is None or SPENT not in plan.extra:
        return None
    parts = plan.groups if isinstance(plan, ClusteringPlan) else plan.operations
    return round(sum(one.metrics.get(IO_MB, 0.0) for one in parts) * 1024 * 1024)


def _has_plan(snapshot: Snapshot, instant: str, action: str) -> bool:
    return any(one.state == REQUESTED and one.action == action for one in snapshot.of(instant))


def _plan_of(storage: Storage, action: str, instant: str) -> ClusteringPlan | CompactionPlan | None:
    plan = requested(instant, action)
    try:
        data = read_plan(storage, plan)
    except NotFound:
        return None
    kind = ClusteringPlan if action == CLUSTERING else CompactionPlan
    return kind.from_avro(data, plan.path)
