"""What the loser of a conflict has worked for nothing: a small job, and one 50 times its size that meets it.

Both are Spark jobs in one session, with as many task slots as both need. The small one begins first and waits for its
source until the large one has begun to write; then it announces a file where the large one is at work. With early
detection the large one, which was requested later, is to end at once; without it, it writes all and loses at its
commit; under NBCC both commit. Seconds are those that Spark's tasks held their slots, from Spark's own event log. What
the large job does before the winner's marker is lost in any case, since nobody could know, and is shown apart.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.harness import Result
from bench.locks.common import main, print_table, short
from bench.wasted_work_figure import Bar, draw

import lakelatch
from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.locks.options import PROVIDER
from lakelatch.spark.session.local_session import check_java
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.transactions.base.settings import (
    EARLY_OPTION,
    EARLY_STRATEGY_OPTION,
    MARKER_TYPE_OPTION,
    MODE_OPTION,
    NON_BLOCKING,
    OPTIMISTIC,
)
from lakelatch.transactions.early.strategies import MARKER_STRATEGIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "wasted-work.svg"
OFF, NBCC = "off", "nbcc"
_TIMES = 50  # how much larger the large job is; also the number of partitions, each of one file group
_TASKS = 4
_SLOTS = 2 * _TASKS  # no task of the one job waits for a slot of the other
_ROWS, _ROUNDS = 60_000, 2
_QUICK_ROWS, _QUICK_ROUNDS = 4_000, 1
_GOAL_S = 2.0
_TRIES = 3
_LOOK_S = 0.005
_PATIENCE_S = 600.0
_OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.upsert.shuffle.parallelism": _TASKS,
    PROVIDER: "filesystem",
}
_HEADERS = ("early detection", "wasted task s (of rounds)", "before the marker", "after it", "loser's end s after it")


class _Loser(NamedTuple):
    """A Spark job group, and when the winner's marker was there, in milliseconds since 1970."""

    group: str
    marked_ms: int


class _Seconds(NamedTuple):
    """Of its tasks, until the winner's marker and after it."""

    before: float = 0.0
    after: float = 0.0


@dataclass
class _Case:
    """One way to control conflicts. `losers` has one for each round, or None."""

    name: str
    options: dict[str, object]
    losers: list[_Loser | None] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)  # of the losers, after the winner's marker
    wasted: list[_Seconds] = field(default_factory=list)

    @property
    def total_s(self) -> float:
        return statistics.median(sum(found) for found in self.wasted)

    @property
    def end_s(self) -> float | None:
        return max(self.ends_s, default=None)


class _Unexpected(Exception):
    """The wrong one lost, or none: the two did not meet as they should have."""


def _cases() -> list[_Case]:
    """Without early detection, with each strategy that is installed under a short name, and without conflicts."""
    found = [_Case(OFF, {MODE_OPTION: OPTIMISTIC})]
    for point in sorted(entry_points(group=MARKER_STRATEGIES), key=lambda point: point.name):
        if "." not in point.name:
            early = {EARLY_OPTION: "true", EARLY_STRATEGY_OPTION: point.name, MODE_OPTION: OPTIMISTIC}
            found.append(_Case(point.name, {**early, MARKER_TYPE_OPTION: point.load().marker_type}))
    return [*found, _Case(NBCC, {MODE_OPTION: NON_BLOCKING})]


def run(quick: bool = False, names: Sequence[str] = ()) -> list[Result]:
    rows, rounds = (_QUICK_ROWS, _QUICK_ROUNDS) if quick else (_ROWS, _ROUNDS)
    cases = [case for case in _cases() if not names or case.name in names]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        log = Path(folder) / "log"
        log.mkdir()
        with _session(log) as spark:
            _warm(spark, f"{folder}/warm", rows)
            for number in range(rounds):
                for case in cases if number % 2 == 0 else reversed(cases):
                    _measure(spark, Path(folder), case, f"{case.name}-{number}", rows)
        tasks = _tasks(log)
    for case in cases:
        case.wasted = [_wasted(tasks[loser.group], loser.marked_ms) if loser else _Seconds() for loser in case.losers]
    _print(cases)
    if not quick and len(cases) == len(_cases()):
        draw(FIGURE, [_bar(case) for case in cases])
    return _results(cases)


