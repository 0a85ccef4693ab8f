"""Arguments and options that several commands have, and how their values are read."""

from __future__ import annotations

import re
from typing import Any

import click

from lakelatch.console.parser.completion import complete_table

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_TABLE = "a table: its folder, its URL (s3://bucket/flights), or its name in lakelatch.toml"


def table() -> click.Argument:
    """The one table that a command is about."""
    return click.Argument(["table"], metavar="TABLE", shell_complete=complete_table, help=_TABLE)


def tables() -> click.Argument:
    """One table or more."""
    return click.Argument(
        ["tables"], metavar="TABLE", nargs=-1, required=True, shell_complete=complete_table, help=_TABLE
    )


def instant(
    text: str = "its requested time, as `lakelatch timeline` shows it", required: bool = True
) -> click.Argument:
    """The requested time of an instant."""
    return click.Argument(["instant"], metavar="INSTANT", required=required, help=text)


def every(text: str, default: str) -> click.Option:
    """`--every TIME`, in seconds."""
    return click.Option(
        ["--every", "every_s"], metavar="TIME", default=default, show_default=True, callback=_seconds, help=text
    )


def cores() -> click.Option:
    """`--cores N` of a local Spark session, or 0 for none."""
    text = "cores of the local Spark session; 0: none, all is done in this process"
    return click.Option(["--cores"], type=click.IntRange(min=0), default=2, show_default=True, help=text)


def duration_s(text: str) -> int:
    """Seconds of `90`, `30s`, `1m`, `2h` or `1d`. Errors: `ValueError`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{text!r} is no time between rounds: write 30s, 1m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def _seconds(ctx: click.Context, param: click.Parameter, value: Any) -> int:
    try:
        return duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
