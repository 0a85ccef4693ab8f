"""The final checks of the demo's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch.console.demo.flights import sorted_by_key
from lakelatch.console.demo.plan import ACTUALS, FEEDS, KEY_FIELDS, DemoPlan
from lakelatch.console.demo.replay import Step, differences, read_with_hudi
from lakelatch.spark.session.local_session import open_session
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.ui.entries import Entry


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    name: str
    ok: bool
    detail: str


def final_checks(plan: DemoPlan, source: pa.Table, entries: Sequence[Entry], conflicts: int) -> list[Check]:
    """Reads the table with Spark and with hudi-rs, and compares both with the source."""
    columns = [*source.column_names, "feed"]
    expected = sorted_by_key(source)
    spark = open_session("lakelatch demo: reader", cores=2, memory_mb=1024, log=plan.log_file("reader"))
    try:
        frame = lakelatch.read(spark, plan.table, plan.extra).select(*columns)
        distinct = frame.select(*KEY_FIELDS).distinct().count()
        table = sorted_by_key(frame.toArrow())
    finally:
        spark.stop()
    hudi = read_with_hudi(plan.table, columns, plan.extra)
    differing = differences(expected, table.select(source.column_names)) if table.num_rows else ["no rows"]
    late = pc.sum(pc.not_equal(table["feed"], ACTUALS)).as_py() if table.num_rows else 0
    against_hudi = differences(table, hudi)
    return [
        Check(
            "every flight exactly once",
            table.num_rows == distinct == source.num_rows,
            f"{table.num_rows:,} rows, {distinct:,} keys, {source.num_rows:,} in the source",
        ),
        Check(
            "every column equals the source",
            not differing,
            ", ".join(differing) or f"{len(source.column_names)} columns of {source.num_rows:,} rows",
        ),
        Check(
            "the later event won everywhere",
            late == 0,
            "the actuals, whichever feed committed last" if late == 0 else f"the timetable won {late:,} times",
        ),
        _times_check(plan),
        _overlap_check(entries, conflicts),
        Check(
            "hudi-rs reads the same rows",
            not against_hudi,
            ", ".join(against_hudi) or f"{hudi.num_rows:,} rows compared, column by column",
        ),
    ]


def steps_check(steps: list[Step]) -> Check:
    """Whether hudi-rs agreed after every step of the timeline."""
    wrong = [f"{step.instant.file_name}: {difference}" for step in steps for difference in step.differences]
    compactions = sum(step.instant.action == "commit" for step in steps)
    detail = f"{len(steps)} steps, {compactions} of them compactions (those read-optimized as well)"
    return Check("hudi-rs agreed after every step", not wrong, "; ".join(wrong[:5]) or detail)


def _times_check(plan: DemoPlan) -> Check:
    log = CommitLog(plan.storage)
    tail = log.tail()
    times = [event.time for event in log.events_after(0, tail)]
    ok = times == sorted(set(times))
    return Check("times strictly increase along the log", ok and bool(times), f"{len(times)} slots, up to {tail.time}")


def _overlap_check(entries: Sequence[Entry], conflicts: int) -> Check:
    """Checks that the two feeds and a compaction, whoever ran it, really happened at the same time.

    Under optimistic control commits on the same file groups never overlap: there, conflicts show it.
    """
    done = [(entry, (entry.requested, entry.completion)) for entry in entries if entry.completion]
    first, last = ([span for entry, span in done if entry.writer == feed and not entry.service] for feed in FEEDS)
    compactions = [span for entry, span in done if entry.service == COMPACTION]
    together = sum(_overlap(one, other) for one in first for other in last)
    overlapping = sum(any(_overlap(compaction, commit) for commit in (*first, *last)) for compaction in compactions)
    return Check(
        "they wrote at the same time",
        together + conflicts > 0 and overlapping > 0,
        f"{together} pairs of overlapping commits, {conflicts} conflicts retried, "
        f"{overlapping} compactions during commits",
    )


def _overlap(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
