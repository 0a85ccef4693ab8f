"""Runs the demo with `--writers`: many small writers, what is in the table afterwards, and the slots drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from rich.console import Console

import lakelatch
from lakelatch.console.demo.checks import Check
from lakelatch.console.demo.crowd_picture import draw_slots
from lakelatch.console.demo.crowd_plan import KEYS, ROWS, SCHEMA, CrowdPlan, batch_rows
from lakelatch.console.demo.crowd_slots import Figures, Slot, SlotWatch, SmallCommit, told
from lakelatch.console.demo.events import read_events
from lakelatch.console.demo.flights import sorted_by_key
from lakelatch.console.demo.replay import differences, read_with_hudi
from lakelatch.console.demo.run import (
    Process,
    at_work,
    prepare_place,
    print_checks,
    print_verdict,
    progress_bars,
    run_workers,
)
from lakelatch.engine.arrow import ArrowTable
from lakelatch.system import REAL_SYSTEM

_MAKER = "maker"  # of the table, with a first commit
_LEAD_MS = 500  # for all processes to see when they begin


@dataclass(frozen=True)
class CrowdReport:
    """The outcome. `ok` decides the exit code."""

    plan: CrowdPlan
    figures: Figures
    checks: tuple[Check, ...]
    pictures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "mode": self.plan.mode,
            "table": self.plan.table,
            "writers": self.plan.writers,
            "figures": self.figures.to_json(),
            "checks": [vars(check) for check in self.checks],
            "pictures": list(self.pictures),
        }


def run_crowd(plan: CrowdPlan, console: Console) -> CrowdReport:
    """Lets the writers write, reads back and compares. `LakelatchError` if a process fails."""
    prepare_place(plan, "batches", "events")
    console.print(
        f"[bold]Lakelatch demo[/bold], {plan.mode.upper()}: {plan.writers} writers, in {len(plan.workers)} processes "
        f"without Spark, commit {ROWS} rows at a time to one table for {plan.seconds:g} s"
    )
    ArrowTable(plan.table, plan.options(_MAKER)).upsert(batch_rows(_MAKER, 0))
    with SlotWatch(plan.storage) as watch:

        def watched(processes: Mapping[str, Process]) -> None:
            _watch(plan, processes, watch, console)

        run_workers(plan, "lakelatch.console.demo.crowd_writer", watched)
    watch.look()
    commits = [commit for writer in plan.names for commit in told(writer, read_events(plan.events_file(writer)))]
    counted = {commit.instant for commit in commits}
    slots = [slot for slot in watch.slots() if counted.intersection(slot.instants)]
    figures = Figures.of(commits, slots, plan.writers)
    checks = _checks(plan, commits, slots)
    for picture in plan.pictures:
        draw_slots(commits, slots, picture, _title(plan, figures))
    return CrowdReport(plan, figures, tuple(checks), tuple(map(str, plan.pictures)))


def print_crowd(report: CrowdReport, console: Console) -> None:
    """Prints the figures and each check."""
    console.print()
    for name, text in report.figures.lines.items():
        console.print(f" {name}: {text}", highlight=False, soft_wrap=True)
    console.print()
    print_checks(report.checks, console)
    console.print(f"\n table {report.plan.table}, drawn in {', '.join(report.pictures)}", soft_wrap=True)
    print_verdict(report.ok, console)


def _watch(plan: CrowdPlan, processes: Mapping[str, Process], watch: SlotWatch, console: Console) -> None:
    """Says when all begin, once all are ready."""
    with progress_bars(console) as progress:
        bar = progress.add_task("commits", total=None)
        for _ in at_work(plan, processes):
            progress.update(bar, completed=watch.commits)
            if not plan.begin_file.exists() and all(read_events(plan.events_file(name)) for name in plan.names):
                partly = plan.begin_file.with_suffix(".partly")
                partly.write_text(str(REAL_SYSTEM.realtime_ms() + _LEAD_MS), encoding="utf-8")
                os.replace(partly, plan.begin_file)


def _checks(plan: CrowdPlan, commits: list[SmallCommit], slots: list[Slot]) -> list[Check]:
    events = [event for name in plan.names for event in read_events(plan.events_file(name))]
    lost = [str(event["error"]) for event in events if "error" in event]
    batches = [(_MAKER, 0), *((name, 0) for name in plan.names), *((one.writer, one.batch) for one in commits)]
    expected = sorted_by_key(pa.concat_tables([batch_rows(*batch) for batch in batches]), KEYS)
    table = sorted_by_key(lakelatch.open(plan.table, plan.extra).to_arrow(columns=SCHEMA.names), KEYS)
    hudi = read_with_hudi(plan.table, SCHEMA.names, plan.extra, keys=KEYS)
    differing, against_hudi = differences(expected, table.cast(SCHEMA)), differences(table, hudi)
    wrote = {commit.writer for commit in commits}
    return [
        Check(
            "each commit ended as committed",
            not lost and wrote == set(plan.names),
            "; ".join([f"{len(commits):,} commits of {len(wrote)} writers, {len(lost)} failed", *lost[:3]]),
        ),
        Check(
            "every row is there",
            not differing,
            ", ".join(differing) or f"{table.num_rows:,} rows, those of all commits that writers were told of",
        ),
        _slots_check(commits, slots),
        Check(
            "hudi-rs reads the same rows",
            not against_hudi,
            ", ".join(against_hudi) or f"{hudi.num_rows:,} rows compared, column by column",
        ),
    ]


def _slots_check(commits: list[SmallCommit], slots: list[Slot]) -> Check:
    """Checks that each commit is in one slot, at the time that its writer was told."""
    of: dict[str, list[str]] = {}
    for slot in slots:
        for instant, time in zip(slot.instants, slot.times, strict=True):
            of.setdefault(instant, []).append(time)
    times = [time for slot in slots for time in slot.times]
    unseen = sum(commit.instant not in of for commit in commits)  # their slots were removed between two looks
    told_times = {commit.completion for commit in commits}
    ok = (
        all(of.get(commit.instant, [commit.completion]) == [commit.completion] for commit in commits)
        and all(before < after for before, after in pairwise(times))
        and len(told_times) == len(commits)
    )
    detail = f"{len(slots):,} slots, whose times strictly increase"
    return Check("each commit is in one slot", ok, detail + (f"; {unseen} commits in slots not seen" if unseen else ""))


def _title(plan: CrowdPlan, figures: Figures) -> str:
    return (
        f"{plan.writers} writers commit {ROWS} rows at a time: {figures.commits:,} commits in {figures.slots:,} slots "
        f"({figures.commits_per_s:.0f} commits/s)"
    )
