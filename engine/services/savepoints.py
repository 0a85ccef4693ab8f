"""Savepoints: commits whose files cleaners must keep, and to which the table can be restored.

A savepoint has the requested time of the commit that it keeps. It goes through the commit log like a commit: a clean
that is planned after its slot sees it, and one that was planned before is looked at before the slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import CLEAN, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.whole_timeline import WholeTimeline, find_archived
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.savepoint import SavepointMetadata
from lakelatch.timeline.table_config import TableConfig
from lakelatch.timeline.timeline import COMPLETED, Instant, Timeline, TimelineFolder, inflight, requested
from lakelatch.transactions.attempt import Deciding, run, table_lock
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.manager import TransactionManager


@dataclass(frozen=True)
class Savepoint:
    """A commit that is kept. `instant` is its requested time, `completion` that of the savepoint."""

    instant: str
    completion: str
    comment: str
    by: str
    files: int


def savepoints(storage: Storage) -> list[Savepoint]:
    """The table's savepoints, ours and Java's, oldest commit first."""
    found = []
    for instant in Timeline.load(storage).completed:
        if instant.action == SAVEPOINT:
            try:
                metadata = SavepointMetadata.read(storage, instant.path)
            except NotFound:  # deleted since it was listed
                continue
            found.append(_savepoint(instant, metadata))
    return sorted(found, key=lambda one: one.instant)


def create_savepoint(config: TableConfig, manager: TransactionManager, instant: str, comment: str = "") -> Savepoint:
    """Keeps the table as it was when the commit of this requested time completed; that again changes nothing.

    Errors: `InvalidRequest` for what is no completed commit of the active timeline, and for one of whose files a clean
    has removed some, or is about to.
    """
    context, storage = manager.context, manager.storage
    commit_on_timeline(_look(manager), storage, instant)  # refused before anything is made
    ensure_created(storage, inflight(instant, SAVEPOINT).path, b"", context.system)  # the witness of the slot's file
    failpoint("savepoint.after_inflight")
    operation_id = context.system.new_id()
    kept: list[SavepointMetadata] = []

    def decide(tail: Tail) -> Event | GivenUp[Instant]:
        context.folder.refresh(tail.number)
        there = _savepoint_of(context.folder, instant)
        if there is not None:
            return GivenUp(there)
        found = commit_on_timeline(context.folder, storage, instant)
        files = _files_of(storage, config, found)
        _ensure_no_clean_takes(context.folder, storage, files, found)
        kept.append(SavepointMetadata(context.writer, context.system.realtime_ms(), comment, files))
        return Event(
            COMPLETE,
            SAVEPOINT,
            instant,
            operation_id,
            context.writer,
            content=kept[-1].to_avro(),
            token=lease.token,
        )

    with table_lock(context) as lease:
        try:
            event = run(context, Deciding(decide, above=instant), lease)
        except InvalidRequest:  # what is begun holds cleaners up, and archivers
            storage.delete(inflight(instant, SAVEPOINT).path)
            raise
    if isinstance(event, GivenUp):
        return _savepoint(event.why, SavepointMetadata.read(storage, event.why.path))
    return _savepoint(Instant(instant, SAVEPOINT, COMPLETED, event.time), kept[-1])


def delete_savepoint(manager: TransactionManager, instant: str) -> None:
    """Gives the savepoint of this commit up: cleaners may take its files from now on.

    Errors: `InvalidRequest` if there is none.
    """
    context, storage = manager.context, manager.storage
    with table_lock(context):
        there = _savepoint_of(_look(manager), instant)
        if there is None:
            raise InvalidRequest(f"there is no savepoint of {instant}: {_named(storage)}", instant=instant)
        # Its witness first: whoever finds the slot's file missing would make it again beside it.
        storage.delete(inflight(instant, SAVEPOINT).path)
        failpoint("savepoint.after_witness")
        storage.delete(there.path)


def forget_begun(manager: TransactionManager, least_age_ms: int) -> None:
    """Removes what processes have left that died while they made a savepoint: until then cleaners keep all for it.

    One that was only paused finds the witness of its slot gone, and has failed.
    """
    timeline = Timeline.load(manager.storage)
    made = {one.requested for one in timeline.completed if one.action == SAVEPOINT}
    begun = [one for one in timeline.instants if one.action == SAVEPOINT and one.requested not in made]
    now_ms = manager.context.observer.storage_time_ms() if begun else 0
    for one in begun:
        try:
            if now_ms - manager.storage.stat(one.path).modified_ms >= least_age_ms:
                manager.storage.delete(one.path)
        except NotFound:
            continue


def latest_commit(manager: TransactionManager) -> str:
    """The requested time of the write that completed last. Errors: `InvalidRequest` for a table without one."""
    found = [one for one in _look(manager).completed_since(frozenset()) if one.action in WRITE_ACTIONS]
    if not found:
        raise InvalidRequest("the table has no completed commit on its timeline: write to it first")
    return found[-1].requested


def commit_on_timeline(folder: TimelineFolder, storage: Storage, instant: str) -> Instant:
    """The completed write of this requested time on the active timeline. Errors: `InvalidRequest` that says what it is
    instead."""
    for found in folder.completed_since(frozenset()):
        if found.requested == instant and found.action in WRITE_ACTIONS:
            return found
    pending = next((one for one in folder.pending() if one.requested == instant), None)
    if pending is not None:
        why = f"{pending.action} {instant} has not completed"
    elif find_archived(storage, folder.names, instant) is not None:
        why = f"{instant} was archived: what completed since its archive cannot be told apart any more"
    else:
        why = f"there is no completed commit {instant} on the timeline"
    raise InvalidRequest(f"{why}. Name the requested time of a completed commit, as `lakelatch timeline` shows it")


def _look(manager: TransactionManager) -> TimelineFolder:
    """The timeline, after the projection of the log's tail."""
    context = manager.context
    tail = context.log.tail()
    context.log.ensure_same_locks(tail)
    context.log.project(tail)
    context.folder.refresh(tail.number)
    return context.folder


