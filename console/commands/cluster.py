"""`lakelatch cluster`: carries out waiting clusterings, and another one."""

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
    """`cluster`."""
    cluster = subparsers.add_parser(
        "cluster", parents=[every, table_parser()], help="sort the rows of each file group by columns"
    )
    cluster.add_argument("--by", default="", metavar="COLUMN,...", help="the columns to sort by (default: record key)")
    cluster.add_argument("--layout", default="", help="linear, z-order or hilbert (default: linear)")
    cluster.add_argument("--cores", type=int, default=2, help="cores of the local Spark session (default: 2)")
    cluster.set_defaults(run=run)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Carries them out; what another process works on, or another engine has planned, is named as waiting."""
    from lakelatch.engine.services.service import waiting
    from lakelatch.spark.calls import cluster
    from lakelatch.timeline.actions import CLUSTERING
    from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS

    check_least(parsed, cores=1)
    options = read_options(parsed.option)
    open_table(parsed.table, options)
    options.update({key: value for key, value in ((SORT_COLUMNS, parsed.by), (LAYOUT, parsed.layout)) if value})
    results = run_on_spark(parsed, console, "cluster", lambda spark: cluster(spark, parsed.table, options))
    return show_results(console, "cluster", results, _describe, waiting(parsed.table, [CLUSTERING], options))


def _describe(result: CommitResult) -> str:
    return f"{result.file_groups_replaced} file groups, {result.rows_written:,} rows, {result.bytes_written:,} bytes"
