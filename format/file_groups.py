"""Which file id we give a bucket that has no live file group: the fixed one, or its successor after a replace commit.

A replaced file id stays hidden for as long as its replace commit is on the timeline, so nothing may be written to it
again. Its successor follows from the replace commit alone: all writers find the same one without talking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from lakelatch.errors import CorruptTable
from lakelatch.format.bucket_index import bucket_file_id, bucket_of_file_id, successor_file_id
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import REPLACE_COMMIT
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import ABORTED, HISTORY_NAME, Instant, parse_file_name
from lakelatch.timeline.log.whole_timeline import read_completed
from lakelatch.timeline.metadata import CommitMetadata, FileGroup

_REPLACED_MAX = 10_000  # of the names that tasks carry; about half a megabyte
_WHOLE_PARTITIONS = ("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION")


@dataclass(frozen=True)
class ReplaceCommit:
    """What one completed replace commit took away and put in its place: file ids by partition."""

    instant: Instant
    operation_type: str
    written: Mapping[str, tuple[str, ...]]
    replaced: Mapping[str, tuple[str, ...]]

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions that it wrote to or took file groups away from."""
        return frozenset(self.written) | frozenset(self.replaced)

    def replaced_file_groups(self) -> frozenset[FileGroup]:
        """The file groups that it took away."""
        return frozenset((partition, file_id) for partition, ids in self.replaced.items() for file_id in ids)


@dataclass(frozen=True)
class _Generation:
    """The file ids of one partition: successors of `instant` ("" for the fixed ones), but for the named buckets."""

    instant: str = ""
    buckets: Mapping[int, str] = field(default_factory=dict)

    def of(self, bucket: int) -> str:
        if bucket in self.buckets:
            return self.buckets[bucket]
        return successor_file_id(bucket, self.instant) if self.instant else bucket_file_id(bucket)

    def after(self, replace: ReplaceCommit, partition: str) -> _Generation:
        if replace.operation_type in _WHOLE_PARTITIONS:
            fresh = _Generation(replace.instant.requested)
            buckets: dict[int, str] = {}
        else:
            fresh, buckets = self, dict(self.buckets)
            for bucket, file_id in _buckets(replace.replaced.get(partition, ())).items():
                successor = successor_file_id(bucket, replace.instant.requested)
                if file_id != successor:  # else a clustering has left the bucket alone, and bars what it began there
                    buckets[bucket] = successor
        for bucket, file_id in _buckets(replace.written.get(partition, ())).items():
            if fresh.of(bucket) != file_id:  # another engine draws random ids
                buckets[bucket] = file_id
        return _Generation(fresh.instant, buckets)


@dataclass(frozen=True)
class FileIds:
    """The file id of each bucket as of some replace commits. Pickles, and is small: tasks carry it."""

    partitions: Mapping[str, _Generation] = field(default_factory=dict)
    default: _Generation = field(default_factory=_Generation)
    replaced: frozenset[FileGroup] = frozenset()  # those that the last replace commits took away, perhaps not all
    cancelled: frozenset[str] = frozenset()  # requested times of plans that were called off: no file of theirs counts

    @classmethod
    def after(cls, replaces: Iterable[ReplaceCommit], cancelled: Iterable[str] = ()) -> FileIds:
        """As all writers must use them after these replace commits, given in order of completion.

        A replace of whole partitions moves every bucket of them, also one that had no file yet: another writer may be
        about to write its first one. Any other replace (a clustering) moves the buckets that it names.
        """
        partitions: dict[str, _Generation] = {}
        ordered = tuple(replaces)
        for replace in ordered:
            for partition in replace.partitions:
                partitions[partition] = partitions.get(partition, _Generation()).after(replace, partition)
        latest = (group for replace in reversed(ordered) for group in sorted(replace.replaced_file_groups()))
        return cls(partitions, replaced=frozenset(islice(latest, _REPLACED_MAX)), cancelled=frozenset(cancelled))

    @classmethod
    def of_replace(cls, instant: str) -> FileIds:
        """Where the replace commit of this requested time writes its own rows."""
        return cls(default=_Generation(instant))

    @property
    def of_one_replace(self) -> bool:
        """Whether these are the file ids of a replace commit's own rows, under which there is nothing yet."""
        return bool(self.default.instant)

    def of(self, partition: str, bucket: int) -> str:
        """The file id that we give a bucket that has no live file group; see `LiveGroups` for one that has."""
        return self.partitions.get(partition, self.default).of(bucket)

    def successor_of(self, partition: str, file_id: str) -> str:
        """The file id that we give the bucket of this one."""
        bucket = bucket_of_file_id(file_id)
        return file_id if bucket is None else self.of(partition, bucket)


