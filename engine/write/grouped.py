"""The files of a write that others may commit, and of others' writes, as their records name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.file_report import FileReport, work_of
from lakelatch.engine.table.schema import says_columns_of
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.placement import Placement
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import At, Check, in_order
from lakelatch.transactions.attempts.ready_commit import ReadyCommit, Unfit
from lakelatch.transactions.base.outcome import Changed, Displaced, Retry, Staged
from lakelatch.transactions.conflicts.contract import Conflict


@dataclass(frozen=True)
class GroupedFiles:
    """A write as a member of a group: see `GroupMember`."""

    table: OpenedTable
    options: WriteOptions
    reports: Sequence[FileReport]

    def facts(self) -> Mapping[str, Any]:
        """The files, and the columns and the control under which they were written."""
        return {
            "reports": [asdict(report) for report in self.reports],
            "table": self.table.config.name,
            "schema": self.table.avro_schema,
            "non_blocking": self.options.non_blocking,
        }

    def staged_of(self, record: ReadyCommit) -> Staged:
        """The files that another write's record names. Errors: `Unfit`."""
        reports, metadata = _reports(record), CommitMetadata.from_avro(record.event.content)
        stats = [report.to_stat(record.state.instant) for report in reports]
        if _files(metadata.stats) != _files(stats) or metadata.replaced or metadata.compacted:
            raise Unfit("its event is of other files")
        if metadata.file_groups() != record.event.file_groups:
            raise Unfit("its event is of other file groups")
        return Staged(metadata, work_of(reports))

    def checks_of(self, record: ReadyCommit) -> Sequence[Check]:
        """The checks that the other write would make. Errors: `Unfit`."""
        facts, reports = record.facts, _reports(record)
        non_blocking = facts.get("non_blocking")
        if facts.get("table") != self.table.config.name:
            raise Unfit("it is of another table")
        if facts.get("schema") != self.table.avro_schema or not isinstance(non_blocking, bool):
            raise Unfit("its columns are others, or it does not say how its files were written")

        def keeps_its_schema(snapshot: Snapshot, at: At) -> Retry | None:
            return None if says_columns_of(self.table, snapshot) else Retry("its columns are to be merged with others")

        def is_placed(snapshot: Snapshot, at: At) -> Changed | Conflict | Displaced | None:
            state = record.state
            return Placement(self.table, state.instant, reports, non_blocking, state.mark).check(snapshot, at)

        return in_order([keeps_its_schema, is_placed])


def _files(stats: Iterable[WriteStat]) -> set[tuple[str, str, str]]:
    return {(stat.partition, stat.file_id, stat.path) for stat in stats}


def _reports(record: ReadyCommit) -> list[FileReport]:
    try:
        return [FileReport(**report) for report in record.facts["reports"]]
    except (KeyError, TypeError) as error:
        raise Unfit("it does not name its files") from error
