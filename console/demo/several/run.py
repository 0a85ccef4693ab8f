"""Runs the demo with `--tables`: writers that move flights and aggregates together, two deaths, and a reader."""

from __future__ import annotations

import signal
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

import pyarrow.parquet as pq
from rich.console import Console

from lakelatch.console.demo.checks import Check
from lakelatch.console.demo.events import read_events
from lakelatch.console.demo.flights import load_flights
from lakelatch.console.demo.run import (
    Process,
    at_work,
    prepare_place,
    print_checks,
    print_verdict,
    progress_bars,
    run_workers,
    start_worker,
)
from lakelatch.console.demo.several.checks import final_checks
from lakelatch.console.demo.several.picture import draw_tables
from lakelatch.console.demo.several.plan import ROWS, SeveralPlan
from lakelatch.console.demo.several.told import Told
from lakelatch.engine.arrow import ArrowTable

_MODULE = "lakelatch.console.demo.several.worker"
_FLIGHTS_MOST = 60_000


@dataclass(frozen=True)
class SeveralReport:
    """The outcome. `ok` decides the exit code."""

    plan: SeveralPlan
    told: Told
    checks: tuple[Check, ...]
    pictures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "mode": self.plan.mode,
            "tables": dict(self.plan.paths),
            "figures": dict(self.told.figures),
            "committed": len(self.told.committed),
            "apart": sum(not same for _, same in self.told.one_by_one),
            "deaths": [vars(death) for death in self.told.deaths],
            "checks": [vars(check) for check in self.checks],
            "pictures": list(self.pictures),
        }


def run_several(plan: SeveralPlan, console: Console) -> SeveralReport:
    """Moves, kills, reads back and compares. `LakelatchError` if a process fails that was not to be killed."""
    prepare_place(plan, "tables", "events", "input")
    shown = ", ".join(plan.paths)
    console.print(
        f"[bold]Lakelatch demo[/bold], {plan.tables} tables ({shown}): {plan.writers} writers without Spark move "
        f"{ROWS} flights at a time in one transaction for {plan.seconds:g} s, and two of them are killed"
    )
    plan.source.parent.mkdir(parents=True)
    pq.write_table(load_flights(_FLIGHTS_MOST), plan.source)
    for name, path in plan.paths.items():
        ArrowTable(path, plan.table_options(name)).upsert(plan.first_rows(name))

    def watched(processes: MutableMapping[str, Process]) -> None:
        _watch(plan, processes, console)

    run_workers(plan, _MODULE, watched)
    told = Told.of(plan)
    checks = final_checks(plan, told)
    for picture in plan.pictures:
        draw_tables(plan, told, picture)
    return SeveralReport(plan, told, tuple(checks), tuple(map(str, plan.pictures)))


def print_several(report: SeveralReport, console: Console) -> None:
    """Prints the figures and each check."""
    console.print()
    for name, text in report.told.figures.items():
        console.print(f" {name}: {text}", highlight=False, soft_wrap=True)
    console.print()
    print_checks(report.checks, console)
    places = ", ".join(report.plan.paths.values())
    console.print(f"\n tables {places}, drawn in {', '.join(report.pictures)}", soft_wrap=True)
    print_verdict(report.ok, console)


def _watch(plan: SeveralPlan, processes: MutableMapping[str, Process], console: Console) -> None:
    """Starts those that were killed anew, and lets the reader end after the last writer."""
    again: set[str] = set()

    def look() -> None:
        for name in plan.killed:
            if name not in again and processes[name].poll() == -signal.SIGKILL:
                again.add(name)
                processes[name] = start_worker(plan, _MODULE, name)
        if all(processes[name].poll() == 0 for name in plan.names):
            plan.end_file.touch()

    with progress_bars(console) as progress:
        bar = progress.add_task("transactions", total=None)
        for _ in at_work(plan, processes, look):
            progress.update(bar, completed=_commits(plan))


def _commits(plan: SeveralPlan) -> int:
    events: list[Mapping[str, object]] = [event for name in plan.names for event in read_events(plan.events_file(name))]
    return sum(event["event"] == "commit" for event in events)
