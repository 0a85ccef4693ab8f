"""Commands about what a table's writers agree on: its locks, its properties, its log."""

from __future__ import annotations

import click

from lakelatch.console.parser.commands import Command, Group, option, options_of_a_write
from lakelatch.console.parser.completion import complete_provider
from lakelatch.console.parser.types import FILLED, NAMES, PROVIDER
from lakelatch.console.parser.values import table


def commands() -> list[click.Command]:
    """`locks`, `adopt` and `upgrade`."""
    return [
        _locks(),
        Command(
            "adopt",
            "check a table of Java Hudi, and make it writable",
            "adopt:run",
            [
                table(),
                options_of_a_write(),
                option(
                    "--buckets",
                    type=click.IntRange(1, 99_999_999),
                    metavar="N",
                    help="hoodie.bucket.index.num.buckets of its writers, if no rows show it",
                ),
                option(
                    "--hash-field",
                    "hash_fields",
                    type=NAMES,
                    default=(),
                    show_default=False,
                    metavar="FIELDS",
                    help="the fields that they hash, if not the key's",
                ),
                option("--yes", is_flag=True, help="set what has to be set without a question"),
            ],
        ),
        Command(
            "upgrade",
            "let writers commit for others, once no older version writes the table",
            "upgrade:run",
            [
                table(),
                option(
                    "--side-by-side",
                    is_flag=True,
                    help="and show them all at once, which incremental readers of other engines do not know",
                ),
                options_of_a_write(),
            ],
        ),
    ]


def _locks() -> Group:
    return Group(
        "locks",
        "show who holds what; break, move or record locks",
        [
            Command(
                "show",
                "show who holds what, and who is alive: `lakelatch locks TABLE`",
                "locks:show",
                [table(), options_of_a_write()],
            ),
            Command(
                "break",
                "take a lock away; its holder is told first",
                "locks:break_lock",
                [
                    table(),
                    click.Argument(
                        ["key"],
                        type=FILLED,
                        metavar="LOCK",
                        default="table",
                        help="the lock, as `lakelatch locks` shows it (default: table)",
                    ),
                    options_of_a_write(),
                ],
            ),
            Command(
                "migrate",
                "move a live table to other locks",
                "locks:migrate",
                [
                    table(),
                    options_of_a_write(),
                    option(
                        "--from",
                        "old",
                        type=PROVIDER,
                        metavar="PROVIDER",
                        shell_complete=complete_provider,
                        help="the lock provider now (default: the one that the table says)",
                    ),
                    option(
                        "--to",
                        "new",
                        type=PROVIDER,
                        required=True,
                        metavar="PROVIDER",
                        shell_complete=complete_provider,
                        help="the lock provider from then on",
                    ),
                    option(
                        "--from-is-gone",
                        is_flag=True,
                        help="do not ask the old service: it is gone for good, or one of the same kind",
                    ),
                ],
            ),
            Command(
                "record",
                "have the table say where its locks are",
                "locks:record",
                [table(), options_of_a_write()],
            ),
        ],
        by_default="show",
    )
