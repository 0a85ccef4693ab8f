"""What a write that lost at its commit need not do again: its files become those of the next try.

Their rows were computed, shuffled and written, and neither depends on what the winner has done. So the next try copies
the files under its own instant, which they name in many places, instead of evaluating the frame a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import LakelatchError, TransactionEnded, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.pipeline.file_names import LogFile, check_own_file
from lakelatch.pipeline.log_blocks import with_records
from lakelatch.pipeline.log_format import INSTANT_TIME, encode_block, read_blocks
from lakelatch.pipeline.moving import Move, Mover, moves_to
from lakelatch.pipeline.schemas import META_COLUMNS
from lakelatch.pipeline.write_task import FileReport, WriteTask
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.storage.seals import check_seal, unseal
from lakelatch.transactions.transaction import LOST, Transaction

_TIME, _SEQUENCE, _, _, _FILE = META_COLUMNS
_log = logging.getLogger("lakelatch.pipeline")


class Salvage:
    """The files of the last try that lost, until they are dropped. `wanted` says whether there is another try."""

    def __init__(self) -> None:
        self.wanted = False
        self._lost: tuple[Transaction, WriteConflict, list[FileReport]] | None = None
        self._reissued = False

    @property
    def found(self) -> bool:
        """Whether there are files for another try."""
        return self._lost is not None

    def keep(self, transaction: Transaction, conflict: WriteConflict, reports: list[FileReport]) -> None:
        """Takes over a transaction that is `LOST`; the one before goes."""
        self.drop()
        self._lost = transaction, conflict, reports

    def reissue(self, task: WriteTask, mover: Mover) -> list[FileReport]:
        """The kept files as files of another write. Errors: `TransactionEnded` if somebody has rolled them back."""
        assert self._lost is not None
        transaction, _, reports = self._lost
        moves = moves_to(task.file_ids, reports, also_in_place=True)
        _log.info("%s takes over %d files of %s, which lost", task.instant, len(moves), transaction.instant)
        found = mover(ReissueTask(task, transaction.instant), moves)
        self._reissued = True
        return found

    def drop(self) -> None:
        """Rolls back what was kept; what cannot be rolled back now is rolled back by the next writer."""
        lost, self._lost, reissued = self._lost, None, self._reissued
        self._reissued = False
        if lost is None:
            return
        transaction, conflict, _ = lost
        if reissued:  # but for the files, nothing was thrown away
            conflict = WriteConflict(conflict.message, **{**conflict.details, "rows_lost": 0, "task_s_lost": 0.0})
        try:
            transaction.abort(conflict)
        except LakelatchError as error:
            _log.warning("instant %s is left to the next writer's rollback: %s", transaction.instant, error)


def keep_if_lost(
    salvage: Salvage | None, transaction: Transaction, conflict: WriteConflict, reports: Sequence[FileReport]
) -> None:
    """Keeps the files of a transaction that was told to keep them."""
    if salvage is not None and transaction.status == LOST:
        salvage.keep(transaction, conflict, list(reports))


@dataclass(frozen=True)
class ReissueTask:
    """What every task that copies files of an instant that lost needs. Pickles."""

    task: WriteTask
    lost: str

    def run(self, move: Move, token: str) -> FileReport:
        """Copies one file under a name of this attempt alone."""
        report, instant = move.report, self.task.instant
        file = LogFile(move.file_id, instant, move.version, token)
        check_own_file(file)
        path = path_below(report.partition, report.file_name)
        data = reissued(self._read(path), path, instant, move.file_id)
        with self.task.attempt(f"again-{file.name}") as files:
            files.create(report.partition, file.name, data, report.records + report.deletes)
        failpoint("salvage.after_file")
        size_bytes = len(data)
        return replace(report, file_id=move.file_id, file_name=file.name, version=move.version, size_bytes=size_bytes)

    def _read(self, path: str) -> bytes:
        try:
            data = self.task.storage.read(path)
        except NotFound:
            data = b""
        if not data:  # an empty file bars the name
            raise TransactionEnded(
                f"{path} is gone, which {self.task.instant} was to commit: its own instant {self.lost} was taken for "
                "dead and rolled back, so write the frame again",
                instant=self.lost,
            )
        check_seal(data, path)
        return data


def reissued(data: bytes, path: str, instant: str, file_id: str) -> bytes:
    """The same log file as a write of another instant makes it in a file group: the same rows, deletes and headers.

    It is not sealed yet.
    """
    blocks = []
    for block in read_blocks(data, path):
        change = partial(_as_of, instant=instant, file_id=file_id, before=block.instant)
        changed = with_records(block, change)
        blocks.append(encode_block(changed.kind, {**changed.headers, INSTANT_TIME: instant}, bytes(changed.content)))
    return unseal(b"".join(blocks))


def _as_of(records: pa.Table, instant: str, file_id: str, before: str) -> pa.Table:
    """The rows with the meta columns of another instant; their sequence numbers begin with it."""
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
