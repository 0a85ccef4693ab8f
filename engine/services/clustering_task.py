"""The executors' side of a clustering: a slice becomes, in another order, its bucket's next file group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.clustering_commit import Place, called_off, place_of, touched_since
from lakelatch.engine.services.compaction_task import CompactTask, slice_of
from lakelatch.engine.write.base_file import SORTED_GROUP_ROWS
from lakelatch.errors import CorruptTable
from lakelatch.format.bucket_index import bucket_of_file_id, successor_file_id
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.slice import merge_in_base_order
from lakelatch.format.merge.stream import in_another_order
from lakelatch.format.sorting.row_order import LINEAR, order_of
from lakelatch.timeline.metadata import CompactionOperation, WriteStat


@dataclass(frozen=True)
class ClusterTask(CompactTask):
    """What every task of one clustering needs.

    `together` are the places that must all be untouched if the plan cannot be carried out in part; empty if it can.
    """

    service = "clustering"
    group_rows = SORTED_GROUP_ROWS

    columns: tuple[str, ...] = ()
    layout: str = LINEAR
    together: frozenset[Place] = frozenset()

    def target_of(self, operation: CompactionOperation) -> str:
        """The successor's file id, which follows from the plan's instant: all executors make the same file."""
        return target_of(operation, self.instant)

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`. None also for a group that was written to since or called off: it would be for nothing."""
        group = operation.partition, operation.file_id
        storage = self.table.storage
        touched = touched_since(storage, self.instant)
        if not touched.isdisjoint(self.together or {place_of(group)}) or called_off(storage, self.instant, group):
            return None
        return super().run(operation)

    def merged(self, operation: CompactionOperation) -> Iterator[Merged]:
        """In the plan's order; rows that are equal in it by record key, unless the base file was sorted otherwise."""
        if not self.columns:
            return super().merged(operation)
        table = self.table
        parts = merge_in_base_order(
            table.storage, slice_of(operation), table.full_schema, table.config, self.completions
        )
        return in_another_order(parts, self.columns, partial(order_of, columns=self.columns, layout=self.layout))

    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
        """The files of one new file group as the commit names them; the base file is its first."""
        *kept, base = super().stats(report, operation)
        return (*kept, replace(base, previous_commit=None, num_inserts=base.num_writes))


def target_of(operation: CompactionOperation, instant: str) -> str:
    """The file id of the file group that takes the place of a planned one. Errors: `CorruptTable`."""
    bucket = bucket_of_file_id(operation.file_id)
    if bucket is None:
        raise CorruptTable(
            f"the clustering {instant} plans the file group {operation.file_id}, which belongs to no bucket"
        )
    return successor_file_id(bucket, instant)
