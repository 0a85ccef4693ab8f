"""The tasks of a write to a copy-on-write table: a bucket's base file and new rows become its next base file.

All tasks and their attempts merge with the base file that was the latest when the write began. Writes completed since
are not merged, and so conflict at the commit. All attempts make the same file, under a name that depends only on the
write and the file group, so no attempt can leave a second one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.tasks.base_file import SORTED_GROUP_ROWS, GatheredRows, put_base_file
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN, WriteTask
from lakelatch.errors import InvariantBroken, WriteConflict
from lakelatch.format.avro import arrow_to_avro, with_meta_columns
from lakelatch.format.base_file_options import BaseFileOptions
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import AVRO_SCHEMA_FOOTER, LogEntries
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.slice import merge_onto
from lakelatch.format.merge.stream import in_another_order
from lakelatch.format.names import NO_TASK, check_own_file, planned_base_file
from lakelatch.format.slices.live_groups import LiveSlices
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.sorting.row_order import LINEAR, order_of
from lakelatch.format.tombstones import TakenBack
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.early.task_files import TaskFiles

_NOT_YET = "9" * 17  # a completion time after all others


@dataclass(frozen=True)
class MergeTask(WriteTask):
    """The task of a write that merges. The `mark` is the timeline's when the write began.

    The rows of a base file are ordered by `sort_columns`, if there are any.
    """

    by_bucket: ClassVar[bool] = True

    mark: Mark = field(default_factory=partial(Mark, 0))
    base_files: BaseFileOptions = field(default_factory=BaseFileOptions)
    sort_columns: tuple[str, ...] = ()

    def write(self, batches: Iterator[pa.RecordBatch], write_token: str) -> Iterator[FileReport]:
        """Writes a base file for each bucket of tagged rows, which come by bucket; memory holds the rows of one bucket.

        Errors: `InvariantBroken` for rows of a bucket that was written already.
        """
        with self.attempt(write_token) as files:
            view = self.view()
            slices = LiveSlices(view, self.file_ids)
            written = set()
            first_row = 0
            for rows in _by_bucket(files.watched(batches)):
                with _gone_is_conflict():
                    found = slices.slice_of(rows[PARTITION_COLUMN][0].as_py(), rows[BUCKET_COLUMN][0].as_py())
                if (found.partition, found.file_id) in written:
                    raise InvariantBroken(f"rows of {found.file_id} came after its base file had been written")
                written.add((found.partition, found.file_id))
                with _gone_is_conflict():
                    report = self._write_bucket(rows, found, view, files, write_token, first_row)
                yield report
                first_row += rows.num_rows

    def write_here(self, batches: Iterable[pa.RecordBatch]) -> list[FileReport]:
        tagged = [self.tag(batch) for batch in batches if batch.num_rows]
        if not tagged:
            return []
        rows = pa.Table.from_batches(tagged)
        rows = rows.sort_by([(PARTITION_COLUMN, "ascending"), (BUCKET_COLUMN, "ascending")])
        return list(self.write(iter(rows.to_batches()), NO_TASK))

    def view(self) -> TableView:
        """The table when the write began."""
        return TableView(self.storage, self.config, WholeTimeline.load(self.storage, self.mark.snapshot()))

    def _write_bucket(
        self, rows: pa.Table, found: FileSlice, view: TableView, files: TaskFiles, write_token: str, first_row: int
    ) -> FileReport:
        name = self.announced_base(found, files)
        rows = self.combined(rows)
        entries = self._entries(rows, found.file_id, write_token, first_row)
        records = sum(one.records.num_rows for one in entries if one.records is not None and not one.group_deletes)
        completions = {**view.whole.all_completion_times(), self.instant: _NOT_YET} if self.config.column_groups else {}
        schema = with_meta_columns(self.schema)
        merged = merge_onto(self.storage, found, entries, schema, self.config, completions)
        report = self.put_base(name, found, merged, files, rows.num_rows)
        return replace(report, records=records, deletes=rows.num_rows - records, merged_base=found.base_file or "")

    def announced_base(self, found: FileSlice, files: TaskFiles) -> str:
        """The name of the slice's next base file, announced before the work, so that a conflict is found early."""
        file = planned_base_file(found.partition, found.file_id, self.instant)
        check_own_file(file)
        files.announce(found.partition, file.name)
        return file.name

    def put_base(
        self, name: str, found: FileSlice, merged: Iterable[Merged], files: TaskFiles, given: int | None = None
    ) -> FileReport:
        """Puts a base file of rows as they come, which is the same for all attempts; all rows count as records.

        `given` is how many rows the write itself has, if the file has others as well.
        """
        gathered, schema = GatheredRows(), with_meta_columns(self.schema)
        group_rows = None
        if self.sort_columns:
            order = partial(order_of, columns=self.sort_columns, layout=LINEAR)
            merged, group_rows = in_another_order(merged, self.sort_columns, order), SORTED_GROUP_ROWS

        def footer() -> dict[str, str]:
            return {AVRO_SCHEMA_FOOTER: arrow_to_avro(schema, self.config.name), **gathered.key_bounds()}

        path, parts = path_below(found.partition, name), gathered.noting(merged, name)
        wanted = files.ensure_wanted
        put = partial(put_base_file, self.storage, path, schema, parts, footer, wanted, self.base_files, group_rows)
        self.ensure_partition(found.partition)
        rows = (lambda: gathered.records) if given is None else (lambda: given)
        size_bytes, task_ms = files.create_once(found.partition, name, rows, put)
        return FileReport(
            partition=found.partition,
            file_id=found.file_id,
            file_name=name,
            records=gathered.records,
            deletes=0,
            size_bytes=size_bytes,
            version=0,
            task_ms=task_ms,
            rows=gathered.records,
        )

    def _entries(self, rows: pa.Table, file_id: str, write_token: str, first_row: int) -> list[LogEntries]:
        """The rows as entries of a log file, in its order."""
        records, deletes, cleared = self.contents(rows, file_id, write_token, first_row)
        found = [
            None if records is None else LogEntries(self.instant, records=records),
            None if cleared is None else LogEntries(self.instant, records=cleared, group_deletes=True),
            None if deletes is None else LogEntries(self.instant, deletes=deletes),
        ]
        return [one for one in found if one is not None]


