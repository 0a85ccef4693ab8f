"""Which files of a table were live at a moment, and how to tell whether that still says what is live now.

An index is a cache: nothing stands on it but the time that a plan takes. It is the answer that a listing gave, or an
older index and the commits since, together with what that answer stood on, so that whoever reads it can hold it against
the timeline as it is now.
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
    each instant that one of the names has. `writes` are the names of the completed writes that the active timeline had
    by then: if another one of that time appears, or one of them was taken back, the index says nothing. `statistics`
    are of some of the base files.
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
        """Errors: `CorruptTable` for bytes that nobody wrote as this path."""
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
        """The writes that completed since, in order; None if the index cannot be held against this timeline.

        Those of its time must be the very ones that it knows. What has gone from the active timeline since must be in
        the history: nobody takes back what was archived.
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
        """The index with the files of commits that came after it, as `files_of` has them, in order of completion.

        What they replaced, compacted or superseded stays: readers cut slices by the timeline, as they do of a listing.
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
    """The names of the files that a commit has written, by partition; None if it is another engine's.

    What a commit of ours names is all that it has written. Of others nobody here has looked.
    """
    if WRITER_KEY not in metadata.extra:
        return None
    found: dict[str, list[str]] = {}
    for stat in metadata.stats:
        partition, _, name = stat.path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return {partition: tuple(names) for partition, names in found.items()}
