"""Cancelling a plan: `request_cancel` decides that it will not commit, whole or in part; `execute_cancel` ends it.

Both are events of the commit log. Of a request and the plan's own completion the first slot wins, and a request cannot
be withdrawn. The steps of the end, which any process may take, and repeat from the first:

1. the plan's claim: one process is at work, and a live executor is not disturbed.
2. the names of its outputs: tombstones, or freed. Before the slot, and never after it: an archiver frees them a day
   later, and an empty base file that is older than the active timeline would count.
3. the slot, whose file is the terminal state and repeats the plan.
4. its inflight and requested file, under the table's lock, in which foreign writers look for them.
5. if the terminal state is gone by now, others have freed the names since: then the tombstones of step 2 go.
6. the claim, so that its tasks stop, and the markers.
7. its other files: those that came late, and other engines'.
8. the requests; that for the whole plan last, so that after a crash it shows that there is work left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import stopped_on_error
from lakelatch.storage.checksums import checksummed_json
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.instant import ABORTED, COMPLETED, Instant, aborted, inflight, requested
from lakelatch.timeline.log.events import ABORT, CANCEL, Event
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, ServicePlan, read_aborted_plan, service_plan
from lakelatch.transactions.attempts.attempt import run, table_lock
from lakelatch.transactions.attempts.claims import beat_of, clean_up, make_heartbeat, release_claim, take_claim
from lakelatch.transactions.attempts.fate import find_ended
from lakelatch.transactions.attempts.intent import Deciding, Place
from lakelatch.transactions.base.cancel_requests import CancelRequest, forget_requests, request_of
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import GivenUp

_NAMED = 3  # file groups in a message
_log = logging.getLogger("lakelatch.transactions")


class PlanCompleted(InvalidRequest):
    """The plan has completed first, so it cannot be cancelled any more."""


class PlanGone(InvalidRequest):
    """There is no such plan on the timeline, or not any more: a restore has taken it away."""


@dataclass(frozen=True)
class PlanOutputs:
    """The paths that any executor of a plan may give its files.

    Each of `tombstones` gets an empty file for good, so that no late request makes one. Those in `removed` must be
    free: a base file among file slices that are read would hide log files from Java's readers, even if it is empty and
    belongs to no commit.
    """

    tombstones: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


OutputsOf: TypeAlias = Callable[[ServicePlan], PlanOutputs]


# -- the request ------------------------------------------------------------------------------------------------------


def request_cancel(
    context: TransactionContext,
    instant: str,
    groups: Iterable[FileGroup] | None = None,
    by_executor: bool = False,
) -> CancelRequest | None:
    """Cancels a plan, or its part on these file groups; returns all that is requested by then, None if it was aborted.

    Once this has returned, the plan can never commit (in that part). It cannot be withdrawn. `by_executor`: its
    executor may give up an immutable plan, too.

    Errors: `PlanCompleted` if it has completed; `PlanGone` for an instant that is not there; `InvalidRequest` for one
    that is no plan, for an immutable plan, for file groups that are not in it and for a part of one that goes whole or
    not at all; `CommitUnknown`, after which it may have been requested or not.
    """
    part = None if groups is None else frozenset(groups)
    operation_id, writer = context.system.new_id(), context.writer

    def decide(place: Place) -> Event | GivenUp[CancelRequest | None]:
        found = _find_plan(context, instant)
        if found.state == ABORTED:
            return GivenUp(None)
        plan = _plan_to_cancel(context.storage, found, by_executor)
        asked = request_of(context.storage, instant, plan.action)
        wanted = _part_to_cancel(plan, part)
        whole = not wanted or (asked is not None and not asked.whole and asked.groups | wanted == plan.groups)
        if asked is not None and (asked.whole or (not whole and asked.covers(wanted))):
            return GivenUp(asked)
        event_groups = frozenset() if whole else wanted
        values = {"action": plan.action, "writer": writer, "file_groups": sorted(event_groups)}
        content = checksummed_json(values)  # for its path, as soon as that is known
        return Event(CANCEL, plan.action, instant, operation_id, writer, event_groups, instant, content)

    event = run(context, Deciding(decide, above=instant))
    if isinstance(event, GivenUp):
        return event.why
    failpoint("cancel.after_request")
    return request_of(context.storage, instant, event.action) or CancelRequest(instant, event.action, event.file_groups)


def _plan_to_cancel(storage: Storage, pending: Instant, by_executor: bool) -> ServicePlan:
    """The plan of a pending instant that may be cancelled. Errors: see `request_cancel`."""
    instant, action = pending.requested, pending.action
    if action not in REWRITING_SERVICES:
        raise InvalidRequest(
            f"{instant} is a {action}, which is no plan: only {', '.join(REWRITING_SERVICES)} can be cancelled"
        )
    path = requested(instant, action).path
    try:
        plan = service_plan(storage.read(path), instant, action, path)
    except NotFound:
        raise PlanGone(
            f"{action} {instant} was taken off the timeline a moment ago, by a restore or by another engine: "
            "nothing of it is left that could be cancelled",
            instant=instant,
        ) from None
    if not plan.policy.cancellable and not by_executor:
        raise InvalidRequest(
            f"{action} {instant} is immutable: it was not scheduled as cancellable, so it waits until it is carried out"
        )
    return plan


def _part_to_cancel(plan: ServicePlan, part: Collection[FileGroup] | None) -> frozenset[FileGroup]:
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


# -- the end ----------------------------------------------------------------------------------------------------------


def execute_cancel(context: TransactionContext, instant: str, outputs_of: OutputsOf) -> bool:
    """Ends a plan whose cancellation was requested; False if it had ended already, and then what is left of it goes.

    Also False if a restore removes the plan meanwhile, with all that it has made.

    Errors: `PlanBusy` while a live process works on the plan, or on this; `PlanCompleted` if a foreign writer has
    completed it, which then stands; `PlanGone` for an instant that is not there; `InvalidRequest` if the whole of it
    was not requested to be cancelled.
    """
    tail, _ = context.look()
    context.log.ensure_same_locks(tail)
    try:
        found = _find_plan(context, instant)
    except PlanCompleted:
        forget_requests(context.storage, instant)
        raise
    if found.state == ABORTED:
        _tidy_up(context, found, outputs_of)
        return False
    _ensure_requested(context.storage, found)
    operation_id = context.system.new_id()
    heartbeat = make_heartbeat(context, instant, beat_of(context, operation_id, tail.number))
    busy = "is cancelled, and a live process still works on it: it stops at its next check"
    take_claim(context, heartbeat, found, busy)
    try:
        with stopped_on_error(heartbeat):
            heartbeat.start()
            failpoint("cancel.after_claim")
            tombstones = _abort(context, found, operation_id, outputs_of)
    except LakelatchError:
        release_claim(context, instant, operation_id)  # so that the next caller need not wait until it counts as dead
        raise
    heartbeat.stop()
    return _tidy_up(context, aborted(instant, found.action), outputs_of, tombstones)


def sweep_aborted(context: TransactionContext, plan: ServicePlan, outputs_of: OutputsOf) -> None:
    """Removes the files of a plan that was aborted, also another engine's; its tombstones stay."""
    storage = context.storage
    _remove_files(storage, plan, {path for path in outputs_of(plan).tombstones if _is_empty(storage, path)})


