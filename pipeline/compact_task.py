"""The executors' side of a compaction: one file group's base and logs become its next base file."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.pipeline.file_names import BaseFile, check_own_file
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.merge import merge_slice
from lakelatch.pipeline.schemas import META_COLUMNS, with_meta_columns
from lakelatch.pipeline.write_task import FileReport
from lakelatch.storage.contract import Storage
from lakelatch.timeline.metadata import CompactionOperation, WriteStat
from lakelatch.timeline.table_config import TableConfig

# The same for every attempt, so that all attempts of one plan name the same file.
_FIXED_TOKEN = "0-0-0"


@dataclass(frozen=True)
class CompactTask:
    """What every task of one compaction needs. Pickles."""

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_schema_with_meta: str
    instant: str

    def run(self, operation: CompactionOperation) -> FileReport:
        """Makes the base file, or finds that another attempt has made it. `TransactionEnded` if the plan ended."""
        file = BaseFile(operation.file_id, _FIXED_TOKEN, self.instant)
        check_own_file(file)
        name = file.name
        rows = merge_slice(
            self.storage,
            slice_of(operation),
            with_meta_columns(self.schema),
            self.config.merge_mode,
            self.config.ordering_field,
        )
        data = self._encode(rows, name)
        ensure_beating(self.storage, self.instant)
        path = f"{operation.partition}/{name}" if operation.partition else name
        self.storage.put_if_absent(path, data)
        failpoint("compact.after_base_file")
        return FileReport(operation.partition, operation.file_id, name, rows.num_rows, 0, len(data), 0)

    def _encode(self, rows: pa.Table, name: str) -> bytes:
        """A base file as Hudi's readers know it: the file's name in each row, and the Avro schema in the footer."""
        column = rows.schema.get_field_index(META_COLUMNS[4])
        rows = rows.set_column(column, META_COLUMNS[4], pa.repeat(name, rows.num_rows))
        keys = rows[META_COLUMNS[2]]
        footer = {"parquet.avro.schema": self.avro_schema_with_meta}
        if rows.num_rows:
            footer["hoodie_min_record_key"] = keys[0].as_py()
            footer["hoodie_max_record_key"] = keys[rows.num_rows - 1].as_py()
        sink = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(footer), sink, compression="zstd", store_schema=False)
        return sink.getvalue()


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that a planned operation compacts."""
    return FileSlice(
        partition=operation.partition,
        file_id=operation.file_id,
        base_instant=operation.base_instant,
        base_file=operation.base_file,
        log_files=operation.delta_files,
    )


def stat_of(report: FileReport, operation: CompactionOperation) -> WriteStat:
    """The base file as the compaction's commit names it."""
    return WriteStat(
        partition=report.partition,
        file_id=report.file_id,
        path=f"{report.partition}/{report.file_name}" if report.partition else report.file_name,
        previous_commit=operation.base_instant,
        num_writes=report.records,
        total_write_bytes=report.size_bytes,
        file_size_bytes=report.size_bytes,
        total_log_files=len(operation.delta_files),
    )
