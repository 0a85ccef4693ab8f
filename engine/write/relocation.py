"""Relocation: copies log files of a write under other file ids before it commits, as theirs were replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakelatch.engine.run.executor import Executor, Task
from lakelatch.engine.run.file_report import FileReport
from lakelatch.errors import InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.format.log.blocks import encode_empty_log
from lakelatch.format.names import LogFile, check_own_file, parse_data_file, placeholder_file, token_within
from lakelatch.storage.checksums import verify_checksum
from lakelatch.storage.contract import path_below
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.markers.direct import Markers

_SMALL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Relocation:
    """One log file, and its new name without the write token."""

    report: FileReport
    file_id: str
    version: int


@dataclass(frozen=True)
class RelocationTask:
    """The task that relocates files. Pickles.

    Only the checksum changes: the rows' `_hoodie_file_name` has the old file id until they are compacted.
    """

    markers: Markers

    def run(self, relocation: Relocation, token: str) -> FileReport:
        """Copies one file under a name of this attempt; the commit sweeps the old file, and left-over copies."""
        report = relocation.report
        token = token_within(report.partition, token)
        file = LogFile(relocation.file_id, self.markers.instant, relocation.version, token)
        check_own_file(file)
        storage = self.markers.storage
        path = path_below(report.partition, report.file_name)
        data = storage.read(path)
        verify_checksum(data, path)
        self.markers.create_data_file(report.partition, file.name, data)
        failpoint("relocate.after_file")
        return replace(report, file_id=relocation.file_id, file_name=file.name, version=relocation.version)


@dataclass(frozen=True)
class PlaceholderTask:
    """Makes an empty successor of each replaced file group without new rows. Pickles."""

    markers: Markers
    avro_schema: str

    def run(self, relocation: Relocation, token: str) -> FileReport:
        """Makes the placeholder under a name of this attempt; of the relocation only its place counts."""
        partition = relocation.report.partition
        file = placeholder_file(relocation.file_id, self.markers.instant, token_within(partition, token))
        check_own_file(file)
        data = encode_empty_log(self.markers.instant, self.avro_schema)
        self.markers.create_data_file(partition, file.name, data)
        return FileReport(partition, file.file_id, file.name, 0, 0, len(data), file.version)


def relocations_to(
    successor_of: Callable[[str, str], str], reports: Sequence[FileReport], also_in_place: bool = False
) -> list[Relocation]:
    """The files whose file id has changed; all of them if `also_in_place`.

    `successor_of` returns the current file id for a partition and a file id. The versions of a file group's files are
    numbered anew, in the old order, which is the order of merging.
    """
    relocations: list[Relocation] = []
    versions: dict[FileGroup, int] = {}
    for report in sorted(reports, key=_order):
        file_id = successor_of(report.partition, report.file_id)
        if also_in_place or file_id != report.file_id:
            version = versions[report.partition, file_id] = versions.get((report.partition, file_id), 0) + 1
            relocations.append(Relocation(report, file_id, version))
    return relocations


def relocate(
    executor: Executor, instant: str, work: Task[Relocation, FileReport], relocations: Sequence[Relocation]
) -> list[FileReport]:
    """Makes a file of this instant for each relocation, under names with a token that no other attempt has."""
    small = sum(relocation.report.size_bytes for relocation in relocations) <= _SMALL_BYTES
    what = f"lakelatch: files are copied to the current file groups ({instant})"
    return executor.map(work, relocations, FileReport, what, small)


def _order(report: FileReport) -> tuple[str, tuple[str, int, str, bool]]:
    file = parse_data_file(report.file_name)
    if file is None:
        raise InvariantBroken(f"a write reports {report.file_name!r}, which is no data file")
    return report.partition, file.order if isinstance(file, LogFile) else (file.instant, 0, file.write_token, False)
