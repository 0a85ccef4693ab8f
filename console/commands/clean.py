"""`lakelatch clean`: removes the files that no reader within retention needs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lakelatch.console.commands.arguments import Outcome, open_table, read_options, table_parser
from lakelatch.console.commands.planned import show_results

if TYPE_CHECKING:
    from lakelatch.engine.services.cleaning import CleanResult

_SHOWN_MAX = 20


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """`clean`."""
    clean = subparsers.add_parser(
        "clean", parents=[every, table_parser()], help="remove files that no reader within retention needs"
    )
    clean.add_argument("--dry-run", action="store_true", help="only say which files would go")
    clean.set_defaults(run=run)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Cleans here, without Spark; what another process works on is named as waiting."""
    from lakelatch.engine.calls import preview_clean
    from lakelatch.engine.services.service import waiting
    from lakelatch.spark.calls import clean
    from lakelatch.timeline.actions import CLEAN

    options = read_options(parsed.option)
    open_table(parsed.table, options)
    if parsed.dry_run:
        paths = preview_clean(parsed.table, options)
        for path in paths[:_SHOWN_MAX]:
            console.print(path, markup=False, soft_wrap=True)
        console.print(f"{len(paths):,} files would go" if paths else "nothing to clean")
        return 0, {"would_remove": list(paths)}
    with console.status("cleaning"):
        results = clean(parsed.table, options)
    return show_results(console, "clean", results, _describe, waiting(parsed.table, [CLEAN], options))


def _describe(result: CleanResult) -> str:
    return f"{len(result.files):,} files, {result.bytes_removed:,} bytes"
