"""Savepoints: commits whose files cleans must keep, and to which the table can be restored.

A savepoint has the requested time of the commit that it keeps. It goes through the commit log like a commit: a clean
planned after its slot sees it, and cleans planned before are checked before the slot is put.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.format.slices.table_view import TableView
from lakelatch.notebook import Shown
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import CLEAN, SAVEPOINT
from lakelatch.timeline.instant import COMPLETED, Instant, inflight, requested
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.whole_timeline import WholeTimeline, find_archived, read_plan
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.savepoint import SavepointMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.attempts.attempt import run, table_lock
from lakelatch.transactions.attempts.intent import Deciding, Place
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.manager import TransactionManager


@dataclass(frozen=True)
class Savepoint(Shown):
    """A commit that is kept. `instant` is its requested time, and `completion` the savepoint's completion time."""

    instant: str
    completion: str
    comment: str
    by: str
    files: int


def savepoints(storage: Storage) -> list[Savepoint]:
    """The table's savepoints, including Java's, oldest commit first."""
    found = []
    for instant in Snapshot.load(storage).completed:
        if instant.action == SAVEPOINT:
            try:
                metadata = SavepointMetadata.read(storage, instant.path)
            except NotFound:  # deleted since it was listed
                continue
            found.append(_savepoint(instant, metadata))
    return sorted(found, key=lambda one: one.instant)


def create_savepoint(config: TableConfig, manager: TransactionManager, instant: str, comment: str = "") -> Savepoint:
    """Keeps the table as of the completion of the commit with this requested time; repeating it changes nothing.

    Errors: `InvalidRequest` if there is no such completed commit on the active timeline, or a clean has removed some of
    its files, or is about to.
    """
    context, storage = manager.context, manager.storage
    commit_on_timeline(_look(manager), storage, instant)  # refused before anything is made
    # Without it the slot's file is not made: see `delete_savepoint`.
    ensure_created(storage, inflight(instant, SAVEPOINT).path, b"", context.system)
    failpoint("savepoint.after_inflight")
    operation_id = context.system.new_id()
    kept: list[SavepointMetadata] = []

    def decide(place: Place) -> Event | GivenUp[Instant]:
        snapshot = place.snapshot
        there = _savepoint_of(snapshot, instant)
        if there is not None:
            return GivenUp(there)
        found = commit_on_timeline(snapshot, storage, instant)
        files = _files_of(storage, config, found)
        _ensure_no_clean_takes(snapshot, storage, files, found)
        kept.append(SavepointMetadata(context.writer, context.system.realtime_ms(), comment, files))
        return Event(
            COMPLETE,
            SAVEPOINT,
            instant,
            operation_id,
            context.writer,
            content=kept[-1].to_avro(),
        )

    with table_lock(context) as lease:
        try:
            event = run(context, Deciding(decide, above=instant), lease)
        except InvalidRequest:  # a pending savepoint would hold up cleans and archiving
            storage.delete(inflight(instant, SAVEPOINT).path)
            raise
    if isinstance(event, GivenUp):
        return _savepoint(event.why, SavepointMetadata.read(storage, event.why.path))
    return _savepoint(Instant(instant, SAVEPOINT, COMPLETED, event.time), kept[-1])


def delete_savepoint(manager: TransactionManager, instant: str) -> None:
    """Deletes the savepoint of this commit: cleans may remove its files from now on.

    Errors: `InvalidRequest` if there is none.
    """
    context, storage = manager.context, manager.storage
    with table_lock(context):
        there = _savepoint_of(_look(manager), instant)
        if there is None:
            raise InvalidRequest(f"there is no savepoint of {instant}: {_named(storage)}", instant=instant)
        # The inflight file first: while it exists, a writer that finds the slot's file missing makes it again.
        storage.delete(inflight(instant, SAVEPOINT).path)
        failpoint("savepoint.after_witness")
        storage.delete(there.path)


def forget_begun(manager: TransactionManager, least_age_ms: int) -> None:
    """Removes pending savepoints of processes that died: until then cleans keep everything for them.

    A process that was only paused fails, as its inflight file is gone.
    """
    timeline = Snapshot.load(manager.storage)
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
    writes = _look(manager).writes
    if not writes:
        raise InvalidRequest("the table has no completed commit on its timeline: write to it first")
    return writes[-1].requested


def commit_on_timeline(snapshot: Snapshot, storage: Storage, instant: str) -> Instant:
    """The completed write of this requested time on the active timeline. Errors: `InvalidRequest`, with the reason."""
    for found in snapshot.writes:
        if found.requested == instant:
            return found
    pending = next((one for one in snapshot.pending if one.requested == instant), None)
    if pending is not None:
        why = f"{pending.action} {instant} has not completed"
    elif find_archived(storage, snapshot.names, instant) is not None:
        why = f"{instant} was archived: commits that completed after it cannot be separated any more"
    else:
        why = f"there is no completed commit {instant} on the timeline"
    raise InvalidRequest(f"{why}. Name the requested time of a completed commit, as `lakelatch timeline` shows it")


def _look(manager: TransactionManager) -> Snapshot:
    """The timeline, after the log's tail has been shown on it."""
    tail, snapshot = manager.context.look()
    manager.context.log.ensure_same_locks(tail)
    return snapshot


def completed_savepoints(snapshot: Snapshot) -> tuple[Instant, ...]:
    """Completed savepoints on the timeline, by completion time."""
    return snapshot.by_action.get(SAVEPOINT, ())


def files_of_cleans(snapshot: Snapshot, storage: Storage) -> Iterator[tuple[str, str, str]]:
    """Files that pending cleans are about to remove: the clean, a partition, and the name of a file in it."""
    for clean in (one for one in snapshot.pending if one.action == CLEAN):
        plan = requested(clean.requested, CLEAN)
        try:
            files = CleanPlan.from_avro(read_plan(storage, plan), plan.path).files
        except NotFound:  # it has completed and left meanwhile
            continue
        yield from ((clean.requested, partition, name) for partition, names in files.items() for name in names)


def _savepoint_of(snapshot: Snapshot, instant: str) -> Instant | None:
    return next((one for one in completed_savepoints(snapshot) if one.requested == instant), None)


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
    snapshot: Snapshot, storage: Storage, files: dict[str, tuple[str, ...]], commit: Instant
) -> None:
    """`InvalidRequest` if a pending clean, which was planned before the savepoint, removes one of its files."""
    kept = {name for names in files.values() for name in names}
    for clean, _, name in sorted(files_of_cleans(snapshot, storage)):
        if name in kept:
            raise InvalidRequest(
                f"the clean {clean} is about to remove {name}, which the table as of {commit.requested} needs: keep a "
                "later commit, or let the cleaner keep more",
                instant=commit.requested,
                clean=clean,
            )


def _savepoint(instant: Instant, metadata: SavepointMetadata) -> Savepoint:
    files = sum(map(len, metadata.files.values()))
    return Savepoint(instant.requested, instant.completion or "", metadata.comment, metadata.by, files)


def _named(storage: Storage) -> str:
    found = ", ".join(one.instant for one in savepoints(storage))
    return f"there are those of {found}" if found else "the table has none"
