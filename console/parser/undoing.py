"""Commands that go back: savepoints, and what undoes commits."""

from __future__ import annotations

import click

from lakelatch.console.parser.commands import Command, Group, option, options_of_a_write
from lakelatch.console.parser.values import instant, table


def commands() -> list[click.Command]:
    """`savepoint`, `rollback` and `restore`."""
    return [
        Group(
            "savepoint",
            "keep a commit, to which the table can be restored",
            [
                Command(
                    "create",
                    "keep the table as of a commit",
                    "savepoints:create",
                    [
                        table(),
                        instant("the commit's requested time (default: the last one completed)", required=False),
                        options_of_a_write(),
                        option("--comment", default="", metavar="TEXT", help="what it is for"),
                    ],
                ),
                Command(
                    "delete",
                    "let cleaners take its files",
                    "savepoints:delete",
                    [table(), instant("the commit's requested time"), options_of_a_write()],
                ),
                Command(
                    "list",
                    "show the table's savepoints",
                    "savepoints:show",
                    [table(), options_of_a_write()],
                ),
            ],
        ),
        Command(
            "rollback",
            "undo a completed commit",
            "savepoints:roll_back",
            [table(), instant("the commit's requested time"), options_of_a_write()],
        ),
        Command(
            "restore",
            "bring the table back to a commit",
            "savepoints:restore",
            [
                table(),
                instant("the requested time of the commit that is to be the last one, or savepoint"),
                options_of_a_write(),
                option("--yes", is_flag=True, help="do it: everything that completed later is lost"),
            ],
        ),
    ]
