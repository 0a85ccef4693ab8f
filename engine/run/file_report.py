"""Reports from tasks to the driver: the files that they made, or why they refused rows."""

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
    """A task's report on one file: a small row, never data.

    `kept_bytes` is the size of the log file in which a compaction kept deletes, 0 if there is none. A base file has
    `rows` in total, and was made from the base file `merged_base`, if there was one. A report without a file name says
    how many rows were `skipped`, or why the task `refused` rows.
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
        """The file's entry in the commit's metadata."""
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
        """Counts all rows of the write as updates if there was a base file: new keys are not counted apart."""
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
    """The reports of a task; if it refuses rows, a report says so instead of an error.

    Spark would log an error of a task with its stack, and run the task again, before the driver sees it.
    """
    try:
        yield from reports
    except InvalidRequest as error:
        yield FileReport("", "", "", 0, 0, 0, 0, refused=refusal_text(error))


def ensure_none_refused(reports: Iterable[FileReport]) -> None:
    """Raises the `InvalidRequest` of the first task that refused its rows."""
    for report in reports:
        if report.refused:
            raise refusal_error(report.refused)


def refusal_text(error: InvalidRequest) -> str:
    """The error that refuses rows, as a text in a task's report."""
    return json.dumps([error.message, error.details], default=str)


def refusal_error(text: str | bytes) -> InvalidRequest:
    message, details = json.loads(text)
    return InvalidRequest(message, **details)


def work_of(reports: list[FileReport]) -> Work:
    """The work of the tasks that made these files."""
    return sum((Work(report.records + report.deletes, report.size_bytes, report.task_ms) for report in reports), Work())
