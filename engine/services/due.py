"""Which table services are due, by the names on the active timeline alone: nothing is read or listed for it.

A wrong answer costs time and never data: a service looks for itself, under the table's lock, what there is to do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter

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
)
from lakelatch.timeline.instant import REQUESTED, Instant
from lakelatch.timeline.snapshot import Snapshot

_HOUR_MS = 3_600_000
_YOUNG_PER_AGED = 10
_completion = attrgetter("completion")


@dataclass(frozen=True)
class Standing:
    """What the active timeline says of table services, as of one moment. Nothing is read for it.

    A question costs what has completed since the service's last run, or since the beginning if there was none.
    """

    snapshot: Snapshot
    now_ms: int

    @classmethod
    def of(cls, snapshot: Snapshot, now_ms: int, since: Iterable[Instant] = ()) -> Standing:
        """As of the folder's last listing, and with what the caller itself has completed `since`."""
        return cls(snapshot.completed_with(since), now_ms)

    @property
    def completed(self) -> tuple[Instant, ...]:
        """In order of completion."""
        return self.snapshot.by_completion

    @property
    def pending(self) -> tuple[Instant, ...]:
        """By requested time."""
        return self.snapshot.pending

    def waiting(self, action: str) -> list[str]:
        """Requested times of plans of this action that have not completed, oldest first."""
        return [instant.requested for instant in self.pending if instant.action == action]

    def compaction_due(self, trigger: CompactionTrigger) -> bool:
        """Whether to plan a compaction. While one waits only if plans are counted from the last request."""
        waiting = self.waiting(COMPACTION)
        if waiting and trigger.strategy != AFTER_LAST_REQUEST:
            return False
        last = max((one.requested for one in self._of(COMMIT)), default="")
        since = list(islice(self._deltas_after(max([last, *waiting])), max(trigger.commits, 1)))
        if not since:
            return False
        counted = len(since) >= trigger.commits
        elapsed = self.now_ms - to_ms(last or since[0].requested) >= trigger.seconds * 1000
        if trigger.strategy in (NUM_AND_TIME, NUM_OR_TIME):
            return (counted and elapsed) if trigger.strategy == NUM_AND_TIME else (counted or elapsed)
        return elapsed if trigger.strategy == TIME_ELAPSED else counted

    def log_compaction_due(self, least_logs: int) -> bool:
        """Whether any file group can have so many new log files since it was compacted in either way."""
        if self.waiting(LOG_COMPACTION):
            return False
        ours = (one for one in self._of(DELTA_COMMIT) if self._compacted_logs(one))
        last = max((one.requested for one in chain(self._of(COMMIT), ours)), default="")
        return _has_so_many(self._deltas_after(last), least_logs)

    def clustering_due(self, commits: int) -> bool:
        """Whether so many writes completed since the last clustering, and none waits."""
        if self.waiting(CLUSTERING):
            return False
        ours = {one for one in self._of(REPLACE_COMMIT) if self._has_plan(one, CLUSTERING)}
        last = max((one.requested for one in ours), default="")
        others = (one for one in self._after(last, REPLACE_COMMIT) if one not in ours)
        commits_of_rows = (one for one in self._after(last, COMMIT) if not self._has_plan(one, COMPACTION))
        return _has_so_many(chain(self._deltas_after(last), others, commits_of_rows), commits)

    def clean_due(self, options: CleaningOptions) -> bool:
        """Whether something may have become old since the last clean looked, or a clean waits.

        A write adds log files to the latest slices, and takes nothing away. Only compactions, clusterings and
        overwrites leave anything behind, and rollbacks, restores and cancelled plans their tombstones. Where only some
        partitions are cleaned, names do not say whether the last clean has looked at them.
        """
        if self.waiting(CLEAN):
            return True
        last = max((one.requested for one in self._of(CLEAN)), default="")
        if len(self.writes) - _count_until(self.writes, last) < options.trigger_commits:
            return False
        left = [one.completion or "" for one in self._of(COMMIT, REPLACE_COMMIT)]
        undone = (one.completion or "" for one in self._of(ROLLBACK, RESTORE))
        bars = [*undone, *(one.requested for one in self.snapshot.aborted)]
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
        aged = _count_until(surplus, old) + len(surplus) - _count_until(surplus, now)
        return aged >= max(options.max_commits - options.min_commits, (len(surplus) - aged) // _YOUNG_PER_AGED)

    def _moment(self, options: CleaningOptions, before: str) -> str:
        """What was superseded until then may go: as of now, or as a clean at the time `before` saw it."""
        if options.policy == KEEP_LATEST_BY_HOURS:
            return _earlier(to_ms(before) if before else self.now_ms, options.hours * _HOUR_MS)
        kept = options.versions if options.policy == KEEP_LATEST_FILE_VERSIONS else options.commits
        count = bisect_left(self.writes, before, key=_completion) if before else len(self.writes)
        return (self.writes[count - kept - 1].completion or "") if count > kept else ""

    @property
    def writes(self) -> tuple[Instant, ...]:
        """Completed writes, and the services that rewrite, in order of completion."""
        return self.snapshot.writes

    def _of(self, *actions: str) -> Iterator[Instant]:
        return chain.from_iterable(self.snapshot.by_action.get(action, ()) for action in actions)

    def _after(self, time: str, action: str) -> Iterator[Instant]:
        """Those that completed after a time, in order of completion."""
        found = self.snapshot.by_action.get(action, ())
        return islice(found, _count_until(found, time), None)

    def _deltas_after(self, time: str) -> Iterator[Instant]:
        """Delta commits that wrote rows."""
        return (one for one in self._after(time, DELTA_COMMIT) if not self._compacted_logs(one))

    def _compacted_logs(self, instant: Instant) -> bool:
        return self._has_plan(instant, LOG_COMPACTION)

    def _has_plan(self, instant: Instant, action: str) -> bool:
        return any(one.state == REQUESTED and one.action == action for one in self.snapshot.of(instant.requested))


def _count_until(instants: Sequence[Instant], time: str) -> int:
    """How many of these, which are in order of completion, completed until then."""
    return bisect_right(instants, time, key=_completion)


def _has_so_many(instants: Iterator[Instant], least: int) -> bool:
    return len(list(islice(instants, max(least, 0)))) >= least


def _earlier(time_ms: int, by_ms: int) -> str:
    return to_instant(max(0, time_ms - by_ms))
