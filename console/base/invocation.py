"""What each command is given: the table that it names, its options, and where it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rich.console import Console

from lakelatch.engine.table.opening import load_config
from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage

Outcome: TypeAlias = tuple[int, Any]
"""A command's exit code, and the JSON form of its result."""


@dataclass(frozen=True)
class NamedTable:
    """A table of a call: its path or URL, and the options of a write to it."""

    path: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Invocation:
    """One call of a command. `options` are as of a write, and may hold secrets.

    `console` takes the result as text, `notes` what is said on the way. `progress` says whether a terminal looks on.
    """

    console: Console
    notes: Console
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    tables: tuple[NamedTable, ...] = ()
    json: bool = False
    quiet: bool = False
    progress: bool = False

    @property
    def table(self) -> str:
        """The path or URL of the one table that is named."""
        return self.tables[0].path

    def all_options(self) -> Iterator[Mapping[str, str]]:
        """The options of the call, and those of each of its tables."""
        yield self.options
        yield from (table.options for table in self.tables)

    def open_table(self) -> Storage:
        """The storage of the one table that is named; `InvalidRequest` if there is no table."""
        storage = open_storage(self.table, StorageOptions.from_options(self.options))
        load_config(storage)
        return storage

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        """Shows on the terminal, if one looks on, what is being done; what is yielded changes the text."""
        if not self.progress:
            yield lambda _: None
            return
        with Console(stderr=True, highlight=False).status(text) as shown:
            yield shown.update


def and_more(shown: list[str], count: int) -> str:
    """A list of names, and how many of `count` are not in it."""
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
