"""The archive boundary: instants requested before it may leave the active timeline, and holds say why it is not later.

Hudi's readers take everything older than the first write on the active timeline for committed, and find its completion
times only in the history, which hudi-rs does not read. So the boundary is before everything that is undecided, and
before everything that such a reader would read wrongly once it is archived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.services.removals.file_versions import versions
from lakelatch.errors import CorruptTable
from lakelatch.format.bucket_index import is_successor
from lakelatch.format.expected.missing import active
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import CLEAN, REPLACE_COMMIT, RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.instant import (
    REQUESTED,
    Instant,
    is_time,
    requested_time,
)
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata, FileGroup, RollbackPlan
from lakelatch.timeline.service_metadata import read_cleaned, read_earliest_retained
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig


@dataclass(frozen=True)
class Hold:
    """Keeps instants requested at this time or later on the active timeline, and says why; "" keeps all."""

    time: str
    why: str


@dataclass(frozen=True)
class Candidates:
    """The timeline and the claims; `floor` is the greatest completion time before the claims were listed.

    A writer whose claim was not listed takes a later time, so it cannot appear before a boundary up to `floor`.
    """

    whole: WholeTimeline
    floor: str
    undecided: frozenset[str]

    @classmethod
    def take(cls, storage: Storage, snapshots: Snapshots, before: Snapshot) -> Candidates:
        """Lists the claims and the timeline now; `before` is an earlier snapshot."""
        names = (*storage.names(HEARTBEAT_FOLDER), *storage.names(CANCEL_FOLDER))
        undecided = frozenset(filter(is_time, map(requested_time, names)))
        whole = WholeTimeline.load(storage, snapshots.at_rest(), snapshots.rollbacks)
        return cls(whole, before.latest_completion, undecided)

    @property
    def writes(self) -> list[Instant]:
        """Completed writes on the active timeline, by requested time."""
        return sorted(self.whole.active.writes)

    def may_leave(self, boundary: str) -> list[Instant]:
        """Completed instants, of the actions that Hudi archives, before a boundary; by requested time."""
        found = [one for one in self.writes if one.requested < boundary]
        for one in self.whole.active.completed:
            if one.action in (CLEAN, ROLLBACK) and one.requested < boundary and (one.completion or "") < boundary:
                found.append(one)
        return sorted(found)

    def has_any_before(self, boundary: str) -> bool:
        """Whether anything may leave before a boundary, or was cancelled there."""
        return bool(self.may_leave(boundary)) or any(one.requested < boundary for one in self.whole.active.aborted)

    def same_before(self, other: Candidates, boundary: str) -> bool:
        """Whether other candidates have the same instants before a boundary, and the same rollbacks anywhere."""
        return _decisive(self.whole.active, boundary) == _decisive(other.whole.active, boundary)


def timeline_hold(storage: Storage, candidates: Candidates, options: ArchivingOptions) -> Hold:
    """The first hold, by all that the timeline's folder shows."""
    writes = candidates.writes
    if len(writes) <= options.max_commits:
        return Hold("", f"no more than {options.max_commits} writes are on the active timeline")
    kept = candidates.whole.active.writes[-options.min_commits :]
    holds = [Hold(min(one.requested for one in kept), f"it is among the last {options.min_commits} writes")]
    holds.append(Hold(candidates.floor, "it completed a moment ago"))
    for instant in candidates.whole.active.by_action.get(SAVEPOINT, ()):
        holds.append(Hold(instant.requested, f"the savepoint {instant.requested} is there"))
    pending = candidates.whole.active.pending
    ended = {one.requested for one in candidates.whole.active.completed}
    undecided = {one.requested: f"the {one.action} {one.requested} is pending" for one in pending}
    for claimed in candidates.undecided - ended:
        undecided.setdefault(claimed, f"{claimed} is claimed, or its cancellation was requested")
    for victim, rollback in _victims(storage, candidates.whole, pending):
        undecided[victim] = f"the rollback {rollback} of {victim or 'an unknown instant'} is pending"
    holds.extend(Hold(_last_until(writes, time), why) for time, why in undecided.items())
    for time, why in undecided.items():  # which a reader may still have to see before those that completed since
        first = next((one.requested for one in writes if (one.completion or "") > time), None)
        holds += [] if first is None else [Hold(first, f"{why}, and it completed since")]
    holds.extend(_clean_holds(candidates, writes))
    return first_hold(candidates, holds)


