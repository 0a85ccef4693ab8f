"""The executors' side of a compaction: one file group's base and logs become its next base file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakelatch.failpoints import failpoint
from lakelatch.format.avro import FILE_NAME_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import AVRO_SCHEMA_FOOTER, encode_log_file
from lakelatch.format.merge.column_groups import KEPT_DELETES_FOOTER, encode_kept_deletes, kept_deletes_name
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.names import BaseFile, check_own_file, kept_deletes_file
from lakelatch.format.parquet import encode_parquet
from lakelatch.spark.services.plans import RewriteTask
from lakelatch.spark.write.task import FileReport
from lakelatch.storage.contract import path_below
from lakelatch.timeline.metadata import CompactionOperation, WriteStat

# The same for every attempt, so that all attempts of one plan name the same file.
_FIXED_TOKEN = "0-0-0"


@dataclass(frozen=True)
class CompactTask(RewriteTask):
    """What every task of one compaction needs."""

    keep_deletes: bool

    def name_of(self, operation: CompactionOperation) -> str:
        """The base file's name."""
        file = BaseFile(operation.file_id, _FIXED_TOKEN, self.instant)
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`.

        Deletes that won are kept in a file beside it. Without them, a row that is
        older than its delete and completes after this plan would come back; without the compaction it would not.
        It is a log file, but for deletes of column groups, which Hudi's readers would take for rows.
        """
        name = self.name_of(operation)
        table = self.table
        merged = merge_slice(table.storage, slice_of(operation), table.full_schema, table.config, self.completions)
        kept = {}
        if self.keep_deletes and merged.group_deletes is not None:
            kept[KEPT_DELETES_FOOTER] = kept_deletes_name(operation.file_id, self.instant)
            self.put(operation, kept[KEPT_DELETES_FOOTER], encode_kept_deletes(merged.group_deletes))
        kept_bytes = 0
        if self.keep_deletes and merged.deletes is not None:
            log = encode_log_file(self.instant, self.table.full_avro_schema, None, merged.deletes)
            self.put(operation, kept_deletes_file(operation.file_id, self.instant).name, log)
            kept_bytes = len(log)
        data = self._encode(merged.rows, name, kept)
        self.put(operation, name, data)
        failpoint("compact.after_base_file")
        records = merged.rows.num_rows
        return FileReport(operation.partition, operation.file_id, name, records, 0, len(data), 0, kept_bytes=kept_bytes)

    def _encode(self, rows: pa.Table, name: str, kept: Mapping[str, str]) -> bytes:
        """A base file as Hudi's readers know it: the file's name in each row, and the Avro schema in the footer."""
        column = rows.schema.get_field_index(FILE_NAME_COLUMN)
        rows = rows.set_column(column, FILE_NAME_COLUMN, pa.repeat(name, rows.num_rows))
        keys = rows[RECORD_KEY_COLUMN]
        footer = {AVRO_SCHEMA_FOOTER: self.table.full_avro_schema, **kept}
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


def stats_of(report: FileReport, operation: CompactionOperation, instant: str) -> tuple[WriteStat, ...]:
    """The base file as the compaction's commit names it, after the log file of kept deletes, if there is one.

    Java's incremental reads merge the files that a window's commits name, and no others. The base file comes last:
    where Java wants one file of a group, it takes that.
    """
    base = WriteStat(
        partition=report.partition,
        file_id=report.file_id,
        path=path_below(report.partition, report.file_name),
        previous_commit=operation.base_instant,
        num_writes=report.records,
        total_write_bytes=report.size_bytes,
        file_size_bytes=report.size_bytes,
        total_log_files=len(operation.delta_files),
    )
    if not report.kept_bytes:
        return (base,)
    name = kept_deletes_file(report.file_id, instant).name
    kept = WriteStat(
        partition=report.partition,
        file_id=report.file_id,
        path=path_below(report.partition, name),
        previous_commit=instant,
        total_write_bytes=report.kept_bytes,
        file_size_bytes=report.kept_bytes,
        log_version=1,
        base_file="",
        log_files=(name,),
    )
    return kept, base
