"""The demo's writing processes: `python -m lakelatch.console.demo.worker NAME PLAN`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import lakelatch
from lakelatch.console.demo.events import Events, read_events
from lakelatch.console.demo.flights import batch_order
from lakelatch.console.demo.keeper import cancel_in_flight, keep_once
from lakelatch.console.demo.plan import COMPACTOR, FEEDS, KEEPER, PLAN_VARIABLE, DemoPlan
from lakelatch.errors import LakelatchError
from lakelatch.failpoints import calling
from lakelatch.spark.session.local_session import open_session
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.properties_file import is_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_MAX_S = 180.0
_POLL_S = 0.1
_COMPACT_PAUSE_S = 1.0
_MEETING_MAX_S = 30.0
_COMPACTING = "compacting"


def main() -> int:
    name, plan = sys.argv[1], DemoPlan.from_json(os.environ[PLAN_VARIABLE])
    events = Events(plan.events_file(name))
    try:
        with calling(partial(_meet_a_commit, plan, name, events), ["compact.before_commit"]):
            if name in (COMPACTOR, KEEPER):
                run_compactor(plan, name, events)
            else:
                run_feed(plan, name, events)
    except LakelatchError as error:
        events.add("failed", error=str(error))
        return 1
    return 0


def run_feed(plan: DemoPlan, feed: str, events: Events) -> None:
    """Writes one feed, a commit for each batch; begins when the other feed is ready as well.

    The last batch waits until somebody compacts: however fast the commits are, one of them meets a compaction.
    """
    spark = open_session(f"lakelatch demo: {feed}")
    _warm(spark)
    events.add("ready")
    _wait(lambda: all(_has(plan, other, "ready") for other in plan.workers), "the other processes to start")
    batches = batch_order(plan, feed)
    for done, batch in enumerate(batches, start=1):
        if 1 < done == len(batches):
            _give_time(lambda: any(_has(plan, other, _COMPACTING) for other in plan.workers))
        started_ns = REAL_SYSTEM.monotonic_ns()
        frame = spark.read.parquet(str(plan.input_file(feed, batch)))
        result = lakelatch.write(frame, plan.table, plan.options(feed))
        seconds = (REAL_SYSTEM.monotonic_ns() - started_ns) / 1e9
        events.add("commit", batch=batch, seconds=seconds, **_plain(asdict(result)))
    events.add("done")
    spark.stop()


def run_compactor(plan: DemoPlan, name: str, events: Events) -> None:
    """Schedules and runs compactions while the feeds write, or maintains the table with all services."""
    spark = open_session(f"lakelatch demo: {name}")
    _warm(spark)
    events.add("ready")
    _wait(lambda: is_table(plan.storage), "the table to be made")
    while not all(_has(plan, feed, "done") or _has(plan, feed, "failed") for feed in FEEDS):
        REAL_SYSTEM.sleep(_COMPACT_PAUSE_S)
        if plan.services:
            keep_once(spark, plan, events)
        else:
            _compact_once(spark, plan, events)
    if plan.services:
        cancel_in_flight(spark, plan, events)
        keep_once(spark, plan, events)
    events.add("done")
    spark.stop()


def _meet_a_commit(plan: DemoPlan, name: str, events: Events, point: str) -> None:
    """Keeps the demo's first compaction open until one of the other processes has committed meanwhile."""
    if any(_has(plan, worker, _COMPACTING) for worker in plan.workers):
        return
    events.add(_COMPACTING, point=point)
    others = [feed for feed in FEEDS if feed != name]
    before = [_count(plan, feed, "commit") for feed in others]
    _give_time(
        lambda: (
            [_count(plan, feed, "commit") for feed in others] != before
            or all(any(_has(plan, feed, event) for event in ("done", "failed", _COMPACTING)) for feed in others)
        )
    )


def _compact_once(spark: SparkSession, plan: DemoPlan, events: Events) -> None:
    started_ns = REAL_SYSTEM.monotonic_ns()
    for result in lakelatch.compact(spark, plan.table, plan.options(COMPACTOR)):
        seconds = (REAL_SYSTEM.monotonic_ns() - started_ns) / 1e9
        events.add("compaction", seconds=seconds, **_plain(asdict(result)))


def _warm(spark: SparkSession) -> None:
    """Starts the parts of a session that start on first use, so that processes do not race in starting up."""
    spark.range(1).mapInArrow(_pass_on, "id long").collect()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _plain(result: dict[str, object]) -> dict[str, object]:
    files = result.pop("files")
    assert isinstance(files, tuple)
    return {**result, "files": len(files)}


def _has(plan: DemoPlan, worker: str, event: str) -> bool:
    return _count(plan, worker, event) > 0


def _count(plan: DemoPlan, worker: str, event: str) -> int:
    return sum(found["event"] == event for found in read_events(plan.events_file(worker)))


def _wait(condition: Callable[[], bool], what: str) -> None:
    if not _give_time(condition, _WAIT_MAX_S):
        raise LakelatchError(f"waited {_WAIT_MAX_S:g} s for {what}")


def _give_time(condition: Callable[[], bool], longest_s: float = _MEETING_MAX_S) -> bool:
    """Waits for the condition, not longer than that, and says whether it came."""
    deadline_ns = REAL_SYSTEM.monotonic_ns() + int(longest_s * 1e9)
    while not condition():
        if REAL_SYSTEM.monotonic_ns() > deadline_ns:
            return False
        REAL_SYSTEM.sleep(_POLL_S)
    return True


if __name__ == "__main__":
    sys.exit(main())
