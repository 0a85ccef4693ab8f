"""The tasks of a write to a table without a record key: rows become base files of file groups of their own.

Nothing is there that they could be merged with, so rows are neither shuffled nor sorted but for the partition's fields,
and no two writes are ever in each other's way. Keys are made up as Hudi's automatic ones are: instant, task and number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.tasks.merge_task import MergeTask, bucket_of, bucket_parts
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN
from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.format.avro import IS_DELETED_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.format.merge.outcome import Merged


@dataclass(frozen=True)
class AppendTask(MergeTask):
    """The task of a write that adds rows. Each partition's rows become one file, which all attempts make alike."""

    by_bucket: ClassVar[bool] = False
    as_they_come: ClassVar[bool] = True

    def tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the partition path of each row. Errors: `InvalidRequest` for rows that are to delete others."""
        if IS_DELETED_COLUMN in batch.schema.names:
            raise InvalidRequest(
                f"the column {IS_DELETED_COLUMN} deletes rows by their keys, and the table {self.config.name!r} has no "
                "record key: drop it"
            )
        paths = partition_paths(pa.Table.from_batches([batch]), self.config)
        none = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, paths, none], names=[*batch.schema.names, PARTITION_COLUMN, BUCKET_COLUMN]
        )

    def write(self, batches: Iterator[pa.RecordBatch], write_token: str) -> Iterator[FileReport]:
        """Writes tagged rows, which come by partition. Errors: `InvariantBroken` if a partition comes twice."""
        with self.attempt(write_token) as files:
            task, first_row, written = write_token.partition("-")[0], 0, set[str]()
            parts = (part for batch in files.watched(batches) for part in bucket_parts(batch))
            for (partition, _), rows in groupby(parts, bucket_of):
                if partition in written:
                    raise InvariantBroken(f"rows of the partition {partition!r} came after its file had been written")
                written.add(partition)
                found = FileSlice(partition, _file_id(self.instant, partition, task), "", None, ())
                name = self.announced_base(found, files)
                report = self.put_base(name, found, self._numbered(rows, found, write_token, first_row), files)
                first_row += report.records
                yield report

    def _numbered(
        self, parts: Iterator[pa.RecordBatch], found: FileSlice, write_token: str, first_row: int
    ) -> Iterator[Merged]:
        task = write_token.partition("-")[0]
        for part in parts:
            numbers = pa.array(np.arange(first_row, first_row + part.num_rows)).cast(pa.string())
            keys = pc.binary_join_element_wise(f"{self.instant}_{task}_", numbers, "")
            rows = pa.Table.from_batches([part]).append_column(RECORD_KEY_COLUMN, keys)
            yield Merged(self._records(rows, found.partition, found.file_id, write_token, first_row))
            first_row += part.num_rows


def _file_id(instant: str, partition: str, task: str) -> str:
    """A file id of this task's alone, which no reader takes for a bucket's: it does not begin with a digit."""
    digest = hashlib.sha256(f"{instant}/{task}/{partition}".encode()).hexdigest()
    return f"{UUID(f'a{digest[1:32]}')}-0"
