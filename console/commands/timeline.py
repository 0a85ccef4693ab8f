"""`lakelatch timeline`: a table's instants, as a list and drawn."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.base.invocation import Invocation, Outcome, and_more
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


def show(call: Invocation, draw: str | None, trace: str | None, limit: int | None) -> Outcome:
    """Shows the last instants, in the order in which they were requested."""
    problem: InvalidRequest | None = None
    if draw:
        check_picture(Path(draw))
        try:
            ensure_can_draw(Path(draw))
        except InvalidRequest as missing:
            if call.json:
                raise
            problem = missing
    storage = call.open_table()
    entries = timeline_entries(storage)
    if trace:
        write_trace(Path(trace), storage.uri, entries, recent_losses(storage))
        call.console.print(f"traced in {trace}: open it with ui.perfetto.dev", markup=False)
    count = limit or (len(entries) if call.json else _SHOWN)
    shown = entries[-count:]
    if not call.json:
        times = [Column(name, min_width=17, no_wrap=True) for name in ("requested", "completed")]
        table = Table(*times, "action", "operation", "writer", "rows", "files", box=None)
        for entry in shown:
            completed = entry.completion or f"[yellow]{entry.shown_state}[/yellow]"
            rows, files = f"{entry.rows:,}", str(entry.files or entry.file_groups)
            done = entry.operation or _undone(entry)
            table.add_row(entry.requested, completed, entry.action, done, escape(entry.writer), rows, files)
        call.console.print(table)
        call.console.print()
        call.console.print(draw_terminal(shown, call.console.width))
        if len(shown) < len(entries):
            call.console.print(f"{len(entries) - len(shown)} earlier instants are not shown (--limit)")
    if problem is not None:  # the text was printed already
        raise problem
    if draw:
        if not shown:
            raise InvalidRequest(f"--draw {draw}: the timeline of {storage.uri} is empty")
        draw_picture(shown, Path(draw), f"Timeline of {storage.uri}", undone_writes(storage))
        call.console.print(f"drawn in {draw}", markup=False)
    return 0, [entry.to_json() for entry in shown]


def _undone(entry: Entry) -> str:
    """The instants that a rollback or restore undid, as text."""
    names = and_more(list(entry.undone[:_UNDONE_SHOWN]), len(entry.undone))
    return f"of {escape(names)}" if names else ""
