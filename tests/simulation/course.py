"""What a run draws once, what was said in its course, and how it ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lakelatch.torture.history.reading import Line
from lakelatch.transactions.base.elision import AUTO
from lakelatch.transactions.base.settings import EarlySettings

PROBLEMS_MOST = 20


@dataclass
class Setting:
    """What a run draws once: which locks, which heartbeats, how much of the log is kept."""

    lying: bool = False
    leased_beats: bool = False
    slots_kept: int = 4
    early: EarlySettings | None = None
    lock_elision: str = AUTO
    own_files: bool = False  # whether some writes make their files at their commit, without tasks
    remembers: bool = False  # whether each write has a manager of its own, with what the last one has read
    crowded: bool = False  # whether each commit behaves as after a slot that it has lost
    meets: bool = False  # whether commits wait for each other

    @property
    def at_once(self) -> bool:
        """Whether the files of a slot's commits are made side by side, as in half of the crowded runs."""
        return self.crowded and self.own_files


class Enough(AssertionError):
    """So much is wrong that a run need not go on: it would find the same again, with each look."""


@dataclass
class Told:
    """What callers were told, and what readers saw; the checker gets nothing else but the storage."""

    lines: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)

    def wrong(self, problem: str) -> None:
        """Notes a problem that nothing takes back. Errors: `Enough`."""
        self.problems.append(problem)
        if len(self.problems) >= PROBLEMS_MOST:
            raise Enough(f"{PROBLEMS_MOST} problems are known, and the run has ended")

    def note(self, event: str, process: str, **details: Any) -> None:
        """Adds a line to the history of the run; there is no clock that all of its processes share."""
        own = {"at_ns": len(self.lines), "event": event, "process": process, "client": process}
        self.lines.append({**details, **own})


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `problems` is empty if everything that was promised held."""

    seed: int
    problems: tuple[str, ...]
    fingerprint: str
    virtual_s: float
    counts: Counter[str]
    recovered_s: float = 0.0
    lines: tuple[str, ...] = ()
    several: bool = False  # whether it was of several tables
