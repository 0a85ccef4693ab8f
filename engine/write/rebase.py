"""Rebase: the files of a write that lost at its commit become those of the next try.

Their rows were computed, shuffled and written, which does not depend on the winner's changes. So the next try copies
the files under its own instant, which is in many places in them, instead of evaluating the frame a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.relocation import Relocation, relocate, relocations_to
from lakelatch.engine.write.tasks.bulk_task import BulkTask
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import TransactionEnded, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.avro import META_COLUMNS, with_meta_columns
from lakelatch.format.base_files import open_base_file
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import AVRO_SCHEMA_FOOTER, encode_log_file, with_records
from lakelatch.format.log.framing import INSTANT_TIME, encode_block, read_blocks
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.reader import with_schema
from lakelatch.format.names import LogFile, check_own_file, token_within
from lakelatch.storage.checksums import strip_checksum, verify_checksum
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.markers.direct import is_base_file
from lakelatch.transactions.transaction import Transaction

_TIME, _SEQUENCE, _, _, _FILE = META_COLUMNS
_log = logging.getLogger("lakelatch.engine")


class LostFiles:
    """The files of a try that lost at its commit, kept for the next one until they are dropped."""

    def __init__(self, transaction: Transaction, conflict: WriteConflict, reports: Sequence[FileReport]) -> None:
        self._transaction = transaction
        self._conflict = conflict
        self._reports = list(reports)
        self._rewritten = False

    def rewrite(self, task: WriteTask, executor: Executor) -> list[FileReport]:
        """Copies the files as those of another write. Errors: `TransactionEnded` if they were rolled back meanwhile."""
        lost = self._transaction.instant
        relocations = relocations_to(task.live_groups().successor_of, self._reports, also_in_place=True)
        _log.info("%s takes over %d files of %s, which lost", task.instant, len(relocations), lost)
        found = relocate(
            executor, task.instant, RebaseTask(task, lost, _still_empty(task, relocations)).run, relocations
        )
        self._rewritten = True
        return found

    def drop(self) -> None:
        """Rolls the files back; if that fails, the next writer does it."""
        conflict = self._conflict
        if self._rewritten:  # only the files were wasted, not the work
            conflict = WriteConflict(conflict.message, **{**conflict.details, "rows_lost": 0, "task_s_lost": 0.0})
        self._transaction.abort_quietly(conflict)


def _still_empty(task: WriteTask, relocations: Sequence[Relocation]) -> Mapping[FileGroup, FileSlice]:
    """The file groups in which lost base files may stay base files, determined once for all tasks and attempts."""
    bases = [(one.report.partition, one.file_id) for one in relocations if is_base_file(one.report.file_name)]
    return task.first_slices(bases) if bases and isinstance(task, BulkTask) else {}


@dataclass(frozen=True)
class RebaseTask:
    """The task that copies files of the `lost` instant; `empty` are the file groups without a file. Pickles."""

    task: WriteTask
    lost: str
    empty: Mapping[FileGroup, FileSlice]

    def run(self, relocation: Relocation, token: str) -> FileReport:
        """Copies one file under a name of this attempt; a base file stays one if the file group is still empty."""
        report, instant = relocation.report, self.task.instant
        first = self.empty.get((report.partition, relocation.file_id))
        if isinstance(self.task, BulkTask) and first is not None and is_base_file(report.file_name):
            return self._as_base(self.task, report, first, token)
        token = token_within(report.partition, token)
        file = LogFile(relocation.file_id, instant, relocation.version, token)
        check_own_file(file)
        path = path_below(report.partition, report.file_name)
        if is_base_file(path):
            data = self._as_log(path, relocation.file_id)
        else:
            data = rewritten(self._read(path), path, instant, relocation.file_id)
        with self.task.attempt(f"again-{file.name}") as files:
            files.create(report.partition, file.name, data, report.records + report.deletes)
        failpoint("rebase.after_file")
        size_bytes = len(data)
        return replace(
            report,
            file_id=relocation.file_id,
            file_name=file.name,
            version=relocation.version,
            size_bytes=size_bytes,
            rows=0,
        )

    def _read(self, path: str) -> bytes:
        try:
            data = self.task.storage.read(path)
        except NotFound:
            data = b""
        if not data:  # a tombstone
            raise self._gone(path)
        verify_checksum(data, path)
        return data

    def _as_base(self, task: BulkTask, report: FileReport, first: FileSlice, token: str) -> FileReport:
        """Copies a base file as one of this instant, which is the same for all attempts.

        The table may have new columns since, and wider types.
        """
        path, schema = path_below(report.partition, report.file_name), with_meta_columns(task.schema)
        with task.attempt(f"again-{first.file_id}-{token}") as files:
            name = task.announced_base(first, files)
            _, parts = self._rows_of(path, first.file_id)
            merged = (Merged(with_schema(part, schema, path)) for part in parts)
            made = task.put_base(name, first, merged, files)
        failpoint("rebase.after_file")
        return made

    def _as_log(self, path: str, file_id: str) -> bytes:
        """Converts a base file to a log file; memory holds the log file and a part of the rows."""
        task = self.task
        avro_schema, parts = self._rows_of(path, file_id)
        return b"".join(encode_log_file(task.instant, avro_schema, one, None, task.block_format) for one in parts)

    def _rows_of(self, path: str, file_id: str) -> tuple[str, Iterator[pa.Table]]:
        """A base file's schema as Avro, and its rows in parts, with the meta columns of this instant."""
        task = self.task

        def parts() -> Iterator[pa.Table]:
            try:
                for part in file.parts(low_memory=True):
                    yield _as_of(part, task.instant, file_id, before=self.lost)
            except NotFound:
                raise self._gone(path) from None

        try:
            file = open_base_file(task.storage, path, with_meta_columns(task.schema).names)
        except NotFound:
            raise self._gone(path) from None
        return file.footer[AVRO_SCHEMA_FOOTER.encode()].decode(), parts()

    def _gone(self, path: str) -> TransactionEnded:
        return TransactionEnded(
            f"{path} is gone, which {self.task.instant} was to commit: its own instant {self.lost} was taken for "
            "dead and rolled back, so write the frame again",
            instant=self.lost,
        )


def rewritten(data: bytes, path: str, instant: str, file_id: str) -> bytes:
    """The log file with the same rows, deletes and headers, for another instant and file group, without a checksum."""
    blocks = []
    for block in read_blocks(data, path):
        change = partial(_as_of, instant=instant, file_id=file_id, before=block.instant)
        changed = with_records(block, change)
        blocks.append(encode_block(changed.kind, {**changed.headers, INSTANT_TIME: instant}, bytes(changed.content)))
    return strip_checksum(b"".join(blocks))


def _as_of(records: pa.Table, instant: str, file_id: str, before: str) -> pa.Table:
    """The rows with the meta columns of another instant, with which their sequence numbers begin."""
    sequence = pc.utf8_slice_codeunits(records[_SEQUENCE], len(before))
    values = {
        _TIME: pa.repeat(instant, records.num_rows),
        _SEQUENCE: pc.binary_join_element_wise(instant, sequence, ""),
        _FILE: pa.repeat(file_id, records.num_rows),
    }
    for name, value in values.items():
        place = records.schema.get_field_index(name)
        records = records.set_column(place, records.schema.field(place), value)
    return records