def replace_commits(
    storage: Storage, names: Collection[str], archived_after: str | None = ""
) -> tuple[ReplaceCommit, ...]:
    """The completed replace commits among a timeline's file names, and those that were archived, by completion.

    Of those in the history, the ones that completed after a time; None leaves them all out. Costs a look at the names
    where there are none. What is on a timeline never changes, so each is read once a process.
    """
    named = (parse_file_name(name) for name in names if name.endswith(f".{REPLACE_COMMIT}"))
    found = {instant.requested: instant for instant in named if instant is not None}
    if archived_after is not None and HISTORY_NAME in names:
        history = History.load(storage)
        for archived in history.instants((REPLACE_COMMIT,), after=archived_after):
            found.setdefault(archived.requested, archived.instant)
    ordered = sorted(found.values(), key=lambda instant: (instant.completion or "", instant.requested))
    return tuple(replace_commit(storage, instant) for instant in ordered)


def cancelled_plans(names: Collection[str]) -> Iterator[str]:
    """The requested times of the plans among a timeline's file names that were called off, in any order."""
    for name in names:
        if name.endswith(f".{ABORTED}") and (instant := parse_file_name(name)) is not None:
            yield instant.requested


def undone_replaces(storage: Storage, lost: Collection[str], names: frozenset[str]) -> list[Instant]:
    """The completed replace commits among lost names that others have rolled back: what they took away lives.

    `names` is the listing of the timeline that has them no more. Those that were archived count still.
    """
    found = [parse_file_name(name) for name in lost if name.endswith(f".{REPLACE_COMMIT}")]
    gone = {instant.requested: instant for instant in found if instant is not None}
    if gone and HISTORY_NAME in names:
        for archived in History.load(storage).find_all(gone):
            gone.pop(archived)
    return list(gone.values())


def replace_commit(
    storage: Storage, instant: Instant, content: Callable[[Instant], bytes] | None = None
) -> ReplaceCommit:
    """What a completed replace commit did. `content` gives its bytes, if the caller knows where to look."""
    place = _place(storage, instant)
    if not place:
        data = read_completed(storage, instant) if content is None else content(instant)
        metadata = CommitMetadata.from_avro(data, instant.path)
        written: dict[str, list[str]] = {}
        for partition, file_id in sorted(metadata.file_groups()):
            written.setdefault(partition, []).append(file_id)
        frozen = {partition: tuple(ids) for partition, ids in written.items()}
        place.append(ReplaceCommit(instant, metadata.operation_type, frozen, metadata.replaced))
    return place[0]


@lru_cache(maxsize=4096)
def _place(storage: Storage, instant: Instant) -> list[ReplaceCommit]:
    """Where a process keeps what it has read: an empty list at first."""
    return []


def twins(file_ids: Sequence[str], bucket_count: int | None) -> tuple[str, str] | None:
    """Two of these live file groups of one partition that are of one bucket; None if no two are.

    A table that says nowhere that it has a bucket index has one if all its file ids look like it, since a random id
    starts with eight decimal digits once in forty. There, ids that differ in their last number only are no twins.
    """
    seen: dict[int, str] = {}
    found: tuple[str, str] | None = None
    for file_id in file_ids:
        bucket = bucket_of_file_id(file_id)
        if bucket is None:
            if bucket_count is None:
                return None
            continue
        other = seen.setdefault(bucket, file_id)
        same_draw = bucket_count is None and other.rpartition("-")[0] == file_id.rpartition("-")[0]
        if other != file_id and not same_draw:
            found = found or (other, file_id)
    return found


def two_live_groups(storage: Storage, partition: str, pair: tuple[str, str]) -> CorruptTable:
    """The error for two live file groups of one bucket."""
    return CorruptTable(
        f"the bucket {bucket_of_file_id(pair[0])} of the partition {partition!r} of {storage.uri} has two live file "
        f"groups, {pair[0]} and {pair[1]}: keys that are in both would be read twice. Take back what was written to "
        "one of them (Hudi's CALL rollback_to_instant, newest instant first), and write it again",
        file_groups=[(partition, file_id) for file_id in pair],
    )


def _buckets(file_ids: Iterable[str]) -> dict[int, str]:
    found = ((bucket_of_file_id(file_id), file_id) for file_id in file_ids)
    return {bucket: file_id for bucket, file_id in found if bucket is not None}
