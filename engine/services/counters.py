"""Counts of instants on the active timeline, by which services decide whether they are due, without any request.

A wrong answer costs time and never data: a service decides under the table's lock what there is to do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from zlib import crc32

from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.actions import DELTA_COMMIT, LOG_COMPACTION
from lakelatch.timeline.instant import REQUESTED, Instant
from lakelatch.timeline.snapshot import Snapshot

by_completion = attrgetter("completion")


@dataclass(frozen=True)
class Counters:
    """Counts of a snapshot, as of one moment.

    The cost of a count is the number of instants completed since the service's last run, or of all if it never ran.
    `since` are the completion times for which this look is made: those of one slot, of whose writers one looks for all.
    """

    snapshot: Snapshot
    now_ms: int
    since: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, now_ms: int, since: Iterable[Instant] = ()) -> Counters:
        """Counts the last listing of the folder, and the instants that the caller itself has completed `since`."""
        done = list(since)
        return cls(snapshot.completed_with(done), now_ms, frozenset(one.completion or "" for one in done))

    @property
    def writes(self) -> tuple[Instant, ...]:
        """Completed writes and rewriting services, in order of completion."""
        return self.snapshot.writes

    def waiting(self, action: str) -> list[str]:
        """Requested times of plans of this action that have not completed, oldest first."""
        return pending_plans(self.snapshot, action)

    def completed(self, *actions: str) -> Iterator[Instant]:
        """Completed instants of these actions."""
        return chain.from_iterable(self.snapshot.by_action.get(action, ()) for action in actions)

    def completed_after(self, time: str, action: str) -> Iterator[Instant]:
        """Instants of the action that completed after a time, in order of completion."""
        found = self.snapshot.by_action.get(action, ())
        return islice(found, count_until(found, time), None)

    def deltas_after(self, time: str) -> Iterator[Instant]:
        """Delta commits of writes that completed after a time."""
        return (one for one in self.completed_after(time, DELTA_COMMIT) if not self.has_plan(one, LOG_COMPACTION))

    def has_plan(self, instant: Instant, action: str) -> bool:
        """Whether the instant was planned as this action."""
        return any(one.state == REQUESTED and one.action == action for one in self.snapshot.of(instant.requested))

    def is_drawn(self, every: int) -> bool:
        """Whether it is the turn of a commit for which this look is made (or else of the last one), one in so many.

        Drawn from its time, so that it needs no state, and no rhythm of writes and services avoids it.
        """
        times = self.since or {self.writes[-1].completion or ""}
        return any(crc32(time.encode()) % every == 0 for time in times)

    def has_reached(self, count: int, least: int) -> bool:
        """Whether a count has come to `least` by the commits for which this look is made."""
        return count - max(len(self.since), 1) < least <= count

    def earlier(self, by_ms: int) -> str:
        """The time `by_ms` ago, by the clock of this machine."""
        return earlier(self.now_ms, by_ms)


def pending_plans(snapshot: Snapshot, action: str) -> list[str]:
    """Requested times of the plans of this action that have not completed, oldest first."""
    return [instant.requested for instant in snapshot.pending if instant.action == action]


def last_requested(instants: Iterable[Instant]) -> str:
    """The greatest requested time; "" if there is none."""
    return max((one.requested for one in instants), default="")


def count_until(instants: Sequence[Instant], time: str) -> int:
    """How many of these instants, given in order of completion, completed until a time."""
    return bisect_right(instants, time, key=by_completion)


def has_so_many(instants: Iterator[Instant], least: int) -> bool:
    """Whether there are at least `least` instants, without counting further."""
    return len(list(islice(instants, max(least, 0)))) >= least


def earlier(time_ms: int, by_ms: int) -> str:
    """The instant `by_ms` before a time."""
    return to_instant(max(0, time_ms - by_ms))
