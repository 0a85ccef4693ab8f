"""What each command does. Each returns its exit code and the JSON form of its result."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.drawing import draw_picture, draw_terminal
from lakelatch.console.entries import timeline_entries
from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.registry import open_lock_provider
from lakelatch.pipeline.options import normalise
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.table_config import load_table_config

Outcome = tuple[int, Any]
_SHOWN = 50


def version_text() -> str:
    return f"lakelatch {version('lakelatch')}"


def demo(asked: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.demo.plan import DemoPlan
    from lakelatch.console.demo.run import print_report, run_demo

    for name, least in (("commits", 2), ("buckets", 1), ("rows", 1000)):
        value = getattr(asked, name)
        if value is not None and value < least:
            raise InvalidRequest(f"--{name} {value} is too small: use at least {least}")
    extra = read_options(asked.option)
    folder = str(Path(asked.folder).absolute())
    plan = DemoPlan(folder, asked.mode, asked.commits, asked.buckets, asked.rows, extra)
    open_lock_provider(LockScope(plan.table.as_uri(), extra)).close()  # so that a slip is told before anything runs
    report = run_demo(plan, console)
    print_report(report, console)
    return (0 if report.ok else 1), report.to_json()


def timeline(asked: argparse.Namespace, console: Console) -> Outcome:
    storage = open_table(asked.table)
    entries = timeline_entries(storage)
    limit = asked.limit if asked.limit is not None else (0 if asked.json else _SHOWN)
    shown = entries[-limit:] if limit > 0 else entries
    if not asked.json:
        times = [Column(name, min_width=17, no_wrap=True) for name in ("requested", "completed")]
        table = Table(*times, "action", "operation", "writer", "rows", "files", box=None)
        for entry in shown:
            completed = entry.completion or f"[yellow]{entry.state}[/yellow]"
            rows, files = f"{entry.rows:,}", str(entry.files or entry.file_groups)
            table.add_row(entry.requested, completed, entry.action, entry.operation, escape(entry.writer), rows, files)
        console.print(table)
        console.print()
        console.print(draw_terminal(shown, console.width))
        if len(shown) < len(entries):
            console.print(f"{len(entries) - len(shown)} earlier instants are not shown (--limit)")
    if asked.draw:
        if not shown:
            raise InvalidRequest(f"--draw {asked.draw}: the timeline of {storage.uri} is empty")
        draw_picture(shown, Path(asked.draw), f"Timeline of {storage.uri}")
        console.print(f"drawn in {asked.draw}", markup=False)
    return 0, [entry.to_json() for entry in shown]


def compact(asked: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.sessions import open_session
    from lakelatch.pipeline.compaction import compact as run
    from lakelatch.pipeline.compaction import waiting_plans

    open_table(asked.table)
    options = read_options(asked.option)
    with console.status("starting Spark"):
        spark = open_session("lakelatch compact", asked.cores, 1024, progress=console.is_terminal)
    try:
        with console.status("compacting"):
            results = run(spark, asked.table, options)
    finally:
        spark.stop()
    for result in results:
        console.print(
            f"{result.instant} completed at {result.completion}: {len(result.files)} "
            f"{'log' if result.operation == 'log_compact' else 'base'} files, "
            f"{result.rows_written:,} rows, {result.bytes_written:,} bytes"
        )
    waiting = waiting_plans(asked.table)
    for instant in waiting:
        console.print(f"{instant} waits: another process works on it, or died a moment ago. Try again later")
    if not results and not waiting:
        console.print("nothing to compact")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}


def open_table(path: str) -> Storage:
    """The storage of a table; `InvalidRequest` if there is none."""
    storage = open_storage(path)
    load_table_config(storage)
    return storage


def read_options(pairs: list[str]) -> dict[str, str]:
    """Write options from `KEY=VALUE` pairs."""
    values: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"--option {pair!r}: write KEY=VALUE")
        values[key] = value
    return normalise(values)
