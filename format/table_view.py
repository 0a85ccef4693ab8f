"""A table at one moment: which file slices a reader of that moment must read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakelatch.format.file_groups import replace_commits
from lakelatch.format.file_slices import FileSlice, file_slices
from lakelatch.format.names import COMPACTED_MARK
from lakelatch.format.partitions import partition_files
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timeline.actions import LOG_COMPACTION, WRITE_ACTIONS
from lakelatch.timeline.metadata import CommitMetadata, CompactionPlan
from lakelatch.timeline.table_config import TableConfig
from lakelatch.timeline.timeline import REQUESTED, Instant, Timeline


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
        """The table now, or as of a completion time."""
        return cls(storage, config, Timeline.load(storage), as_of)

    def slices(self, partitions: list[str] | None = None) -> list[FileSlice]:
        """The latest slice of every file group, of all partitions or of those named."""
        return [group[0] for group in self.groups(partitions)]

    def replaced(self) -> dict[tuple[str, str], str]:
        """When each replaced file group was replaced: the completion time of the last replace commit that names it."""
        names = (
            instant.file_name
            for instant in self.timeline.completed
            if self.as_of is None or (instant.completion or "") <= self.as_of
        )
        return {
            group: replace.instant.completion or ""
            for replace in replace_commits(self.storage, names)
            for group in replace.replaced_file_groups()
        }

    def groups(self, partitions: list[str] | None = None) -> list[list[FileSlice]]:
        """Every file group's slices, latest first; groups without a visible file are left out."""
        completions = self.timeline.completion_times()
        replaced: dict[str, dict[str, str]] = {}
        for (inside, file_id), time in self.replaced().items():
            replaced.setdefault(inside, {})[file_id] = time
        log_compactions = self._log_compactions()
        found: list[list[FileSlice]] = []
        for partition, names in self._files(partitions):
            gone = replaced.get(partition, {})
            groups = file_slices(
                partition,
                names,
                completions,
                as_of=self.as_of,
                replaced=gone,
                absorbed_logs=log_compactions.hidden(partition, names),
            )
            found.extend(group for group in groups if group[0].file_id not in gone or self._holds_rows(group))
        return found

    def _holds_rows(self, group: list[FileSlice]) -> bool:
        """False for a replaced file group in which a write that was relocated has left tombstones only."""
        if any(found.base_file is not None for found in group):
            return True
        logs = (found.path_of(name) for found in group for name in found.log_files)
        return any(self.storage.stat(path).size_bytes for path in logs)

    def partitions(self) -> list[str]:
        """The paths of all partitions, in order."""
        return sorted(partition for partition, _ in self._files(None))

    def _files(self, partitions: list[str] | None) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The names of the files in each partition."""
        if partitions is None:
            return partition_files(self.storage, self.config)
        return ((partition, self.storage.list(partition).files) for partition in partitions)

    def completed_between(self, begin: str, end: str | None) -> list[Instant]:
        """Writes completed after `begin` and not after `end`, by completion time."""
        found = [
            instant
            for instant in self.timeline.completed
            if instant.action in WRITE_ACTIONS
            and (instant.completion or "") > begin
            and (end is None or (instant.completion or "") <= end)
        ]
        return sorted(found, key=lambda instant: instant.completion or "")

    def metadata(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write."""
        return CommitMetadata.read(self.storage, instant.path)

    def _log_compactions(self) -> LogCompactions:
        """What log compactions have rewritten by the view's time."""
        completed = {
            instant.requested: instant
            for instant in self.timeline.completed
            if self.as_of is None or (instant.completion or "") <= self.as_of
        }
        absorbed: set[tuple[str, str]] = set()
        compacted_logs: set[str] = set()
        for instant in self.timeline.instants:
            if instant.action != LOG_COMPACTION or instant.state != REQUESTED or instant.requested not in completed:
                continue
            made = self.metadata(completed[instant.requested])
            compacted_logs.update(stat.path for stat in made.stats)
            groups = made.file_groups()
            for operation in CompactionPlan.read(self.storage, instant.path).operations:
                if (operation.partition, operation.file_id) in groups:
                    absorbed.update((operation.partition, name) for name in operation.delta_files)
        return LogCompactions(frozenset(absorbed), frozenset(compacted_logs))


@dataclass(frozen=True)
class LogCompactions:
    """Log files that others repeat (by partition and name), and the paths of those that repeat them.

    File groups of different partitions have the same file ids, and so their files may have the same names.
    """

    absorbed: frozenset[tuple[str, str]]
    compacted_logs: frozenset[str]

    def hidden(self, partition: str, names: Iterable[str]) -> frozenset[str]:
        """Files of a partition that do not count: what was absorbed, and compacted logs that no commit names yet."""
        return frozenset(
            name
            for name in names
            if (partition, name) in self.absorbed
            or (COMPACTED_MARK in name and path_below(partition, name) not in self.compacted_logs)
        )
