"""Whether a transaction has ended: by an event of the log, by another engine, or because nobody can know any more."""

from __future__ import annotations

from lakelatch.errors import TransactionEnded
from lakelatch.timeline.actions import RESTORE, WRITE_ACTIONS
from lakelatch.timeline.instant import ABORTED, COMPLETED, Instant, inflight, is_completed, requested_time
from lakelatch.timeline.log.events import ABORT, CANCEL, COMPLETE, PLAN, ROLLBACK, Event
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.claims import owns_claim
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import Ended, PlanCancelled


def ended(context: TransactionContext, state: TransactionState, place: Place) -> Ended | None:
    """What has ended a transaction by this place in the log; None if nothing has. Errors: `LogMoved`."""
    snapshot, tail = place.snapshot, place.tail
    own = snapshot.of(state.instant)
    if any(one.completion is not None and one.file_name not in state.mark.names for one in own):
        return _completed_elsewhere(state)
    owned = owns_claim(context, state.instant, state.operation_id) if place.owned is None else place.owned
    if state.mark.slot + 1 < tail.watermark or not owned:
        return _ended(state, "its heartbeat was missed for too long, or its table was replaced")
    if not snapshot.has(inflight(state.instant, state.action)):
        return _ended(state, "its inflight file is gone")
    for event in context.log.events_after(state.mark.slot, tail):
        found = _ended_by(event, state)
        if found is not None:
            return found
    foreign_restore = _pending_foreign_restore(context, snapshot)
    if foreign_restore and state.action != RESTORE:
        return _overtaken(state, f"restore {foreign_restore} of another engine is under way, or was left unfinished")
    planned = state.action not in WRITE_ACTIONS  # which others may have begun, and rolled back, before
    undoers = snapshot.undoers - snapshot.late
    foreign = context.log.projections.rollback_of(state.instant, undoers, pending_only=planned, beginning=True)
    if foreign:
        return _ended(state, f"rollback {foreign} of another engine, which takes no slots, aborted it")
    return None


def find_ended(context: TransactionContext, instant: str) -> Instant | None:
    """The completed or aborted instant of this requested time, in the context's snapshot or in the history."""
    snapshot = context.snapshot
    ended = [one for one in snapshot.of(instant) if one.state in (COMPLETED, ABORTED)]
    if ended:  # a savepoint of a commit has its time, and completed later
        return min(ended, key=lambda one: (one.state == ABORTED, one.completion))
    archived = find_archived(context.storage, snapshot.names, instant)
    return None if archived is None else archived.instant


def _ended_by(event: Event, state: TransactionState) -> Ended | None:
    if event.target == state.instant and (event.kind == ABORT or (event.kind == CANCEL and not event.file_groups)):
        return Ended(PlanCancelled.of(state.action, state.instant))
    if event.kind == COMPLETE and event.instant == state.instant:
        return _completed_elsewhere(state)
    if event.kind == ROLLBACK and event.target == state.instant:
        return _ended(state, f"rollback {event.instant} by {event.writer} aborted it")
    if event.action == RESTORE and event.kind == PLAN:
        return _overtaken(state, f"restore {event.instant} by {event.writer} has taken the table back")
    return None


def _pending_foreign_restore(context: TransactionContext, snapshot: Snapshot) -> str:
    """The requested time of a restore that takes no slots and has not completed, or "". Ours have a claim until then.

    Its instants go one after the other, and what is committed meanwhile may stand on one that is still to go.
    """
    names = [name for name in snapshot.undoers - snapshot.late if f".{RESTORE}" in name]
    done = {requested_time(name) for name in names if is_completed(name)}
    pending = sorted(set(map(requested_time, names)) - done)
    return next((restore for restore in pending if context.observer.beat_of(restore) is None), "")


def _completed_elsewhere(state: TransactionState) -> Ended:
    return _over(state, f"{state.action} {state.instant} was completed by another process first: nothing is left to do")


def _overtaken(state: TransactionState, why: str) -> Ended:
    return _over(
        state,
        f"transaction {state.instant} cannot be committed any more ({why}), and nothing of it is visible: what it was "
        "based on may be gone, so read the table again and begin a new one",
    )


def _ended(state: TransactionState, why: str) -> Ended:
    return _over(
        state,
        f"transaction {state.instant} was ended by others ({why}), and nothing of it is visible: begin a new one. If "
        "this writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
    )


def _over(state: TransactionState, message: str) -> Ended:
    return Ended(TransactionEnded(message, instant=state.instant))
