"""What tasks tell the driver of the files that they have made, or why they refuse rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.storage.contract import path_below
from lakelatch.timeline.metadata import WriteStat
from lakelatch.transactions.conflicts.report import Work


@dataclass(frozen=True)
class FileReport:
    """What a task tells the driver of one file: a small row, never data.

    `kept_bytes` is the size of the deletes that a compaction has kept in a log file beside it, 0 if there is none. A
    base file has `rows` in all, and `merged_base` is the one that it was made of, if there was one. One without a name
    is of no file: it says how many rows were `skipped`, or why the task has `refused` rows.
    """

    partition: str
    file_id: str
    file_name: str
    records: int
    deletes: int
    size_bytes: int
    version: int
    task_ms: int = 0
    kept_bytes: int = 0
    rows: int = 0
    merged_base: str = ""
    skipped: int = 0
    refused: str = ""

    def to_stat(self, instant: str) -> WriteStat:
        """The file as the commit's metadata names it."""
        if isinstance(parse_data_file(self.file_name), BaseFile):
            return self._base_file_stat()
        return WriteStat(
            partition=self.partition,
            file_id=self.file_id,
            path=path_below(self.partition, self.file_name),
            previous_commit=instant,
            num_writes=self.records,
            num_deletes=self.deletes,
            num_update_writes=self.records,
            total_write_bytes=self.size_bytes,
            file_size_bytes=self.size_bytes,
            log_version=self.version,
            base_file="",
            log_files=(self.file_name,),
        )

    def _base_file_stat(self) -> WriteStat:
        """Nobody has counted which of the rows took the place of others."""
        merged = parse_data_file(self.merged_base)
        return WriteStat(
            partition=self.partition,
            file_id=self.file_id,
            path=path_below(self.partition, self.file_name),
            previous_commit=None if merged is None else merged.instant,
            num_writes=self.rows,
            num_inserts=self.rows if merged is None else 0,
            num_update_writes=0 if merged is None else self.records,
            num_deletes=self.deletes,
            total_write_bytes=self.size_bytes,
            file_size_bytes=self.size_bytes,
            previous_base_file=self.merged_base or None,
        )


def or_refusal(reports: Iterable[FileReport]) -> Iterator[FileReport]:
    """The reports of a task; where it refuses rows, a report that says so comes in the place of the others.

    Spark logs an error that a task raises with its stack, and has the task tried again, before the driver hears of it.
    """
    try:
        yield from reports
    except InvalidRequest as error:
        yield FileReport("", "", "", 0, 0, 0, 0, refused=refusal_text(error))


def ensure_none_refused(reports: Iterable[FileReport]) -> None:
    """Errors: `InvalidRequest` of the first task that has refused its rows."""
    for report in reports:
        if report.refused:
            raise refusal_error(report.refused)


def refusal_text(error: InvalidRequest) -> str:
    """Why rows are refused, as it travels among the results of tasks."""
    return json.dumps([error.message, error.details], default=str)


def refusal_error(text: str | bytes) -> InvalidRequest:
    message, details = json.loads(text)
    return InvalidRequest(message, **details)


def work_of(reports: list[FileReport]) -> Work:
    """What the tasks have done that made these files."""
    return sum((Work(report.records + report.deletes, report.size_bytes, report.task_ms) for report in reports), Work())
