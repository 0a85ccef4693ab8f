"""What may leave the active timeline: everything that was requested before a boundary, and why it is not later.

Hudi's readers take whatever is older than the first write on the active timeline for committed, and know no completion
times of it but from the history, which hudi-rs does not read. So the boundary is before all that is not decided yet,
and before all that such a reader would read wrongly without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakelatch.engine.options.archiving import ArchivingOptions
from lakelatch.engine.services.file_versions import versions
from lakelatch.errors import CorruptTable
from lakelatch.format.bucket_index import bucket_of_file_id, successor_file_id
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
    """Nothing that was requested at this time or later may leave, and what stands in the way; "" for a whole table."""

    time: str
    why: str


@dataclass(frozen=True)
class Candidates:
    """The timeline, and what is claimed: `floor` is the greatest completion time before the claims were listed.

    A writer whose claim is not among them takes a time above it, so it cannot appear behind a boundary below that.
    """

    whole: WholeTimeline
    floor: str
    undecided: frozenset[str]

    @classmethod
    def take(cls, storage: Storage, snapshots: Snapshots, before: Snapshot) -> Candidates:
        """Those of now; `before` is an earlier snapshot."""
        names = (*storage.names(HEARTBEAT_FOLDER), *storage.names(CANCEL_FOLDER))
        undecided = frozenset(filter(is_time, map(requested_time, names)))
        whole = WholeTimeline.load(storage, snapshots.at_rest(), snapshots.rollbacks)
        return cls(whole, before.latest_completion, undecided)

    @property
    def writes(self) -> list[Instant]:
        """Completed writes on the active timeline, by requested time."""
        return sorted(self.whole.active.writes)

    def may_leave(self, boundary: str) -> list[Instant]:
        """What completed, of the actions that Hudi archives, before a boundary; by requested time."""
        found = [one for one in self.writes if one.requested < boundary]
        for one in self.whole.active.completed:
            if one.action in (CLEAN, ROLLBACK) and one.requested < boundary and (one.completion or "") < boundary:
                found.append(one)
        return sorted(found)

    def has_any_before(self, boundary: str) -> bool:
        """Whether anything may leave before a boundary, or was cancelled there."""
        return bool(self.may_leave(boundary)) or any(one.requested < boundary for one in self.whole.active.aborted)

    def same_before(self, other: Candidates, boundary: str) -> bool:
        """Whether others have shown the same before a boundary, and the same rollbacks anywhere."""
        return _decisive(self.whole.active, boundary) == _decisive(other.whole.active, boundary)


def timeline_hold(storage: Storage, candidates: Candidates, options: ArchivingOptions) -> Hold:
    """The first thing in the way, of all that the timeline's folder tells."""
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
        undecided[victim] = f"the rollback {rollback} of {victim or 'nobody knows what'} is pending"
    holds.extend(Hold(_last_until(writes, time), why) for time, why in undecided.items())
    holds.extend(_clean_holds(candidates, writes))
    return first_hold(candidates, holds)


def first_hold(candidates: Candidates, holds: Iterable[Hold]) -> Hold:
    """The first of some holds, at a write: readers count all that is older than the first write that stays.

    So nothing that is not decided, or has ended without a commit, may lie between the boundary and that write.
    """
    first = min(holds, key=lambda hold: hold.time)
    return Hold(_last_until(candidates.writes, first.time), first.why)


def _victims(storage: Storage, whole: WholeTimeline, pending: Iterable[Instant]) -> Iterator[tuple[str, str]]:
    """Instants that are being rolled back, and by what. One whose plan is still being written may be of any, ""."""
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
    """The next clean begins with the instants that the last one kept, and with what it says of them."""
    cleans = candidates.whole.active.by_action.get(CLEAN)
    if not cleans:
        return
    last = cleans[-1]
    yield Hold(_last_until(writes, last.requested), f"the clean {last.requested} is the last one")
    earliest = read_earliest_retained(candidates.whole.content(last), last.path)
    if earliest:
        yield Hold(earliest, f"the clean {last.requested} keeps what was written from {earliest} on")


def _last_until(writes: Iterable[Instant], time: str) -> str:
    """The last completed write until a time, which stays: without it, files of that time would count as committed."""
    return max((one.requested for one in writes if one.requested <= time), default=time)


def _decisive(timeline: Snapshot, boundary: str) -> set[Instant]:
    return {one for one in timeline.instants if one.requested < boundary or one.action in (ROLLBACK, RESTORE)}


