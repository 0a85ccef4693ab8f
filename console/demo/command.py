"""`lakelatch demo`: several Spark jobs write one table of real flights."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, add_option, check_least
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider


def add_parsers(commands: Commands) -> None:
    """`demo`."""
    demo = commands.add("demo", run, "several Spark jobs write one table of real flights", of_table=False)
    demo.add_argument("--mode", choices=("nbcc", "occ"), default="nbcc", help="concurrency control (default: nbcc)")
    demo.add_argument("--folder", default="demo-out", help="where to put the table and the drawings")
    demo.add_argument("--table", default="", metavar="URI", help="put the table there, as s3://bucket/flights")
    demo.add_argument("--commits", type=int, default=6, help="commits of each feed (default: 6)")
    demo.add_argument("--buckets", type=int, default=2, help="buckets of each partition (default: 2)")
    demo.add_argument("--rows", type=int, default=None, help="use the first so many flights only")
    demo.add_argument(
        "--services",
        action="store_true",
        help="the table keeps itself: compaction, clustering, a cancel, clean, archive",
    )
    add_option(demo)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Runs the demo; 1 if one of its checks fails."""
    from lakelatch.console.demo.plan import DemoPlan
    from lakelatch.console.demo.run import print_report, run_demo

    check_least(parsed, commits=2, buckets=1, rows=1000)
    extra = parsed.options
    folder = str(Path(parsed.folder).absolute())
    plan = DemoPlan(
        folder, parsed.mode, parsed.commits, parsed.buckets, parsed.rows, parsed.services, extra, parsed.table
    )
    open_lock_provider(LockScope(plan.storage.uri, extra)).close()  # so that a mistake is refused before anything runs
    report = run_demo(plan, console)
    print_report(report, console)
    return (0 if report.ok else 1), report.to_json()