def _savepoint_of(folder: TimelineFolder, instant: str) -> Instant | None:
    found = (one for one in folder.completed_since(frozenset()) if one.action == SAVEPOINT)
    return next((one for one in found if one.requested == instant), None)


def _files_of(storage: Storage, config: TableConfig, commit: Instant) -> dict[str, tuple[str, ...]]:
    view = TableView(storage, config, WholeTimeline.load(storage), commit.completion)
    slices = view.slices()
    view.ensure_there(slices)
    files: dict[str, tuple[str, ...]] = {}
    for one in slices:
        base = (one.base_file,) if one.base_file else ()
        files[one.partition] = (*files.get(one.partition, ()), *base, *one.log_files)
    return files


def _ensure_no_clean_takes(
    folder: TimelineFolder, storage: Storage, files: dict[str, tuple[str, ...]], commit: Instant
) -> None:
    """A pending clean was planned before the savepoint, and would remove what it says."""
    for clean in (one for one in folder.pending() if one.action == CLEAN):
        path = requested(clean.requested, CLEAN).path
        planned = _planned(storage, path)
        taken = sorted(planned.intersection(name for names in files.values() for name in names))
        if taken:
            raise InvalidRequest(
                f"the clean {clean.requested} is about to remove {taken[0]}, which the table as of {commit.requested} "
                "needs: keep a later commit, or let the cleaner keep more",
                instant=commit.requested,
                clean=clean.requested,
            )


def _planned(storage: Storage, path: str) -> set[str]:
    """Names of the files that a clean's plan removes; none if the plan has gone meanwhile."""
    try:
        plan = CleanPlan.read(storage, path)
    except NotFound:
        return set()
    return {name for names in plan.files.values() for name in names}


def _savepoint(instant: Instant, metadata: SavepointMetadata) -> Savepoint:
    files = sum(map(len, metadata.files.values()))
    return Savepoint(instant.requested, instant.completion or "", metadata.comment, metadata.by, files)


def _named(storage: Storage) -> str:
    found = ", ".join(one.instant for one in savepoints(storage))
    return f"there are those of {found}" if found else "the table has none"
