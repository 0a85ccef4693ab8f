"""The file id that we give a bucket without a live file group: the fixed one, or its successor after a replace commit.

A replaced file id stays hidden for as long as its replace commit is on the timeline, so nothing may be written to it
again. Its successor depends only on the replace commit, so that all writers derive the same one.
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

_REPLACED_MAX = 10_000  # replaced file groups that tasks carry; about half a megabyte
_WHOLE_PARTITIONS = ("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION")


@dataclass(frozen=True)
class ReplaceCommit:
    """The file groups that one completed replace commit replaced and wrote: file ids by partition."""

    instant: Instant
    operation_type: str
    written: Mapping[str, tuple[str, ...]]
    replaced: Mapping[str, tuple[str, ...]]

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions in which it wrote or replaced file groups."""
        return frozenset(self.written) | frozenset(self.replaced)

    def replaced_file_groups(self) -> frozenset[FileGroup]:
        """The file groups that it replaced."""
        return frozenset((partition, file_id) for partition, ids in self.replaced.items() for file_id in ids)


@dataclass(frozen=True)
class _Generation:
    """The file ids of one partition: successors of `instant` ("" for the fixed ones), except for the named buckets."""

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
                if file_id != successor:  # else a clustering left the bucket out, and hides its own files there
                    buckets[bucket] = successor
        for bucket, file_id in _buckets(replace.written.get(partition, ())).items():
            if fresh.of(bucket) != file_id:  # another engine's random id
                buckets[bucket] = file_id
        return _Generation(fresh.instant, buckets)


@dataclass(frozen=True)
class FileIds:
    """The file id of each bucket as of some replace commits. Pickles, and is small: tasks carry it."""

    partitions: Mapping[str, _Generation] = field(default_factory=dict)
    default: _Generation = field(default_factory=_Generation)
    replaced: frozenset[FileGroup] = frozenset()  # by the last replace commits, perhaps not all
    cancelled: frozenset[str] = frozenset()  # requested times of cancelled plans: no file of theirs counts

    @classmethod
    def after(cls, replaces: Iterable[ReplaceCommit], cancelled: Iterable[str] = ()) -> FileIds:
        """The file ids that all writers must use after these replace commits, given in order of completion.

        A replace of whole partitions moves every bucket of them, even one that had no file yet: another writer may be
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
        """The file ids for the rows of the replace commit itself."""
        return cls(default=_Generation(instant))

    @property
    def of_one_replace(self) -> bool:
        """Whether these are the file ids of a replace commit's own rows, which have no files yet."""
        return bool(self.default.instant)

    def of(self, partition: str, bucket: int) -> str:
        """The file id that we give a bucket without a live file group; see `LiveGroups` for the others."""
        return self.partitions.get(partition, self.default).of(bucket)

    def successor_of(self, partition: str, file_id: str) -> str:
        """The file id that we give the bucket of this one."""
        bucket = bucket_of_file_id(file_id)
        return file_id if bucket is None else self.of(partition, bucket)


def replace_commits(
    storage: Storage, names: Collection[str], archived_after: str | None = ""
) -> tuple[ReplaceCommit, ...]:
    """The completed replace commits among a timeline's file names, and archived ones, by completion.

    Of the history, those that completed after `archived_after`, or none for None. Costs only a comparison of names if
    there are none. A completed instant never changes, so each is read once in a process.
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
    """The requested times of the plans among a timeline's file names that were cancelled, in any order."""
    for name in names:
        if name.endswith(f".{ABORTED}") and (instant := parse_file_name(name)) is not None:
            yield instant.requested


def undone_replaces(storage: Storage, lost: Collection[str], names: frozenset[str]) -> list[Instant]:
    """The completed replace commits among lost names that were rolled back: the groups that they replaced are live.

    `names` is a listing of the timeline without them. Archived ones still count as completed.
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
    """Reads a completed replace commit. `content` returns its bytes, if the caller knows where they are."""
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
    """The cache entry for an instant: an empty list at first."""
    return []


def two_of_one_bucket(file_ids: Sequence[str], bucket_count: int | None) -> tuple[str, str] | None:
    """Two of these live file groups of one partition that share a bucket; None if no two do.

    A table whose properties have no bucket count has a bucket index if all its file ids look like it, since a random id
    starts with eight decimal digits once in forty. There, ids that differ only in their last number do not count.
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
        f"groups, {pair[0]} and {pair[1]}: keys that are in both would be read twice. Roll back what was written to "
        "one of them (Hudi's CALL rollback_to_instant, newest instant first), and write it again",
        file_groups=[(partition, file_id) for file_id in pair],
    )


def _buckets(file_ids: Iterable[str]) -> dict[int, str]:
    found = ((bucket_of_file_id(file_id), file_id) for file_id in file_ids)
    return {bucket: file_id for bucket, file_id in found if bucket is not None}
