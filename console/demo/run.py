"""Runs the demo: three processes on one table, and the checks afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lakelatch.console.demo.checks import Check, final_checks, steps_check
from lakelatch.console.demo.events import read_events
from lakelatch.console.demo.flights import load_flights, write_inputs
from lakelatch.console.demo.keeper import cancelled_check, services_check, small_check
from lakelatch.console.demo.memory import MemoryWatch
from lakelatch.console.demo.plan import FEEDS, PLAN_VARIABLE, DemoPlan
from lakelatch.console.demo.replay import replay
from lakelatch.console.timelines.entries import timeline_entries
from lakelatch.console.timelines.picture import draw_picture
from lakelatch.console.timelines.text import draw_terminal, ensure_can_draw
from lakelatch.console.timelines.undone import undone_writes
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.storage.uris import without_secrets
from lakelatch.system import REAL_SYSTEM
from lakelatch.ui.entries import Entry

Process: TypeAlias = "subprocess.Popen[bytes]"

_RUN_MAX_S = 900.0
_POLL_S = 0.25


@dataclass
class DemoReport:
    """The outcome of the demo. `ok` decides the exit code."""

    plan: DemoPlan
    checks: list[Check] = field(default_factory=list)
    workers: dict[str, dict[str, object]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mb: int = 0

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def conflicts(self) -> int:
        """How many conflicts the processes have met, and tried again after."""
        return sum(int(str(worker["conflicts"])) for worker in self.workers.values())

    def to_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "mode": self.plan.mode,
            "table": self.plan.table,
            "checks": [vars(check) for check in self.checks],
            "workers": self.workers,
            "timeline": [entry.to_json() for entry in self.entries],
            "pictures": self.pictures,
            "seconds": self.seconds,
            "peak_memory_mb": self.peak_memory_mb,
        }


def run_demo(plan: DemoPlan, console: Console) -> DemoReport:
    """Writes, compacts, reads back, compares. `LakelatchError` if a process fails."""
    report = DemoReport(plan)
    clock = _Clock(report)
    prepare_place(plan, "flights", "replay", "input", "events")
    with MemoryWatch() as memory:
        console.print(
            f"[bold]Lakelatch demo[/bold], {plan.mode.upper()}: two Spark jobs and a {plan.third} on one table"
        )
        source = load_flights(plan.rows)
        write_inputs(plan, source)
        clock.lap("prepare")
        run_workers(plan, "lakelatch.console.demo.worker", partial(_watch, plan, console=console))
        clock.lap("write")
        report.workers = {name: _summary(plan, name) for name in plan.workers}
        report.entries = timeline_entries(plan.storage)
        report.checks = final_checks(plan, source, report.entries, report.conflicts)
        clock.lap("check")
        if plan.services:  # what was cleaned and archived cannot be replayed
            report.checks += [services_check(plan), cancelled_check(plan), small_check(plan)]
        else:
            report.checks.append(_replayed(plan, [*source.column_names, "feed"], console))
            clock.lap("replay")
        for picture in plan.pictures:
            draw_picture(report.entries, picture, _title(plan, report), undone_writes(plan.storage))
            report.pictures.append(str(picture))
    report.peak_memory_mb = memory.peak_bytes // 1024 // 1024
    return report


def prepare_place(plan: DemoPlan, *folders: str) -> None:
    """Empties the demo's own folders; `InvalidRequest` where it cannot draw, or the table's place is not empty."""
    plan.root.mkdir(parents=True, exist_ok=True)
    for picture in plan.pictures:
        ensure_can_draw(picture)
    for name in folders:
        shutil.rmtree(plan.root / name, ignore_errors=True)
    (plan.root / "events").mkdir(parents=True)
    if plan.place and any(True for _ in plan.storage.walk("")):
        raise InvalidRequest(f"--table {without_secrets(plan.place)} is not empty: name another place")


def _replayed(plan: DemoPlan, columns: list[str], console: Console) -> Check:
    with progress_bars(console) as progress:
        bar = progress.add_task("hudi-rs reads the table after every step", total=None)
        steps = replay(
            plan.table,
            plan.replay,
            columns,
            plan.extra,
            lambda done, total: progress.update(bar, completed=done, total=total),
        )
    shutil.rmtree(plan.replay, ignore_errors=True)
    return steps_check(steps)


def print_report(report: DemoReport, console: Console) -> None:
    """Prints the report: the timeline drawn, the work of each process, and each check."""
    from rich.table import Table

    console.print()
    console.print(draw_terminal(report.entries, console.width))
    table = Table("process", "commits", "rows", "conflicts retried", "median commit", "time span", box=None)
    for name, worker in report.workers.items():
        table.add_row(
            name,
            str(worker["commits"]),
            f"{worker['rows']:,}",
            str(worker["conflicts"]),
            f"{worker['median_s']:.1f} s",
            f"{worker['span_s']:.1f} s",
        )
    console.print(table)
    console.print()
    print_checks(report.checks, console)
    laps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.seconds.items())
    console.print(f"\n {laps}; peak memory of all processes {report.peak_memory_mb:,} MiB")
    console.print(f" table {report.plan.table}, drawn in {', '.join(report.pictures)}")
    print_verdict(report.ok, console)


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """A line for each check."""
    for check in checks:
        mark = "[green]✓[/green]" if check.ok else "[red]✗[/red]"
        console.print(f" {mark} {check.name}: {check.detail}")


def print_verdict(ok: bool, console: Console) -> None:
    """The last line."""
    verdict = "[bold green]Every row is where it must be.[/bold green]" if ok else "[bold red]FAILED[/bold red]"
    console.print(f" {verdict}")


def run_workers(plan: DemoPlan, module: str, watch: Callable[[dict[str, Process]], None]) -> None:
    """Runs the plan's processes and watches them to their end. `LakelatchError` if one fails."""
    names = plan.workers
    processes: dict[str, Process] = {}
    try:
        for name in names:
            processes[name] = start_worker(plan, module, name)
        watch(processes)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        for process in processes.values():
            process.wait()
    failed = [name for name in names if processes[name].returncode != 0]
    if failed:
        raise LakelatchError("; ".join(_why(plan, name) for name in failed))


