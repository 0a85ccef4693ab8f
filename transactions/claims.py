"""Claims: the heartbeat files by which transactions own their instants, and what goes with them in the end."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from lakelatch.errors import Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import LEASE, Beat, heartbeat_path, task_beats_folder
from lakelatch.heartbeat.lease_beat import LeaseHeartbeat
from lakelatch.storage.contract import SupportsDeleteAtOnce
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.early.notes import forget_notes
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.files import MARKERS_FOLDER, marker_of

_log = logging.getLogger("lakelatch.transactions")


class PlanBusy(Unavailable):
    """Another live process carries out this plan."""


def beat_of(context: TransactionContext, operation_id: str, start_slot: int) -> Beat:
    """What an operation's heartbeat says of it."""
    return Beat(context.writer, operation_id, start_slot, context.settings.heartbeat)


def make_heartbeat(context: TransactionContext, instant: str, beat: Beat) -> Heartbeat:
    """A heartbeat of the kind that the settings name; it neither claims nor beats yet."""
    if context.settings.heartbeat_type == LEASE:
        return LeaseHeartbeat(context.storage, instant, beat, context.provider)
    return Heartbeat(context.storage, instant, beat, context.system)


def heartbeat_of(context: TransactionContext, state: TransactionState) -> Heartbeat:
    """The heartbeat of a transaction that has begun."""
    return make_heartbeat(context, state.instant, beat_of(context, state.operation_id, state.mark.slot))


def owns_claim(context: TransactionContext, instant: str, operation_id: str) -> bool:
    """Whether an instant is claimed, and by this very operation."""
    beat = context.observer.beat_of(instant)
    return beat is not None and beat.operation_id == operation_id


def release_claim(context: TransactionContext, instant: str, operation_id: str) -> None:
    """Releases a claim on a plan, unless another process has taken it over."""
    try:
        if owns_claim(context, instant, operation_id):
            clean_up(context, instant)
    except Unavailable as error:
        _log.warning("could not release the claim on %s: %s", instant, error)


def release_unused(context: TransactionContext, instant: str, operation_id: str) -> None:
    """The same for a claim under which nobody has written anything."""
    try:
        if owns_claim(context, instant, operation_id):
            context.storage.delete(heartbeat_path(instant))
    except Unavailable as error:
        _log.warning("could not release the claim on %s: %s", instant, error)


def clean_up_own(context: TransactionContext, instant: str, data_files: Iterable[str]) -> None:
    """Removes an ended instant's heartbeat and markers, for its owner, who knows all that was announced.

    An attempt that was given up may announce more, which the next recovery removes.
    """
    folder = f"{MARKERS_FOLDER}/{instant}"
    markers = [f"{folder}/{marker_of('', path)}" for path in data_files]

    def remove_markers() -> None:
        context.storage.delete_folder(folder)
        failpoint("cleanup.after_markers")

    try:
        if context.settings.early is not None:
            forget_notes(context.storage, instant)
        if isinstance(context.storage, SupportsDeleteAtOnce):
            context.storage.delete_at_once([*markers, heartbeat_path(instant)])
        else:
            context.storage.together(remove_markers, partial(context.storage.delete, heartbeat_path(instant)))
    except Unavailable as error:
        _log.warning("could not clean up after instant %s: %s", instant, error)


def clean_up(context: TransactionContext, instant: str, noted: bool = False) -> None:
    """Removes an ended instant's heartbeat, which bars its tasks, then its markers, and what was noted of it."""
    try:
        context.storage.delete(heartbeat_path(instant))
        context.storage.delete_folder(task_beats_folder(instant))
        Markers(context.storage, instant).delete()
        failpoint("cleanup.after_markers")
        if context.settings.early is not None or noted:
            forget_notes(context.storage, instant)
    except Unavailable as error:  # it has ended all the same; the next recovery removes what is left
        _log.warning("could not clean up after instant %s: %s", instant, error)
