"""The file groups that an overwrite or a deletion of partitions replaces, resolved at its slot in the log.

It replaces everything that committed before that slot, even while its own rows were being written; everything that
commits later is read. Two concurrent replacements under non-blocking control both apply, in log order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.bucket_index import bucket_of_file_id, successor_file_id
from lakelatch.format.file_groups import replace_commits, undone_replaces
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.slices.table_view import TableView
from lakelatch.timeline.actions import REPLACE_COMMIT, SERVICE_OPERATIONS, SERVICES_THAT_ADD_A_SLICE
from lakelatch.timeline.instant import COMPLETED, Instant
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import renewed
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.base.outcome import Changed, Displaced
from lakelatch.transactions.conflicts.contract import OtherWrite

Choice: TypeAlias = Callable[[Collection[str]], set[str]]


class Replacement:
    """A replace commit about to commit. `choose` selects partitions with rows to replace, besides those written.

    A partition in which every file group is an empty successor stays as it is, unless it is written or named:
    otherwise each overwrite of the table would make them again.

    Each replaced bucket gets a successor, if only an empty one: Java's non-blocking writers give a bucket without a
    live file group its fixed file id, and if that was replaced, no reader would see their rows. A copy-on-write table
    has no such writers, and no file for a bucket without new rows.
    """

    def __init__(
        self, table: OpenedTable, instant: str, metadata: CommitMetadata, choose: Choice, non_blocking: bool
    ) -> None:
        self._table = table
        self._instant = instant
        self._metadata = metadata
        self._choose = choose
        self._non_blocking = non_blocking
        self._written = {stat.partition for stat in metadata.stats}
        self._look()

    def lacking(self, metadata: CommitMetadata) -> dict[FileGroup, str]:
        """The successors that have no file yet, by the file groups to be replaced, as far as these are known."""
        return self._lacking(self._replaced(self._live, self._empty), metadata)

    def seen_in(self, view: TableView, metadata: CommitMetadata) -> CommitMetadata:
        """The metadata with all file groups that it replaces in a view of the table."""
        found = view.slices()
        live = {(one.partition, one.file_id) for one in found}
        return replace(metadata, replaced=self._replaced(live, {group for group in live if group in self._empty}))

    def check(self, snapshot: Snapshot, at: At) -> Changed | Displaced:
        """Names all replaced file groups in the metadata; `Displaced` if successors are lacking."""
        completed, metadata = at.since, at.staged.metadata
        self._table = replace(self._table, storage=renewed(self._table.storage, at.place.before))
        gone = self._seen - snapshot.names
        if undone_replaces(self._table.storage, gone, snapshot.names):  # the groups that they replaced are live again
            self._look()
        live, empty = set(self._live), set(self._empty)
        for write in completed:
            file_name = Instant(write.instant, write.action, COMPLETED, write.time).file_name
            if file_name in self._seen:  # its file groups were live or replaced already when listed
                continue
            if write.action != REPLACE_COMMIT and write.operation_type not in SERVICES_THAT_ADD_A_SLICE.values():
                live |= write.file_groups
                empty -= write.file_groups
        for earlier in at.place.before:  # whose files may lie elsewhere by now
            live |= earlier.file_groups()
            empty -= earlier.file_groups()
        fresh = snapshot.names - self._seen
        for other in replace_commits(self._table.storage, fresh, archived_after=self._looked_at):
            live |= {(partition, file_id) for partition, ids in other.written.items() for file_id in ids}
            live -= other.replaced_file_groups()
        replaced = self._replaced(live, empty)
        lacking = self._lacking(replaced, metadata)
        if lacking:
            return Displaced(lacking)
        possible = [one for one in completed if not self._goes_along_with(one)]
        return Changed(replace(at.staged, metadata=replace(metadata, replaced=replaced), possible=possible))

    def _goes_along_with(self, other: OtherWrite) -> bool:
        """Whether the other write is in nobody's way, since what it made is replaced with the rest.

        A clustering changed no rows. In a table without a record key the rows written here have file groups of their
        own, so nothing depends on which ones hold those that go.
        """
        if other.action != REPLACE_COMMIT:
            return False
        return self._non_blocking or (self._table.config.appends_only and other.operation_type in SERVICE_OPERATIONS)

    def _replaced(self, live: Collection[FileGroup], empty: Collection[FileGroup]) -> dict[str, tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for partition, file_id in sorted(live):
            groups.setdefault(partition, []).append(file_id)
        partitions = self._written | self._choose({group[0] for group in live if group not in empty})
        return {partition: tuple(groups.get(partition, ())) for partition in sorted(partitions)}

    def _lacking(self, replaced: Mapping[str, tuple[str, ...]], metadata: CommitMetadata) -> dict[FileGroup, str]:
        if self._table.config.copies_on_write:
            return {}
        held = {(stat.partition, bucket_of_file_id(stat.file_id)) for stat in metadata.stats}
        return {
            (partition, file_id): successor_file_id(bucket, self._instant)
            for partition, file_ids in replaced.items()
            for file_id in file_ids
            if (bucket := bucket_of_file_id(file_id)) is not None and (partition, bucket) not in held
        }

    def _look(self) -> None:
        """Lists the file groups to replace."""
        self._view = TableView.load(self._table.storage, self._table.config)
        self._looked_at = self._view.whole.latest
        self._seen = frozenset(instant.file_name for instant in self._view.timeline.completed)
        # Writes that complete after this listing are among those given to the check.
        found = self._slices()
        self._live = frozenset((one.partition, one.file_id) for one in found)
        self._empty = frozenset((one.partition, one.file_id) for one in found if one.is_empty)

    def _slices(self) -> list[FileSlice]:
        only_written = self._choose is none_else
        return self._view.slices(sorted(self._written) if only_written else None)


def none_else(partitions: Collection[str]) -> set[str]:
    """Replaces only the partitions that are written."""
    return set()


def every(partitions: Collection[str]) -> set[str]:
    """Replaces the whole table."""
    return set(partitions)


def only(partition: str) -> Choice:
    """Replaces one partition, if it has rows, whether others are written there or not."""
    return lambda partitions: {partition} & {*partitions}


def matching(names: Collection[str]) -> Choice:
    """Replaces the named partitions; a `*` in a name stands for any text. One without it counts even without rows."""
    patterns = [re.compile(re.escape(name).replace(r"\*", ".*")) for name in names if "*" in name]

    def choose(partitions: Collection[str]) -> set[str]:
        found = {one for one in partitions if any(pattern.fullmatch(one) for pattern in patterns)}
        return found | {name for name in names if "*" not in name}

    return choose
