"""A table at one moment: which file slices a reader of that moment must read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakelatch.errors import CorruptTable
from lakelatch.pipeline.file_slices import FileSlice, file_slices
from lakelatch.storage.contract import Storage
from lakelatch.timeline.instants import COMPLETED, Instant, Timeline
from lakelatch.timeline.metadata import CommitMetadata, CompactionPlan
from lakelatch.timeline.table_config import TableConfig


@dataclass(frozen=True)
class TableView:
    """The slices of one moment. Made from one listing of the timeline, taken before the data files are listed.

    A file that appears in between belongs to an instant that the listing does not name, so it is not seen.
    """

    storage: Storage
    config: TableConfig
    timeline: Timeline
    as_of: str | None = None

    @classmethod
    def load(cls, storage: Storage, config: TableConfig, as_of: str | None = None) -> TableView:
        return cls(storage, config, Timeline.load(storage), as_of)

    def slices(self, partitions: list[str] | None = None) -> list[FileSlice]:
        """The latest slice of every file group, of all partitions or of those named."""
        return [group[0] for group in self.groups(partitions)]

    def groups(self, partitions: list[str] | None = None) -> list[list[FileSlice]]:
        """Every file group's slices, latest first; groups without a visible file are left out."""
        completions = self.timeline.completion_times()
        replaced = self._replaced()
        absorbed = self._absorbed_logs()
        found: list[list[FileSlice]] = []
        for partition in self.partitions() if partitions is None else partitions:
            names = self.storage.list(partition).files
            found.extend(
                file_slices(
                    partition,
                    names,
                    completions,
                    as_of=self.as_of,
                    replaced={file_id: time for (inside, file_id), time in replaced.items() if inside == partition},
                    absorbed_logs=absorbed,
                )
            )
        return found

    def partitions(self) -> list[str]:
        """Partition paths, by depth below the table: that is where every Hudi reader looks."""
        return sorted(self._descend("", len(self.config.partition_fields)))

    def completed_between(self, begin: str, end: str | None) -> list[Instant]:
        """Writes completed after `begin` and not after `end`, by completion time."""
        writes = ("commit", "deltacommit", "replacecommit")
        found = [
            instant
            for instant in self.timeline.completed
            if instant.action in writes
            and (instant.completion or "") > begin
            and (end is None or (instant.completion or "") <= end)
        ]
        return sorted(found, key=lambda instant: instant.completion or "")

    def metadata(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write."""
        try:
            return CommitMetadata.from_avro(self.storage.read(instant.path))
        except CorruptTable as error:
            raise CorruptTable(f"{instant.path}: {error.message}") from error

    def _descend(self, folder: str, depth: int) -> Iterator[str]:
        if depth == 0:
            yield folder
            return
        for name in self.storage.list(folder).folders:
            if name != ".hoodie":
                yield from self._descend(f"{folder}/{name}" if folder else name, depth - 1)

    def _replaced(self) -> dict[tuple[str, str], str]:
        """Completion time of the write that replaced a file group."""
        replaced: dict[tuple[str, str], str] = {}
        for instant in self.timeline.completed:
            if instant.action == "replacecommit" and (self.as_of is None or (instant.completion or "") <= self.as_of):
                for group in self.metadata(instant).replaced_file_groups():
                    replaced[group] = max(replaced.get(group, ""), instant.completion or "")
        return replaced

    def _absorbed_logs(self) -> frozenset[str]:
        """Names of log files that a completed log compaction has rewritten into one."""
        completed = {
            instant.requested
            for instant in self.timeline.completed
            if self.as_of is None or (instant.completion or "") <= self.as_of
        }
        names: set[str] = set()
        for instant in self.timeline.instants:
            is_plan = instant.action == "logcompaction" and instant.state not in (COMPLETED, "inflight")
            if is_plan and instant.requested in completed:
                plan = CompactionPlan.from_avro(self.storage.read(instant.path))
                for operation in plan.operations:
                    names.update(operation.delta_files)
        return frozenset(names)
