"""What several commands share: their outcome, the table that they name, and write options."""

from __future__ import annotations

import argparse
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.spark.options import normalise
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.table_config import load_table_config

Outcome = tuple[int, Any]
"""A command's exit code, and the JSON form of its result."""


def open_table(path: str) -> Storage:
    """The storage of a table; `InvalidRequest` if there is none."""
    storage = open_storage(path)
    load_table_config(storage)
    return storage


def read_options(pairs: list[str]) -> dict[str, str]:
    """Write options from `KEY=VALUE` pairs."""
    values: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"--option {pair!r}: write KEY=VALUE")
        values[key] = value
    return normalise(values)


def check_least(parsed: argparse.Namespace, **least: int) -> None:
    """`InvalidRequest` for a number that is smaller than its command can use; one that was left out is none."""
    for name, smallest in least.items():
        value = getattr(parsed, name)
        if value is not None and value < smallest:
            raise InvalidRequest(f"--{name} {value} is too small: use at least {smallest}")
