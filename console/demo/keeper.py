"""The demo's third process with `--services`: maintains the table while the feeds write, and cancels a clustering."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import lakelatch
from lakelatch.console.demo.checks import Check
from lakelatch.console.demo.events import Events, read_events
from lakelatch.console.demo.plan import FEEDS, KEEPER, DemoPlan
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.clustering import INLINE, INLINE_COMMITS
from lakelatch.engine.run.report import CANCELLED, DONE, ServiceRun
from lakelatch.engine.services.cancelling import request_cancel
from lakelatch.engine.table.manager import open_manager
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.failpoints import calling
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.plans.clustering_plan import SORT_COLUMNS
from lakelatch.timeline.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER_ORDER = "dest"  # than the rounds' own, so that there is something to cluster again
NEEDED = ("compaction", "clustering", "clean", "archive")


def keep_once(spark: SparkSession, plan: DemoPlan, events: Events) -> None:
    """One round of maintenance while the feeds write."""
    report = lakelatch.maintain(spark, plan.table, plan.options(KEEPER))
    _note(events, report.runs)
    if not report.ok:
        raise LakelatchError(f"keeping the table failed: {report.failed[0]}")


def cancel_in_flight(spark: SparkSession, plan: DemoPlan, events: Events) -> None:
    """Cancels a clustering when its files are written and its commit is about to come; the next round cleans up."""
    own = {key: value for key, value in plan.options(KEEPER).items() if key not in (INLINE, INLINE_COMMITS)}
    path, options = plan.table, {**own, SORT_COLUMNS: OTHER_ORDER}  # now, however few writes the last one has left
    instant = lakelatch.schedule_clustering(path, options)
    if instant is None:
        raise LakelatchError("there was nothing to cluster, and so nothing to cancel")

    def cancel(_: str) -> None:
        with open_manager(plan.storage, Call(options).services().manager) as manager:
            request_cancel(manager, instant)

    try:
        with calling(cancel, ["cluster.before_commit"]):
            lakelatch.execute_clustering(spark, path, instant, options)
    except TransactionEnded as ended:
        events.add("cancelled", instant=instant, why=ended.message)
        return
    raise LakelatchError(f"the clustering {instant} committed, although it had been cancelled")


def services_check(plan: DemoPlan) -> Check:
    """Checks that each service has run, after the feeds' commits or in the keeper's rounds."""
    ran: dict[str, int] = {}
    for name in (*FEEDS, KEEPER):
        for event in read_events(plan.events_file(name)):
            runs = event.get("services")
            for run in runs if isinstance(runs, list) else ():
                if run["outcome"] == DONE:
                    ran[run["service"]] = ran.get(run["service"], 0) + 1
    counts = ", ".join(f"{ran.get(service, 0)} of {service}" for service in NEEDED)
    return Check("each service ran while the feeds wrote", all(ran.get(service) for service in NEEDED), counts)


def cancelled_check(plan: DemoPlan) -> Check:
    """Checks that the cancelled clustering has ended, and has never completed."""
    cancelled = [
        str(event["instant"]) for event in read_events(plan.events_file(KEEPER)) if event["event"] == CANCELLED
    ]
    timeline = Snapshot.load(plan.storage)
    completed = {instant.requested for instant in timeline.completed} & set(cancelled)
    pending = {instant.requested for instant in timeline.pending} & set(cancelled)
    ended = {instant.requested for instant in timeline.aborted} & set(cancelled)
    ok = bool(ended) and not completed and not pending
    return Check(
        "a clustering was cancelled in mid-flight", ok, f"{', '.join(cancelled) or 'none'}: files written, then aborted"
    )


def small_check(plan: DemoPlan) -> Check:
    """Checks that the timeline is shorter than the number of writes, and the others are in the history."""
    timeline = Snapshot.load(plan.storage)
    completed = len(timeline.completed)
    return Check("the timeline was archived", timeline.has_history, f"{completed} completed instants are active")


def _note(events: Events, runs: Iterable[ServiceRun]) -> None:
    for run in runs:
        said = {"services": [{"service": run.service, "outcome": run.outcome, "detail": run.detail}]}
        if run.outcome != DONE or not run.instant:
            events.add("service", **said)
            continue
        end = to_instant(to_ms(run.instant) + int(run.seconds * 1000))
        counts = {"rows_written": 0, "conflicts_retried": 0, "seconds": run.seconds}
        events.add("compaction", instant=run.instant, completion=end, **counts, **said)
