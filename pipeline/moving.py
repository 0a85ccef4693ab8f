"""Copies a write's log files under other file ids, before it commits: its own were replaced since it began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from lakelatch.errors import InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.pipeline.file_ids import FileIds
from lakelatch.pipeline.file_names import LogFile, check_own_file, parse_data_file
from lakelatch.pipeline.write_task import REPORT_SCHEMA, FileReport, reports_to_batch, write_token
from lakelatch.storage.contract import path_below
from lakelatch.storage.seals import check_seal
from lakelatch.transactions.markers import Markers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE_MAX_BYTES = 64 * 1024 * 1024
_TASKS_MAX = 10_000


@dataclass(frozen=True)
class Move:
    """One log file, and the name that it is to have but for the write token."""

    report: FileReport
    file_id: str
    version: int


@dataclass(frozen=True)
class MoveTask:
    """What every task that moves files needs. Pickles.

    The bytes stay as they are, but for the seal: the rows' `_hoodie_file_name` speaks of the old file id until they are
    compacted.
    """

    markers: Markers

    def run(self, move: Move, token: str) -> FileReport:
        """Copies one file under a name of this attempt alone; the commit sweeps the old one, and left-over copies."""
        report = move.report
        file = LogFile(move.file_id, self.markers.instant, move.version, token)
        check_own_file(file)
        storage = self.markers.storage
        path = path_below(report.partition, report.file_name)
        data = storage.read(path)
        check_seal(data, path)
        self.markers.create_data_file(report.partition, file.name, data)
        failpoint("move.after_file")
        return replace(report, file_id=move.file_id, file_name=file.name, version=move.version)


class FileTask(Protocol):
    """Makes one file of another one. Pickles."""

    def run(self, move: Move, token: str) -> FileReport:
        """Makes it under a name with this token, which no other attempt has."""
        ...


Mover: TypeAlias = Callable[[FileTask, Sequence[Move]], list[FileReport]]


def moves_to(file_ids: FileIds, reports: Sequence[FileReport], also_in_place: bool = False) -> list[Move]:
    """The files that belong under other file ids than they have; all of them if they are to be copied anyway.

    The versions of a file group's files are counted anew, in the old order, because that is the order of merging.
    """
    moves: list[Move] = []
    versions: dict[tuple[str, str], int] = {}
    for report in sorted(reports, key=_order):
        file_id = file_ids.successor_of(report.partition, report.file_id)
        if also_in_place or file_id != report.file_id:
            version = versions[report.partition, file_id] = versions.get((report.partition, file_id), 0) + 1
            moves.append(Move(report, file_id, version))
    return moves


def move_here(task: FileTask, moves: Sequence[Move]) -> list[FileReport]:
    """Moves the files in this process."""
    return [task.run(move, "0-0-0") for move in moves]


def mover_of(spark: SparkSession) -> Mover:
    """Moves files on the executors, or here if they are small."""

    def move_files(task: FileTask, moves: Sequence[Move]) -> list[FileReport]:
        if sum(move.report.size_bytes for move in moves) <= _HERE_MAX_BYTES:
            return move_here(task, moves)
        from pyspark.sql.pandas.types import from_arrow_schema

        tasks = spark.range(0, len(moves), 1, numPartitions=min(len(moves), _TASKS_MAX))
        work = partial(_move_files, task, tuple(moves))
        rows = tasks.mapInArrow(work, from_arrow_schema(REPORT_SCHEMA)).collect()
        return [FileReport(**row.asDict()) for row in rows]

    return move_files


def _move_files(task: FileTask, moves: tuple[Move, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield reports_to_batch([task.run(moves[index], write_token())])


def _order(report: FileReport) -> tuple[str, tuple[str, int, str]]:
    file = parse_data_file(report.file_name)
    if not isinstance(file, LogFile):
        raise InvariantBroken(f"a write reports {report.file_name!r}, which is no log file")
    return report.partition, file.order
