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
    archive,
    cancel,
    clean,
    cluster,
    compact,
    conflicts,
    locks,
    restoring,
    service,
    timeline,
    torture,
    verify,
)
from lakelatch.console.commands.arguments import read_options
from lakelatch.console.commands.places import with_tables_nearby
from lakelatch.console.demo import command as demo
from lakelatch.errors import LakelatchError

_PIPED_WIDTH = 200  # a file is no screen of 80 columns
_NOBODY_READS = 141  # what shells say of a command that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it did what it was parsed, 1 if not, 2 for a wrong call, 141 if nobody read its output."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            _say("")
    except _NobodyReads:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # what is left in their buffers is written when Python ends
            os.dup2(nowhere, stream.fileno())
        return _NOBODY_READS


class _NobodyReads(Exception):
    """Whoever read the output has had enough, as `head` has. Not every broken pipe: a server's is no such end."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise _NobodyReads


def _say(text: str) -> None:
    """Text to standard output, at once; `_NobodyReads` if it is closed."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise _NobodyReads from None


def _run(arguments: list[str]) -> int:
    parsed = build_parser().parse_args(locks.join_words(arguments))
    # People and programs read different streams: with --json only JSON goes to standard output.
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console = _Console(stderr=parsed.json, highlight=False, width=wide)
    try:
        code, result = parsed.run(parsed, console)
    except LakelatchError as failure:
        error = failure
        if failure.details.get("no_table") and isinstance(getattr(parsed, "table", None), str):
            error = with_tables_nearby(failure, parsed.table, read_options(parsed.option))
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
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument("--json", action="store_true", help="print JSON for programs")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    for command in (
        demo,
        timeline,
        compact,
        cluster,
        clean,
        archive,
        service,
        cancel,
        restoring,
        adopt,
        verify,
        locks,
        conflicts,
        torture,
    ):
        command.add_parsers(subparsers, every)
    return parser


if __name__ == "__main__":
    sys.exit(main())
