"""What several commands share: their outcome, the table that they name, and write options."""

from __future__ import annotations

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
