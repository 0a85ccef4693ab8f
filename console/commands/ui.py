"""`lakelatch ui`: tables on a page that moves."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, add_option
from lakelatch.console.commands.places import with_tables_nearby
from lakelatch.console.commands.service_loop import parse_duration
from lakelatch.errors import InvalidRequest, LakelatchError

_PORT = 8370


def add_parsers(commands: Commands) -> None:
    """`ui`."""
    page = commands.add("ui", show, "show tables on a page that moves, in your browser", of_table=False)
    page.add_argument("tables", nargs="+", metavar="TABLE", help="a table's folder or URI")
    page.add_argument("--port", type=int, default=_PORT, help=f"0: any that is free (default: {_PORT})")
    page.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    page.add_argument("--every", default="1s", metavar="TIME", help="time between two looks at a table (default: 1s)")
    page.add_argument(
        "--allow-actions", action="store_true", help="let the page run services, call plans off, break locks"
    )
    page.add_argument("--open", action="store_true", help="open it in the browser of this machine")
    add_option(page)


def show(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Serves the page until SIGINT or SIGTERM."""
    try:
        from lakelatch.ui.server import PageSettings, serve
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"the page needs {error.name}: pip install 'lakelatch[ui]'") from None
    settings = PageSettings(
        tables=parsed.tables,
        options=parsed.options,
        host=parsed.host,
        port=parsed.port,
        every_s=parse_duration(parsed.every),
        allow_actions=parsed.allow_actions,
    )
    url = ""

    def started(where: str, _: Callable[[], None]) -> None:
        nonlocal url
        url = where
        console.print(f"open {where}", soft_wrap=True, markup=False)
        console.print("who has this URL sees the page; Ctrl-C ends it", markup=False)
        if parsed.open:
            import webbrowser

            webbrowser.open(where)

    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    try:
        serve(settings, started)
    except LakelatchError as error:
        if error.details.get("no_table"):
            raise with_tables_nearby(error, _named(error, parsed.tables), parsed.options) from error
        raise
    return 0, {"url": url.partition("?")[0]}


def _named(error: LakelatchError, tables: list[str]) -> str:
    return next((path for path in tables if path in error.message), tables[0])
