"""Commands that try Lakelatch out, and the one that shells ask."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from lakelatch.console.parser.commands import Command, option, options_of_a_write
from lakelatch.console.parser.completion import SHELLS
from lakelatch.console.parser.types import FILE_TO_MAKE, FOLDER, PLACE, Number
from lakelatch.torture.settings import PROVIDERS, ROLES, TortureSettings


def commands() -> list[click.Command]:
    """`demo` and `torture`."""
    return [_demo(), _torture()]


def completion() -> list[click.Command]:
    """`completion`."""
    shell = click.Argument(["shell"], type=click.Choice(SHELLS), metavar="SHELL", help=", ".join(SHELLS))
    text = "print the script that has a shell complete what is typed"
    return [Command("completion", text, "completion:run", [shell], json=False)]


def _demo() -> Command:
    return Command(
        "demo",
        "several Spark jobs write one table of real flights",
        "demo:run",
        [
            options_of_a_write(),
            option("--mode", type=click.Choice(["nbcc", "occ"]), help="concurrency control (default: nbcc)"),
            option(
                "--folder",
                type=FOLDER,
                default="demo-out",
                metavar="FOLDER",
                help="where to put the table and the drawings",
            ),
            option("--table", "place", type=PLACE, metavar="URI", help="put the table there, as s3://bucket/flights"),
            _number("--commits", 2, "commits of each feed (default: 6)"),
            _number("--buckets", 1, "buckets of each partition", default=2),
            _number("--rows", 1000, "use the first so many flights only"),
            option(
                "--services",
                is_flag=True,
                help="the table keeps itself: compaction, clustering, a cancel, clean, archive",
            ),
            _number("--writers", 2, "instead, so many writers without Spark commit ten rows at a time to one table"),
            _number(
                "--tables",
                2,
                "instead, move flights and aggregates in transactions over so many tables",
                "table_count",
            ),
            option(
                "--seconds",
                type=Number(1, 86_400),
                metavar="S",
                help="how long small writers write (default: 10)",
            ),
        ],
    )


def _torture() -> Command:
    known = TortureSettings()
    return Command(
        "torture",
        "break all around a table that is written, and check what came of it",
        "torture:torture_table",
        [
            option(
                "--provider",
                "provider",
                multiple=True,
                metavar="NAME",
                shell_complete=_complete_provider,
                help=f"lock provider, several with commas, or all: {', '.join(PROVIDERS)} (default: filesystem)",
            ),
            option(
                "--minutes", type=float, metavar="M", help=f"of faults on each provider (default: {known.minutes:g})"
            ),
            option(
                "--folder", type=FOLDER, default="torture-out", metavar="FOLDER", help="where tables and histories go"
            ),
            option("--resume", is_flag=True, help="go on with the run in the folder"),
            option("--report", type=FILE_TO_MAKE, metavar="FILE", help="draw what happened, as one HTML file"),
            option(
                "--ledger",
                type=FILE_TO_MAKE,
                metavar="FILE",
                help="add each round to this file, and say how far all runs in it are from what is owed",
            ),
            option("--keep", is_flag=True, help="keep the tables of rounds that went well, too"),
            option("--seed", type=int, default=known.seed, metavar="N", help="what is drawn first"),
            option("--round-s", type=float, default=known.round_s, metavar="S", help="the length of a round"),
            option("--lease-s", type=float, default=known.lease_s, metavar="S", help="the length of a lease"),
            option("--pace-s", type=float, default=known.pace_s, metavar="S", help="mean time between two faults"),
            option(
                "--tables",
                "table_count",
                type=int,
                default=known.tables,
                metavar="N",
                help="transactions over N tables as well",
            ),
            option("--store", default=known.store, metavar="NAME", help="s3: tables in an object store"),
            *(
                option(f"--{name}", type=int, default=getattr(known, name), metavar="N", help="clients of this kind")
                for name in ROLES.values()
            ),
        ],
    )


def _number(name: str, least: int, text: str, *dest: str, default: int | None = None) -> click.Option:
    return option(name, *dest, type=click.IntRange(min=least), metavar="N", default=default, help=text)


def _complete_provider(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    before, comma, begun = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in (*PROVIDERS, "all") if name.startswith(begun)]