def start_worker(plan: DemoPlan, module: str, name: str) -> Process:
    """Starts one of the plan's processes."""
    command = [sys.executable, "-m", module, name]
    # Not as an argument: options may hold secrets, and everybody sees what a process is called with.
    environment = {**os.environ, PLAN_VARIABLE: plan.to_json(), "PYSPARK_PYTHON": sys.executable}
    with open(plan.log_file(name), "ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        )


def at_work(
    plan: DemoPlan, processes: Mapping[str, Process], look: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Goes on until all processes have ended, or one has failed, and calls `look` first each time.

    `LakelatchError` if that takes too long.
    """
    deadline_ns = REAL_SYSTEM.monotonic_ns() + int(_RUN_MAX_S * 1e9)
    while any(process.poll() is None for process in processes.values()):
        failed = [name for name, process in processes.items() if process.poll() not in (None, 0)]
        look()
        if any(processes[name].poll() not in (None, 0) for name in failed):
            return
        if REAL_SYSTEM.monotonic_ns() > deadline_ns:
            raise LakelatchError(f"the demo took longer than {_RUN_MAX_S:g} s: see {plan.root / 'events'}")
        yield
        REAL_SYSTEM.sleep(_POLL_S)


def _watch(plan: DemoPlan, processes: Mapping[str, Process], console: Console) -> None:
    def done(name: str) -> int:
        return sum(event["event"] in ("commit", "compaction") for event in _events(plan, name))

    with progress_bars(console) as progress:
        bars = {feed: progress.add_task(f"{feed}: commits", total=plan.commits) for feed in FEEDS}
        what = "services" if plan.services else "compactions"
        bars[plan.third] = progress.add_task(f"{plan.third}: {what}", total=None)
        for _ in at_work(plan, processes):
            for name, bar in bars.items():
                progress.update(bar, completed=done(name))
        for name, bar in bars.items():
            progress.update(bar, completed=done(name), total=done(name))


def _summary(plan: DemoPlan, name: str) -> dict[str, object]:
    commits = [event for event in _events(plan, name) if event["event"] in ("commit", "compaction")]
    seconds = sorted(float(str(event.get("seconds", 0.0))) for event in commits)
    at = [int(str(event["at_ms"])) for event in commits]
    return {
        "commits": len(commits),
        "rows": sum(int(str(event["rows_written"])) for event in commits),
        "conflicts": sum(int(str(event["conflicts_retried"])) for event in commits),
        "median_s": seconds[len(seconds) // 2] if seconds else 0.0,
        "span_s": (max(at) - min(at)) / 1000 if at else 0.0,
    }


def _events(plan: DemoPlan, name: str) -> list[dict[str, object]]:
    return read_events(plan.events_file(name))


def _why(plan: DemoPlan, name: str) -> str:
    errors = [str(event["error"]) for event in _events(plan, name) if event["event"] == "failed"]
    if errors:
        return f"{name}: {errors[-1]}"
    tail = Path(plan.log_file(name)).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    return f"{name} ended ({' / '.join(tail)}); its output is in {plan.log_file(name)}"


def _title(plan: DemoPlan, report: DemoReport) -> str:
    kind = "non-blocking" if plan.mode == "nbcc" else "optimistic"
    does = "keeps the table" if plan.services else "compacts"
    return f"Two Spark jobs upsert the same flights while a third {does} ({kind}, {report.conflicts} conflicts)"


def progress_bars(console: Console) -> Progress:
    """Bars with a text, a count and the time, one for each task."""
    columns = (TextColumn("{task.description:<42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=not console.is_terminal)


class _Clock:
    """Seconds of each part of the demo."""

    def __init__(self, report: DemoReport) -> None:
        self._report = report
        self._last_ns = REAL_SYSTEM.monotonic_ns()

    def lap(self, name: str) -> None:
        now_ns = REAL_SYSTEM.monotonic_ns()
        self._report.seconds[name] = (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
