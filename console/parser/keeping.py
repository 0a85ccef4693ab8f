"""Commands that keep tables: their services."""

from __future__ import annotations

import click

from lakelatch.console.parser.commands import Command, Group, option, options_of_a_write
from lakelatch.console.parser.types import FILE_GROUP, NAMES
from lakelatch.console.parser.values import cores, every, instant, table, tables


def commands() -> list[click.Command]:
    """`service`, `compact`, `cluster`, `clean`, `archive` and `cancel`."""
    run = Command(
        "run",
        "do what is due for tables, again and again",
        "maintenance.service:run_loop",
        [
            tables(),
            options_of_a_write(),
            every("time between two rounds of a table", "1m"),
            option("--once", is_flag=True, help="one round of each table; 1 if something failed"),
            cores(),
        ],
    )
    return [
        Group("service", "keep tables: all of their services, round after round", [run]),
        Command(
            "compact",
            "carry out waiting compactions, and another one",
            "maintenance.services:compact",
            [table(), options_of_a_write(), cores()],
        ),
        Command(
            "cluster",
            "sort the rows of each file group by columns",
            "maintenance.services:cluster",
            [
                table(),
                options_of_a_write(),
                option("--by", type=NAMES, metavar="COLUMN,...", help="columns to sort by (default: record key)"),
                option(
                    "--layout",
                    type=click.Choice(["linear", "z-order", "hilbert"], case_sensitive=False),
                    help="how they are sorted (default: linear)",
                ),
                cores(),
            ],
        ),
        Command(
            "clean",
            "remove files that no reader within retention needs",
            "maintenance.services:clean",
            [
                table(),
                options_of_a_write(),
                option("--dry-run", is_flag=True, help="only say which files would go"),
            ],
        ),
        Command(
            "archive",
            "move old instants into the table's history",
            "maintenance.services:archive",
            [table(), options_of_a_write()],
        ),
        _cancel(),
    ]


def _cancel() -> Group:
    groups = option(
        "--file-group",
        "file_groups",
        multiple=True,
        type=FILE_GROUP,
        metavar="PARTITION/FILE_ID",
        help="this part of a clustering alone (without a partition: ./FILE_ID); may be repeated",
    )
    return Group(
        "cancel",
        "cancel the plan of a table service",
        [
            Command(
                "request",
                "the plan will never commit, for good",
                "maintenance.cancel:request",
                [table(), instant(), options_of_a_write(), groups],
            ),
            Command(
                "execute",
                "end it, and remove what it left",
                "maintenance.cancel:execute",
                [table(), instant(), options_of_a_write()],
            ),
            Command(
                "list",
                "show what was asked for and has not ended",
                "maintenance.cancel:show",
                [table(), options_of_a_write()],
            ),
        ],
    )
