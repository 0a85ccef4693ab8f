"""Conflicts of a bulk load's base files at its slot in the log: with writes whose rows one would hide, or be hidden by.

A base file begins its slice at the *requested* time of its write, long before it completes. Writes that it did not see
when it began may be on the wrong side of that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakelatch.engine.run.file_report import FileReport
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.instant import completed as completed_instant
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.base.cancel_requests import plan_of
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite


def first_bases(config: TableConfig, reports: Iterable[FileReport]) -> frozenset[FileGroup]:
    """The file groups to which a write to a merge-on-read table gives their first base file."""
    if config.copies_on_write:
        return frozenset()
    return frozenset(
        (report.partition, report.file_id)
        for report in reports
        if isinstance(parse_data_file(report.file_name), BaseFile)
    )


def base_file_conflict(
    storage: Storage, instant: str, groups: frozenset[FileGroup], snapshot: Snapshot, completed: list[OtherWrite]
) -> Conflict | None:
    """The first conflict of base files with this requested time in these file groups, by completed writes and plans.

    A log file that completed by then would be below the base file, and so hidden. Of two base files one hides the
    other, and a waiting plan will make one. A log file that completed later is merged onto the base file.
    """
    if not groups:
        return None
    for write in (*completed, *_planned(storage, snapshot)):
        common = groups & write.file_groups
        if common and (write.action != DELTA_COMMIT or write.time <= instant or _has_base_file(storage, write, common)):
            return Conflict(write, common)
    return None


def _planned(storage: Storage, snapshot: Snapshot) -> Iterator[OtherWrite]:
    """Waiting plans as writes, including those made before the write began."""
    for pending in snapshot.pending:
        plan = plan_of(storage, pending) if pending.action in REWRITING_SERVICES else None
        if plan is not None:
            yield OtherWrite(plan.instant, plan.action, "", plan.groups, inflight=True)


def _has_base_file(storage: Storage, write: OtherWrite, groups: frozenset[FileGroup]) -> bool:
    """Whether the write made a base file in one of these file groups, as another bulk load."""
    metadata = read_commit(storage, completed_instant(write.instant, write.action, write.time))
    return any(
        (stat.partition, stat.file_id) in groups and isinstance(parse_data_file(stat.path.rpartition("/")[2]), BaseFile)
        for stat in metadata.stats
    )
