"""Commands that look at tables, and change nothing."""

from __future__ import annotations

import click

from lakelatch.console.parser.commands import Command, option, options_of_a_write
from lakelatch.console.parser.types import FILE, FILLED, PORT, Number, file_named
from lakelatch.console.parser.values import every, table, tables

_PORT = 8370


def commands() -> list[click.Command]:
    """`timeline`, `ui`, `conflicts`, `doctor` and `verify`."""
    return [
        Command(
            "timeline",
            "show a table's timeline",
            "timeline:show",
            [
                table(),
                options_of_a_write(),
                option(
                    "--draw",
                    type=file_named(".svg", ".png", ".pdf"),
                    metavar="FILE",
                    help="write a picture as well (.svg, .png, .pdf)",
                ),
                option("--trace", type=FILE, metavar="FILE", help="write a trace for ui.perfetto.dev as well (.json)"),
                _limit("show the last so many instants (default: 50, with --json all)"),
            ],
        ),
        Command(
            "ui",
            "show tables on a page that moves, in your browser",
            "ui:show",
            [
                tables(),
                options_of_a_write(),
                option("--port", type=PORT, default=_PORT, help="where it listens; 0: any that is free"),
                option("--host", type=FILLED, metavar="HOST", default="127.0.0.1", help="the address to listen on"),
                every("time between two looks at a table", "1s", most_s=3600),
                option("--allow-actions", is_flag=True, help="let the page run services, call plans off, break locks"),
                option("--open", is_flag=True, help="open it in the browser of this machine"),
            ],
        ),
        Command(
            "conflicts",
            "show which writes have lost lately, and to which writes",
            "conflicts:show",
            [table(), options_of_a_write(), _limit("show the last so many (default: all that are kept)")],
        ),
        Command(
            "doctor",
            "find what is set up wrong, due, or in the way, and what mends it",
            "doctor:run",
            [
                table(),
                options_of_a_write(),
                option(
                    "--timeout",
                    "timeout_s",
                    type=Number(1, 86_400),
                    default=60.0,
                    metavar="SECONDS",
                    help="what one check may take",
                ),
            ],
        ),
        Command(
            "verify",
            "look for files that are missing, damaged or superfluous",
            "verify:run",
            [
                table(),
                options_of_a_write(),
                option("--deep", is_flag=True, help="read all data files, and compare their checksums"),
            ],
        ),
    ]


def _limit(text: str) -> click.Option:
    return option("--limit", type=click.IntRange(min=1), metavar="N", help=text)
