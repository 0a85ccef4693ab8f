"""`lakelatch cancel`: calls plans of table services off, ends them, and shows what waits for that."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.commands.arguments import Outcome, open_table, read_options, table_parser
from lakelatch.engine.calls import execute_cancel, open_cancellations, request_cancel
from lakelatch.errors import InvalidRequest
from lakelatch.transactions.base.cancel_requests import CancelRequest

_SHOWN = 2


def add_parsers(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], every: argparse.ArgumentParser
) -> None:
    """`cancel`, and the word that follows it."""
    cancel = subparsers.add_parser("cancel", help="call the plan of a table service off: request, execute, list")
    words = cancel.add_subparsers(required=True, metavar="request|execute|list")
    table = table_parser()
    plan = argparse.ArgumentParser(add_help=False)
    plan.add_argument("instant", help="the plan's requested time, as `lakelatch timeline` shows it")

    asked = words.add_parser("request", parents=[every, table, plan], help="the plan will never commit, for good")
    asked.add_argument(
        "--file-group",
        action="append",
        metavar="PARTITION/FILE_ID",
        help="this part of a clustering alone (without a partition: ./FILE_ID); may be repeated",
    )
    asked.set_defaults(run=request)
    words.add_parser("execute", parents=[every, table, plan], help="end it, and remove what it left").set_defaults(
        run=execute
    )
    words.add_parser("list", parents=[every, table], help="show what was asked for and has not ended").set_defaults(
        run=show
    )


def request(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Asks for it, and says what is asked for by then."""
    options = read_options(parsed.option)
    open_table(parsed.table, options)
    groups = None if parsed.file_group is None else [_file_group(text) for text in parsed.file_group]
    asked = request_cancel(parsed.table, parsed.instant, options, groups)
    if asked is None:
        console.print(f"{parsed.instant} was aborted before: nothing is left to do")
        return 0, {"instant": parsed.instant, "state": "aborted"}
    if asked.whole:
        console.print(f"{asked.action} {asked.instant} will never commit: end it with lakelatch cancel execute")
    else:
        console.print(f"{asked.action} {asked.instant} will leave {len(asked.groups)} file groups alone")
    return 0, {**_to_json(asked), "state": "requested"}


def execute(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Ends the plan."""
    options = read_options(parsed.option)
    open_table(parsed.table, options)
    ended = execute_cancel(parsed.table, parsed.instant, options)
    console.print(f"{parsed.instant} {'has been aborted' if ended else 'was aborted before'}, and its files are gone")
    return 0, {"instant": parsed.instant, "state": "aborted", "now": ended}


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """What waits for its end."""
    options = read_options(parsed.option)
    open_table(parsed.table, options)
    found = open_cancellations(parsed.table, options)
    if not found:
        console.print("no cancellation is open")
        return 0, []
    table = Table(Column("plan", min_width=17, no_wrap=True), "action", "file groups", box=None)
    for one in found:
        shown = ", ".join(f"{partition or '.'}/{file_id}" for partition, file_id in sorted(one.groups)[:_SHOWN])
        more = len(one.groups) - _SHOWN
        part = "all" if one.whole else shown + (f" and {more} more" if more > 0 else "")
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
