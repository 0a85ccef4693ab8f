"""`lakelatch compact`: carries out waiting compactions, and another one."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from lakelatch.console.commands.arguments import Outcome, check_least, open_table, read_options


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """`compact`."""
    compact = subparsers.add_parser("compact", parents=[every], help="carry out waiting compactions, and another one")
    compact.add_argument("table", help="the table's folder or URI")
    compact.add_argument("--option", "-o", action="append", default=[], metavar="KEY=VALUE", help="a write option")
    compact.add_argument("--cores", type=int, default=2, help="cores of the local Spark session (default: 2)")
    compact.set_defaults(run=run)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Carries them out; what another process works on is named as waiting."""
    from lakelatch.console.sessions import open_session
    from lakelatch.spark.services.compaction import compact, waiting_plans

    check_least(parsed, cores=1)
    open_table(parsed.table)
    options = read_options(parsed.option)
    with console.status("starting Spark"):
        spark = open_session("lakelatch compact", parsed.cores, 1024, progress=console.is_terminal)
    try:
        with console.status("compacting"):
            results = compact(spark, parsed.table, options)
    finally:
        spark.stop()
    for result in results:
        console.print(
            f"{result.instant} completed at {result.completion}: {len(result.files)} "
            f"{'log' if result.operation == 'log_compact' else 'base'} files, "
            f"{result.rows_written:,} rows, {result.bytes_written:,} bytes"
        )
    waiting = waiting_plans(parsed.table)
    for instant in waiting:
        console.print(f"{instant} waits: another process works on it, or died a moment ago. Try again later")
    if not results and not waiting:
        console.print("nothing to compact")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}
