"""Recovery: the next writer takes the steps that dead writers have left undone, the same that the owners take.

| what is left | its steps |
| --- | --- |
| a slot without its file | `CommitLog.look`, first of all, as before each slot |
| a file that came back after a rollback or restore | it is removed, the last completed one first |
| a plan that was cancelled | its pending files are removed; others by `cancellation.execute_cancel`, in a clean |
| a rollback whose process died | `rollback.finish_rollback` |
| a restore whose process died | `restore.finish_restore` |
| a write whose process died | a rollback of it: `rollback.roll_back` |
| a claim, notes or markers without an instant | `claims.clean_up`, if the log has ended it; else a rollback |
| the claim of a plan | it is removed, and the plan stays for its next executor |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lakelatch.errors import CorruptTable, TransactionEnded
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.contract import SupportsSweep
from lakelatch.timeline import actions
from lakelatch.timeline.instant import COMPLETED, Instant, inflight, requested
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.lost_completions import ensure_none_lost
from lakelatch.transactions.attempts.claims import PlanBusy, clean_up
from lakelatch.transactions.attempts.fate import find_ended
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.ready import record_path
from lakelatch.transactions.early.notes import noted_instants
from lakelatch.transactions.markers.direct import Markers, instants_with_markers, open_instants, sweep_file
from lakelatch.transactions.undo.restore import finish_restore
from lakelatch.transactions.undo.rollback import finish_rollback, may_be_beginning, read_plan, roll_back

_STAGED_FOR_S = 86_400.0  # far above any put
_UNKNOWN_ACTION = actions.DELTA_COMMIT  # of an instant that has nothing but its claim


def recover(context: TransactionContext) -> list[str]:
    """Finishes rollbacks whose executor died, rolls back dead writes, and removes what ended ones left behind.

    Errors: `CorruptTable` if what looks dead has completed, as the log says, and its completed file is gone.
    """
    storage = context.storage
    tail, beating, noted, marked = _look_at_all(context)
    snapshot = context.snapshots.take(tail)
    for undone in context.log.projections.undone(context.snapshots.listing):
        storage.delete(undone.path)
    for over in snapshot.aborted:  # a late request has made them, or a crash has left them
        remove_pending_files(context, over)
    pending = snapshot.pending
    on_timeline = {one.requested for one in pending}
    plans = {one.requested for one in pending if one.action in actions.PLANNED_SERVICES}
    suspects = (on_timeline - plans) | ((beating | noted | marked) - on_timeline) | (plans & beating)
    dead = set(context.observer.dead(sorted(suspects)))
    rolled_back = []
    for one in (one for one in pending if one.requested in dead):
        if one.action == actions.ROLLBACK and _is_left(context, one):
            rolled_back += finish_rollback(context, one.requested)
        elif one.action == actions.RESTORE:
            rolled_back += _finish_restore(context, one.requested)
    abortable = [one for one in pending if one.requested in dead and one.action in actions.WRITE_ACTIONS]
    if abortable:  # one of them may have completed, and its completed file was removed
        ensure_none_lost(context.log, tail, since=min(one.requested for one in abortable))
    rolled_back += [one.requested for one in abortable if roll_back(context, one.requested, one.action)]
    left_over = _not_pending(context, dead - on_timeline)
    if left_over:  # again: what others have just ended they are removing themselves
        beating, noted, marked = _look_at_leftovers(context)
    for left in (one for one in left_over if one in beating | noted | marked):
        if left not in noted | marked and not _is_still_dead(context, left):
            continue  # it has been given up since it was listed, and its time may be another one's by now
        if not may_be_beginning(context, left, context.log.tail()):
            bar_unless_completed(context, left, Markers(storage, left).announced())
            clean_up(context, left, left in noted, record=record_path(left) if context.elision.groups else None)
        elif roll_back(context, left, _UNKNOWN_ACTION):
            rolled_back.append(left)
    for plan in context.observer.dead(sorted(dead & plans)):  # asked again: it may have been taken over meanwhile
        storage.delete(heartbeat_path(plan))
    if isinstance(storage, SupportsSweep):
        storage.sweep(_STAGED_FOR_S)
    return rolled_back


def finds_nothing(context: TransactionContext, claims: Collection[str] | None = None) -> bool:
    """Whether nothing is pending but plans, and there is no claim; two listings, and none of leftovers.

    A writer that leaves anything else that matters leaves one of these two as well. `claims` are for a caller that has
    just listed them, and taken a snapshot.
    """
    last = context.log.last
    if last is None:
        return False
    if claims is None:
        context.log.ensure_projected(last)
        claimed = set[str]()
        context.storage.together(
            lambda: claimed.update(context.observer.instants()), lambda: context.snapshots.take(last)
        )
        claims = claimed
    snapshot = context.snapshot
    if claims or snapshot.aborted or any(one.action not in actions.PLANNED_SERVICES for one in snapshot.pending):
        return False
    return not context.log.projections.undone(context.snapshots.listing)


def bar_unless_completed(context: TransactionContext, instant: str, announced: Iterable[str]) -> None:
    """Sweeps the announced files of an instant that has ended without completing.

    Rollbacks of ours have done so before. One of Java's, which takes no slot, may have come before the files did.
    """
    paths = list(announced)
    if not paths:
        return
    context.look()
    ended = find_ended(context, instant)
    if ended is None or ended.state != COMPLETED:
        for path in paths:
            sweep_file(context.storage, path)


def remove_pending_files(context: TransactionContext, over: Instant) -> None:
    """Removes the files of a cancelled plan in progress, as far as the last listing shows them."""
    for left in (inflight(over.requested, over.action), requested(over.requested, over.action)):
        if context.snapshot.has(left):
            context.storage.delete(left.path)


def _look_at_all(context: TransactionContext) -> tuple[Tail, set[str], set[str], set[str]]:
    """The tail with the timeline, and the instants that have a heartbeat, notes, markers or an opening.

    The listings may come in any order: for each suspect the heartbeat is read again, and then the log.
    """
    tail = context.log.tail()
    looked: list[Tail] = []
    leftovers = _look_at_leftovers(context, lambda: looked.append(context.log.look(tail)))
    return looked[0], *leftovers


def _look_at_leftovers(context: TransactionContext, *beside: Callable[[], None]) -> tuple[set[str], set[str], set[str]]:
    """The instants that have a heartbeat, notes, and markers or an opening; other requests are made beside."""
    storage = context.storage
    beating, noted, marked = set[str](), set[str](), set[str]()
    storage.together(
        *beside,
        lambda: beating.update(context.observer.instants()),
        lambda: noted.update(noted_instants(storage)),
        lambda: marked.update(instants_with_markers(storage)),
        lambda: marked.update(open_instants(storage)),
    )
    return beating, noted, marked


def _is_still_dead(context: TransactionContext, instant: str) -> bool:
    """Whether the claim that was listed is still there, and nobody's."""
    return context.observer.beat_of(instant) is not None and bool(context.observer.dead([instant]))


