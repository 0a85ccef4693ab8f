"""`lakelatch demo`: several Spark jobs write one table of real flights, small writers one of batches, or several."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, add_option, check_least
from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider

_MODE, _COMMITS, _SECONDS, _WRITERS = "nbcc", 6, 10.0, 4


def add_parsers(commands: Commands) -> None:
    """`demo`."""
    demo = commands.add("demo", run, "several Spark jobs write one table of real flights", of_table=False)
    demo.add_argument("--mode", choices=("nbcc", "occ"), help=f"concurrency control (default: {_MODE})")
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
    demo.add_argument(
        "--tables", type=int, help="instead, move flights and aggregates in one transaction over so many tables"
    )
    demo.add_argument("--seconds", type=float, help=f"how long these write (default: {_SECONDS:g})")
    add_option(demo)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Runs the demo; 1 if one of its checks fails."""
    check_least(parsed, commits=2, buckets=1, rows=1000, writers=2, seconds=1, tables=2)
    _refuse_other_demos(parsed)
    if parsed.tables is not None:
        return _run_several(parsed, console)
    return _run_flights(parsed, console) if parsed.writers is None else _run_crowd(parsed, console)


def _run_flights(parsed: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.demo.plan import DemoPlan
    from lakelatch.console.demo.run import print_report, run_demo

    commits = _COMMITS if parsed.commits is None else parsed.commits
    plan = DemoPlan(
        _folder(parsed),
        parsed.mode or _MODE,
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
        parsed.mode or _MODE,
        buckets=parsed.buckets,
        extra=parsed.options,
        place=parsed.table,
        writers=parsed.writers,
        seconds=_SECONDS if parsed.seconds is None else parsed.seconds,
    )
    report = run_crowd(plan, console)
    print_crowd(report, console)
    return (0 if report.ok else 1), report.to_json()


def _run_several(parsed: argparse.Namespace, console: Console) -> Outcome:
    from lakelatch.console.demo.several.plan import TABLES_MOST, SeveralPlan
    from lakelatch.console.demo.several.run import print_several, run_several

    if parsed.tables > TABLES_MOST:
        raise InvalidRequest(f"--tables {parsed.tables} is too large: use at most {TABLES_MOST}")
    plan = SeveralPlan(
        _folder(parsed),
        buckets=parsed.buckets,
        extra=parsed.options,
        place=parsed.table,
        tables=parsed.tables,
        writers=_WRITERS if parsed.writers is None else parsed.writers,
        seconds=_SECONDS if parsed.seconds is None else parsed.seconds,
    )
    report = run_several(plan, console)
    print_several(report, console)
    return (0 if report.ok else 1), report.to_json()


def _folder(parsed: argparse.Namespace) -> str:
    return str(Path(parsed.folder).absolute())


def _refuse_other_demos(parsed: argparse.Namespace) -> None:
    """`InvalidRequest` for what belongs to the demo with flights beside `--writers` or `--tables`, and so on."""
    of_flights = {"--commits": parsed.commits, "--rows": parsed.rows, "--services": parsed.services or None}
    other = "--tables" if parsed.tables is not None else "--writers" if parsed.writers is not None else ""
    for name, value in of_flights.items():
        if other and value is not None:
            raise InvalidRequest(f"{name} is for the demo with flights: leave out {name} or {other}")
    if not other and parsed.seconds is not None:
        raise InvalidRequest("--seconds says how long small writers write: name their number with --writers")
    if parsed.tables is not None and parsed.mode == "nbcc":
        raise InvalidRequest(
            "--mode nbcc: the writers of --tables add to rows that they have read, so that one of two has to lose: "
            "leave it out"
        )
