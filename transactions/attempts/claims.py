"""Claims: the heartbeat files by which transactions own their instants, and the files that are removed with them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import LEASE, Beat, heartbeat_path, task_beats_folder
from lakelatch.heartbeat.lease_beat import LeaseHeartbeat
from lakelatch.storage.contract import SupportsDeleteAtOnce
from lakelatch.system import own_version
from lakelatch.telemetry import TAKEN, TAKEOVERS, record
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.base.after_claim import was_used
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.early.notes import forget_notes
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.files import MARKERS_FOLDER, marker_of

_log = logging.getLogger("lakelatch.transactions")


class PlanBusy(Unavailable):
    """Another live process carries out this plan."""


def beat_of(context: TransactionContext, operation_id: str, start_slot: int) -> Beat:
    """The content of an operation's heartbeat."""
    return Beat(context.writer, operation_id, start_slot, context.settings.heartbeat, version=own_version())


def make_heartbeat(context: TransactionContext, instant: str, beat: Beat) -> Heartbeat:
    """A heartbeat of the kind that the settings name; it neither claims nor beats yet."""
    if context.settings.heartbeat_type == LEASE:
        return LeaseHeartbeat(context.storage, instant, beat, context.provider)
    return Heartbeat(context.storage, instant, beat, context.system)


def heartbeat_of(context: TransactionContext, state: TransactionState) -> Heartbeat:
    """The heartbeat of a transaction that has begun."""
    return make_heartbeat(context, state.instant, beat_of(context, state.operation_id, state.mark.slot))


class Claim(NamedTuple):
    """A requested time that is claimed for an operation, whose heartbeat names the slot after which it begins.

    `announced` are the paths of files whose markers are there already.
    """

    instant: str
    heartbeat: Heartbeat
    operation_id: str
    start_slot: int
    announced: tuple[str, ...] = ()


def claim_time(context: TransactionContext, floor: str, start_slot: int) -> Claim:
    """Claims a requested time above this one, for a new operation."""
    operation_id = context.system.new_id()
    instant, heartbeat = context.clock.claim(
        floor,
        beat_of(context, operation_id, start_slot),
        None,
        partial(make_heartbeat, context),
        by_own_clock=context.elision.allowed,
    )
    return Claim(instant, heartbeat, operation_id, start_slot)


def is_over(context: TransactionContext, instant: str, start_slot: int, tail: Tail) -> bool:
    """Whether markers under a claimed time may go: the log is later, and nobody has used that time, nor ever will.

    Who is given it all the same, and claims it now, finds the log later before anything is written. Of a time that was
    used a rollback may be under way, which finds the files by their markers.
    """
    return tail.time >= instant and not was_used(context.log, instant, start_slot, tail)


def give_back(context: TransactionContext, claim: Claim, tail: Tail | None = None, withdrawn: bool = False) -> None:
    """Gives a claim up under which nothing was written. Raises nothing.

    It is removed if it was `withdrawn` in the log, or if that is later by its `tail`. Else it stays, as that of a
    writer that has died, until a recovery finds it: others may be given its time, and a removal that arrives twice
    would take away the claim of whoever has it then.
    """
    claim.heartbeat.stop()
    if not withdrawn and (tail is None or tail.time < claim.instant):
        return
    try:
        if not claim.announced:
            context.storage.delete(heartbeat_path(claim.instant))
        elif withdrawn or (tail is not None and is_over(context, claim.instant, claim.start_slot, tail)):
            clean_up(context, claim.instant, announced=claim.announced)
    except LakelatchError as error:
        _log.warning("could not give the time %s back, which the next recovery does: %s", claim.instant, error)


def take_claim(
    context: TransactionContext,
    heartbeat: Heartbeat,
    plan: Instant,
    busy: str = "is being carried out by another process: wait for it",
) -> None:
    """Claims a plan for this heartbeat, or takes it over from a process that died.

    Errors: `PlanBusy`, with the text `busy`, while another live process has it.
    """
    if not heartbeat.claim():
        if plan.requested not in context.observer.dead([plan.requested]):
            raise PlanBusy(f"{plan.action} {plan.requested} {busy}", instant=plan.requested)
        heartbeat.take_over()
        record(TAKEOVERS, 1, {**context.labels, TAKEN: plan.action})


def owns_claim(context: TransactionContext, instant: str, operation_id: str) -> bool:
    """Whether an instant is claimed, and by this very operation."""
    beat = context.observer.beat_of(instant)
    return beat is not None and beat.operation_id == operation_id


def release_claim(context: TransactionContext, instant: str, operation_id: str, unused: bool = False) -> None:
    """Releases a claim on a plan, unless another process has taken it over. `unused`: nothing was written under it."""
    try:
        if owns_claim(context, instant, operation_id):
            if unused:
                context.storage.delete(heartbeat_path(instant))
            else:
                clean_up(context, instant)
    except Unavailable as error:
        _log.warning("could not release the claim on %s: %s", instant, error)


def clean_up(
    context: TransactionContext,
    instant: str,
    noted: bool = False,
    announced: Iterable[str] | None = None,
    record: str | None = None,
) -> None:
    """Removes the claim of an ended instant, so that its tasks stop, and its markers, notes and `record`.

    `announced`: paths of all its data files, from its owner, whose tasks have all returned; that saves requests. Later
    announcements of abandoned attempts are removed by the next recovery.
    """
    storage, claim, folder = context.storage, heartbeat_path(instant), f"{MARKERS_FOLDER}/{instant}"

    records = [] if record is None else [record]

    def remove_markers() -> None:
        storage.delete_folder(folder)
        failpoint("cleanup.after_markers")

    try:
        if announced is None:
            storage.delete(claim)
            storage.delete_folder(task_beats_folder(instant))
            Markers(storage, instant).close_all()
            remove_markers()
            for path in records:
                storage.delete(path)
        if context.settings.early is not None or noted:
            forget_notes(storage, instant)
        if announced is not None and isinstance(storage, SupportsDeleteAtOnce):
            storage.delete_at_once([*(f"{folder}/{marker_of('', path)}" for path in announced), *records, claim])
        elif announced is not None:
            storage.together(remove_markers, *(partial(storage.delete, path) for path in [*records, claim]))
    except (Unavailable, InvalidRequest) as error:  # it has ended all the same; the next recovery removes what is left
        _log.warning("could not clean up after instant %s: %s", instant, error)
