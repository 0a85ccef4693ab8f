"""The `lakelatch` command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

try:
    from rich.console import Console
except ModuleNotFoundError:
    sys.exit("the lakelatch command needs rich: pip install 'lakelatch[console]'")

from lakelatch.console.commands import (
    adopt,
    cancel,
    conflicts,
    demo,
    doctor,
    locks,
    savepoints,
    service,
    services,
    timeline,
    torture,
    ui,
    upgrade,
    verify,
)
from lakelatch.console.commands.arguments import Commands, read_options
from lakelatch.console.commands.places import with_tables_nearby
from lakelatch.errors import LakelatchError
from lakelatch.progress import told_to

_PIPED_WIDTH = 200  # columns of output that is not a terminal
_CLOSED_PIPE = 141  # the exit code that shells give a command that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it succeeded, 1 if not, 2 for a wrong call, 141 if its output was closed."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            _say("")
    except _OutputClosed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # what is left in their buffers is written when Python ends
            os.dup2(nowhere, stream.fileno())
        return _CLOSED_PIPE


class _OutputClosed(Exception):
    """The reader has closed the output, as `head` does. Other broken pipes, as of a server, are errors."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise _OutputClosed


def _say(text: str) -> None:
    """Writes text to standard output and flushes it; `_OutputClosed` if it is closed."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise _OutputClosed from None


def _run(arguments: list[str]) -> int:
    parsed = build_parser().parse_args(locks.join_words(arguments))
    # People and programs read different streams: with --json only JSON goes to standard output.
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console = _Console(stderr=parsed.json, highlight=False, width=wide)
    try:
        parsed.options = read_options(getattr(parsed, "option", []))
        with told_to(None):  # commands show their own
            code, result = parsed.run(parsed, console)
    except LakelatchError as failure:
        error = failure
        if failure.details.get("no_table") and isinstance(getattr(parsed, "table", None), str):
            error = with_tables_nearby(failure, parsed.table, parsed.options)
        if parsed.json:
            _say(json.dumps({"error": error.code, "message": error.message}) + "\n")
        _Console(stderr=True, highlight=False, markup=False).print(str(error), soft_wrap=True)
        return 1
    if parsed.json:
        _say(json.dumps(result, indent=2, default=str) + "\n")
    return int(code)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(prog="lakelatch", description="Multi-writer coordination for lakehouse tables.")
    parser.add_argument("--version", action="version", version=f"lakelatch {version('lakelatch')}")
    commands = Commands(parser)
    for module in (
        demo,
        timeline,
        ui,
        services,
        service,
        cancel,
        savepoints,
        adopt,
        upgrade,
        verify,
        doctor,
        locks,
        conflicts,
        torture,
    ):
        module.add_parsers(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
