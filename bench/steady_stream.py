"""A table under a steady stream of small commits that nobody looks after: does it stay flat?

One writer commits as fast as it goes, with table services automatic after each commit: compaction after so many delta
commits, cleaning and archiving as Hudi has them by default. Its last thousand commits are held against the second
thousand of another such table, which is made meanwhile: their commits are taken in turns, so that what else the machine
does meets both. Compared are files, timeline entries, the latency of a commit (with and without the services behind it)
and of a read of the whole table. The driver's side alone, without Spark: tasks run in this process.

STEADY_COMMITS says how many commits (20,000 is the goal; the default is for a look), STEADY_FOLDER where.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import Result, time_ms
from bench.services.stream import KEYS, ROWS, Stream

from lakelatch.engine.run.report import FAILED
from lakelatch.timeline.instant import TIMELINE_FOLDER

_COMMITS = int(os.environ.get("STEADY_COMMITS", "4000"))
_FOLDER = os.environ.get("STEADY_FOLDER", "")
_WINDOW = 1000
_LOOK_EVERY = 20  # commits between two looks at files, timeline and a read
_GOAL = 1.2
_OPTIONS = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "10",
    "lakelatch.archive.minimum.age.seconds": "0",  # a commit a second is slower than this writer
}


@dataclass
class Seen:
    """What was measured in a thousand commits of one table."""

    commit: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    timeline: list[float] = field(default_factory=list)
    services: dict[str, list[float]] = field(default_factory=dict)

    def look(self, stream: Stream) -> None:
        """Commits once, and notes down what that took."""
        self.commit.append(stream.commit())
        self.whole.append(self.commit[-1] + time_ms(stream.serve))
        for service in stream.last.services:
            self.services.setdefault(service.service, []).append(service.seconds * 1000)
            if service.outcome == FAILED:
                raise AssertionError(f"commit {stream.count}: {service}")
        if stream.count % _LOOK_EVERY == 0:
            self.read.append(time_ms(stream.read))
            self.files.append(sum(1 for _ in stream.storage.walk("")))
            self.timeline.append(len(stream.storage.list(TIMELINE_FOLDER).files))


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        old, young = Stream(f"{folder}/old", _OPTIONS), Stream(f"{folder}/young", _OPTIONS)
        before = Seen()
        while old.count < _COMMITS - _WINDOW:
            before.look(old)
        while young.count < _WINDOW:
            before.look(young)
        early, late = Seen(), Seen()
        for number in range(_WINDOW):
            turn = [(old, late), (young, early)]
            for stream, seen in turn if number % 2 else turn[::-1]:
                seen.look(stream)
        for stream in (old, young):
            if stream.read() != min(KEYS, stream.count * ROWS):
                raise AssertionError(f"a table has {stream.read()} rows")
    return _results(early, late)


def _results(early: Seen, late: Seen) -> list[Result]:
    slower = {name: sum(late.services[name]) / sum(found) for name, found in early.services.items()}
    print("  services, last to second thousand:", {name: round(ratio, 2) for name, ratio in slower.items()})
    what = f"{_COMMITS:,} commits"
    return [
        _result("files", "files", early.files, late.files, what),
        _result("timeline_entries", "files", early.timeline, late.timeline, what),
        _result("commit", "ms", early.commit, late.commit, what),
        _result("commit_and_services", "ms", early.whole, late.whole, f"mean; {what}", mean=True),
        _result("read", "ms", early.read, late.read, what),
    ]


def _result(name: str, unit: str, early: list[float], late: list[float], note: str, mean: bool = False) -> Result:
    middle = statistics.mean if mean else statistics.median
    first, last = middle(early), middle(late)
    ratio = round(last / first, 3)
    goal = f"at most {_GOAL:g} times those of the second thousand"
    return Result(f"steady_{name}", round(last, 2), unit, None, round(first, 2), ratio, goal, ratio <= _GOAL, note)
