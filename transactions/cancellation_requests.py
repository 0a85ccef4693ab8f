"""Asking for a plan to be cancelled, whole or in part, and finding what was asked for.

A request is an event of the commit log, so its place there decides against the plan's own completion: whichever slot
comes first wins. Its file in `.hoodie/.cancel` is the projection of the slot, and what others look for: it is there
before any later slot is, and stays until the plan has ended. Nobody can take a request back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.log.events import CANCEL, CANCEL_FOLDER, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, ServicePlan, read_service_plan, service_plan
from lakelatch.timeline.timeline import COMPLETED, Instant, TimelineFolder, parse_file_name, requested
from lakelatch.transactions.attempt import Deciding, run, table_lock
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import GivenUp

_NAMED = 3  # file groups in a message


class PlanCompleted(InvalidRequest):
    """The plan has completed first, so it cannot be cancelled any more."""


class PlanGone(InvalidRequest):
    """There is no such plan on the timeline, or not any more: a restore has taken it away."""


@dataclass(frozen=True)
class CancelRequest:
    """What was asked for of one plan. `groups` is the part that is called off, and empty for the whole plan."""

    instant: str
    action: str
    groups: frozenset[FileGroup] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether nothing of the plan may be carried out any more."""
        return not self.groups

    def covers(self, groups: Collection[FileGroup]) -> bool:
        """Whether the plan will replace none of these file groups."""
        return self.whole or self.groups.issuperset(groups)


def request_cancel(
    context: TransactionContext,
    instant: str,
    groups: Iterable[FileGroup] | None = None,
    by_executor: bool = False,
) -> CancelRequest | None:
    """Calls a plan off, or its part on these file groups; what is asked for by then, None if it was aborted already.

    Once this has returned, the plan can never commit (in that part). It cannot be taken back. Its executor may give up
    an immutable plan, too.

    Errors: `PlanCompleted` if it has completed; `PlanGone` for an instant that is not there; `InvalidRequest` for one
    that is no plan, for an immutable plan, for file groups that are not in it and for a part of one that goes whole or
    not at all; `CommitUnknown`, after which it may have been asked for or not.
    """
    part = None if groups is None else frozenset(groups)
    operation_id = context.system.new_id()

    def decide(tail: Tail) -> Event | GivenUp[CancelRequest | None]:
        context.folder.refresh(tail.number, tail.listing)
        plan = _plan_to_cancel(context, instant, by_executor)
        if plan is None:
            return GivenUp(None)
        asked = request_of(context.storage, instant, plan.action)
        wanted = part_to_cancel(plan, part)
        whole = not wanted or (asked is not None and not asked.whole and asked.groups | wanted == plan.groups)
        if asked is not None and (asked.whole or (not whole and asked.covers(wanted))):
            return GivenUp(asked)
        event_groups = frozenset() if whole else wanted
        values = {"action": plan.action, "writer": context.writer, "file_groups": sorted(event_groups)}
        return Event(
            CANCEL,
            plan.action,
            instant,
            operation_id,
            context.writer,
            file_groups=event_groups,
            target=instant,
            content=checksummed_json(values),  # for its path, as soon as that is known
            token=lease.token,
        )

    with table_lock(context) as lease:
        event = run(context, Deciding(decide, above=instant), lease)
    if isinstance(event, GivenUp):
        return event.why
    failpoint("cancel.after_request")
    return request_of(context.storage, instant, event.action) or CancelRequest(instant, event.action, event.file_groups)


def part_to_cancel(plan: ServicePlan, part: Collection[FileGroup] | None) -> frozenset[FileGroup]:
    """The part of a plan that a request for these file groups is about, empty for all. Errors: `InvalidRequest`."""
    if part is None or (plan.groups and plan.groups == frozenset(part)):
        return frozenset()
    wanted = frozenset(part)
    if not wanted:
        raise InvalidRequest(f"no file group of {plan.action} {plan.instant} was named: name some, or cancel the whole")
    strange = sorted(f"{partition or '.'}/{file_id}" for partition, file_id in wanted - plan.groups)
    if strange:
        raise InvalidRequest(f"{plan.action} {plan.instant} has no file group {', '.join(strange[:_NAMED])}")
    if not plan.policy.in_part:
        raise InvalidRequest(
            f"{plan.action} {plan.instant} is cancelled whole or not at all, by its own policy: name no file groups"
        )
    return wanted