@contextmanager
def _session(log: Path) -> Iterator[SparkSession]:
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{_SLOTS}]").appName("lakelatch bench")
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",  # tasks that are ended are errors to Spark
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _warm(spark: SparkSession, path: str, rows: int) -> None:
    """So that every slot has its Python process, and what it imports."""
    for _ in range(2):
        lakelatch.write(_frame(spark, rows, 1, 1), path, _OPTIONS)


def _frame(spark: SparkSession, rows: int, step: int, newer: int) -> DataFrame:
    """Rows of hexadecimal digits that no compression makes small, in as many partitions as `step` leaves of 50."""
    columns = (
        "id",
        f"cast(id % {_TIMES} as string) as part",
        f"id + {newer} as ts",
        "sha2(cast(id as string), 512) as v",
    )
    return spark.range(0, rows * step, step, _TASKS).selectExpr(*columns)


def _measure(spark: SparkSession, folder: Path, case: _Case, name: str, rows: int) -> None:
    for turn in range(_TRIES):
        try:
            with _Meeting(spark, folder / f"{name}-{turn}", case, f"{name}-{turn}", rows) as meeting:
                case.losers.append(meeting.run())
                if meeting.end_s is not None:
                    case.ends_s.append(meeting.end_s)
                return
        except _Unexpected as error:
            print(f"{name}: {error}; again", file=sys.stderr)
    raise AssertionError(f"{case.name}: the jobs did not meet as they should in {_TRIES} tries")


class _Meeting:
    """The two jobs, once, on a table of their own. `end_s` is the loser's end, after the winner's marker."""

    def __init__(self, spark: SparkSession, folder: Path, case: _Case, name: str, rows: int) -> None:
        self._spark, self._case, self._name, self._rows = spark, case, name, rows
        self._path, self._gate = str(folder / "table"), folder / "gate"
        self._options = {**_OPTIONS, **case.options}
        self._pool = ThreadPoolExecutor(2)
        self.end_s: float | None = None
        folder.mkdir()

    def __enter__(self) -> _Meeting:
        return self

    def __exit__(self, *error: object) -> None:
        self._gate.touch()
        self._pool.shutdown()

    def run(self) -> _Loser | None:
        """The one that lost. Errors: `_Unexpected`."""
        lakelatch.write(_frame(self._spark, 10, 1, 0), self._path, self._options)
        storage = LocalStorage(self._path)
        small = self._pool.submit(self._write, "small", self._small())
        winner = _until(lambda: next(iter(storage.names(HEARTBEAT_FOLDER)), None), small)
        large = self._pool.submit(self._write, "large", _frame(self._spark, self._rows * _TIMES, 1, 1))
        _until(lambda: self._is_writing("large"), large)
        self._gate.touch()
        markers = Path(self._path, ".hoodie", ".temp", winner)
        _until(lambda: _has_marker(markers) or None, small)
        marked_ns, marked_ms = REAL_SYSTEM.monotonic_ns(), REAL_SYSTEM.realtime_ms()
        (lost_small, _), (lost_large, ended_ns) = small.result(_PATIENCE_S), large.result(_PATIENCE_S)
        if lost_small or bool(lost_large) != (self._case.name != NBCC):
            raise _Unexpected(f"the small job lost {lost_small or 'nothing'}, the large one {lost_large or 'nothing'}")
        self._check(self._rows * (1 if lost_large else _TIMES))
        if not lost_large:
            return None
        self.end_s = (ended_ns - marked_ns) / 1e9
        return _Loser(f"{self._name}-large", marked_ms)

    def _small(self) -> DataFrame:
        gate, frame = str(self._gate), _frame(self._spark, self._rows, _TIMES, 2)

        def wait(batches: Any) -> Any:
            while not os.path.exists(gate):
                REAL_SYSTEM.sleep(_LOOK_S)
            yield from batches

        return frame.mapInArrow(wait, frame.schema)

    def _write(self, role: str, frame: DataFrame) -> tuple[str, int]:
        """How it lost, "" if it did not, and when it ended."""
        group = f"{self._name}-{role}"
        self._spark.sparkContext.setJobGroup(group, group)
        try:
            lakelatch.write(frame, self._path, self._options)
            lost = ""
        except WriteConflict as conflict:
            lost = f"{'early' if conflict.early else 'at its commit'} ({conflict})"
        return lost, REAL_SYSTEM.monotonic_ns()

    def _is_writing(self, role: str) -> bool | None:
        """Whether the job after the shuffle, the second one, has tasks at work."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = sorted(tracker.getJobIdsForGroup(f"{self._name}-{role}"))
        stages = [stage for job in jobs[1:] if (found := tracker.getJobInfo(job)) for stage in found.stageIds]
        return any((info := tracker.getStageInfo(stage)) and info.numActiveTasks for stage in stages) or None

    def _check(self, rows: int) -> None:
        """All rows of whoever committed, and the small job's where both have some."""
        found = lakelatch.read(self._spark, self._path, {"columns": "id,ts"})
        count, newer = found.count(), found.where("ts = id + 2").count()
        first = 0 if rows > self._rows else 9  # of ten rows that were there before, the small job has one
        if (count, newer) != (rows + first, self._rows):
            raise AssertionError(f"{self._name}: {count} rows, {newer} of the small job; expected {rows + first}")


