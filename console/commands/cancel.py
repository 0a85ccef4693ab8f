"""`lakelatch cancel`: cancels plans of table services, ends them, and shows which have not ended."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.commands.arguments import Commands, Outcome, and_more, open_table
from lakelatch.engine.calls import execute_cancel, open_cancellations, request_cancel
from lakelatch.errors import InvalidRequest
from lakelatch.transactions.base.cancel_requests import CancelRequest

_SHOWN = 2


def add_parsers(commands: Commands) -> None:
    """`cancel`, and the words that follow it."""
    words = commands.group("cancel", "cancel the plan of a table service", "request|execute|list")
    asked = words.add("request", request, "the plan will never commit, for good")
    ended = words.add("execute", execute, "end it, and remove what it left")
    for one in (asked, ended):
        one.add_argument("instant", help="the plan's requested time, as `lakelatch timeline` shows it")
    asked.add_argument(
        "--file-group",
        action="append",
        metavar="PARTITION/FILE_ID",
        help="this part of a clustering alone (without a partition: ./FILE_ID); may be repeated",
    )
    words.add("list", show, "show what was asked for and has not ended")


def request(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Requests a cancellation, and says what is requested by now."""
    open_table(parsed)
    groups = None if parsed.file_group is None else [_file_group(text) for text in parsed.file_group]
    asked = request_cancel(parsed.table, parsed.instant, parsed.options, groups)
    if asked is None:
        console.print(f"{parsed.instant} was aborted before: nothing is left to do")
        return 0, {"instant": parsed.instant, "state": "aborted"}
    if asked.whole:
        console.print(f"{asked.action} {asked.instant} will never commit: end it with lakelatch cancel execute")
    else:
        console.print(f"{asked.action} {asked.instant} will leave {len(asked.groups)} file groups alone")
    return 0, {**_to_json(asked), "state": "requested"}


def execute(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Ends a cancelled plan."""
    open_table(parsed)
    ended = execute_cancel(parsed.table, parsed.instant, parsed.options)
    console.print(f"{parsed.instant} {'has been aborted' if ended else 'was aborted before'}, and its files are gone")
    return 0, {"instant": parsed.instant, "state": "aborted", "now": ended}


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Shows the cancellations that have not ended."""
    open_table(parsed)
    found = open_cancellations(parsed.table, parsed.options)
    if not found:
        console.print("no cancellation is open")
        return 0, []
    table = Table(Column("plan", min_width=17, no_wrap=True), "action", "file groups", box=None)
    for one in found:
        shown = [f"{partition or '.'}/{file_id}" for partition, file_id in sorted(one.groups)[:_SHOWN]]
        part = "all" if one.whole else and_more(shown, len(one.groups))
        table.add_row(one.instant, one.action, escape(part))
    console.print(table)
    return 0, [_to_json(one) for one in found]


def _file_group(text: str) -> tuple[str, str]:
    partition, slash, file_id = text.rpartition("/")
    if not slash or not file_id:
        raise InvalidRequest(
            f"--file-group {text!r}: write PARTITION/FILE_ID, or ./FILE_ID where there are no partitions"
        )
    return ("" if partition == "." else partition), file_id


def _to_json(asked: CancelRequest) -> dict[str, object]:
    return {
        "instant": asked.instant,
        "action": asked.action,
        "file_groups": None if asked.whole else [list(group) for group in sorted(asked.groups)],
    }
