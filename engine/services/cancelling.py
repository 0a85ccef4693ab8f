"""Cancelling plans of table services: asked for by anybody, carried out by anybody, and by each clean."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakelatch.errors import LakelatchError
from lakelatch.format.bucket_index import bucket_of_file_id, successor_file_id
from lakelatch.format.merge.column_groups import kept_deletes_name
from lakelatch.format.names import kept_deletes_file, planned_base_file
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.instant import Instant, parse_file_name, requested_time
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, ServicePlan, read_aborted_plan
from lakelatch.transactions import cancellation_execution as execution
from lakelatch.transactions import cancellation_requests as requests
from lakelatch.transactions.cancellation_execution import PlanOutputs
from lakelatch.transactions.cancellation_requests import CancelRequest, PlanCompleted, PlanGone
from lakelatch.transactions.claims import PlanBusy
from lakelatch.transactions.manager import TransactionManager

_log = logging.getLogger("lakelatch.services")


def request_cancel(
    manager: TransactionManager, instant: str, groups: Iterable[FileGroup] | None = None
) -> CancelRequest | None:
    """See `requests.request_cancel`."""
    return requests.request_cancel(manager.context, instant, groups)


def execute_cancel(manager: TransactionManager, instant: str) -> bool:
    """See `execution.execute_cancel`."""
    return execution.execute_cancel(manager.context, instant, outputs_of)


def open_requests(manager: TransactionManager) -> list[CancelRequest]:
    """What was asked for and is not carried out yet, by the plans' requested times; what is left over goes."""
    context = manager.context
    found = requests.requests(context.storage)  # first, so that the plans of all of them are on the timeline below
    if not found:
        return []
    manager.context.look()
    still = {one.requested for one in (*context.snapshot.pending, *context.snapshot.aborted)}
    for one in found:
        if one.instant not in still:
            requests.forget_requests(context.storage, one.instant)
    return [one for one in found if one.instant in still]


def execute_open(manager: TransactionManager) -> list[str]:
    """Carries out each cancellation of a whole plan that is open; returns the instants that have ended with that.

    What a live process is at work on is left to it, and to the next call.
    """
    ended = []
    for request in open_requests(manager):
        is_over = any(one.requested == request.instant for one in manager.snapshot.aborted)
        if not request.whole and not is_over:  # else it came late, and goes
            continue  # whoever carries the plan out leaves that part alone
        try:
            if execute_cancel(manager, request.instant):
                ended.append(request.instant)
        except (PlanBusy, PlanCompleted, PlanGone) as error:
            _log.info("%s", error.message)
    return ended


def tidy_cancelled(manager: TransactionManager, instant: str) -> None:
    """For an executor that has given its plan up: if that was cancelled, carries it out, now or with the next clean."""
    try:
        if requests.is_cancelled(manager.storage, instant):
            execute_cancel(manager, instant)
    except LakelatchError as error:
        _log.warning("the cancelled plan %s is left to the next clean: %s", instant, error.message)


def past_policy(manager: TransactionManager, least_age_ms: int = 0) -> list[ServicePlan]:
    """Pending plans that wait for longer than they say that they may, oldest first; a cleaner cancels them.

    A plan that a live process works on is not among them, nor one that is younger than `least_age_ms`.
    """
    context = manager.context
    manager.context.look()
    pending = [one for one in context.snapshot.pending if one.action in REWRITING_SERVICES]
    if not pending:
        return []
    now_ms = context.observer.storage_time_ms()
    beating = set(context.observer.instants())
    alive = beating.difference(context.observer.dead(sorted(beating & {one.requested for one in pending})))
    found = []
    for one in pending:
        plan = requests.plan_of(context.storage, one)
        if plan is None or one.requested in alive:
            continue
        age_ms = now_ms - to_ms(one.requested)
        if age_ms >= least_age_ms and plan.policy.is_past(age_ms, _instants_since(manager, one)):
            found.append(plan)
    return found


def aborted_plans(manager: TransactionManager) -> list[ServicePlan]:
    """The plans that were cancelled and are still on the timeline, oldest first."""
    manager.context.look()
    found = []
    for over in manager.snapshot.aborted:
        try:
            found.append(read_aborted_plan(manager.storage, over))
        except NotFound:  # an archiver has taken it away since
            continue
    return found


def sweep_aborted(manager: TransactionManager, plan: ServicePlan) -> None:
    """Removes what came late for a cancelled plan. A base file of a cancelled compaction hides rows from Java."""
    execution.sweep_aborted(manager.context, plan, outputs_of)


def remove_tombstones(manager: TransactionManager, plan: ServicePlan) -> None:
    """See `execution.remove_tombstones`: before a cancelled plan leaves the timeline, a day after its end or later."""
    execution.remove_tombstones(manager.context, plan)


def outputs_of(plan: ServicePlan) -> PlanOutputs:
    """The names that our executors give the files of a plan; other engines' are found by their instant.

    A clustering begins file groups in which there is nothing else, so its names get tombstones. A compaction's lie
    among files that are read.
    """
    if plan.action == CLUSTERING:
        names = []
        for partition, file_id in sorted(plan.groups):
            bucket = bucket_of_file_id(file_id)
            if bucket is not None:
                names += _names(partition, successor_file_id(bucket, plan.instant), plan.instant)
        return PlanOutputs(tombstones=tuple(names))
    if plan.action == COMPACTION:
        removed = (
            name for partition, file_id in sorted(plan.groups) for name in _names(partition, file_id, plan.instant)
        )
        return PlanOutputs(removed=tuple(removed))
    return PlanOutputs()


def _names(partition: str, file_id: str, instant: str) -> list[str]:
    names = (
        planned_base_file(partition, file_id, instant).name,
        kept_deletes_file(partition, file_id, instant).name,
        kept_deletes_name(file_id, instant),
    )
    return [path_below(partition, name) for name in names]


def _instants_since(manager: TransactionManager, plan: Instant) -> int:
    """How many instants have been requested since a plan was, whatever has become of them."""
    later = {requested_time(name) for name in manager.snapshot.names if name > plan.requested}
    return sum(parse_file_name(f"{one}.inflight") is not None for one in later - {plan.requested})
