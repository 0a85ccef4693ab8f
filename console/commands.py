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
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockScope
from lakelatch.locks.registry import open_lock_provider
from lakelatch.pipeline.options import normalise
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.instant_time import to_instant
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
    plan = DemoPlan(str(Path(asked.folder).absolute()), asked.mode, asked.commits, asked.buckets, asked.rows)
    report = run_demo(plan, console)
    print_report(report, console)
    return (0 if report.ok else 1), report.to_json()


def timeline(asked: argparse.Namespace, console: Console) -> Outcome:
    storage = _table(asked.table)
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

    _table(asked.table)
    options = _options(asked.option)
    with console.status("starting Spark"):
        spark = open_session("lakelatch compact", asked.cores, 1024, progress=console.is_terminal)
    try:
        with console.status("compacting"):
            results = run(spark, asked.table, options)
    finally:
        spark.stop()
    for result in results:
        console.print(
            f"{result.instant} completed at {result.completion}: {len(result.files)} base files, "
            f"{result.rows_written:,} rows, {result.bytes_written:,} bytes"
        )
    waiting = waiting_plans(asked.table)
    for instant in waiting:
        console.print(f"{instant} waits: another process works on it, or died a moment ago. Try again later")
    if not results and not waiting:
        console.print("nothing to compact")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}


def locks(asked: argparse.Namespace, console: Console) -> Outcome:
    storage = _table(asked.table)
    provider = open_lock_provider(LockScope(storage.uri, _options(asked.option)))
    try:
        holders = provider.holders()
    finally:
        provider.close()
    observer = Observer(storage)
    instants = observer.instants()
    dead = set(observer.dead(instants))
    writers = []
    for instant in instants:
        beat = observer.beat_of(instant)
        name = beat.writer if beat is not None else "another kind of writer"
        writers.append({"instant": instant, "writer": name, "alive": instant not in dead})
    held = Table("lock", "holder", "token", "since", "waiting", box=None)
    for holder in holders:
        waiting = "" if holder.waiting is None else str(holder.waiting)
        held.add_row(escape(holder.key), escape(holder.owner), str(holder.token), to_instant(holder.since_ms), waiting)
    console.print(held if holders else "no lock is held")
    beats = Table("instant", "writer", "state", box=None)
    for writer in writers:
        beats.add_row(str(writer["instant"]), escape(str(writer["writer"])), "alive" if writer["alive"] else "dead")
    console.print(beats if writers else "no transaction is open")
    now_ms = REAL_SYSTEM.realtime_ms()
    held_json = [{**asdict(holder), "held_s": (now_ms - holder.since_ms) / 1000} for holder in holders]
    return 0, {"locks": held_json, "writers": writers}


def _table(path: str) -> Storage:
    storage = open_storage(path)
    load_table_config(storage)
    return storage


def _options(pairs: list[str]) -> dict[str, str]:
    values: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"--option {pair!r}: write KEY=VALUE")
        values[key] = value
    return normalise(values)
