"""Arguments and options that several commands have."""

from __future__ import annotations

import click

from lakelatch.console.parser.completion import complete_table
from lakelatch.console.parser.types import INSTANT, PLACE, duration

_DAYS_30_S = 30 * 86_400
_TABLE = "a table: its folder, its URL (s3://bucket/flights), or its name in lakelatch.toml"


def table() -> click.Argument:
    """The one table that a command is about."""
    return click.Argument(["table"], type=PLACE, metavar="TABLE", shell_complete=complete_table, help=_TABLE)


def tables() -> click.Argument:
    """One table or more."""
    return click.Argument(
        ["tables"], type=PLACE, metavar="TABLE", nargs=-1, required=True, shell_complete=complete_table, help=_TABLE
    )


def instant(
    text: str = "its requested time, as `lakelatch timeline` shows it", required: bool = True
) -> click.Argument:
    """The requested time of an instant."""
    return click.Argument(["instant"], type=INSTANT, metavar="INSTANT", required=required, help=text)


def every(text: str, default: str, most_s: int = _DAYS_30_S) -> click.Option:
    """`--every TIME`, in seconds."""
    time = duration(most_s)
    return click.Option(
        ["--every", "every_s"], type=time, metavar="TIME", default=default, show_default=True, help=text
    )


def cores() -> click.Option:
    """`--cores N` of a local Spark session, or 0 for none."""
    text = "cores of the local Spark session; 0: none, all is done in this process"
    return click.Option(["--cores"], type=click.IntRange(min=0), default=2, show_default=True, help=text)
