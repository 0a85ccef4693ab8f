"""Clusterings that wait, or are at work, on the file groups of a write: called off, or in its way.

A write that comes first and a clustering that goes on would lose rows, so one of the two has to yield. A cancellable
plan does: whoever writes asks for that as soon as its file groups are known, and takes no notice of the plan from then
on. An immutable one is to be carried out, and its executor may be one that looks at nobody (Java's), so the write
yields. What has completed is no plan any more, but a write as any other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakelatch.errors import CommitUnknown, InvalidRequest
from lakelatch.timeline.actions import CLUSTER, CLUSTERING, SERVICES_THAT_REPLACE, WRITE_ACTIONS
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.transactions.base.cancel_requests import plan_of, request_of
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.cancellation import request_cancel
from lakelatch.transactions.conflicts.contract import Conflict, Contender, OtherWrite

_log = logging.getLogger("lakelatch.transactions")


@dataclass(frozen=True)
class InTheWay:
    """Cancellable plans on a write's file groups, and the part of each that is to be called off; None for the whole."""

    plans: tuple[tuple[ServicePlan, frozenset[FileGroup] | None], ...]


def plans_in_the_way(context: TransactionContext, contender: Contender) -> InTheWay | Conflict | None:
    """What pending clusterings are to a write at its place in the log; the context's snapshot must be as new.

    Free where no clustering is pending.
    """
    cancellable = []
    for pending in (one for one in context.snapshot.pending if one.action == CLUSTERING):
        plan = plan_of(context.storage, pending) if pending.requested != contender.instant else None
        touched = context.strategy.common(plan.groups, contender.file_groups) if plan is not None else None
        if plan is None or not touched:
            continue
        if not plan.policy.cancellable:
            if _yields_to(context, contender, plan):
                winner = OtherWrite(plan.instant, plan.action, CLUSTER, plan.groups, inflight=True)
                return Conflict(winner, context.strategy.common(contender.file_groups, plan.groups))
            continue
        if contender.action not in WRITE_ACTIONS:  # of two cancellable services, the first to complete wins
            continue
        asked = request_of(context.storage, plan.instant, plan.action)
        if asked is None or not asked.covers(touched):
            cancellable.append((plan, touched if plan.policy.in_part else None))
    return InTheWay(tuple(cancellable)) if cancellable else None


def call_off(context: TransactionContext, in_the_way: InTheWay) -> None:
    """Asks for the cancellation of these plans. Whatever comes of it, the next look at the log knows."""
    for plan, part in in_the_way.plans:
        try:
            request_cancel(context, plan.instant, part)
        except (InvalidRequest, CommitUnknown) as error:
            _log.info("%s %s was not called off: %s", plan.action, plan.instant, error.message)


def _yields_to(context: TransactionContext, contender: Contender, plan: ServicePlan) -> bool:
    """Whether the contender gives way to an immutable plan.

    Under non-blocking control an executor of ours leaves alone what was written since its plan, or gives up, so only
    one of another engine is in the way: it replaces the file group with all that is in it.
    """
    if contender.action in WRITE_ACTIONS:
        return context.settings.mode != NON_BLOCKING or not plan.policy.planned_against
    return contender.action in SERVICES_THAT_REPLACE
