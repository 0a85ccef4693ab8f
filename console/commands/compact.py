"""`lakelatch compact`: carries out waiting compactions, and another one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lakelatch.console.commands.arguments import Outcome, check_least, open_table, read_options, table_parser
from lakelatch.console.commands.planned import run_on_spark, show_results

if TYPE_CHECKING:
    from lakelatch.engine.run.result import CommitResult


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """`compact`."""
    compact = subparsers.add_parser(
        "compact", parents=[every, table_parser()], help="carry out waiting compactions, and another one"
    )
    compact.add_argument("--cores", type=int, default=2, help="cores of the local Spark session (default: 2)")
    compact.set_defaults(run=run)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Carries them out; what another process works on is named as waiting."""
    from lakelatch.engine.calls import waiting_plans
    from lakelatch.spark.calls import compact

    check_least(parsed, cores=1)
    options = read_options(parsed.option)
    open_table(parsed.table, options)
    results = run_on_spark(parsed, console, "compact", lambda spark: compact(spark, parsed.table, options))
    return show_results(console, "compact", results, _describe, waiting_plans(parsed.table, options))


def _describe(result: CommitResult) -> str:
    kind = "log" if result.operation == "log_compact" else "base"
    return f"{len(result.files)} {kind} files, {result.rows_written:,} rows, {result.bytes_written:,} bytes"
