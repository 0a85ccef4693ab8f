"""What several commands share: their outcome, the table that they name, and its options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from lakelatch.engine.options.registry import Call
from lakelatch.engine.table.opening import load_config
from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage

Outcome = tuple[int, Any]
"""A command's exit code, and the JSON form of its result."""


def table_parser() -> argparse.ArgumentParser:
    """A parent of each command on one table: its place, and the options that say how it is reached and worked on."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("table", help="the table's folder or URI")
    add_option(parser)
    return parser


def add_option(parser: argparse.ArgumentParser) -> None:
    """`-o KEY=VALUE`, any number of times; `read_options` reads them."""
    parser.add_argument(
        "--option", "-o", action="append", default=[], metavar="KEY=VALUE", help="an option, as of a write"
    )


def open_table(path: str, options: Mapping[str, str]) -> Storage:
    """The storage of a table; `InvalidRequest` if there is none. `options` say how its place is reached."""
    storage = open_storage(path, StorageOptions.from_options(options))
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
    """`InvalidRequest` for a number that is smaller than its command can use; one that was left out is none."""
    for name, smallest in least.items():
        value = getattr(parsed, name)
        if value is not None and value < smallest:
            raise InvalidRequest(f"--{name} {value} is too small: use at least {smallest}")
