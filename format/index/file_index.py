"""The files of a table that were live at a moment, and the check whether they still are.

An index is a cache: only the time of planning depends on it. It is the result of a listing, or of an older index and
the commits since, together with the writes that it was based on, so that a reader can compare it with the current
timeline.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakelatch.errors import CorruptTable
from lakelatch.format.index.statistics import Statistics
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import Instant, parse_file_name
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.snapshot import Snapshot

INDEX_FOLDER = ".hoodie/.lakelatch/index"
_FORMAT = 1  # of which statistics are a part that may be missing, and that older readers pass over
_COMPRESSION = 1  # names repeat so much that more effort makes it little smaller


@dataclass(frozen=True)
class FileIndex:
    """The files of the latest slice of every file group, as of a completion time.

    `files` are their names, by partition, perhaps with some of older slices; `completions` has the completion time of
    each instant in these names. `writes` are the names of the completed writes that the active timeline had by then: if
    another one of that time appears, or one of them was rolled back, the index is unusable. `statistics` cover some of
    the base files.
    """

    moment: str
    writes: frozenset[str]
    completions: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]
    statistics: Statistics = field(default_factory=Statistics)

    @property
    def path(self) -> str:
        return index_path(self.moment)

    def to_bytes(self) -> bytes:
        values = {**vars(self), "writes": sorted(self.writes), "statistics": self.statistics.to_json()}
        return zlib.compress(checksummed_json({"format": _FORMAT, **values}, self.path), _COMPRESSION)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> FileIndex:
        """Errors: `CorruptTable` for bytes that were not written as this path."""
        try:
            values = open_checksummed_json(zlib.decompress(data), path)
            if values is None or values["format"] != _FORMAT:
                raise ValueError("its checksum is wrong or missing, or it is of another format")
            files = {partition: tuple(names) for partition, names in values["files"].items()}
            statistics = Statistics.from_json(values["statistics"]) if "statistics" in values else Statistics()
            return cls(values["moment"], frozenset(values["writes"]), values["completions"], files, statistics)
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptTable(f"{path} is no file index ({error}): remove it, nothing is lost", path=path) from error

    def writes_since(self, whole: WholeTimeline) -> list[Instant] | None:
        """The writes that completed since, in order; None if the index does not fit this timeline.

        The writes until its moment must be the ones that it has. Those that left the active timeline since must be in
        the history, since archived writes are not rolled back.
        """
        if not self.moment or self.moment > whole.latest:
            return None
        active = writes_until(whole.active, self.moment)
        if not active <= self.writes:
            return None
        gone = [one for one in map(parse_file_name, self.writes - active) if one is not None]
        archived = whole.history.find_all([one.requested for one in gone])
        if any(one.requested not in archived or archived[one.requested].instant != one for one in gone):
            return None
        if any(whole.has_undone(one.requested) for one in gone):
            return None
        return whole.completed(WRITE_ACTIONS, after=self.moment)

    def after(self, commits: Iterable[tuple[Instant, Mapping[str, tuple[str, ...]]]]) -> FileIndex:
        """The index with the files of later commits, as returned by `files_of`, in order of completion.

        Files that they replaced, compacted or superseded stay: readers make slices by the timeline, as of a listing.
        """
        moment, completions, files = self.moment, dict(self.completions), dict(self.files)
        for instant, written in commits:
            moment = max(moment, instant.completion or "")
            completions[instant.requested] = instant.completion or ""
            for partition, names in written.items():
                files[partition] = (*files.get(partition, ()), *names)
        return FileIndex(moment, self.writes, completions, files, self.statistics)


def index_path(moment: str) -> str:
    return f"{INDEX_FOLDER}/{moment}.json.z"


def index_moment(name: str) -> str:
    """The moment of an index's file name; "" for a file that is none."""
    moment, dot, ending = name.partition(".")
    return moment if dot and ending == "json.z" and moment.isascii() and moment.isdigit() else ""


def writes_until(active: Snapshot, moment: str) -> frozenset[str]:
    """The names of the writes on an active timeline that had completed by a moment."""
    return frozenset(one.file_name for one in active.writes if (one.completion or "") <= moment)


def files_of(metadata: CommitMetadata) -> dict[str, tuple[str, ...]] | None:
    """The names of the files of a commit, by partition; None if it is another engine's, which may not name all."""
    if WRITER_KEY not in metadata.extra:
        return None
    found: dict[str, list[str]] = {}
    for stat in metadata.stats:
        partition, _, name = stat.path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return {partition: tuple(names) for partition, names in found.items()}
