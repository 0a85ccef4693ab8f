"""`lakelatch compact`, `cluster`, `clean` and `archive`: one round of a table service."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, check_least, open_table
from lakelatch.progress import told_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelatch.engine.run.result import CommitResult
    from lakelatch.engine.services.cleaning import CleanResult

    Result = TypeVar("Result", CommitResult, CleanResult)

_SHOWN_MAX = 20


def add_parsers(commands: Commands) -> None:
    """One command for each service."""
    compacted = commands.add("compact", compact, "carry out waiting compactions, and another one")
    clustered = commands.add("cluster", cluster, "sort the rows of each file group by columns")
    clustered.add_argument("--by", default="", metavar="COLUMN,...", help="columns to sort by (default: record key)")
    clustered.add_argument("--layout", default="", help="linear, z-order or hilbert (default: linear)")
    for on_spark in (compacted, clustered):
        on_spark.add_argument("--cores", type=int, default=2, help="cores of the local Spark session (default: 2)")
    cleaned = commands.add("clean", clean, "remove files that no reader within retention needs")
    cleaned.add_argument("--dry-run", action="store_true", help="only say which files would go")
    commands.add("archive", archive, "move old instants into the table's history")


def compact(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Executes waiting compactions and another one; a plan that another process executes is shown as waiting."""
    from lakelatch.engine.calls import waiting_plans
    from lakelatch.spark import calls

    results = _run_on_spark(
        parsed, console, "compact", lambda spark: calls.compact(spark, parsed.table, parsed.options)
    )

    def describe(result: CommitResult) -> str:
        kind = "log" if result.operation == "log_compact" else "base"
        return f"{len(result.files)} {kind} files, {result.rows_written:,} rows, {result.bytes_written:,} bytes"

    return _show_results(console, "compact", results, describe, waiting_plans(parsed.table, parsed.options))


def cluster(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Executes waiting clusterings and another one; plans of other processes and engines are shown as waiting."""
    from lakelatch.engine.services.service import waiting
    from lakelatch.spark import calls
    from lakelatch.timeline.actions import CLUSTERING
    from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS

    said = {SORT_COLUMNS: parsed.by, LAYOUT: parsed.layout}
    options = {**parsed.options, **{key: value for key, value in said.items() if value}}
    results = _run_on_spark(parsed, console, "cluster", lambda spark: calls.cluster(spark, parsed.table, options))

    def describe(result: CommitResult) -> str:
        groups, rows = f"{result.file_groups_replaced} file groups", f"{result.rows_written:,} rows"
        return f"{groups}, {rows}, {result.bytes_written:,} bytes"

    return _show_results(console, "cluster", results, describe, waiting(parsed.table, [CLUSTERING], options))


def clean(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Cleans here, without Spark; a clean that another process executes is shown as waiting."""
    from lakelatch.engine.calls import preview_clean
    from lakelatch.engine.services.service import waiting
    from lakelatch.spark import calls
    from lakelatch.timeline.actions import CLEAN

    open_table(parsed)
    if parsed.dry_run:
        paths = preview_clean(parsed.table, parsed.options)
        for path in paths[:_SHOWN_MAX]:
            console.print(path, markup=False, soft_wrap=True)
        console.print(f"{len(paths):,} files would go" if paths else "nothing to clean")
        return 0, {"would_remove": list(paths)}
    with console.status("cleaning") as status, told_to(lambda progress: status.update(str(progress))):
        results = calls.clean(parsed.table, parsed.options)

    def describe(result: CleanResult) -> str:
        return f"{len(result.files):,} files, {result.bytes_removed:,} bytes"

    return _show_results(console, "clean", results, describe, waiting(parsed.table, [CLEAN], parsed.options))


def archive(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Archives instants, and names the first one that has to stay."""
    from lakelatch.engine import calls

    open_table(parsed)
    with console.status("archiving"):
        done = calls.archive(parsed.table, parsed.options)
    if done.instants:
        console.print(f"{len(done.instants):,} instants archived, {done.instants[0]} to {done.instants[-1]}")
    if done.removed:
        console.print(f"{len(done.removed):,} files of failed writes removed")
    at = f" at {done.held_at}" if done.held_at else ""
    console.print(f"{'the rest' if done.instants else 'everything'} stays{at}: {done.held_by}", markup=False)
    return 0, asdict(done)


def _run_on_spark(
    parsed: argparse.Namespace, console: Console, verb: str, work: Callable[[SparkSession], list[CommitResult]]
) -> list[CommitResult]:
    """The results of `work`, which gets a local session of `--cores`."""
    from lakelatch.spark.local_session import open_session

    check_least(parsed, cores=1)
    open_table(parsed)
    with console.status("starting Spark"):
        spark = open_session(f"lakelatch {verb}", parsed.cores, 1024, progress=console.is_terminal)
    try:
        with console.status("rewriting file groups"):
            return work(spark)
    finally:
        spark.stop()


def _show_results(
    console: Console, verb: str, results: Sequence[Result], describe: Callable[[Result], str], waiting: list[str]
) -> Outcome:
    """Shows the results, as described by `describe`, and the plans that wait for another process or engine."""
    for result in results:
        console.print(f"{result.instant} completed at {result.completion}: {describe(result)}")
    for instant in waiting:
        console.print(f"{instant} waits: another process or engine works on it, or died a moment ago. Try again later")
    if not results and not waiting:
        console.print(f"nothing to {verb}")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}
