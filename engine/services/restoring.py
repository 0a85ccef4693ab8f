"""Rollback of a completed commit, and restore to one: checks that they are allowed, and begins them.

Both are decided at their slot in the log, before which nothing can complete unseen. The steps after that are those of
`transactions/undo/rollback.py` and `transactions/undo/restore.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.savepoints import commit_on_timeline, completed_savepoints, files_of_cleans
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.expected.missing import archived_too, confirmed
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.heartbeat.observer import Observer
from lakelatch.notebook import Shown
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.actions import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    PENDING_WRITE_ACTIONS,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    WRITE_ACTIONS,
)
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import HISTORY_NAME, Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline, find_archived
from lakelatch.timeline.metadata import CommitMetadata, FileGroup, RollbackPlan
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.timeline.plans.service_plan import read_service_plan
from lakelatch.timeline.service_metadata import read_undone
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig, load_table_config
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.undo.restore import run_restore
from lakelatch.transactions.undo.rollback import finish_rollback
from lakelatch.transactions.undo.undoing import Undo, append_undo

_PLANS = (COMPACTION, LOG_COMPACTION, CLUSTERING)
_DAY_HOURS = CleaningOptions().tombstone_hours


@dataclass(frozen=True)
class Undone(Shown):
    """The result of a rollback or restore: the requested times undone, the last completed first, and how many files.

    `instant` is its own requested time; every later commit has a greater one.
    """

    instant: str
    undone: tuple[str, ...]
    files: int


def roll_back(manager: TransactionManager, instant: str) -> Undone:
    """Rolls back a completed commit on which no later one builds.

    Later commits of other file groups stay. A transaction in progress on the same file groups conflicts, unless it is
    under non-blocking control and so has not read them.

    Errors: `InvalidRequest`, with nothing changed, if there is no such completed commit on the active timeline, a
    savepoint keeps it, a later commit or a plan builds on it, or a clean has removed files that it superseded, or is
    about to. `CorruptTable`, with nothing changed either, if such a file is missing and no clean has removed it.
    """
    storage = manager.storage

    def build(place: Place) -> Undo[RollbackPlan]:
        snapshot = place.snapshot
        ensure_no_restore(manager, snapshot)
        commit = commit_on_timeline(snapshot, storage, instant)
        if find_archived(storage, snapshot.names, instant) is not None:
            raise _was_archived(commit, instant)
        _ensure_no_savepoint(
            snapshot, [commit, *_completed_after(snapshot, commit)], instant
        )  # the later ones include it
        metadata = CommitMetadata.read(storage, commit.path)
        groups = metadata.file_groups() | metadata.replaced_file_groups()
        whole = WholeTimeline.load(storage)
        for later in whole.completed(WRITE_ACTIONS, commit.completion or ""):  # also what was archived since
            theirs = whole.metadata(later)
            if _meet(commit, groups, theirs.file_groups() | theirs.replaced_file_groups()):
                raise InvalidRequest(
                    f"{later.action} {later.requested} completed after {instant} and builds on its file groups: roll "
                    f"that back first, or restore the table to what came before {instant}",
                    instant=instant,
                    later=later.requested,
                )
        for plan in (one for one in snapshot.pending if one.action in _PLANS):
            touched = read_service_plan(storage, plan.requested, plan.action).groups
            if plan.requested > (commit.completion or "") and _meet(commit, groups, touched):
                raise InvalidRequest(
                    f"{plan.action} {plan.requested} is planned and reads what {instant} wrote: cancel it or carry it "
                    f"out, or restore the table to what came before {instant}",
                    instant=instant,
                    later=plan.requested,
                )
        _ensure_there_without(manager, snapshot, commit, metadata)
        _ensure_same_start(manager, snapshot, {instant: commit.action})
        files = tuple(stat.path for stat in metadata.stats)
        return Undo(RollbackPlan(instant, commit.action, files), (commit,), groups)

    event, plan = append_undo(manager.context, build, above=instant)
    failpoint("rollback.after_slot")
    finish_rollback(manager.context, event.instant)
    return Undone(event.instant, (instant,), len(plan.files))


def restore(config: TableConfig, manager: TransactionManager, to: str) -> Undone:
    """Restores the table to its state when the commit of this requested time completed, with a savepoint or without.

    Everything that completed later is undone, services included, and so are later plans. Every transaction in progress
    ends, under either concurrency mode. Readers see the table as it was at some moment, or an error. Ours see the
    restored table as soon as the restore is on the timeline; others see completed files disappear one by one, and lack
    rows meanwhile if a clean has removed files of undone instants.

    Errors: `InvalidRequest`, with nothing changed, if there is no such completed commit on the active timeline; if a
    later one was archived, or is kept by a savepoint; if a clean has removed files that are needed, or has begun to.
    `CorruptTable`, with nothing changed either, if a file that would be live again is missing and no clean has removed
    it. `Unavailable` during another restore.

    Costs a request for each write of both timelines that this process has not cached, and a listing of each partition.
    """
    storage = manager.storage

    def build(place: Place) -> Undo[RestorePlan]:
        snapshot = place.snapshot
        ensure_no_restore(manager, snapshot)
        target = commit_on_timeline(snapshot, storage, to)
        later = _completed_after(snapshot, target)[::-1]
        _ensure_no_savepoint(snapshot, later, to)
        _ensure_not_archived(manager, snapshot, target)
        cleans = [one.requested for one in snapshot.pending if one.action == CLEAN]
        if cleans:
            raise InvalidRequest(
                f"the clean {cleans[0]} has been planned and has not completed, and may remove what {to} needs: "
                "let a cleaner finish it first",
                instant=to,
                clean=cleans[0],
            )
        view = TableView(storage, config, WholeTimeline.load(storage), target.completion, expects=archived_too)
        view.ensure_there(view.slices())  # they are live again afterwards
        plans = [one for one in snapshot.pending if one.action in _PLANS and one.requested > (target.completion or "")]
        instants = tuple((one.requested, one.action) for one in (*plans[::-1], *later))
        _ensure_same_start(manager, snapshot, dict(instants))
        return Undo(RestorePlan(instants, to), tuple(later))

    metadata = run_restore(manager.context, build)
    files = sum(len(one.deleted) for one in metadata.rollbacks)
    return Undone(metadata.restore, tuple(one.instant for one in metadata.rollbacks), files)


def ensure_no_restore(manager: TransactionManager, snapshot: Snapshot) -> None:
    """Raises `Unavailable` while the timeline has a restore that has not completed."""
    for pending in (one for one in snapshot.pending if one.action == RESTORE):
        raise Unavailable(
            f"restore {pending.requested} is under way: try again when it has completed. If its process died, any "
            "writer finishes it once its heartbeat has expired; one of Java Hudi's has to be finished there",
            instant=pending.requested,
        )


def _completed_after(snapshot: Snapshot, commit: Instant) -> list[Instant]:
    """Writes that completed after this one, by completion."""
    return [one for one in snapshot.writes if (one.completion or "") > (commit.completion or "")]


def _ensure_there_without(
    manager: TransactionManager, snapshot: Snapshot, commit: Instant, metadata: CommitMetadata
) -> None:
    """Checks that all files exist that the commit superseded, and that are live again without it.

    No write has touched these file groups since, so they are the files live right before it. A write of log files only
    supersedes nothing. Errors: `InvalidRequest` if a clean has removed one, or is about to; `CorruptTable` if one is
    missing otherwise.
    """
    storage = manager.storage
    bases = (stat for stat in metadata.stats if isinstance(parse_data_file(stat.path.rpartition("/")[2]), BaseFile))
    uncovered = metadata.replaced_file_groups() | {(stat.partition, stat.file_id) for stat in bases}
    if not uncovered:
        return
    times = (one.completion or "" for one in snapshot.writes)
    before = max((time for time in times if time < (commit.completion or "")), default="0")
    view = TableView(storage, load_table_config(storage), WholeTimeline.load(storage), before)
    partitions = sorted({partition for partition, _ in uncovered})
    whole = replace(view, expects=archived_too)
    suspected = whole.suspects(partitions)
    for missing in confirmed(whole, suspected) if suspected else ():
        partition, _, name = missing.path.rpartition("/")
        file = parse_data_file(name)
        if file is not None and (partition, file.file_id) in uncovered:
            raise missing.error()
    found = view.slices(partitions)
    needed = [one for one in found if (one.partition, one.file_id) in uncovered]
    view.ensure_there(needed)
    names = {(one.partition, name) for one in needed for name in one.names}
    for clean, partition, name in files_of_cleans(snapshot, storage):
        if (partition, name) in names:
            raise InvalidRequest(
                f"the clean {clean} is about to remove {path_below(partition, name)}, which would be live again "
                f"without {commit.requested}: leave the table as it is, or restore it to a later commit",
                instant=commit.requested,
                clean=clean,
            )


def _ensure_same_start(manager: TransactionManager, snapshot: Snapshot, gone: Mapping[str, str]) -> None:
    """`InvalidRequest` if files that belong to no commit would be older than the first completed write that is left.

    hudi-rs and Java take everything older than that one for committed. Log files of failed writes are empty and
    harmless; a write in progress has rows, a cancelled clustering has empty base files, and a base file of what was
    undone may come once more. `gone` has the action of each instant that this undoes.
    """
    writes = {one.requested for one in snapshot.writes}
    first, left = min(writes), min(writes - gone.keys(), default="")
    if first == left:
        return

    def refuse(instant: str, action: str, why: str, until: str) -> None:
        if first < instant and (not left or instant < left):
            raise InvalidRequest(
                f"{first} is the first write on the timeline, and {action or 'the instant'} {instant}, which {why}, "
                f"would be older than the first one then: hudi-rs and Java would take its files for committed. {until}",
                instant=first,
                later=instant,
            )

    under_way = {one.requested: one.action for one in (*snapshot.pending, *snapshot.aborted)}
    claimed = dict.fromkeys(Observer(manager.storage).instants(), DELTA_COMMIT)  # perhaps not on the timeline yet
    for instant, action in {**claimed, **under_way}.items():
        if action in PENDING_WRITE_ACTIONS and instant not in gone and instant not in writes:
            until = "Wait until it has completed, or was rolled back or archived"
            refuse(instant, action, "has not completed", until)
    late = "and of which a late request may bring a file back"
    for instant, action in gone.items():
        if action != DELTA_COMMIT:
            refuse(instant, action, f"would be undone, {late}", "Restore to a later commit")
    for instant, action in _undone_lately(manager, snapshot):
        refuse(instant, action, f"was undone, {late}", f"Undo it when {_DAY_HOURS} hours have passed since")


def _undone_lately(manager: TransactionManager, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Instants that were undone less than a day ago, by the storage's clock, and may have had base files: action too.

    A log file leaves a tombstone, so it does not come back (0019).
    """
    storage = manager.storage
    undoing = [one for one in snapshot.completed if one.action in (ROLLBACK, RESTORE)]
    now_ms = Observer(storage).storage_time_ms() if undoing else 0
    for one in undoing:
        try:
            if storage.stat(one.path).modified_ms + _DAY_HOURS * 3_600_000 <= now_ms:
                continue
            yield from (found for found in read_undone(storage.read(one.path), one.path) if found[1] != DELTA_COMMIT)
        except NotFound:  # archived since
            continue


