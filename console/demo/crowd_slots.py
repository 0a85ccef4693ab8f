"""What many small writers have done: their commits, the slots that hold them, and the figures of both."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, Event

_LOOK_S = 0.1  # slots are removed some dozens of slots later


@dataclass(frozen=True)
class SmallCommit:
    """A commit as its writer was told of it; times are of this machine's clock."""

    writer: str
    batch: int
    begun_ms: int
    seconds: float
    instant: str
    completion: str
    conflicts: int = 0

    @property
    def ended_ms(self) -> float:
        return self.begun_ms + self.seconds * 1000


@dataclass(frozen=True)
class Slot:
    """A slot of the log with the commits that it holds, by their requested times; the first one's writer put it."""

    number: int
    instants: tuple[str, ...]
    times: tuple[str, ...]

    @property
    def time_ms(self) -> int:
        """The time of its last commit: the slot was put right afterwards."""
        return to_ms(self.times[-1])


class SlotWatch:
    """Notes each slot of a table's log, before it is removed."""

    def __init__(self, storage: Storage) -> None:
        self._log = CommitLog(storage)
        self._seen: dict[int, list[Event]] = {}
        self._last = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelatch-demo-slots", daemon=True)

    def __enter__(self) -> SlotWatch:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def commits(self) -> int:
        """How many commits it has seen."""
        return sum(len(events) for events in list(self._seen.values()))

    def slots(self) -> list[Slot]:
        """The slots with commits that it has seen, in order."""
        return [
            Slot(number, tuple(event.instant for event in events), tuple(event.time for event in events))
            for number, events in sorted(self._seen.items())
        ]

    def look(self) -> None:
        """Notes what has come since the last look. Errors: `Unavailable`."""
        tail = self._log.tail()
        found: dict[int, list[Event]] = {}
        for event in self._log.standing(tail, self._last):
            if event.kind == COMPLETE:
                found.setdefault(event.number, []).append(event)
        self._seen.update(found)
        self._last = tail.time

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self.look()
            except Unavailable:
                continue


@dataclass(frozen=True)
class Figures:
    """Of a whole run.

    `shared` counts the commits that were not alone in their slot. `fairness` is the commits of the slowest writer to
    those of the fastest.
    """

    commits: int
    slots: int
    per_slot_median: float
    per_slot_most: int
    shared: int
    commits_per_s: float
    median_ms: float
    p99_ms: float
    fairness: float
    conflicts: int

    @classmethod
    def of(cls, commits: Sequence[SmallCommit], slots: Sequence[Slot], writers: int) -> Figures:
        times = sorted(commit.seconds * 1000 for commit in commits) or [0.0]
        sizes = [len(slot.instants) for slot in slots] or [0]
        each = Counter(commit.writer for commit in commits)
        span_ms = 0.0
        if commits:
            span_ms = max(commit.ended_ms for commit in commits) - min(commit.begun_ms for commit in commits)
        return cls(
            commits=len(commits),
            slots=len(slots),
            per_slot_median=statistics.median(sizes),
            per_slot_most=max(sizes),
            shared=sum(size for size in sizes if size > 1),
            commits_per_s=len(commits) * 1000 / max(span_ms, 1.0),
            median_ms=statistics.median(times),
            p99_ms=times[min(int(0.99 * len(times)), len(times) - 1)],
            fairness=min(each.values()) / max(each.values()) if len(each) == writers else 0.0,
            conflicts=sum(commit.conflicts for commit in commits),
        )

    @property
    def lines(self) -> Mapping[str, str]:
        """For people."""
        return {
            "commits": f"{self.commits:,} (and {self.conflicts:,} tries that lost to others and were repeated)",
            "slots": f"{self.slots:,}; commits in each: {self.per_slot_median:g} (median) to {self.per_slot_most}",
            "commits that shared a slot": f"{self.shared:,}",
            "commits/s": f"{self.commits_per_s:.1f}",
            "time of a commit": f"{self.median_ms:,.0f} ms in the median, {self.p99_ms:,.0f} ms at the 99th percentile",
            "slowest to fastest writer": f"{self.fairness:.2f} (1 is fair)",
        }

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def told(writer: str, events: Sequence[Mapping[str, object]]) -> list[SmallCommit]:
    """The commits that a writer was told of, from its events."""
    return [
        SmallCommit(
            writer,
            int(str(event["batch"])),
            int(str(event["begun_ms"])),
            float(str(event["seconds"])),
            str(event["instant"]),
            str(event["completion"]),
            int(str(event["conflicts"])),
        )
        for event in events
        if event["event"] == "commit"
    ]