def first_hold(candidates: Candidates, holds: Iterable[Hold]) -> Hold:
    """The first of some holds, moved back to a write: readers count everything older than the first write that stays.

    So no instant that is undecided, or ended without a commit, may lie between the boundary and that write.
    """
    first = min(holds, key=lambda hold: hold.time)
    return Hold(_last_until(candidates.writes, first.time), first.why)


def _victims(storage: Storage, whole: WholeTimeline, pending: Iterable[Instant]) -> Iterator[tuple[str, str]]:
    """Instants that are being rolled back, each with its rollback; "" for a rollback whose plan is not readable yet."""
    names = whole.active.names
    for one in pending:
        if one.action == ROLLBACK:
            try:
                plan = RollbackPlan.read(storage, Instant(one.requested, ROLLBACK, REQUESTED).path)
            except NotFound:  # it has completed since
                continue
            except CorruptTable:
                if not whole.rollbacks.is_unreadable(one.requested, names):
                    raise
                yield "", one.requested
                continue
            yield plan.instant, one.requested


def _clean_holds(candidates: Candidates, writes: list[Instant]) -> Iterator[Hold]:
    """Keeps the last clean and the instants that it kept: the next clean begins with them."""
    cleans = candidates.whole.active.by_action.get(CLEAN)
    if not cleans:
        return
    last = cleans[-1]
    yield Hold(_last_until(writes, last.requested), f"the clean {last.requested} is the last one")
    earliest = read_earliest_retained(candidates.whole.content(last), last.path)
    if earliest:
        yield Hold(earliest, f"the clean {last.requested} keeps what was written from {earliest} on")


def _last_until(writes: Iterable[Instant], time: str) -> str:
    """The last write completed until a time; it has to stay, or files of that time would count as committed."""
    return max((one.requested for one in writes if one.requested <= time), default=time)


def _decisive(timeline: Snapshot, boundary: str) -> set[Instant]:
    return {one for one in timeline.instants if one.requested < boundary or one.action in (ROLLBACK, RESTORE)}


def cancelled_hold(candidates: Candidates, over: Instant) -> Hold:
    """The hold of a plan that was cancelled recently: late requests for its files may still arrive."""
    return Hold(_last_until(candidates.writes, over.requested), f"the {over.action} {over.requested} was cancelled")


def left_out_hold(candidates: Candidates, instant: Instant) -> Hold | None:
    """The hold of a clustering that left file groups out: late files of their successors may still arrive.

    While the clustering is on the active timeline, readers show none of these. None for any other instant.
    """
    if instant.action != REPLACE_COMMIT:
        return None
    ids = {file_id for found in candidates.whole.metadata(instant).replaced.values() for file_id in found}
    if not any(is_successor(one, instant.requested) for one in ids):
        return None
    return Hold(instant.requested, f"files of the part of {instant.requested} that was left out may come late")


# -- holds of data files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileHolds:
    """Holds and orphans among the data files of some partitions."""

    holds: tuple[Hold, ...]
    orphans: tuple[Orphan, ...]
    superseded: tuple[tuple[str, str], ...] = ()  # logs of older slices: requested times, and when newer slices came

    def hold_of_past(self, candidates: Candidates, hold: Hold) -> Hold:
        """The hold, or an earlier one, so that all readers agree on every state that the table can be restored to.

        Older slices are live again after a restore to one of the commits that stay, or a rollback of one.
        """
        while True:
            stays = min((one.completion or "" for one in candidates.writes if one.requested >= hold.time), default="")
            logs = [log for log, until in self.superseded if log < hold.time and stays and stays <= until]
            if not logs:
                return hold
            why = f"the table can be restored to where a log file of {min(logs)} waited for a compaction"
            hold = first_hold(candidates, [Hold(min(logs), why)])


@dataclass(frozen=True)
class Orphan:
    """A file of a write that ended without a commit. It would count as committed once the boundary has passed it.

    A tombstone in a live file group is harmless: it has no rows, and makes no file group.
    """

    path: str
    instant: str
    harmless: bool
    modified_ms: int

    def hold(self, candidates: Candidates) -> Hold:
        """The hold while this file exists."""
        why = f"the file {self.path} of the failed write {self.instant} exists"
        return Hold(_last_until(candidates.writes, self.instant), why)


