"""Restore: several instants are undone, one after the other, by one process at a time.

The steps after its slot, which its owner takes, and recovery repeats from the first if the owner is dead:

1. the claim: one process is at work. It is only there so that no work is done twice.
2. its inflight file; then its requested file has to be there still, or others have completed and archived it.
3. each instant, in the order of the plan, the last completed one first, so that another engine's reader always finds
   the table as it was at some moment, as far as cleans have left that: completed file, data files, the files with which
   it began (while they are there, its data is not all gone), claim and markers.
4. its completion, and then its own claim.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat, stopped_on_error
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.timeline.actions import RESTORE
from lakelatch.timeline.instant import TIMELINE_FOLDER, inflight, requested
from lakelatch.timeline.metadata import RollbackMetadata
from lakelatch.timeline.plans.restore_plan import RestoreMetadata, RestorePlan
from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.attempts.claims import clean_up, heartbeat_of, take_claim
from lakelatch.transactions.attempts.commit import append_service_completion
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.undo.undoing import Undo, append_undo, data_files_of, files_on_timeline, remove_data


def run_restore(context: TransactionContext, build: Callable[[Place], Undo[RestorePlan]]) -> RestoreMetadata:
    """Plans a restore and carries it out. Errors: those of `build`, with nothing changed; of `finish_restore`."""
    event, _ = append_undo(context, build)
    failpoint("restore.after_slot")
    return finish_restore(context, event.instant, event.operation_id)


def finish_restore(context: TransactionContext, restore: str, operation_id: str = "") -> RestoreMetadata:
    """Carries out a restore that is on the timeline, from where it stopped. `operation_id`: of a claim of ours.

    Errors: `PlanBusy` while another live process works on it, `TransactionEnded` if one has completed it.
    """
    storage = context.storage
    tail, snapshot = context.look()
    if all(one.requested != restore for one in snapshot.pending):  # a claim after its end would stay
        raise TransactionEnded(f"restore {restore} has completed, or was archived", instant=restore)
    began_ms = context.system.realtime_ms()
    operation = operation_id or context.system.new_id()
    state = TransactionState(restore, RESTORE, operation, Mark(tail.number), began_ms)
    heartbeat = _claim(context, state, own=bool(operation_id))
    with stopped_on_error(heartbeat):
        failpoint("restore.after_claim")
        ensure_created(storage, inflight(restore, RESTORE).path, b"", context.system)
        if not storage.exists(requested(restore, RESTORE).path):  # checked last: it never comes back
            storage.delete(inflight(restore, RESTORE).path)
            raise TransactionEnded(f"restore {restore} has completed, and was archived", instant=restore)
        heartbeat.start()
        plan = RestorePlan.read(storage, requested(restore, RESTORE).path)
        found = data_files_of(storage, plan.requested_times)
        rollbacks = []
        for victim, action in plan.instants:
            removed = undo_instant(context, victim, found.get(victim, []))
            rollbacks.append(RollbackMetadata(restore, victim, action, tuple(removed)))
            failpoint("restore.after_instant")
        metadata = RestoreMetadata(restore, tuple(rollbacks), context.system.realtime_ms() - began_ms)
        append_service_completion(context, state, lambda _: metadata.to_avro())
        failpoint("restore.after_completed")
    heartbeat.stop()
    clean_up(context, restore)
    return metadata


def undo_instant(context: TransactionContext, victim: str, data_files: list[str]) -> list[str]:
    """Removes one instant, in whatever state it is now; returns the data files that were removed."""
    files = files_on_timeline(context.storage.names(TIMELINE_FOLDER), victim)
    for one in (one for one in files if one.completion):
        context.storage.delete(one.path)
    removed = remove_data(context.storage, victim, data_files)
    for one in (one for one in files if not one.completion):
        context.storage.delete(one.path)
    clean_up(context, victim)
    return removed


def _claim(context: TransactionContext, state: TransactionState, own: bool) -> Heartbeat:
    heartbeat, restore = heartbeat_of(context, state), state.instant
    if not own:
        take_claim(context, heartbeat, requested(restore, RESTORE))
    elif heartbeat.owns_claim():
        heartbeat.take_over()
    else:
        raise TransactionEnded(f"restore {restore} was finished by others meanwhile", instant=restore)
    return heartbeat
