"""`lakelatch demo`: several Spark jobs write one table of real flights, or many small writers one of batches."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, add_option, check_least
from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider

_COMMITS, _SECONDS = 6, 10.0


def add_parsers(commands: Commands) -> None:
    """`demo`."""
    demo = commands.add("demo", run, "several Spark jobs write one table of real flights", of_table=False)
    demo.add_argument("--mode", choices=("nbcc", "occ"), default="nbcc", help="concurrency control (default: nbcc)")
    demo.add_argument("--folder", default="demo-out", help="where to put the table and the drawings")
    demo.add_argument("--table", default="", metavar="URI", help="put the table there, as s3://bucket/flights")
    demo.add_argument("--commits", type=int, help=f"commits of each feed (default: {_COMMITS})")
    demo.add_argument("--buckets", type=int, default=2, help="buckets of each partition (default: 2)")
    demo.add_argument("--rows", type=int, help="use the first so many flights only")
    demo.add_argument(
        "--services",
        action="store_true",
        help="the table keeps itself: compaction, clustering, a cancel, clean, archive",
    )
    demo.add_argument(
        "--writers", type=int, help="instead, so many writers without Spark commit ten rows at a time to one table"
    )
    demo.add_argument("--seconds", type=float, help=f"how long these write (default: {_SECONDS:g})")
    add_option(demo)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Runs the demo; 1 if one of its checks fails."""
    check_least(parsed, commits=2, buckets=1, rows=1000, writers=2, seconds=1)
    _refuse_other_demos(parsed)
    return _run_flights(parsed, console) if parsed.writers is None else _run_crowd(parsed, console)


def _run_flights(parsed: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.demo.plan import DemoPlan
    from lakelatch.console.demo.run import print_report, run_demo

    commits = _COMMITS if parsed.commits is None else parsed.commits
    plan = DemoPlan(
        _folder(parsed),
        parsed.mode,
        commits,
        parsed.buckets,
        parsed.rows,
        parsed.services,
        parsed.options,
        parsed.table,
    )
    open_lock_provider(LockScope(plan.storage.uri, plan.extra)).close()  # refuses a mistake before anything runs
    report = run_demo(plan, console)
    print_report(report, console)
    return (0 if report.ok else 1), report.to_json()


def _run_crowd(parsed: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.demo.crowd import print_crowd, run_crowd
    from lakelatch.console.demo.crowd_plan import CrowdPlan

    plan = CrowdPlan(
        _folder(parsed),
        parsed.mode,
        buckets=parsed.buckets,
        extra=parsed.options,
        place=parsed.table,
        writers=parsed.writers,
        seconds=_SECONDS if parsed.seconds is None else parsed.seconds,
    )
    report = run_crowd(plan, console)
    print_crowd(report, console)
    return (0 if report.ok else 1), report.to_json()


def _folder(parsed: argparse.Namespace) -> str:
    return str(Path(parsed.folder).absolute())


def _refuse_other_demos(parsed: argparse.Namespace) -> None:
    """`InvalidRequest` for what belongs to the demo with flights beside `--writers`, and the other way round."""
    of_flights = {"--commits": parsed.commits, "--rows": parsed.rows, "--services": parsed.services or None}
    for name, value in of_flights.items():
        if parsed.writers is not None and value is not None:
            raise InvalidRequest(f"{name} is for the demo with flights: leave out {name} or --writers")
    if parsed.writers is None and parsed.seconds is not None:
        raise InvalidRequest("--seconds says how long small writers write: name their number with --writers")
