"""The commit of a clustering: which file groups it replaces is resolved at its slot in the log.

It replaces what it has read. So a file group that was written to since the plan is left out: the old one stays live,
and the new one's file id is named as *replaced by the same commit*. No reader shows a file of it, whether it exists
already or is put by an executor that was paused for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from lakelatch.errors import Unavailable
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.names import parse_data_file
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import CLUSTERING, ROLLBACK, SERVICES_THAT_ADD_A_SLICE, WRITE_ACTIONS
from lakelatch.timeline.instant import TIMELINE_FOLDER, Instant, parse_file_name
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_commit
from lakelatch.timeline.metadata import CommitMetadata, CompactionOperation, FileGroup, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import At, cancelled_groups
from lakelatch.transactions.base.cancel_requests import request_of
from lakelatch.transactions.base.outcome import Changed
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Work

Place = tuple[str, int | str]  # partition, and bucket or file id
_SLICES_ONLY = frozenset(SERVICES_THAT_ADD_A_SLICE.values())


def place_of(group: FileGroup) -> Place:
    """The partition and bucket of a file group, by which groups are compared: a bucket has one live file group."""
    bucket = bucket_of_file_id(group[1])
    return group[0], group[1] if bucket is None else bucket


def touched_since(storage: Storage, instant: str) -> frozenset[Place]:
    """Places where writes completed since a plan, as far as the timeline shows them; only the commit knows all."""
    found: set[Place] = set()
    for other in map(parse_file_name, storage.names(TIMELINE_FOLDER)):
        if other is not None and other.action in WRITE_ACTIONS and (other.completion or "") > instant:
            try:
                found |= _places_of(storage, other)
            except NotFound:  # rolled back meanwhile
                continue
    return frozenset(found)


def is_cancel_requested(storage: Storage, instant: str, group: FileGroup) -> bool:
    """Whether the cancellation of a planned file group has been requested."""
    asked = request_of(storage, instant, CLUSTERING)
    return asked is not None and asked.covers([group])


@lru_cache(maxsize=1024)
def _places_of(storage: Storage, instant: Instant) -> frozenset[Place]:
    metadata = read_commit(storage, instant)
    if metadata.operation_type in _SLICES_ONLY:
        return frozenset()
    return frozenset(map(place_of, metadata.file_groups() | metadata.replaced_file_groups()))


@dataclass(frozen=True)
class Clustered:
    """What becomes one file group, `target`: the operations, and the files of the target if they were made."""

    operations: tuple[CompactionOperation, ...]
    target: FileGroup
    stats: tuple[WriteStat, ...] = ()

    @property
    def groups(self) -> frozenset[FileGroup]:
        """The file groups to be replaced, all or none."""
        return frozenset((one.partition, one.file_id) for one in self.operations)

    @property
    def instants(self) -> set[str]:
        """The writes whose rows were read."""
        names = (name for one in self.operations for name in (*one.delta_files, one.base_file) if name)
        return {file.instant for file in map(parse_data_file, names) if file is not None}


@dataclass(frozen=True)
class ClusteringCommit:
    """A clustering about to commit. `metadata` lacks files and replaced file groups."""

    storage: Storage
    instant: str
    metadata: CommitMetadata
    clustered: tuple[Clustered, ...]
    in_part: bool

    @property
    def work(self) -> Work:
        """The work that is lost without a commit."""
        return Work.of(replace(self.metadata, stats=tuple(stat for one in self.clustered for stat in one.stats)))

    def check(self, snapshot: Snapshot, at: At) -> Changed | Conflict:
        """Commits the new file groups, except those that other writes touched, or whose cancellation was requested.

        A conflict if none is left, or if the plan is indivisible. Errors: `Unavailable` if tasks left a file group out
        for a write that was undone since.
        """
        touched = self._touched(snapshot, at.since)
        alone = {*touched, *cancelled_groups(at.context, at.state)}
        left = [one for one in self.clustered if one.stats and one.groups.isdisjoint(alone)]
        if touched and not (left and self.in_part):
            winner = next(iter(touched.values()))
            ours = frozenset(group for group, write in touched.items() if write is winner)
            return Conflict(winner, ours)
        if not left or (not self.in_part and len(left) < len(self.clustered)):
            raise Unavailable(f"clustering {self.instant} met a write that was undone meanwhile: carry it out again")
        kept = frozenset().union(*(one.groups for one in left))
        spared = frozenset(one.target for one in self.clustered if one not in left)
        replaced: dict[str, list[str]] = {}
        for partition, file_id in sorted({*kept, *spared}):
            replaced.setdefault(partition, []).append(file_id)
        metadata = replace(
            at.staged.metadata,
            stats=tuple(stat for one in left for stat in one.stats),
            replaced={partition: tuple(ids) for partition, ids in replaced.items()},
        )
        return Changed(replace(at.staged, metadata=metadata, spared=spared))

    def _touched(self, snapshot: Snapshot, completed: list[OtherWrite]) -> Mapping[FileGroup, OtherWrite]:
        """The planned file groups that changed since they were read, each with the write that did."""
        by_place: dict[Place, OtherWrite] = {}
        for write in completed:
            if write.operation_type not in _SLICES_ONLY:
                for group in write.file_groups:
                    by_place.setdefault(place_of(group), write)
        groups = [group for one in self.clustered for group in one.groups]
        touched = {group: by_place[place_of(group)] for group in groups if place_of(group) in by_place}
        undone = self._undone(snapshot)
        for one in self.clustered:
            for instant in sorted(one.instants & undone):
                for group in one.groups:
                    touched.setdefault(group, OtherWrite(instant, ROLLBACK, "", one.groups))
        return touched

    def _undone(self, snapshot: Snapshot) -> set[str]:
        """Writes whose rows were read and that were rolled back since: their rows must not come back."""
        instants = {instant for one in self.clustered for instant in one.instants}
        read = {instant for instant in instants if not snapshot.has_completed(instant)}
        return read.difference(WholeTimeline.load(self.storage).completion_times(read)) if read else read
