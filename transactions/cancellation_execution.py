"""Carrying a cancellation out: what a plan has left behind goes, it gets its terminal state, and the request goes.

Each step can be done again by anybody, so whoever finds one half done begins at the first. One caller at a time is at
it: the plan's own claim says so, which its executor beats on as well; a live one of those is not disturbed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import stopped_on_error
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.log.events import ABORT, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.plans.service_plan import ServicePlan, read_aborted_plan, service_plan
from lakelatch.timeline.timeline import COMPLETED, Instant, aborted, inflight, requested
from lakelatch.transactions.attempt import Deciding, run, table_lock
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.cancellation_requests import (
    PlanCompleted,
    PlanGone,
    find_ended,
    forget_requests,
    request_of,
)
from lakelatch.transactions.claims import PlanBusy, beat_of, clean_up, make_heartbeat, release_claim

_log = logging.getLogger("lakelatch.transactions")


@dataclass(frozen=True)
class PlanOutputs:
    """The paths that a plan's executors may give their files, whoever they are.

    Of `tombstones` each gets an empty file for good, so that no late request makes one. Those that
    are `removed` must be free: a base file among file slices that are read would hide log files from Java's readers,
    even if it is empty and belongs to no commit.
    """

    tombstones: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


OutputsOf: TypeAlias = Callable[[ServicePlan], PlanOutputs]


def execute_cancel(context: TransactionContext, instant: str, outputs_of: OutputsOf) -> bool:
    """Ends a plan whose cancellation was asked for; False if it had ended already, and then what was left of it goes.

    Also False if a restore takes the plan off the timeline meanwhile, and with it all that it has made.

    Errors: `PlanBusy` while a live process works on the plan, or on this; `PlanCompleted` if a foreign writer has
    completed it, which then stands; `PlanGone` for an instant that is not there; `InvalidRequest` where nobody has
    asked for the whole of it to be cancelled.
    """
    tail = context.log.tail()
    context.log.ensure_same_locks(tail)
    context.log.project(tail)
    context.folder.refresh(tail.number)
    ended = find_ended(context, instant)
    if ended is not None and ended.state == COMPLETED:
        raise _completed(context, ended)
    if ended is not None:
        tidy_up(context, ended, outputs_of)
        return False
    pending = next((one for one in context.folder.pending() if one.requested == instant), None)
    if pending is None:
        raise PlanGone(f"there is no instant {instant!r} on the timeline: see `lakelatch timeline`")
    asked = request_of(context.storage, instant, pending.action)
    if asked is None or not asked.whole:
        part = "" if asked is None else f" but for {len(asked.groups)} of its file groups"
        raise InvalidRequest(
            f"nobody has asked to cancel {pending.action} {instant}{part and ' as a whole,' + part}: "
            + ("carry it out, and they are left alone" if part else "ask for it first (`lakelatch cancel request`)")
        )
    operation_id = context.system.new_id()
    heartbeat = make_heartbeat(context, instant, beat_of(context, operation_id, tail.number))
    if not heartbeat.claim():
        if instant not in context.observer.dead([instant]):
            raise PlanBusy(
                f"{pending.action} {instant} is cancelled, and a live process still works on it: it stops when it looks"
            )
        heartbeat.take_over()
    try:
        with stopped_on_error(heartbeat):
            heartbeat.start()
            failpoint("cancel.after_claim")
            over = _abort(context, pending, operation_id, outputs_of)
    except LakelatchError:
        release_claim(context, instant, operation_id)  # so that the next caller need not wait until it counts as dead
        raise
    heartbeat.stop()
    if over is None:
        _forget(context, instant)
        return False
    tidy_up(context, over, outputs_of)
    return True


def tidy_up(context: TransactionContext, over: Instant, outputs_of: OutputsOf) -> None:
    """Removes what an aborted plan has left, whoever left it; the request goes last, so that a crash leaves that."""
    try:
        plan = read_aborted_plan(context.storage, over)
    except NotFound:  # a restore or an archiver has taken it away since, and its files before it
        _forget(context, over.requested)
        return
    for left in (inflight(plan.instant, plan.action), requested(plan.instant, plan.action)):
        context.storage.delete(left.path)
    clean_up(context, plan.instant)  # bars its tasks
    failpoint("cancel.after_claim_gone")
    sweep_aborted(context, plan, outputs_of)
    failpoint("cancel.after_sweep")
    forget_requests(context.storage, plan.instant)


def sweep_aborted(context: TransactionContext, plan: ServicePlan, outputs_of: OutputsOf) -> None:
    """Removes the files of a plan that was aborted, also another engine's; the tombstones that bar its names stay.

    None is put: they were there before its terminal state. So whoever comes to this late, even after a pause of days,
    bars no name that an archiver has freed; an empty base file that is older than the active timeline would count.
    """
    _remove_files(context, plan, {path for path in outputs_of(plan).tombstones if _is_empty(context, path)})


def remove_tombstones(context: TransactionContext, plan: ServicePlan) -> None:
    """Frees the names of an aborted plan, once no late request for them can come any more.

    It must have been done before the aborted instant leaves the timeline: readers count whatever is older than it. So
    nothing is put here, not even for a moment: if another archiver has freed the names and has gone on, who would
    take that away?
    """
    _remove_files(context, plan)


def _remove_files(context: TransactionContext, plan: ServicePlan, spared: Collection[str] = ()) -> None:
    for partition in sorted({partition for partition, _ in plan.groups}):
        for name in context.storage.list(partition).files:
            if plan.instant in name and path_below(partition, name) not in spared:
                context.storage.delete(path_below(partition, name))


def _abort(context: TransactionContext, pending: Instant, operation_id: str, outputs_of: OutputsOf) -> Instant | None:
    """Gives a plan its terminal state; None if the plan was taken away. Errors: `PlanCompleted` if a foreign writer was
    faster."""
    instant, action = pending.requested, pending.action
    path = requested(instant, action).path
    try:
        data = context.storage.read(path)
    except NotFound:
        return _ended_meanwhile(context, pending)
    plan = service_plan(data, instant, action, path)
    outputs = outputs_of(plan)
    failpoint("cancel.before_files")
    _sweep(context, outputs)  # only names of ours: a foreign executor may yet complete it under names of its own
    failpoint("cancel.after_files")
    with table_lock(context) as lease:

        def decide(tail: Tail) -> Event | GivenUp[Instant | None]:
            context.folder.refresh(tail.number, tail.listing)
            ended = find_ended(context, instant)
            if ended is not None or not context.folder.has(requested(instant, action)):
                return GivenUp(ended)
            return Event(
                ABORT, action, instant, operation_id, context.writer, target=instant, content=data, token=lease.token
            )

        event = run(context, Deciding(decide, above=instant), lease)
        ended = event.why if isinstance(event, GivenUp) else aborted(instant, action)
        if ended is not None and ended.state == COMPLETED:
            _free(context, ended, outputs)
            raise _completed(context, ended)
        failpoint("cancel.after_aborted")
        for left in (inflight(instant, action), requested(instant, action)):
            context.storage.delete(left.path)  # under the lock, in which foreign writers look for them
    failpoint("cancel.after_plan_gone")
    if not context.storage.exists(aborted(instant, action).path):  # others have ended it, and freed its names since
        for path in outputs.tombstones:
            context.storage.delete(path)
        return None
    return ended


def _ended_meanwhile(context: TransactionContext, pending: Instant) -> Instant | None:
    """The terminal state of a plan whose file has gone since, None if it has none. Errors: `PlanCompleted`."""
    context.folder.refresh(context.log.tail_number())
    ended = find_ended(context, pending.requested)
    if ended is not None and ended.state == COMPLETED:
        raise _completed(context, ended)
    return ended


def _forget(context: TransactionContext, instant: str) -> None:
    """Removes the claim and the requests of a plan of which nothing else is left."""
    clean_up(context, instant)
    forget_requests(context.storage, instant)


def _sweep(context: TransactionContext, outputs: PlanOutputs) -> None:
    for path in outputs.tombstones:
        if not _is_empty(context, path):  # a put more than is needed may arrive late, when the names are freed
            context.storage.put(path, b"")
    for path in outputs.removed:
        context.storage.delete(path)


def _is_empty(context: TransactionContext, path: str) -> bool:
    try:
        return context.storage.stat(path).size_bytes == 0
    except NotFound:
        return False


def _free(context: TransactionContext, completed: Instant, outputs: PlanOutputs) -> None:
    """Takes the tombstones away again: a foreign writer has committed the instant that they belong to."""
    try:
        named = {stat.path for stat in CommitMetadata.read(context.storage, completed.path).stats}
        for path in set(outputs.tombstones) - named:
            context.storage.delete(path)
    except LakelatchError as error:
        _log.warning("tombstones of %s are left: %s", completed.requested, error)


def _completed(context: TransactionContext, completed: Instant) -> PlanCompleted:
    forget_requests(context.storage, completed.requested)
    return PlanCompleted(
        f"{completed.action} {completed.requested} has completed, so nothing of it is cancelled any more: what was "
        "asked for in part was left out, and another engine does not ask at all",
        instant=completed.requested,
    )