def remove_tombstones(storage: Storage, plan: ServicePlan) -> None:
    """Frees the names of an aborted plan, once no late request for them can come any more.

    It must be done before the aborted instant leaves the timeline: readers count all files that are older than the
    timeline. So nothing is put here, not even for a moment: if another archiver has freed the names and has gone on, no
    process would remove it.
    """
    _remove_files(storage, plan)


def _abort(context: TransactionContext, pending: Instant, operation_id: str, outputs_of: OutputsOf) -> tuple[str, ...]:
    """Takes steps 2 to 4; returns its tombstones. Errors: `PlanCompleted` if a foreign writer came first."""
    storage, writer, instant, action = context.storage, context.writer, pending.requested, pending.action
    plan_file, outputs, data = requested(instant, action), PlanOutputs(), b""
    try:
        data = storage.read(plan_file.path)
    except NotFound:  # it has ended, or a restore has taken it away
        pass
    else:
        outputs = outputs_of(service_plan(data, instant, action, plan_file.path))
        failpoint("cancel.before_files")
        _sweep(storage, outputs)  # only names of ours: a foreign executor may yet complete it under names of its own
        failpoint("cancel.after_files")
    with table_lock(context) as lease:

        def decide(place: Place) -> Event | GivenUp[Instant | None]:
            ended = find_ended(context, instant)
            if ended is not None or not data or not place.snapshot.has(plan_file):
                return GivenUp(ended)
            return Event(ABORT, action, instant, operation_id, writer, frozenset(), instant, data)

        event = run(context, Deciding(decide, above=instant), lease)
        if isinstance(event, GivenUp) and event.why is not None and event.why.state == COMPLETED:
            _free(storage, event.why, outputs)
            forget_requests(storage, instant)
            raise _completed(event.why)
        failpoint("cancel.after_aborted")
        for left in (inflight(instant, action), plan_file):
            storage.delete(left.path)
    failpoint("cancel.after_plan_gone")
    return outputs.tombstones