def cancelled_hold(candidates: Candidates, over: Instant) -> Hold:
    """What a plan that was cancelled a moment ago holds back: late requests for its files may come."""
    return Hold(_last_until(candidates.writes, over.requested), f"the {over.action} {over.requested} was cancelled")


def spared_hold(candidates: Candidates, instant: Instant) -> Hold | None:
    """What a clustering holds back that has left file groups alone: it bars the names of what it began there.

    While it is on the active timeline no reader shows a late file of these. None for any other instant.
    """
    if instant.action != REPLACE_COMMIT:
        return None
    ids = {file_id for found in candidates.whole.metadata(instant).replaced.values() for file_id in found}
    began = {
        successor_file_id(bucket, instant.requested) for one in ids if (bucket := bucket_of_file_id(one)) is not None
    }
    if ids.isdisjoint(began):
        return None
    return Hold(instant.requested, f"files of the part of {instant.requested} that was left out may come late")


# -- what data files tell ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FilesLook:
    """What the data files of some partitions tell of the instants that may leave."""

    holds: tuple[Hold, ...]
    orphans: tuple[Orphan, ...]
    superseded: tuple[tuple[str, str], ...] = ()  # logs of older slices: requested times, and when others came instead

    def hold_of_past(self, candidates: Candidates, hold: Hold) -> Hold:
        """The hold, or an earlier one, so that whatever the table can be taken back to is read alike by all.

        Older slices are live again after a restore to one of the commits that stay, or a rollback of one.
        """
        while True:
            stays = min((one.completion or "" for one in candidates.writes if one.requested >= hold.time), default="")
            logs = [log for log, until in self.superseded if log < hold.time and stays and stays <= until]
            if not logs:
                return hold
            why = f"the table can be taken back to where a log file of {min(logs)} waited for a compaction"
            hold = first_hold(candidates, [Hold(min(logs), why)])


@dataclass(frozen=True)
class Orphan:
    """A file of a write that ended without a commit. It would count as committed once the boundary has passed it.

    A tombstone in a live file group is harmless: nobody finds rows in it, nor another file group.
    """

    path: str
    instant: str
    harmless: bool
    modified_ms: int

    def hold(self, candidates: Candidates) -> Hold:
        """What it holds back for as long as it is there."""
        why = f"the file {self.path} of the failed write {self.instant} is there"
        return Hold(_last_until(candidates.writes, self.instant), why)


def look_at_files(
    storage: Storage, config: TableConfig, candidates: Candidates, leaving: list[Instant], boundary: str
) -> FilesLook:
    """Holds and orphans among the files that the leaving instants have written, replaced or rolled back.

    Errors: `CorruptTable` if one of their partitions lacks a file that a write on the active timeline names.
    """
    view = TableView(storage, config, candidates.whole, expects=active)
    metadata = {one: candidates.whole.metadata(one) for one in leaving if one.action in WRITE_ACTIONS}
    partitions = sorted(_partitions(candidates, leaving, metadata))
    slices = view.slices(partitions)
    files = {partition: storage.list(partition).files for partition in partitions}
    holds = [*_slice_holds(slices), *_replace_holds(metadata, files)]
    live = {(one.partition, one.file_id) for one in slices}
    past = _superseded_logs(candidates, files, view.replaced())
    return FilesLook(tuple(holds), tuple(_orphans(storage, candidates, files, live, boundary)), tuple(past))


def _partitions(candidates: Candidates, leaving: list[Instant], metadata: Mapping[Instant, CommitMetadata]) -> set[str]:
    found = {stat.partition for one in metadata.values() for stat in one.stats}
    found.update(partition for one in metadata.values() for partition in one.replaced)
    for one in leaving:
        if one.action == ROLLBACK:
            found.update(read_cleaned(candidates.whole.content(one), one.path))
    return found


def _slice_holds(slices: Iterable[FileSlice]) -> Iterator[Hold]:
    """hudi-rs takes an archived log for completed when it was requested: rows are lost where that is another slice."""
    for one in slices:
        for file in map(parse_data_file, one.fresh_logs):
            if isinstance(file, LogFile) and (one.base_file is None or file.instant < one.base_instant):
                why = f"its log file in {one.partition!r}, file group {one.file_id}, waits for a compaction"
                yield Hold(file.instant, why)


def _superseded_logs(
    candidates: Candidates, files: Mapping[str, Collection[str]], replaced: Mapping[FileGroup, str]
) -> Iterator[tuple[str, str]]:
    """Logs that would be in another slice for hudi-rs if they were archived, as above, of slices that are not live."""
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
