"""`lakelatch archive`: completed instants leave the active timeline for the history."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from lakelatch.console.commands.arguments import Outcome, open_table, read_options, table_parser


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """`archive`."""
    archive = subparsers.add_parser(
        "archive", parents=[every, table_parser()], help="move old instants into the table's history"
    )
    archive.set_defaults(run=run)


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Archives what may leave, and says what is first in the way of more."""
    from lakelatch.engine.calls import archive

    options = read_options(parsed.option)
    open_table(parsed.table, options)
    with console.status("archiving"):
        done = archive(parsed.table, options)
    if done.instants:
        console.print(f"{len(done.instants):,} instants archived, {done.instants[0]} to {done.instants[-1]}")
    if done.removed:
        console.print(f"{len(done.removed):,} files of failed writes removed")
    at = f" at {done.held_at}" if done.held_at else ""
    console.print(f"{'the rest' if done.instants else 'everything'} stays{at}: {done.held_by}", markup=False)
    return 0, asdict(done)
