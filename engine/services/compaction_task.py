"""The executors' side of a compaction: one file group's base and logs become its next base file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.rewriting import RewriteTask
from lakelatch.engine.write.base_file import GatheredRows
from lakelatch.failpoints import failpoint
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import AVRO_SCHEMA_FOOTER, encode_log_file
from lakelatch.format.merge.column_groups import KEPT_DELETES_FOOTER, encode_kept_deletes, kept_deletes_name
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.slice import merge_in_order
from lakelatch.format.merge.stream import joined_deletes, joined_group_deletes
from lakelatch.format.names import check_own_file, kept_deletes_file, planned_base_file
from lakelatch.storage.contract import path_below
from lakelatch.timeline.metadata import CompactionOperation, WriteStat


@dataclass(frozen=True)
class CompactTask(RewriteTask):
    """What every task of one compaction needs."""

    service = "compaction"

    #: The most rows of a row group; None for what is usual.
    group_rows: ClassVar[int | None] = None

    keep_deletes: bool

    def target_of(self, operation: CompactionOperation) -> str:
        """The file id of the base file."""
        return operation.file_id

    def name_of(self, operation: CompactionOperation) -> str:
        """The base file's name."""
        file = planned_base_file(operation.partition, self.target_of(operation), self.instant)
        check_own_file(file)
        return file.name

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`.

        Deletes that won are kept in a file beside it. Without them, a row that is
        older than its delete and completes after this plan would come back; without the compaction it would not.
        It is a log file, but for deletes of column groups, which Hudi's readers would take for rows.
        """
        name, file_id = self.name_of(operation), self.target_of(operation)
        gathered = GatheredRows()
        kept_bytes = 0

        def footer() -> Mapping[str, str]:
            nonlocal kept_bytes
            texts = {AVRO_SCHEMA_FOOTER: self.table.full_avro_schema, **gathered.key_bounds()}
            deletes, group_deletes = joined_deletes(gathered.parts), joined_group_deletes(gathered.parts)
            if self.keep_deletes and group_deletes is not None:
                texts[KEPT_DELETES_FOOTER] = kept_deletes_name(file_id, self.instant)
                self.put(operation, texts[KEPT_DELETES_FOOTER], encode_kept_deletes(group_deletes))
            if self.keep_deletes and deletes is not None:
                log = encode_log_file(self.instant, self.table.full_avro_schema, None, deletes)
                self.put(operation, kept_deletes_file(operation.partition, file_id, self.instant).name, log)
                kept_bytes = len(log)
            return texts

        rows = gathered.noting(self.merged(operation), name)
        size_bytes = self.put_parquet(operation, name, rows, footer, self.group_rows)
        failpoint("compact.after_base_file")
        return FileReport(operation.partition, file_id, name, gathered.records, 0, size_bytes, 0, kept_bytes=kept_bytes)

    def merged(self, operation: CompactionOperation) -> Iterator[Merged]:
        """What the base file is made of, in its order."""
        table = self.table
        return merge_in_order(table.storage, slice_of(operation), table.full_schema, table.config, self.completions)

    def stats(self, report: FileReport, operation: CompactionOperation) -> tuple[WriteStat, ...]:
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
        name = kept_deletes_file(report.partition, report.file_id, self.instant).name
        kept = WriteStat(
            partition=report.partition,
            file_id=report.file_id,
            path=path_below(report.partition, name),
            previous_commit=self.instant,
            total_write_bytes=report.kept_bytes,
            file_size_bytes=report.kept_bytes,
            log_version=1,
            base_file="",
            log_files=(name,),
        )
        return kept, base


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that a planned operation compacts."""
    return FileSlice(
        partition=operation.partition,
        file_id=operation.file_id,
        base_instant=operation.base_instant,
        base_file=operation.base_file,
        log_files=operation.delta_files,
    )
