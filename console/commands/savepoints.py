"""`lakelatch savepoint`, `rollback` and `restore`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from lakelatch.console.commands.arguments import Commands, Outcome
from lakelatch.engine import calls
from lakelatch.errors import InvalidRequest


def add_parsers(commands: Commands) -> None:
    """`savepoint`, `rollback` and `restore`."""
    actions = commands.group("savepoint", "keep a commit, to which the table can be restored", "ACTION")
    created = actions.add("create", create, "keep the table as of a commit")
    created.add_argument("instant", nargs="?", help="the commit's requested time (default: the last one completed)")
    created.add_argument("--comment", default="", help="what it is for")
    deleted = actions.add("delete", delete, "let cleaners take its files")
    deleted.add_argument("instant", help="the commit's requested time")
    actions.add("list", show, "show the table's savepoints")
    rolled = commands.add("rollback", roll_back, "undo a completed commit")
    rolled.add_argument("instant", help="the commit's requested time")
    restored = commands.add("restore", restore, "bring the table back to a commit")
    restored.add_argument("instant", help="the requested time of the commit that is to be the last one, or savepoint")
    restored.add_argument("--yes", action="store_true", help="do it: everything that completed later is lost")


def create(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Makes a savepoint."""
    made = calls.savepoint(parsed.table, parsed.instant, parsed.comment, parsed.options)
    console.print(f"savepoint of {made.instant}: {made.files:,} files are kept")
    return 0, asdict(made)


def delete(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Deletes a savepoint."""
    calls.delete_savepoint(parsed.table, parsed.instant, parsed.options)
    console.print(f"the savepoint of {parsed.instant} is gone, and cleaners may take its files")
    return 0, {"deleted": parsed.instant}


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Lists savepoints."""
    found = calls.savepoints(parsed.table, parsed.options)
    table = Table("commit", "kept since", "files", "by", "comment")
    for one in found:
        table.add_row(one.instant, one.completion, f"{one.files:,}", one.by, one.comment)
    console.print(table if found else "no savepoints")
    return 0, [asdict(one) for one in found]


def roll_back(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Rolls one commit back."""
    undone = calls.roll_back(parsed.table, parsed.instant, parsed.options)
    console.print(f"{parsed.instant} was rolled back by {undone.instant}: {undone.files:,} files")
    return 0, asdict(undone)


def restore(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Restores the table."""
    if not parsed.yes:
        raise InvalidRequest(f"everything that completed after {parsed.instant} would be lost: say --yes")
    undone = calls.restore(parsed.table, parsed.instant, parsed.options)
    console.print(
        f"the table is as of {parsed.instant}: {len(undone.undone):,} instants were undone by {undone.instant}, with "
        f"{undone.files:,} files"
    )
    return 0, asdict(undone)
