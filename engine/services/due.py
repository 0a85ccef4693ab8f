"""Which table services are due, by the names on the active timeline alone: nothing is read or listed for it.

A wrong answer costs time and never data: a service looks for itself, under the table's lock, what there is to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from lakelatch.engine.options.archiving import ArchivingOptions
from lakelatch.engine.options.cleaning import KEEP_LATEST_BY_HOURS, KEEP_LATEST_FILE_VERSIONS, CleaningOptions
from lakelatch.engine.options.inline import (
    AFTER_LAST_REQUEST,
    NUM_AND_TIME,
    NUM_OR_TIME,
    TIME_ELAPSED,
    CompactionTrigger,
)
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    WRITE_ACTIONS,
)
from lakelatch.timeline.timeline import Instant, TimelineFolder, requested

_HOUR_MS = 3_600_000
_YOUNG_PER_AGED = 10


@dataclass(frozen=True)
class Standing:
    """What the names on the active timeline say of table services. `completed` is in order of completion."""

    completed: tuple[Instant, ...]
    pending: tuple[Instant, ...]
    names: frozenset[str]
    now_ms: int
    aborted: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: TimelineFolder, now_ms: int, since: Iterable[Instant] = ()) -> Standing:
        """As of the folder's last listing, and with what the caller itself has completed `since`."""
        found = {instant.file_name: instant for instant in (*folder.completed_since(frozenset()), *since)}
        done = {instant.requested for instant in found.values()}
        return cls(
            tuple(sorted(found.values(), key=lambda instant: instant.completion or "")),
            tuple(instant for instant in folder.pending() if instant.requested not in done),
            folder.names,
            now_ms,
            tuple(one.completion or one.requested for one in folder.aborted()),
        )

    def waiting(self, action: str) -> list[str]:
        """Requested times of plans of this action that have not completed, oldest first."""
        return [instant.requested for instant in self.pending if instant.action == action]

    def compaction_due(self, trigger: CompactionTrigger) -> bool:
        """Whether to plan a compaction. While one waits only if plans are counted from the last request."""
        waiting = self.waiting(COMPACTION)
        if waiting and trigger.strategy != AFTER_LAST_REQUEST:
            return False
        last = max((one.requested for one in self.completed if one.action == COMMIT), default="")
        since = [one for one in self._deltas if (one.completion or "") > max([last, *waiting])]
        if not since:
            return False
        counted = len(since) >= trigger.commits
        elapsed = self.now_ms - to_ms(last or since[0].requested) >= trigger.seconds * 1000
        if trigger.strategy in (NUM_AND_TIME, NUM_OR_TIME):
            return (counted and elapsed) if trigger.strategy == NUM_AND_TIME else (counted or elapsed)
        return elapsed if trigger.strategy == TIME_ELAPSED else counted

    def log_compaction_due(self, least_logs: int) -> bool:
        """Whether any file group can have so many new log files since it was compacted in either way."""
        last = max(
            (one.requested for one in self.completed if one.action == COMMIT or self._compacted_logs(one)), default=""
        )
        since = sum((one.completion or "") > last for one in self._deltas)
        return not self.waiting(LOG_COMPACTION) and since >= least_logs

    def clustering_due(self, commits: int) -> bool:
        """Whether so many writes completed since the last clustering, and none waits."""
        ours = [one for one in self.completed if one.action == REPLACE_COMMIT and self._has_plan(one, CLUSTERING)]
        last = max((one.requested for one in ours), default="")
        writes = [*self._deltas, *(one for one in self.completed if one.action == REPLACE_COMMIT and one not in ours)]
        writes += [one for one in self.completed if one.action == COMMIT and not self._has_plan(one, COMPACTION)]
        return not self.waiting(CLUSTERING) and sum((one.completion or "") > last for one in writes) >= commits

    def clean_due(self, options: CleaningOptions) -> bool:
        """Whether something may have become old since the last clean looked, or a clean waits.

        A write adds log files to the latest slices, and takes nothing away. Only compactions, clusterings and
        overwrites leave anything behind, and rollbacks, restores and cancelled plans their tombstones. Where only some
        partitions are cleaned, names do not say whether the last clean has looked at them.
        """
        if self.waiting(CLEAN):
            return True
        last = max((one.requested for one in self.completed if one.action == CLEAN), default="")
        if sum((one.completion or "") > last for one in self.writes) < options.trigger_commits:
            return False
        left = [one.completion or "" for one in self.writes if one.action != DELTA_COMMIT]
        undone = (one.completion or "" for one in self.completed if one.action in (ROLLBACK, RESTORE))
        bars = [*undone, *self.aborted]
        day_ms = int(options.tombstone_hours * _HOUR_MS)
        looked = last and not options.is_filtered
        seen, bars_seen = (self._moment(options, last), _earlier(to_ms(last), day_ms)) if looked else ("", "")
        superseded = any(seen < time <= self._moment(options, "") for time in left)
        return superseded or any(bars_seen < time <= _earlier(self.now_ms, day_ms) for time in bars)

    def archive_due(self, most: int) -> bool:
        """Whether more writes than that are on the active timeline."""
        return len(self.writes) > most

    def archive_promises(self, options: ArchivingOptions) -> bool:
        """Whether so many writes are due to be archived, and look old enough for it, that a try is worth its cost.

        That is as many as an archiving takes away at least, and a tenth of those that are too young: a table with
        thousands of writes a minute is not archived after each of them. A time ahead of this clock says nothing of an
        age, so that a writer whose clock is behind tries as well.
        """
        if not self.archive_due(options.max_commits):
            return False
        surplus = self.writes[: len(self.writes) - options.min_commits]
        now, old = to_instant(self.now_ms), _earlier(self.now_ms, options.minimum_age_s * 1000)
        aged = sum(not old < (one.completion or "") <= now for one in surplus)
        return aged >= max(options.max_commits - options.min_commits, (len(surplus) - aged) // _YOUNG_PER_AGED)

    def _moment(self, options: CleaningOptions, before: str) -> str:
        """What was superseded until then may go: as of now, or as a clean at the time `before` saw it."""
        if options.policy == KEEP_LATEST_BY_HOURS:
            return _earlier(to_ms(before) if before else self.now_ms, options.hours * _HOUR_MS)
        kept = options.versions if options.policy == KEEP_LATEST_FILE_VERSIONS else options.commits
        writes = [one for one in self.writes if not before or (one.completion or "") < before]
        return (writes[-kept - 1].completion or "") if len(writes) > kept else ""

    @cached_property
    def writes(self) -> list[Instant]:
        """Completed writes, and the services that rewrite, in order of completion."""
        return [one for one in self.completed if one.action in WRITE_ACTIONS]

    @cached_property
    def _deltas(self) -> list[Instant]:
        """Delta commits that wrote rows."""
        return [one for one in self.completed if one.action == DELTA_COMMIT and not self._compacted_logs(one)]

    def _compacted_logs(self, instant: Instant) -> bool:
        return instant.action == DELTA_COMMIT and self._has_plan(instant, LOG_COMPACTION)

    def _has_plan(self, instant: Instant, action: str) -> bool:
        return requested(instant.requested, action).file_name in self.names


def _earlier(time_ms: int, by_ms: int) -> str:
    return to_instant(max(0, time_ms - by_ms))
