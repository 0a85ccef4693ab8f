"""`lakelatch cancel`: cancels plans of table services, ends them, and shows which have not ended."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.base.invocation import Invocation, Outcome, and_more
from lakelatch.engine.calls import execute_cancel, open_cancellations, request_cancel
from lakelatch.transactions.base.cancel_requests import CancelRequest

_SHOWN = 2


def request(call: Invocation, instant: str, file_groups: tuple[tuple[str, str], ...]) -> Outcome:
    """Requests a cancellation, and says what is requested by now."""
    call.open_table()
    asked = request_cancel(call.table, instant, call.options, file_groups or None)
    if asked is None:
        call.console.print(f"{instant} was aborted before: nothing is left to do")
        return 0, {"instant": instant, "state": "aborted"}
    if asked.whole:
        call.console.print(f"{asked.action} {asked.instant} will never commit: end it with lakelatch cancel execute")
    else:
        call.console.print(f"{asked.action} {asked.instant} will leave {len(asked.groups)} file groups alone")
    return 0, {**_to_json(asked), "state": "requested"}


def execute(call: Invocation, instant: str) -> Outcome:
    """Ends a cancelled plan."""
    call.open_table()
    ended = execute_cancel(call.table, instant, call.options)
    call.console.print(f"{instant} {'has been aborted' if ended else 'was aborted before'}, and its files are gone")
    return 0, {"instant": instant, "state": "aborted", "now": ended}


def show(call: Invocation) -> Outcome:
    """Shows the cancellations that have not ended."""
    call.open_table()
    found = open_cancellations(call.table, call.options)
    if not found:
        call.console.print("no cancellation is open")
        return 0, []
    table = Table(Column("plan", min_width=17, no_wrap=True), "action", "file groups", box=None)
    for one in found:
        shown = [f"{partition or '.'}/{file_id}" for partition, file_id in sorted(one.groups)[:_SHOWN]]
        part = "all" if one.whole else and_more(shown, len(one.groups))
        table.add_row(one.instant, one.action, escape(part))
    call.console.print(table)
    return 0, [_to_json(one) for one in found]


def _to_json(asked: CancelRequest) -> dict[str, object]:
    return {
        "instant": asked.instant,
        "action": asked.action,
        "file_groups": None if asked.whole else [list(group) for group in sorted(asked.groups)],
    }
