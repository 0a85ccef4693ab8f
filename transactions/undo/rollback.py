"""Rollback: of a write that its owner aborts or that is dead, and of a completed commit; each once.

A rollback is decided first and carried out afterwards. Of its slot in the commit log and that of the victim's own
commit the first one wins. The steps after it, which any process may take, and repeat from the first:

1. its requested file has to be there, or others have completed and archived it; then its inflight file.
2. the victim's completed file, if it completed before: the log's files go before any data does.
3. the victim's data files. Its claim goes first, so that its tasks stop, and its markers stay to the end, since a
   repeated run finds the files by them.
4. the files with which the victim began. While they are there, its data is not all gone.
5. the rollback's completion, by the first process that comes to it.
6. claims and markers of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from lakelatch.errors import CorruptTable, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound
from lakelatch.telemetry import ACTION, INSTANT, operation
from lakelatch.timeline import actions
from lakelatch.timeline.actions import ROLLBACK
from lakelatch.timeline.instant import INFLIGHT, REQUESTED, TIMELINE_FOLDER, inflight, parse_file_name, requested
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.transactions.attempts.attempt import run, table_lock
from lakelatch.transactions.attempts.claims import clean_up
from lakelatch.transactions.attempts.intent import Deciding, Place
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.base.ready import record_path
from lakelatch.transactions.markers.direct import Markers, marked_instants
from lakelatch.transactions.undo.undoing import Undo, append_undo, data_files_of, files_on_timeline, remove_data


class _NothingToAbort(TransactionEnded):
    """The victim has ended, or another process is ending it."""


def roll_back(context: TransactionContext, victim: str, action: str) -> bool:
    """Rolls one instant back; False if it has completed, or another rollback undoes it."""

    def build(place: Place) -> Undo[RollbackPlan]:
        begun_as = _ensure_abortable(context, victim, action, place)
        return Undo(RollbackPlan(victim, begun_as, tuple(Markers(context.storage, victim).announced())))

    try:
        event, plan = append_undo(context, build, above=victim)
    except _NothingToAbort:
        return False
    failpoint("rollback.after_slot")
    _carry_out(context, event.instant, plan)
    return True


def finish_rollback(context: TransactionContext, rollback: str) -> list[str]:
    """Carries out a rollback that is on the timeline, from where it stopped; returns what it undoes.

    One whose victim has completed since its requested time, or was archived, is removed instead: Java would carry it
    out, and undo an acknowledged commit. So is one whose executor died while writing its plan, as Java does, and one of
    a run of a service that has completed before the rollback began: Java ignores it, and the run counts.
    """
    plan = read_plan(context, rollback)
    if plan is None:
        left = partial(context.snapshots.rollbacks.is_unreadable, rollback)
    else:
        left = partial(_is_overtaken, context, rollback, plan)
    if left(context.storage.names(TIMELINE_FOLDER)):
        _withdraw(context, rollback, left)
        return []
    if plan is None:
        return []
    _carry_out(context, rollback, plan)
    return [plan.instant]


def read_plan(context: TransactionContext, rollback: str) -> RollbackPlan | None:
    """The plan of a pending rollback; None if others have ended it since, or are still writing it.

    Errors: `CorruptTable` if it is lost.
    """
    storage, path = context.storage, requested(rollback, ROLLBACK).path
    try:
        return RollbackPlan.read(storage, path)
    except CorruptTable:
        if not context.snapshots.rollbacks.is_unreadable(rollback, storage.names(TIMELINE_FOLDER)):
            raise
        return None
    except NotFound:
        if not storage.exists(inflight(rollback, ROLLBACK).path):
            return None
        raise CorruptTable(f"rollback {rollback} is pending and its plan {path} is missing") from None


def may_be_beginning(context: TransactionContext, instant: str, tail: Tail) -> bool:
    """Whether an instant that is not pending may be between its claim and its requested file, and only slow.

    Its markers must not go before the log says that it is aborted: a beat under way could bring its claim back, and it
    would commit without them. While its claim is there, so are the slots that its commit would be checked against.
    """
    if context.snapshot.has_completed(instant):  # in no slot, if a foreign writer has carried a plan out
        return False
    beat = context.observer.beat_of(instant)
    return beat is not None and not context.log.may_have_ended(instant, beat.start_slot, tail)


def _ensure_abortable(context: TransactionContext, victim: str, action: str, place: Place) -> str:
    """The action as which the victim has begun, at the log's tail; `action` if there is only its claim.

    Errors: `_NothingToAbort`.
    """
    snapshot, rollbacks = place.snapshot, context.snapshots.rollbacks
    pending = {one.requested: one for one in snapshot.pending}
    if victim not in pending and not may_be_beginning(context, victim, place.tail):
        raise _NothingToAbort(f"{victim} has ended")
    # A listing during an archiver's deletions may show the requested file and lack the completed one.
    if find_archived(context.storage, snapshot.names, victim) is not None:
        raise _NothingToAbort(f"{victim} has completed, and was archived")
    for one in pending.values():
        plan = read_plan(context, one.requested) if one.action == ROLLBACK else None
        restores = one.action == actions.RESTORE and victim in rollbacks.targets_of(one.requested, snapshot.listed)
        if restores or (plan is not None and plan.instant == victim):
            raise _NothingToAbort(f"{victim} is being undone by {one.requested}")
    begun_as = pending[victim].action if victim in pending else action
    if begun_as not in (action, *actions.WRITE_ACTIONS):
        raise _NothingToAbort(f"{victim} is a {begun_as} that has begun meanwhile")
    return begun_as


def _carry_out(context: TransactionContext, rollback: str, plan: RollbackPlan) -> None:
    with operation("rollback", context.labels, {ACTION: plan.action}) as measured:
        measured.note({INSTANT: plan.instant})
        _undo(context, rollback, plan)


def _undo(context: TransactionContext, rollback: str, plan: RollbackPlan) -> None:
    storage, victim = context.storage, plan.instant
    if not storage.exists(requested(rollback, ROLLBACK).path):
        return
    ensure_created(storage, inflight(rollback, ROLLBACK).path, b"", context.system)
    failpoint("rollback.after_plan")
    files = files_on_timeline(context.snapshot.listed, victim)
    for one in (one for one in files if one.completion and one.completion < rollback):
        storage.delete(one.path)
    removed = remove_data(storage, victim, [*plan.files, *_unmarked(context, victim, plan.action)])
    failpoint("rollback.after_files")
    begun = {inflight(victim, plan.action), requested(victim, plan.action)}  # perhaps since the listing
    begun.update(one for one in files if one.state in (INFLIGHT, REQUESTED))
    for one in sorted(begun, key=lambda one: one.state):
        storage.delete(one.path)
    _complete(context, rollback, RollbackMetadata(rollback, victim, plan.action, tuple(removed)))
    failpoint("rollback.after_completed")
    clean_up(context, victim, record=record_path(victim) if context.elision.groups else None)
    clean_up(context, rollback)


def _unmarked(context: TransactionContext, victim: str, action: str) -> list[str]:
    """The data files of an instant without markers, by their names: a walk over the table.

    A foreign instant has none (any more), and a clustering needs none, since its files begin file groups.
    """
    beating = context.observer.beat_of(victim) is not None
    if action not in actions.SERVICES_THAT_REPLACE and (beating or victim in marked_instants(context.storage)):
        return []
    return data_files_of(context.storage, [victim]).get(victim, [])


def _complete(context: TransactionContext, rollback: str, metadata: RollbackMetadata) -> None:
    operation_id = context.system.new_id()

    def decide(place: Place) -> Event | GivenUp[None]:
        if not place.snapshot.has(requested(rollback, ROLLBACK)):  # archived since it was looked for
            context.storage.delete(inflight(rollback, ROLLBACK).path)
            return GivenUp(None)
        if all(instant.requested != rollback for instant in place.snapshot.pending):  # completed by others
            return GivenUp(None)
        return Event(COMPLETE, ROLLBACK, rollback, operation_id, context.writer, content=metadata.to_avro())

    run(context, Deciding(decide, above=rollback))


def _is_overtaken(context: TransactionContext, rollback: str, plan: RollbackPlan, names: Collection[str]) -> bool:
    """Whether the rollback has completed meanwhile, or its victim has completed or was archived."""
    victim = plan.instant
    if find_archived(context.storage, names, victim) is not None:
        return True
    waiting = context.snapshots.rollbacks.is_waiting(rollback, names)
    completions = {rollback: "", victim: "" if waiting else rollback}  # and what a completion must be above
    found = (one for one in map(parse_file_name, names) if one is not None and one.requested in completions)
    return any((one.completion or "") > completions[one.requested] for one in found)


def _withdraw(context: TransactionContext, rollback: str, wanted: Callable[[Collection[str]], bool]) -> None:
    """Removes a rollback from the timeline, unless it has completed, or that is no longer `wanted` by the names now.

    Its claim goes first, since a claimed plan has to be readable; the requested file goes last, since an inflight one
    without it could not be read.
    """
    with table_lock(context):
        names = context.storage.names(TIMELINE_FOLDER)
        mine = files_on_timeline(names, rollback)
        if all(one.completion is None for one in mine) and wanted(names):
            clean_up(context, rollback)
            for one in mine:
                context.storage.delete(one.path)
