"""`lakelatch savepoint`, `rollback` and `restore`: what to keep, and going back to it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from lakelatch.console.commands.arguments import Outcome, read_options, table_parser
from lakelatch.engine.calls import delete_savepoint, restore, roll_back, savepoint, savepoints
from lakelatch.errors import InvalidRequest


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """The three of them."""
    table = table_parser()
    kept = subparsers.add_parser("savepoint", parents=[every], help="keep a commit, to which the table can be restored")
    actions = kept.add_subparsers(required=True, metavar="ACTION")
    created = actions.add_parser("create", parents=[every, table], help="keep the table as of a commit")
    created.add_argument("instant", nargs="?", help="the commit's requested time (default: the last one completed)")
    created.add_argument("--comment", default="", help="what it is for")
    created.set_defaults(run=create)
    deleted = actions.add_parser("delete", parents=[every, table], help="let cleaners take its files")
    deleted.add_argument("instant", help="the commit's requested time")
    deleted.set_defaults(run=delete)
    listed = actions.add_parser("list", parents=[every, table], help="show the table's savepoints")
    listed.set_defaults(run=show)

    rolled = subparsers.add_parser("rollback", parents=[every, table], help="undo a completed commit")
    rolled.add_argument("instant", help="the commit's requested time")
    rolled.set_defaults(run=undo_commit)

    restored = subparsers.add_parser("restore", parents=[every, table], help="take the table back to a commit")
    restored.add_argument("instant", help="the requested time of the commit that is to be the last one, or savepoint")
    restored.add_argument("--yes", action="store_true", help="do it: everything that completed later is lost")
    restored.set_defaults(run=go_back)


def create(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Makes a savepoint."""
    made = savepoint(parsed.table, parsed.instant, parsed.comment, read_options(parsed.option))
    console.print(f"savepoint of {made.instant}: {made.files:,} files are kept")
    return 0, asdict(made)


def delete(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Gives one up."""
    delete_savepoint(parsed.table, parsed.instant, read_options(parsed.option))
    console.print(f"the savepoint of {parsed.instant} is gone, and cleaners may take its files")
    return 0, {"deleted": parsed.instant}


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Lists them."""
    found = savepoints(parsed.table, read_options(parsed.option))
    table = Table("commit", "kept since", "files", "by", "comment")
    for one in found:
        table.add_row(one.instant, one.completion, f"{one.files:,}", one.by, one.comment)
    console.print(table if found else "no savepoints")
    return 0, [asdict(one) for one in found]


def undo_commit(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Rolls one commit back."""
    undone = roll_back(parsed.table, parsed.instant, read_options(parsed.option))
    console.print(f"{parsed.instant} was taken back by {undone.instant}: {undone.files:,} files")
    return 0, asdict(undone)


def go_back(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Restores the table."""
    if not parsed.yes:
        raise InvalidRequest(f"everything that completed after {parsed.instant} would be lost: say --yes")
    undone = restore(parsed.table, parsed.instant, read_options(parsed.option))
    console.print(
        f"the table is as of {parsed.instant}: {len(undone.undone):,} instants were undone by {undone.instant}, with "
        f"{undone.files:,} files"
    )
    return 0, asdict(undone)