def _is_left(context: TransactionContext, rollback: Instant) -> bool:
    """Whether a rollback's executor is gone. Java's have no heartbeat, so the age of their last file decides."""
    observer = context.observer  # one of ours has a claim until it is completed, and counts as dead
    return observer.beat_of(rollback.requested) is not None or observer.is_silent(rollback.path)


def _finish_restore(context: TransactionContext, restore: str) -> list[str]:
    """The instants that it undoes. Java's have no claim, and stay: only Java knows whether its process lives."""
    if context.observer.beat_of(restore) is None:
        return []
    try:
        return [one.instant for one in finish_restore(context, restore).rollbacks]
    except (PlanBusy, TransactionEnded):  # others were faster
        return []


def _not_pending(context: TransactionContext, dead: set[str]) -> list[str]:
    """The dead that are not pending now either: one that began after our listing may be in the middle of a rollback,
    which finds the files by the markers.
    """
    if not dead:
        return []
    pending = context.look()[1].pending
    try:
        plans = [read_plan(context, one.requested) for one in pending if one.action == actions.ROLLBACK]
    except CorruptTable:  # reported when that rollback is finished; until then it is unknown whose markers it needs
        return []
    victims = {plan.instant for plan in plans if plan is not None}
    return sorted(dead.difference(victims, (instant.requested for instant in pending)))