def _until(look: Callable[[], Any], job: Future[Any]) -> Any:
    """What it finds. Errors: `_Unexpected` if the job ends without it."""
    deadline_ns = REAL_SYSTEM.monotonic_ns() + int(_PATIENCE_S * 1e9)
    while REAL_SYSTEM.monotonic_ns() < deadline_ns:
        ended = job.done()
        found = look()
        if found is not None:
            return found
        if ended:
            job.result()
            raise _Unexpected("a job ended before it met the other one")
        threading.Event().wait(_LOOK_S)
    raise AssertionError("a job hangs")


def _has_marker(folder: Path) -> bool:
    """In either form: a marker of each file, or the first MARKERS file of a marker server."""
    names = [name for _, _, found in os.walk(folder) for name in found]
    return any(".marker." in name or name == "MARKERS0" for name in names)


def _tasks(log: Path) -> dict[str, list[tuple[int, int]]]:
    """When the tasks of each job group began and ended, also those that were killed, from Spark's event log."""
    groups: dict[int, str] = {}
    found: dict[str, list[tuple[int, int]]] = {}
    for file in log.iterdir():
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                group = event["Properties"].get("spark.jobGroup.id", "")
                groups.update(dict.fromkeys(event["Stage IDs"], group))
            elif event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                found.setdefault(groups[event["Stage ID"]], []).append((info["Launch Time"], info["Finish Time"]))
    return found


def _wasted(tasks: Sequence[tuple[int, int]], marked_ms: int) -> _Seconds:
    after_ms = sum(max(ended - max(began, marked_ms), 0) for began, ended in tasks)
    return _Seconds((sum(ended - began for began, ended in tasks) - after_ms) / 1000, after_ms / 1000)


def _bar(case: _Case) -> Bar:
    label = {OFF: "no early detection", NBCC: "non-blocking (NBCC)"}.get(case.name, case.name)
    note = f"ended {case.end_s:.1f} s after the marker" if case.end_s is not None else "nothing is lost"
    before_s, after_s = (statistics.median(column) for column in zip(*case.wasted, strict=True))
    return Bar(label, before_s, after_s, note)


def _print(cases: Sequence[_Case]) -> None:
    rows = []
    for case in cases:
        bar = _bar(case)
        wasted = ", ".join(short(sum(found)) for found in case.wasted)
        ends = ", ".join(short(end_s) for end_s in case.ends_s)
        rows.append((case.name, wasted, short(bar.before_s), short(bar.after_s), ends))
    print_table("wasted work", _HEADERS, rows, [])


def _results(cases: Sequence[_Case]) -> list[Result]:
    off = next((_bar(case) for case in cases if case.name == OFF), None)
    results = []
    for case in cases:
        goal, met = f"the loser ends within {_GOAL_S:g} s of the winner's marker", (case.end_s or 0) < _GOAL_S
        if case.name == OFF:
            goal, met = "none: what the others are compared with", True
        elif case.name == NBCC:
            goal, met = "nothing is wasted", case.total_s == 0 and not case.ends_s
        bar = _bar(case)
        note = f"task seconds after the winner's marker; {bar.before_s:.1f} s before it; {len(case.wasted)} rounds; "
        note += f"the loser {bar.note}" if case.ends_s else "both commit"
        ratio = round(bar.after_s / off.after_s, 3) if off else None
        peer = round(off.after_s, 1) if off else None
        name, after_s = f"wasted_work_{case.name}", round(bar.after_s, 1)
        results.append(Result(name, after_s, "task s", None, peer, ratio, goal, met, note))
    return results


if __name__ == "__main__":
    main(run, tuple(case.name for case in _cases()))
