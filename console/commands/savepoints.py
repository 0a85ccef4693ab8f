"""`lakelatch savepoint`, `rollback` and `restore`."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.engine import calls
from lakelatch.errors import InvalidRequest


def create(call: Invocation, instant: str | None, comment: str) -> Outcome:
    """Makes a savepoint."""
    made = calls.savepoint(call.table, instant, comment, call.options)
    call.console.print(f"savepoint of {made.instant}: {made.files:,} files are kept")
    return 0, asdict(made)


def delete(call: Invocation, instant: str) -> Outcome:
    """Deletes a savepoint."""
    calls.delete_savepoint(call.table, instant, call.options)
    call.console.print(f"the savepoint of {instant} is gone, and cleaners may take its files")
    return 0, {"deleted": instant}


def show(call: Invocation) -> Outcome:
    """Lists savepoints."""
    found = calls.savepoints(call.table, call.options)
    table = Table("commit", "kept since", "files", "by", "comment")
    for one in found:
        table.add_row(one.instant, one.completion, f"{one.files:,}", one.by, one.comment)
    call.console.print(table if found else "no savepoints")
    return 0, [asdict(one) for one in found]


def roll_back(call: Invocation, instant: str) -> Outcome:
    """Rolls one commit back."""
    undone = calls.roll_back(call.table, instant, call.options)
    call.console.print(f"{instant} was rolled back by {undone.instant}: {undone.files:,} files")
    return 0, asdict(undone)


def restore(call: Invocation, instant: str, yes: bool) -> Outcome:
    """Restores the table."""
    if not yes:
        raise InvalidRequest(f"everything that completed after {instant} would be lost: say --yes")
    undone = calls.restore(call.table, instant, call.options)
    call.console.print(
        f"the table is as of {instant}: {len(undone.undone):,} instants were undone by {undone.instant}, with "
        f"{undone.files:,} files"
    )
    return 0, asdict(undone)