@contextmanager
def _gone_is_conflict() -> Iterator[None]:
    """Raises `WriteConflict` for files that existed when the write began, and are gone."""
    try:
        yield
    except (NotFound, TakenBack) as error:
        raise WriteConflict(
            f"a file with which this write merges its rows is gone: {error.message}. Its commit was rolled back "
            "meanwhile, or it was cleaned after later ones; write again"
        ) from error


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Groups sorted rows by partition and bucket."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        for part in bucket_parts(batch):
            if held and bucket_of(held[0]) != bucket_of(part):
                yield pa.Table.from_batches(held).combine_chunks()
                held = []
            held.append(part)
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def bucket_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Splits a batch where another bucket begins."""
    count = batch.num_rows
    changes = [
        np.asarray(pc.not_equal(batch[name].slice(0, max(count - 1, 0)), batch[name].slice(1)))
        for name in (PARTITION_COLUMN, BUCKET_COLUMN)
    ]
    cuts = (np.flatnonzero(changes[0] | changes[1]) + 1).tolist() if count > 1 else []
    for start, end in zip([0, *cuts], [*cuts, count], strict=True):
        if end > start:
            yield batch.slice(start, end - start)


def bucket_of(batch: pa.RecordBatch) -> tuple[str, int]:
    """The partition and the bucket of rows that share both."""
    return batch[PARTITION_COLUMN][0].as_py(), batch[BUCKET_COLUMN][0].as_py()
