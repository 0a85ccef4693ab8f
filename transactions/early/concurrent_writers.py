"""Other writes that are at work on the same file groups, as their heartbeats and markers show them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from lakelatch.heartbeat.observer import Observer
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.actions import TABLE_SERVICES
from lakelatch.timeline.instant import COMPLETED, TIMELINE_FOLDER, parse_file_name
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.conflicts.contract import OtherWrite
from lakelatch.transactions.early.notes import has_lost
from lakelatch.transactions.markers.files import INFIX, MARKERS_FOLDER, MarkersFileReader, is_markers_file

_DIGITS = 17


def file_id_of(data_file_name: str) -> str:
    """The file id in the name of a base file (`<id>_...`) or a log file (`.<id>_...`)."""
    return data_file_name.removeprefix(".").partition("_")[0]


def order_of(instant: str) -> str:
    """The sort key of a requested time: early Hudi's have 14 digits and mean the end of their second."""
    return instant.ljust(_DIGITS, "9")


class ConcurrentWriters:
    """Finds one write's concurrent writers. `group_part` is the part of a file id that counts (`ConflictStrategy`).

    A check costs a listing of the heartbeat folder, and for each live instant a listing of its folder and of its direct
    markers in the partitions of the given groups, never of all; of MARKERS files, those that have changed are read. The
    rest is read only after a marker was found. Used by one thread.
    """

    def __init__(self, storage: Storage, instant: str, group_part: Callable[[str], str], observer: Observer) -> None:
        self._storage = storage
        self._instant = instant
        self._group_part = group_part
        self._observer = observer
        self._files = MarkersFileReader(storage)

    def on(self, groups: Collection[FileGroup], instants: Collection[str] | None = None) -> list[OtherWrite]:
        """Writes with markers of these groups that are at work, or have completed since this one began; oldest first.

        Table services are left out. Each has only those of the groups that it touches. If `instants` are given, only
        they are checked.
        """
        found = []
        for other in sorted(self.instants() if instants is None else instants, key=order_of):
            touched = self._touched(other, groups)
            other_write = self.write_of(other, frozenset(touched), touched.values()) if touched else None
            if other_write is not None:
                found.append(other_write)
        return found

    def instants(self) -> list[str]:
        """Other instants with a heartbeat file, which may be old."""
        names = self._observer.instants()
        return [name for name in names if name != self._instant and len(name) in (14, _DIGITS) and name.isdigit()]

    def write_of(self, other: str, groups: frozenset[FileGroup], markers: Iterable[str] = ()) -> OtherWrite | None:
        """The write of an instant if it is a concurrent writer, else None. The markers say since when.

        It is none if it is a table service, if it has ended without completing, if its writer is dead, or if it had
        completed before this one began, and is not cleaned up yet.
        """
        marked_ms = [self._modified_ms(marker) for marker in markers]
        names = [name for name in self._storage.names(TIMELINE_FOLDER) if name.startswith(other)]
        files = [file for file in map(parse_file_name, names) if file is not None and file.requested == other]
        if not files or any(file.action in TABLE_SERVICES for file in files):  # a compaction completes as a commit
            return None
        instant = next((file for file in files if file.state == COMPLETED), files[0])
        beat = self._observer.beat_of(other)
        writer = beat.writer if beat is not None else ""
        if instant.state == COMPLETED:
            time = instant.completion or ""
            # A time of the log that is above our requested one belongs to a slot after our beginning.
            if time <= order_of(self._instant):
                return None
            return OtherWrite(other, instant.action, "", groups, writer, time=time)
        if self._observer.dead([other]) or has_lost(self._storage, other):
            return None
        known_ms = [time_ms for time_ms in marked_ms if time_ms is not None]
        time = to_instant(min(known_ms)) if known_ms else ""
        return OtherWrite(other, instant.action, "", groups, writer, time=time, inflight=True)

    def _touched(self, other: str, groups: Collection[FileGroup]) -> dict[FileGroup, str]:
        """The groups that an instant has marked, each with a marker."""
        folder = f"{MARKERS_FOLDER}/{other}"
        top = self._storage.names(folder)
        servers = [f"{folder}/{name}" for name in top if is_markers_file(name)]
        found: dict[FileGroup, str] = {}
        for partition in {partition for partition, _ in groups}:
            wanted: dict[str, list[FileGroup]] = {}
            for group in groups:
                if group[0] == partition:
                    wanted.setdefault(self._group_part(group[1]), []).append(group)
            for data_file, path in self._marked(folder, top, servers, partition):
                for group in wanted.get(self._group_part(file_id_of(data_file)), ()):
                    found.setdefault(group, path)
        return found

    def _marked(
        self, folder: str, top: Collection[str], servers: list[str], partition: str
    ) -> Iterator[tuple[str, str]]:
        """Names of the data files that are marked in a partition, each with its marker."""
        inner, names = folder, top
        if partition:
            inner = f"{folder}/{partition}"
            names = self._storage.names(inner) if partition.partition("/")[0] in top else ()
        for name in names:
            data_file, infix, _ = name.rpartition(INFIX)
            if infix:
                yield data_file, f"{inner}/{name}"
        for path in servers:
            for data_file in self._files.marked_in(path, partition):
                yield data_file, path

    def _modified_ms(self, path: str) -> int | None:
        try:
            return self._storage.stat(path).modified_ms
        except NotFound:
            return None
