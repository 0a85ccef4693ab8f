"""What an overwrite or a deletion of partitions takes away, resolved at its place in the log.

Everything that had committed before that place is gone, also what committed while the new rows were being written;
everything that commits later is read. Of two of them that meet under non-blocking control, both apply in log order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from lakelatch.format.file_groups import FileGroup, replace_commits
from lakelatch.format.table_view import TableView
from lakelatch.spark.table import Table
from lakelatch.timeline.actions import INSERT_OVERWRITE, REPLACE_COMMIT, SERVICES_THAT_ADD_A_SLICE
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.timeline import COMPLETED, Instant, TimelineFolder
from lakelatch.transactions.commit import Resolved
from lakelatch.transactions.conflicts.contract import OtherWrite

Choice: TypeAlias = Callable[[Collection[str]], set[str]]


class Replacement:
    """A replace commit on its way. `choose` picks partitions, besides those written, from the ones that have rows."""

    def __init__(self, table: Table, metadata: CommitMetadata, choose: Choice, non_blocking: bool) -> None:
        self._table = table
        self._metadata = metadata
        self._choose = choose
        self._non_blocking = non_blocking
        self._written = {stat.partition for stat in metadata.stats}
        self._view = TableView.load(table.storage, table.config)
        self._seen = frozenset(instant.file_name for instant in self._view.timeline.completed)
        # What completes after this listing is among the completed writes that `resolve` is shown.
        self._live = self._live_groups()

    def resolve(self, folder: TimelineFolder, completed: list[OtherWrite]) -> Resolved:
        """See `Resolve`: the metadata with everything that is there now and goes."""
        live = set(self._live)
        for write in completed:
            file_name = Instant(write.instant, write.action, COMPLETED, write.time).file_name
            if file_name in self._seen:  # what it wrote was live or replaced already when we looked
                continue
            if write.action != REPLACE_COMMIT and write.operation_type not in SERVICES_THAT_ADD_A_SLICE.values():
                live |= write.file_groups
        fresh = folder.names - self._seen
        for other in replace_commits(self._table.storage, fresh, archived_after=self._view.whole.latest):
            live |= {(partition, file_id) for partition, ids in other.written.items() for file_id in ids}
            live -= other.replaced_file_groups()
        groups: dict[str, list[str]] = {}
        for partition, file_id in sorted(live):
            groups.setdefault(partition, []).append(file_id)
        partitions = self._written | self._choose(groups)
        replaced = {partition: tuple(groups.get(partition, ())) for partition in sorted(partitions)}
        writes = completed
        if self._non_blocking:
            writes = [write for write in completed if write.action != REPLACE_COMMIT]
        return Resolved(replace(self._metadata, replaced=replaced), writes)

    def _live_groups(self) -> frozenset[FileGroup]:
        only_written = self._metadata.operation_type == INSERT_OVERWRITE.upper()
        found = self._view.slices(sorted(self._written) if only_written else None)
        return frozenset((file_slice.partition, file_slice.file_id) for file_slice in found)


def none_else(partitions: Collection[str]) -> set[str]:
    """Only the partitions that are written."""
    return set()


def every(partitions: Collection[str]) -> set[str]:
    """The whole table."""
    return set(partitions)


def matching(names: Collection[str]) -> Choice:
    """The named partitions; a `*` in a name stands for any text. A name without one counts also without rows."""
    patterns = [re.compile(re.escape(name).replace(r"\*", ".*")) for name in names if "*" in name]

    def choose(partitions: Collection[str]) -> set[str]:
        found = {one for one in partitions if any(pattern.fullmatch(one) for pattern in patterns)}
        return found | {name for name in names if "*" not in name}

    return choose
