"""The executors' side of a compaction: one file group's base and logs become its next base file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.pipeline.column_groups import (
    KEPT_DELETES_FOOTER,
    encode_kept_deletes,
    kept_deletes_name,
    merge_table_slice,
)
from lakelatch.pipeline.file_names import BaseFile, check_own_file, kept_deletes_file
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.log_blocks import encode_log_file
from lakelatch.pipeline.parquet_files import encode_parquet
from lakelatch.pipeline.schemas import META_COLUMNS, with_meta_columns
from lakelatch.pipeline.write_task import FileReport
from lakelatch.storage.contract import Storage, path_below
from lakelatch.storage.seals import seal
from lakelatch.timeline.metadata import CompactionOperation, WriteStat
from lakelatch.timeline.table_config import TableConfig

# The same for every attempt, so that all attempts of one plan name the same file.
_FIXED_TOKEN = "0-0-0"


@dataclass(frozen=True)
class CompactTask:
    """What every task of one compaction needs. Pickles.

    `completions` has what the merge of a table with column groups needs, and is empty for other tables.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_schema_with_meta: str
    instant: str
    keep_deletes: bool
    completions: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, operation: CompactionOperation) -> str:
        """The base file's name."""
        file = BaseFile(operation.file_id, _FIXED_TOKEN, self.instant)
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport:
        """Makes the base file, or finds that another attempt has made it. `TransactionEnded` if the plan ended.

        Deletes that won are kept in a file beside it, which the commit does not name. Without them, a row that is
        older than its delete and completes after this plan would come back; without the compaction it would not.
        It is a log file, but for deletes of column groups, which Hudi's readers would take for rows.
        """
        name = self.name_of(operation)
        schema = with_meta_columns(self.schema)
        merged = merge_table_slice(self.storage, slice_of(operation), schema, self.config, self.completions)
        kept = {}
        if self.keep_deletes and merged.group_deletes is not None:
            kept[KEPT_DELETES_FOOTER] = kept_deletes_name(operation.file_id, self.instant)
            self._put(operation, kept[KEPT_DELETES_FOOTER], encode_kept_deletes(merged.group_deletes))
        if self.keep_deletes and merged.deletes is not None:
            log = encode_log_file(self.instant, self.avro_schema_with_meta, None, merged.deletes)
            self._put(operation, kept_deletes_file(operation.file_id, self.instant).name, log)
        data = self._encode(merged.rows, name, kept)
        self._put(operation, name, data)
        failpoint("compact.after_base_file")
        return FileReport(operation.partition, operation.file_id, name, merged.rows.num_rows, 0, len(data), 0)

    def _put(self, operation: CompactionOperation, name: str, data: bytes) -> None:
        ensure_beating(self.storage, self.instant)
        path = path_below(operation.partition, name)
        self.storage.put_if_absent(path, seal(data, path))

    def _encode(self, rows: pa.Table, name: str, kept: Mapping[str, str]) -> bytes:
        """A base file as Hudi's readers know it: the file's name in each row, and the Avro schema in the footer."""
        column = rows.schema.get_field_index(META_COLUMNS[4])
        rows = rows.set_column(column, META_COLUMNS[4], pa.repeat(name, rows.num_rows))
        keys = rows[META_COLUMNS[2]]
        footer = {"parquet.avro.schema": self.avro_schema_with_meta, **kept}
        if rows.num_rows:
            footer["hoodie_min_record_key"] = keys[0].as_py()
            footer["hoodie_max_record_key"] = keys[rows.num_rows - 1].as_py()
        return encode_parquet(rows, footer)


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
        path=path_below(report.partition, report.file_name),
        previous_commit=operation.base_instant,
        num_writes=report.records,
        total_write_bytes=report.size_bytes,
        file_size_bytes=report.size_bytes,
        total_log_files=len(operation.delta_files),
    )
