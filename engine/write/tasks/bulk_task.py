"""The tasks of a bulk load: the rows of a bucket without a slice become its first base file.

Rows come sorted by bucket and record key, so making a file needs memory for one row group. Rows of buckets that have a
slice become log files, as in any other write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.options.write import UPDATE, WriteOptions
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.tasks.merge_task import MergeTask, bucket_of, bucket_parts
from lakelatch.engine.write.tasks.task import LogNames, WriteTask
from lakelatch.errors import InvariantBroken
from lakelatch.format.avro import IS_DELETED_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.names import NO_TASK
from lakelatch.format.slices.live_groups import LiveSlices
from lakelatch.timeline.actions import BULK_INSERT, INSERT
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.snapshot import Mark
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.early.task_files import TaskFiles


def loads_in_bulk(config: TableConfig, schema: pa.Schema, options: WriteOptions, mark: Mark) -> bool:
    """Whether a write may make base files in empty buckets: a bulk load, and the first insert into a table.

    Not if a row has several winners or may be a delete, nor if known keys are looked up: those need a merge, and base
    files are read as they are. The `mark` is the timeline's when the write began.
    """
    return (
        (options.operation == BULK_INSERT or (options.operation == INSERT and not mark.snapshot().writes))
        and options.known_keys == UPDATE
        and not config.copies_on_write
        and not config.column_groups
        and IS_DELETED_COLUMN not in schema.names
    )


@dataclass(frozen=True)
class BulkTask(MergeTask):
    """The task of a bulk load. Which buckets have a slice is the same for all attempts: by the mark of when the write
    began."""

    by_key: ClassVar[bool] = True

    def write(self, batches: Iterator[pa.RecordBatch], write_token: str) -> Iterator[FileReport]:
        """Writes tagged rows, which are sorted by bucket and record key.

        Errors: `InvariantBroken` for rows of a bucket that was written already.
        """
        with self.attempt(write_token) as files:
            slices = LiveSlices(self.view(), self.file_ids)
            names = LogNames(self.instant, write_token, self.live_groups())
            written: set[tuple[str, int]] = set()
            first_row = 0
            parts = (part for batch in files.watched(batches) for part in bucket_parts(batch))
            for bucket, rows in groupby(parts, bucket_of):
                if bucket in written:
                    raise InvariantBroken(f"rows of the bucket {bucket} came after its file had been written")
                written.add(bucket)
                found = slices.slice_of(*bucket)
                if found.base_instant:
                    reports = list(self.write_logs(rows, names, files, first_row))
                else:
                    reports = [self._write_first(rows, found, files, write_token, first_row)]
                first_row += sum(report.records for report in reports)
                yield from reports

    def write_here(self, batches: Iterable[pa.RecordBatch]) -> list[FileReport]:
        """Writes log files: few rows are merged quickly, and small base files would soon be rewritten."""
        return list(WriteTask.write(self, (self.tag(batch) for batch in batches if batch.num_rows), NO_TASK))

    def first_slices(self, groups: Iterable[FileGroup]) -> dict[FileGroup, FileSlice]:
        """Those of the file groups that have no file yet, each with its slice."""
        slices = LiveSlices(self.view(), self.file_ids)
        buckets = {group: bucket_of_file_id(group[1]) for group in groups}
        found = {group: slices.slice_of(group[0], bucket) for group, bucket in buckets.items() if bucket is not None}
        return {group: one for group, one in found.items() if not one.base_instant}

    def _write_first(
        self, parts: Iterator[pa.RecordBatch], found: FileSlice, files: TaskFiles, write_token: str, first_row: int
    ) -> FileReport:
        name = self.announced_base(found, files)
        return self.put_base(name, found, self._merged(parts, found, write_token, first_row), files)

    def _merged(
        self, parts: Iterator[pa.RecordBatch], found: FileSlice, write_token: str, first_row: int
    ) -> Iterator[Merged]:
        for rows in self._whole_keys(parts):
            if _repeats(rows[RECORD_KEY_COLUMN].combine_chunks()):
                rows = self.newest_of_each_key(rows)
            records, _, _ = self.contents(rows, found.file_id, write_token, first_row)
            assert records is not None
            first_row += rows.num_rows
            yield Merged(records)

    def _whole_keys(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows in parts, each with all rows of its keys. Errors: `InvariantBroken` for unsorted rows."""
        held: list[pa.RecordBatch] = []
        for part in parts:
            keys = part[RECORD_KEY_COLUMN]
            if held and keys[0].as_py() < held[-1][RECORD_KEY_COLUMN][-1].as_py():
                raise InvariantBroken("the rows of a bucket did not come in the order of their keys")
            start = _start_of_last(keys)
            if start or (held and keys[0] != held[-1][RECORD_KEY_COLUMN][-1]):
                yield pa.Table.from_batches([*held, part.slice(0, start)]).combine_chunks()
                held = []
            held.append(part.slice(start))
        if held:
            yield pa.Table.from_batches(held).combine_chunks()


def _start_of_last(keys: pa.Array) -> int:
    """Where the rows of the last key begin; keys are sorted."""
    others = np.flatnonzero(np.asarray(pc.not_equal(keys, keys[-1])))
    return int(others[-1]) + 1 if len(others) else 0


def _repeats(keys: pa.Array) -> bool:
    """Whether a key occurs more than once; keys are sorted."""
    return bool(pc.any(pc.equal(keys.slice(1), keys.slice(0, max(len(keys) - 1, 0)))).as_py())
