"""What a clean has read of completed commits, kept from one try of its plan to the next: that cannot change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.heartbeat.observer import Observer
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline


@dataclass(frozen=True)
class KnownCommits:
    """Of one clean, whose plan others may make it decide again. `began_ms` is by the storage's clock.

    By that time files are old. It is before each listing of the timeline by which the clean is planned: a file of a
    writer that began while this process was paused would seem old otherwise.
    """

    began_ms: int
    _said: dict[str, _Said] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def since_now(cls, storage: Storage) -> KnownCommits:
        return cls(Observer(storage).storage_time_ms())

    def partitions(self, whole: WholeTimeline, writes: Sequence[Instant]) -> set[str]:
        """The partitions in which these writes have written or replaced files; reads what they say if it has to."""
        self._read(whole, writes)
        return set().union(*(self._said[one.requested].partitions for one in writes))

    def read_writers(self, whole: WholeTimeline, names: Iterable[str]) -> None:
        """Reads which paths the writes of these log files name: those are no tombstones, and need no requests."""
        logs = {file.instant for file in map(parse_data_file, names) if isinstance(file, LogFile)}
        found = [one for one in map(whole.find, sorted(logs - self._said.keys())) if one is not None]
        self._read(whole, [one for one in found if one.action in WRITE_ACTIONS])

    def is_written(self, partition: str, name: str, instant: str) -> bool:
        """Whether the write of this instant names the file, as far as `read_writers` has read it."""
        said = self._said.get(instant)
        return said is not None and path_below(partition, name) in said.paths

    def _read(self, whole: WholeTimeline, writes: Sequence[Instant]) -> None:
        new = [one for one in writes if one.requested not in self._said]
        for one, metadata in zip(new, whole.metadata_of(new), strict=True):
            groups = metadata.file_groups() | metadata.replaced_file_groups()
            partitions = frozenset(partition for partition, _ in groups)
            self._said[one.requested] = _Said(partitions, frozenset(stat.path for stat in metadata.stats))


class _Said(NamedTuple):
    """What one write says: where it has written or replaced files, and the paths of those that it has written."""

    partitions: frozenset[str]
    paths: frozenset[str]
