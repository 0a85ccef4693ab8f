"""Parts shared by commands: adding them to the parser, their outcome, and the table that they name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

from rich.console import Console

from lakelatch.engine.options.registry import Call
from lakelatch.engine.table.opening import load_config
from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage

Outcome: TypeAlias = tuple[int, Any]
"""A command's exit code, and the JSON form of its result."""

Run: TypeAlias = Callable[[argparse.Namespace, Console], Outcome]
"""A command: it gets the parsed arguments, with the write options of `-o` as `options`."""


class Commands:
    """The commands below a parser."""

    def __init__(self, parser: argparse.ArgumentParser, metavar: str = "COMMAND") -> None:
        self._subparsers = parser.add_subparsers(required=True, metavar=metavar)

    def add(self, name: str, run: Run, text: str, of_table: bool = True) -> argparse.ArgumentParser:
        """A command with `--json`; one `of_table` names a table, and takes `-o KEY=VALUE`."""
        parser = self._subparsers.add_parser(name, help=text)
        parser.add_argument("--json", action="store_true", help="print JSON for programs")
        if of_table:
            parser.add_argument("table", help="the table's folder or URI")
            add_option(parser)
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, text: str, metavar: str = "COMMAND") -> Commands:
        """A word that further commands follow."""
        return Commands(self._subparsers.add_parser(name, help=text), metavar)


def add_option(parser: argparse.ArgumentParser) -> None:
    """`-o KEY=VALUE`, any number of times; `read_options` reads them."""
    parser.add_argument(
        "--option", "-o", action="append", default=[], metavar="KEY=VALUE", help="an option, as of a write"
    )


def open_table(parsed: argparse.Namespace) -> Storage:
    """The storage of the table that a command names; `InvalidRequest` if there is no table."""
    storage = open_storage(parsed.table, StorageOptions.from_options(parsed.options))
    load_config(storage)
    return storage


def read_options(pairs: list[str]) -> dict[str, str]:
    """Write options from `KEY=VALUE` pairs."""
    values: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"--option {pair!r}: write KEY=VALUE")
        values[key] = value
    return dict(Call(values))


def check_least(parsed: argparse.Namespace, **least: int) -> None:
    """`InvalidRequest` for a number that is too small for its command; one that was left out is not checked."""
    for name, smallest in least.items():
        value = getattr(parsed, name)
        if value is not None and value < smallest:
            raise InvalidRequest(f"--{name} {value} is too small: use at least {smallest}")


def and_more(shown: list[str], count: int) -> str:
    """A list of names, and how many of `count` are not in it."""
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
