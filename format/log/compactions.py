"""The log files that log compactions have rewritten, and those that repeat them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lakelatch.format.names import COMPACTED_MARK
from lakelatch.storage.contract import path_below
from lakelatch.timeline.actions import DELTA_COMMIT, LOG_COMPACTION
from lakelatch.timeline.history.level_file import ArchivedInstant
from lakelatch.timeline.instant import Instant, requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_plan
from lakelatch.timeline.metadata import CompactionPlan

#: Completed log compactions by requested time, each with where its plan is if it was archived.
Completed: TypeAlias = Mapping[str, tuple[Instant, ArchivedInstant | None]]


@dataclass(frozen=True)
class LogCompactions:
    """Log files that others repeat (by partition and name), and the paths of those that repeat them.

    File groups of different partitions have the same file ids, and so their files may have the same names.
    """

    absorbed: frozenset[tuple[str, str]]
    compacted_logs: frozenset[str]

    def hidden(self, partition: str, names: Iterable[str]) -> frozenset[str]:
        """Files of a partition that do not count: absorbed logs, and compacted logs that no commit names yet."""
        return frozenset(
            name
            for name in names
            if (partition, name) in self.absorbed
            or (COMPACTED_MARK in name and path_below(partition, name) not in self.compacted_logs)
        )


def completed_log_compactions(whole: WholeTimeline, as_of: str | None) -> Completed:
    """Log compactions that had completed by a time."""
    found: dict[str, tuple[Instant, ArchivedInstant | None]] = {
        archived.requested: (archived.instant, archived)
        for archived in whole.archived((DELTA_COMMIT,), until=as_of, planned_only=True)
    }
    for instant in whole.active.by_action.get(DELTA_COMMIT, ()):
        planned = requested(instant.requested, LOG_COMPACTION)
        if whole.active.has(planned) and (as_of is None or (instant.completion or "") <= as_of):
            found[instant.requested] = instant, None
    return found


def read_log_compactions(whole: WholeTimeline, completed: Completed) -> LogCompactions:
    """The log files that these have rewritten."""
    absorbed: set[tuple[str, str]] = set()
    compacted_logs: set[str] = set()
    for instant, archived in completed.values():
        planned = requested(instant.requested, LOG_COMPACTION)
        data = read_plan(whole.storage, planned) if archived is None else whole.history.plan(archived) or b""
        plan = CompactionPlan.from_avro(data, planned.path)
        made = whole.metadata(instant)
        compacted_logs.update(stat.path for stat in made.stats)
        groups = made.file_groups()
        for operation in plan.operations:
            if (operation.partition, operation.file_id) in groups:
                absorbed.update((operation.partition, name) for name in operation.delta_files)
    return LogCompactions(frozenset(absorbed), frozenset(compacted_logs))