def _tidy_up(
    context: TransactionContext, over: Instant, outputs_of: OutputsOf, tombstones: Collection[str] = ()
) -> bool:
    """Takes steps 4 to 8; False if the terminal state is gone. `tombstones`: those that this call has put before."""
    storage, instant = context.storage, over.requested
    try:
        plan = read_aborted_plan(storage, over)
    except NotFound:  # a restore or an archiver has taken it away since, and its files before it
        for path in tombstones:
            storage.delete(path)
        clean_up(context, instant)
        forget_requests(storage, instant)
        return False
    for left in (inflight(instant, plan.action), requested(instant, plan.action)):
        storage.delete(left.path)
    clean_up(context, instant)
    failpoint("cancel.after_claim_gone")
    sweep_aborted(context, plan, outputs_of)
    failpoint("cancel.after_sweep")
    forget_requests(storage, instant)
    return True


def _find_plan(context: TransactionContext, instant: str) -> Instant:
    """The pending or aborted instant of this requested time. Errors: `PlanCompleted`, `PlanGone`."""
    found = find_ended(context, instant)
    if found is not None and found.state == COMPLETED:
        raise _completed(found)
    found = found or next((one for one in context.snapshot.pending if one.requested == instant), None)
    if found is None:
        raise PlanGone(f"there is no instant {instant!r} on the timeline: see `lakelatch timeline`")
    return found


def _completed(done: Instant) -> PlanCompleted:
    return PlanCompleted(
        f"{done.action} {done.requested} completed at {done.completion}, and what has completed cannot be cancelled: "
        "roll it back if it must go. If parts of it were cancelled before, they were left out",
        instant=done.requested,
    )


def _ensure_requested(storage: Storage, pending: Instant) -> None:
    instant, action = pending.requested, pending.action
    asked = request_of(storage, instant, action)
    if asked is None or not asked.whole:
        part = "" if asked is None else f" as a whole, only for {len(asked.groups)} of its file groups"
        raise InvalidRequest(
            f"there is no request to cancel {action} {instant}{part}: request that first (`lakelatch cancel request`), "
            "or carry the plan out, which leaves alone what is cancelled of it"
        )


# -- files ------------------------------------------------------------------------------------------------------------


def _sweep(storage: Storage, outputs: PlanOutputs) -> None:
    for path in outputs.tombstones:
        if not _is_empty(storage, path):  # a put more than is needed may arrive late, when the names are freed
            storage.put(path, b"")
    for path in outputs.removed:
        storage.delete(path)


def _remove_files(storage: Storage, plan: ServicePlan, kept: Collection[str] = ()) -> None:
    for partition in sorted({partition for partition, _ in plan.groups}):
        for name in storage.list(partition).files:
            if plan.instant in name and path_below(partition, name) not in kept:
                storage.delete(path_below(partition, name))


def _is_empty(storage: Storage, path: str) -> bool:
    try:
        return storage.stat(path).size_bytes == 0
    except NotFound:
        return False


def _free(storage: Storage, completed: Instant, outputs: PlanOutputs) -> None:
    """Removes the tombstones again: a foreign writer has committed the instant that they belong to."""
    try:
        named = {stat.path for stat in CommitMetadata.read(storage, completed.path).stats}
        for path in set(outputs.tombstones) - named:
            storage.delete(path)
    except LakelatchError as error:
        _log.warning("tombstones of %s are left: %s", completed.requested, error)
