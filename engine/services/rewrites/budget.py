"""What a table's rewriting that nobody asked for has come to on a day, as its plans say: each repeats the day's sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite

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
_PLANS_OF_A_DAY = 1440
_DIGITS_MAX = 20
_ROUNDED_BYTES = 4096  # by which the sizes of a plan's parts may differ from their sum


@dataclass(frozen=True)
class _Unasked:
    """A plan that nobody asked for: its own bytes, and the day's sum that it says, None for what is no number."""

    own: int
    said: int | None


def spent_today(context: ServiceContext, action: str, snapshot: Snapshot) -> int:
    """The bytes that plans of this service have come to since midnight (UTC) by this machine's clock.

    A plan that was cancelled counts no more. Costs a read of the two newest plans of the day, if there are so many: a
    sum that is not the one before and the plan's own bytes, as after a cancellation, or of a damaged plan, is not
    believed, and those of all plans are added.
    """
    storage = context.table.storage
    midnight = to_instant(context.manager.context.system.realtime_ms())[:8] + "0" * 9
    whole = WholeTimeline.load(storage, snapshot)
    done = whole.completed((COMPLETED_ACTIONS[action],), after=midnight)
    times = {*(one.requested for one in done), *pending_plans(snapshot, action)}
    writes = {one for one in times if snapshot.of(one) and not _has_plan(snapshot, one, action)}  # overwrites, say
    today = sorted((time for time in times - writes if time >= midnight), reverse=True)
    read = partial(_read_unasked, storage, action)
    last = list(islice((found for found in map(read, today[:_PLANS_MAX]) if found is not None), 2))
    if not last:
        return 0
    said = last[0].said
    before = last[1].said if len(last) > 1 else 0 if len(today) <= _PLANS_MAX else None
    if said is not None and (before is None or abs(said - before - last[0].own) <= _ROUNDED_BYTES):
        return said
    return sum(found.own for found in map(read, today[:_PLANS_OF_A_DAY]) if found is not None)


def unasked_bytes(storage: Storage, action: str, instant: str) -> int | None:
    """The bytes that a plan reads and writes; None if there is no such plan, or it was asked for."""
    found = _read_unasked(storage, action, instant)
    return None if found is None else found.own


def _read_unasked(storage: Storage, action: str, instant: str) -> _Unasked | None:
    """None if there is no such plan, or it was asked for."""
    plan = _plan_of(storage, action, instant)
    text = None if plan is None else plan.extra.get(SPENT)
    if plan is None or text is None:
        return None
    parts = plan.groups if isinstance(plan, ClusteringPlan) else plan.operations
    sizes = (float(one.metrics.get(IO_MB) or 0) for one in parts)
    own = round(sum(size for size in sizes if isfinite(size) and size > 0) * 1024 * 1024)
    return _Unasked(own, int(text) if text.isdecimal() and len(text) < _DIGITS_MAX else None)


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