def _ensure_no_savepoint(snapshot: Snapshot, commits: Iterable[Instant], instant: str) -> None:
    """`InvalidRequest` if a savepoint keeps one of these commits: the table as of it would lack what is undone."""
    kept = {one.requested for one in completed_savepoints(snapshot)}
    for commit in (one for one in commits if one.requested in kept):
        raise InvalidRequest(
            f"a savepoint keeps {commit.action} {commit.requested}, and the table as of it would be another one: "
            "delete that savepoint first",
            instant=instant,
            savepoint=commit.requested,
        )


def _ensure_not_archived(manager: TransactionManager, snapshot: Snapshot, target: Instant) -> None:
    """`InvalidRequest` if a later commit is in the history, where it counts for every reader.

    Its files may still be on the timeline, if its archiver has died or is still at work.
    """
    if HISTORY_NAME not in snapshot.names:
        return
    for one in History.load(manager.storage).instants(WRITE_ACTIONS, after=target.completion or ""):
        raise _was_archived(one.instant, target.requested)


def _was_archived(one: Instant, instant: str) -> InvalidRequest:
    return InvalidRequest(
        f"{one.action} {one.requested} was archived, so it cannot be undone any more: restore to a later commit",
        instant=instant,
        archived=one.requested,
    )


def _meet(commit: Instant, groups: Iterable[FileGroup], others: Iterable[FileGroup]) -> bool:
    """Whether file groups of a commit overlap others: by bucket or, if it replaced file groups, by partition.

    A replace commit moves every bucket of its partitions, even one in which it found no file.
    """

    def part(group: FileGroup) -> tuple[str, object]:
        bucket = bucket_of_file_id(group[1])
        if commit.action == REPLACE_COMMIT:
            return group[0], None
        return group[0], group[1] if bucket is None else bucket

    return not {part(group) for group in groups}.isdisjoint(map(part, others))
