"""Cancelling plans of table services: any process may request it, and any process, or a clean, carries it out."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakelatch.errors import LakelatchError
from lakelatch.format.bucket_index import successor_of
from lakelatch.format.merge.column_groups import kept_deletes_name
from lakelatch.format.names import kept_deletes_file, planned_base_file
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.instant import Instant, parse_file_name, requested_time
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, ServicePlan, read_aborted_plan
from lakelatch.transactions.attempts import cancellation
from lakelatch.transactions.attempts.cancellation import PlanCompleted, PlanGone, PlanOutputs
from lakelatch.transactions.attempts.claims import PlanBusy
from lakelatch.transactions.base.cancel_requests import (
    CancelRequest,
    cancel_requests,
    forget_requests,
    is_cancelled,
    plan_of,
)
from lakelatch.transactions.manager import TransactionManager

_log = logging.getLogger("lakelatch.services")


def request_cancel(
    manager: TransactionManager, instant: str, groups: Iterable[FileGroup] | None = None
) -> CancelRequest | None:
    """Decides that a plan will not commit, whole or in part; see `cancellation.request_cancel`."""
    return cancellation.request_cancel(manager.context, instant, groups)


def execute_cancel(manager: TransactionManager, instant: str) -> bool:
    """Ends a plan whose cancellation was requested; see `cancellation.execute_cancel`."""
    return cancellation.execute_cancel(manager.context, instant, outputs_of)


def open_requests(manager: TransactionManager) -> list[CancelRequest]:
    """Requests that are not carried out yet, by the plans' requested times; removes those of plans that are gone."""
    context = manager.context
    found = cancel_requests(context.storage)  # first, so that the plans of all of them are on the timeline below
    if not found:
        return []
    _, snapshot = context.look()
    still = {one.requested for one in (*snapshot.pending, *snapshot.aborted)}
    for one in found:
        if one.instant not in still:
            forget_requests(context.storage, one.instant)
    return [one for one in found if one.instant in still]


def execute_open(manager: TransactionManager) -> list[str]:
    """Carries out each open cancellation of a whole plan; returns the instants that it ended.

    Plans that a live process executes are left to it, and to the next call.
    """
    ended = []
    for request in open_requests(manager):
        is_over = any(one.requested == request.instant for one in manager.snapshot.aborted)
        if not request.whole and not is_over:  # one of an ended plan came late, and is removed
            continue  # the plan's executor leaves that part out
        try:
            if execute_cancel(manager, request.instant):
                ended.append(request.instant)
        except (PlanBusy, PlanCompleted, PlanGone) as error:
            _log.info("%s", error.message)
    return ended


def tidy_cancelled(manager: TransactionManager, instant: str) -> None:
    """For an executor that gave its plan up: if it was cancelled, ends it now, or leaves that to the next clean."""
    try:
        if is_cancelled(manager.storage, instant):
            execute_cancel(manager, instant)
    except LakelatchError as error:
        _log.warning("the cancelled plan %s is left to the next clean: %s", instant, error.message)


def past_policy(manager: TransactionManager, least_age_ms: int = 0) -> list[ServicePlan]:
    """Pending plans that are past their cancellation policy, oldest first; a clean cancels them.

    Plans that a live process executes are not among them, nor those younger than `least_age_ms`.
    """
    context = manager.context
    _, snapshot = context.look()
    pending = [one for one in snapshot.pending if one.action in REWRITING_SERVICES]
    if not pending:
        return []
    now_ms = context.observer.storage_time_ms()
    beating = set(context.observer.instants())
    alive = beating.difference(context.observer.dead(sorted(beating & {one.requested for one in pending})))
    found = []
    for one in pending:
        plan = plan_of(context.storage, one)
        if plan is None or one.requested in alive:
            continue
        age_ms = now_ms - to_ms(one.requested)
        if age_ms >= least_age_ms and plan.policy.is_past(age_ms, _instants_since(manager, one)):
            found.append(plan)
    return found


def aborted_plans(manager: TransactionManager) -> list[ServicePlan]:
    """Cancelled plans that are still on the timeline, oldest first."""
    _, snapshot = manager.context.look()
    found = []
    for over in snapshot.aborted:
        try:
            found.append(read_aborted_plan(manager.storage, over))
        except NotFound:  # an archiver has removed it since
            continue
    return found


def sweep_aborted(manager: TransactionManager, plan: ServicePlan) -> None:
    """Removes late files of a cancelled plan. A base file of a cancelled compaction would hide rows from Java."""
    cancellation.sweep_aborted(manager.context, plan, outputs_of)


def outputs_of(plan: ServicePlan) -> PlanOutputs:
    """The names that our executors give the files of a plan; files of other engines are found by their instant.

    A clustering's files begin new file groups, so their names get tombstones. A compaction's lie in live file groups,
    and are removed.
    """
    groups = sorted(plan.groups)
    if plan.action == CLUSTERING:
        begun = [(partition, successor_of(file_id, plan.instant)) for partition, file_id in groups]
        return PlanOutputs(tombstones=_names(begun, plan.instant))
    return PlanOutputs(removed=_names(groups, plan.instant)) if plan.action == COMPACTION else PlanOutputs()


def _names(groups: Iterable[FileGroup], instant: str) -> tuple[str, ...]:
    return tuple(
        path_below(partition, name)
        for partition, file_id in groups
        for name in (
            planned_base_file(partition, file_id, instant).name,
            kept_deletes_file(partition, file_id, instant).name,
            kept_deletes_name(file_id, instant),
        )
    )


def _instants_since(manager: TransactionManager, plan: Instant) -> int:
    """How many instants have been requested since a plan was, in any state."""
    later = {requested_time(name) for name in manager.snapshot.names if name > plan.requested}
    return sum(parse_file_name(f"{one}.inflight") is not None for one in later - {plan.requested})