def holds_of_files(
    storage: Storage, config: TableConfig, candidates: Candidates, leaving: list[Instant], boundary: str
) -> FileHolds:
    """Holds and orphans among the files that the leaving instants wrote, replaced or rolled back.

    Errors: `CorruptTable` if one of their partitions lacks a file named by a write on the active timeline.
    """
    view = TableView(storage, config, candidates.whole, expects=active)
    writes = [one for one in leaving if one.action in WRITE_ACTIONS]
    metadata = dict(zip(writes, candidates.whole.metadata_of(writes), strict=True))
    partitions = sorted(_partitions(candidates, leaving, metadata))
    slices = view.slices(partitions)
    files = {partition: storage.list(partition).files for partition in partitions}
    holds = [*_slice_holds(slices), *_replace_holds(metadata, files)]
    live = {(one.partition, one.file_id) for one in slices}
    past = _superseded_logs(candidates, files, view.replaced())
    return FileHolds(tuple(holds), tuple(_orphans(storage, candidates, files, live, boundary)), tuple(past))


def _partitions(candidates: Candidates, leaving: list[Instant], metadata: Mapping[Instant, CommitMetadata]) -> set[str]:
    found = {stat.partition for one in metadata.values() for stat in one.stats}
    found.update(partition for one in metadata.values() for partition in one.replaced)
    for one in leaving:
        if one.action == ROLLBACK:
            found.update(read_cleaned(candidates.whole.content(one), one.path))
    return found


def _slice_holds(slices: Iterable[FileSlice]) -> Iterator[Hold]:
    """hudi-rs takes an archived log as completed when it was requested: rows are lost if that is in another slice."""
    for one in slices:
        for file in map(parse_data_file, one.fresh_logs):
            if isinstance(file, LogFile) and (one.base_file is None or file.instant < one.base_instant):
                why = f"its log file in {one.partition!r}, file group {one.file_id}, waits for a compaction"
                yield Hold(file.instant, why)


def _superseded_logs(
    candidates: Candidates, files: Mapping[str, Collection[str]], replaced: Mapping[FileGroup, str]
) -> Iterator[tuple[str, str]]:
    """Logs of slices that are not live which hudi-rs would put into another slice once they are archived, as above."""
    for partition, names in files.items():
        completions = candidates.whole.completion_times({file.instant for file in map(parse_data_file, names) if file})
        for file_id, found in versions(names, completions).items():
            until = replaced.get((partition, file_id))
            for version in found:
                parsed = [file for file in map(parse_data_file, version.files) if file is not None]
                base = next((file.instant for file in parsed if isinstance(file, BaseFile)), None)
                for file in parsed if until is not None else ():
                    if isinstance(file, LogFile) and (base is None or file.instant < base):
                        yield file.instant, until or ""
                until = version.since


def _replace_holds(metadata: Mapping[Instant, CommitMetadata], files: Mapping[str, Collection[str]]) -> Iterator[Hold]:
    """Replaced files are hidden for as long as their replace commit is on the active timeline."""
    for instant, found in metadata.items():
        if instant.action != REPLACE_COMMIT:
            continue
        for partition, file_ids in found.replaced.items():
            for file in map(parse_data_file, files.get(partition, ())):
                if file is not None and file.file_id in file_ids:
                    why = f"the file {file.name} in {partition!r}, which it replaced, waits for a clean"
                    yield Hold(instant.requested, why)
                    break


def _orphans(
    storage: Storage,
    candidates: Candidates,
    files: Mapping[str, Collection[str]],
    live: Collection[tuple[str, str]],
    boundary: str,
) -> Iterator[Orphan]:
    for partition, names in files.items():
        parsed = [file for file in map(parse_data_file, names) if file is not None and file.instant < boundary]
        counts = candidates.whole.completion_times({file.instant for file in parsed})
        for file in parsed:
            if file.instant in counts:
                continue
            path = path_below(partition, file.name)
            try:
                status = storage.stat(path)
            except NotFound:
                continue
            is_tombstone = isinstance(file, LogFile) and status.size_bytes == 0
            harmless = is_tombstone and (partition, file.file_id) in live
            yield Orphan(path, file.instant, harmless, status.modified_ms)
