"""`lakelatch timeline`: a table's instants, as a list and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.commands.arguments import Commands, Outcome, and_more, check_least, open_table
from lakelatch.console.timelines.entries import timeline_entries
from lakelatch.console.timelines.picture import draw_picture
from lakelatch.console.timelines.text import check_picture, draw_terminal, ensure_can_draw
from lakelatch.console.timelines.undone import undone_writes
from lakelatch.errors import InvalidRequest
from lakelatch.transactions.conflicts.report import recent_losses
from lakelatch.ui.entries import Entry
from lakelatch.ui.trace import write_trace

_SHOWN = 50
_UNDONE_SHOWN = 3


def add_parsers(commands: Commands) -> None:
    """`timeline`."""
    timeline = commands.add("timeline", show, "show a table's timeline")
    timeline.add_argument("--draw", metavar="FILE", help="write a picture as well (.svg, .png, .pdf)")
    timeline.add_argument("--trace", metavar="FILE", help="write a trace for ui.perfetto.dev as well (.json)")
    timeline.add_argument("--limit", type=int, help="show the last so many instants (default: 50, with --json all)")


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Shows the last instants, in the order in which they were requested."""
    check_least(parsed, limit=1)
    problem: InvalidRequest | None = None
    if parsed.draw:
        check_picture(Path(parsed.draw))
        try:
            ensure_can_draw(Path(parsed.draw))
        except InvalidRequest as missing:
            if parsed.json:
                raise
            problem = missing
    storage = open_table(parsed)
    entries = timeline_entries(storage)
    if parsed.trace:
        write_trace(Path(parsed.trace), storage.uri, entries, recent_losses(storage))
        console.print(f"traced in {parsed.trace}: open it with ui.perfetto.dev", markup=False)
    limit = parsed.limit or (len(entries) if parsed.json else _SHOWN)
    shown = entries[-limit:]
    if not parsed.json:
        times = [Column(name, min_width=17, no_wrap=True) for name in ("requested", "completed")]
        table = Table(*times, "action", "operation", "writer", "rows", "files", box=None)
        for entry in shown:
            completed = entry.completion or f"[yellow]{entry.shown_state}[/yellow]"
            rows, files = f"{entry.rows:,}", str(entry.files or entry.file_groups)
            done = entry.operation or _undone(entry)
            table.add_row(entry.requested, completed, entry.action, done, escape(entry.writer), rows, files)
        console.print(table)
        console.print()
        console.print(draw_terminal(shown, console.width))
        if len(shown) < len(entries):
            console.print(f"{len(entries) - len(shown)} earlier instants are not shown (--limit)")
    if problem is not None:  # the text was printed already
        raise problem
    if parsed.draw:
        if not shown:
            raise InvalidRequest(f"--draw {parsed.draw}: the timeline of {storage.uri} is empty")
        draw_picture(shown, Path(parsed.draw), f"Timeline of {storage.uri}", undone_writes(storage))
        console.print(f"drawn in {parsed.draw}", markup=False)
    return 0, [entry.to_json() for entry in shown]


def _undone(entry: Entry) -> str:
    """The instants that a rollback or restore undid, as text."""
    names = and_more(list(entry.undone[:_UNDONE_SHOWN]), len(entry.undone))
    return f"of {escape(names)}" if names else ""
