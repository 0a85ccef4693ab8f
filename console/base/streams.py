"""What commands print to: people and programs read different streams, and no secret gets into either."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

_PIPED_WIDTH = 200  # columns of output that is not a terminal


class OutputClosed(Exception):
    """The reader has closed the output, as `head` does. Other broken pipes, as of a server, are errors."""


class People(Console):
    """Text for people, on standard output, or on standard error where standard output is for a program."""

    def __init__(
        self, hide: Callable[[str], str], to_errors: bool, quiet: bool = False, width: int | None = None
    ) -> None:
        stream = sys.stderr if to_errors else sys.stdout
        self._hide = hide
        known = stream.isatty() or "COLUMNS" in os.environ
        super().__init__(stderr=to_errors, highlight=False, quiet=quiet, width=None if known else _PIPED_WIDTH)

    def on_broken_pipe(self) -> NoReturn:
        raise OutputClosed

    def render_str(self, text: str, **more: Any) -> Text:
        """Before it is wrapped: cells of tables come here as well."""
        return super().render_str(self._hide(text), **more)


def say(text: str) -> None:
    """Writes text to standard output and flushes it; `OutputClosed` if it is closed."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise OutputClosed from None


def say_json(value: Any, indent: int | None = None) -> None:
    """Writes a value as JSON to standard output."""
    say(json.dumps(value, indent=indent, default=str) + "\n")


def complain(text: str) -> None:
    """Writes one line to standard error, as it is."""
    People(str, to_errors=True).print(text, soft_wrap=True, markup=False)


def point_nowhere() -> None:
    """What is left in the buffers is written when Python ends, and to nobody."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