def requests(storage: Storage, folder: TimelineFolder | None = None) -> list[CancelRequest]:
    """What was asked for and is not carried out yet, by the plans' requested times. One listing where there is none.

    With a folder only those of plans that are pending in it; others are left over, and are removed by and by.
    """
    names: dict[str, list[str]] = {}
    for name in storage.names(CANCEL_FOLDER):
        names.setdefault(name.partition("_")[0], []).append(name)
    pending = None if folder is None else {one.requested for one in folder.pending()}
    found = (_read(storage, instant, inside) for instant, inside in sorted(names.items()))
    return [one for one in found if one is not None and (pending is None or one.instant in pending)]


def request_of(storage: Storage, instant: str, action: str) -> CancelRequest | None:
    """What was asked for of one plan, None for nothing.

    At a place in the log (after the tail's projection is complete) that is all that was ever asked for before it.
    """
    names = [name for name in storage.names(CANCEL_FOLDER) if name.partition("_")[0] == instant]
    if instant in names:
        return CancelRequest(instant, action)
    return _read(storage, instant, names)


def is_cancelled(storage: Storage, instant: str) -> bool:
    """Whether the whole of a plan was called off; cheap, for those who are at work on it. True stays true."""
    return storage.exists(f"{CANCEL_FOLDER}/{instant}")


def forget_requests(storage: Storage, instant: str) -> None:
    """Removes the files of what was asked for, once the plan has ended. The whole's goes last: it bars executors."""
    names = [name for name in storage.names(CANCEL_FOLDER) if name.partition("_")[0] == instant]
    for name in sorted(names, reverse=True):
        storage.delete(f"{CANCEL_FOLDER}/{name}")


@lru_cache(maxsize=1024)  # a plan never changes, and each commit beside it reads it
def _cached_plan(storage: Storage, instant: str, action: str) -> ServicePlan:
    return read_service_plan(storage, instant, action)


def plan_of(storage: Storage, pending: Instant) -> ServicePlan | None:
    """The plan of a pending instant; None if it has gone since."""
    try:
        return _cached_plan(storage, pending.requested, pending.action)
    except NotFound:
        return None


def find_ended(context: TransactionContext, instant: str) -> Instant | None:
    """The completed or aborted instant of this requested time, in the context's folder or in the history."""
    for done in context.folder.completed_since(frozenset()):
        if done.requested == instant:
            return done
    for over in context.folder.aborted():
        if over.requested == instant:
            return over
    archived = find_archived(context.storage, context.folder.names, instant)
    return None if archived is None else archived.instant


def _plan_to_cancel(context: TransactionContext, instant: str, by_executor: bool) -> ServicePlan | None:
    """The plan of a pending instant that may be cancelled, None if it was aborted. Errors: see `request_cancel`."""
    ended = find_ended(context, instant)
    if ended is not None and ended.state == COMPLETED:
        raise PlanCompleted(
            f"{ended.action} {instant} completed at {ended.completion}, and what has completed cannot be cancelled: "
            "roll it back if it must go",
            instant=instant,
        )
    if ended is not None:
        return None
    pending = next((one for one in context.folder.pending() if one.requested == instant), None)
    if pending is None:
        raise PlanGone(f"there is no instant {instant!r} on the timeline: see `lakelatch timeline`")
    if pending.action not in REWRITING_SERVICES:
        raise InvalidRequest(
            f"{instant} is a {pending.action}, which is no plan: only {', '.join(REWRITING_SERVICES)} can be cancelled"
        )
    path = requested(instant, pending.action).path
    try:
        plan = service_plan(context.storage.read(path), instant, pending.action, path)
    except NotFound:
        raise PlanGone(
            f"{pending.action} {instant} was taken off the timeline a moment ago, by a restore or by another engine: "
            "nothing of it is left that could be cancelled",
            instant=instant,
        ) from None
    if not plan.policy.cancellable and not by_executor:
        raise InvalidRequest(
            f"{pending.action} {instant} is immutable: it was not scheduled as cancellable, so it waits until somebody "
            "carries it out"
        )
    return plan


def _read(storage: Storage, instant: str, names: Collection[str]) -> CancelRequest | None:
    if not names or parse_file_name(f"{instant}.inflight") is None:
        return None
    action, groups, whole = "", frozenset[FileGroup](), False
    for name in names:
        path = f"{CANCEL_FOLDER}/{name}"
        try:
            values = open_checksummed_json(storage.read(path), path)
        except NotFound:
            continue
        if values is None:
            raise CorruptTable(f"{path} is no request to cancel a plan: remove it, and ask again", path=path)
        action = str(values["action"])
        whole = whole or name == instant
        groups |= {(str(partition), str(file_id)) for partition, file_id in values["file_groups"]}
    return CancelRequest(instant, action, frozenset() if whole else groups) if action else None
