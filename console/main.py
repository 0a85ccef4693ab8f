"""The `lakelatch` command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from lakelatch.console import commands, conflict_commands, lock_commands, torture_commands
from lakelatch.errors import LakelatchError

_PIPED_WIDTH = 200  # a file is no screen of 80 columns


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it did what it was asked, 1 if not, 2 for a wrong call."""
    parser = build_parser()
    asked = parser.parse_args(lock_commands.join_words(list(sys.argv[1:] if arguments is None else arguments)))
    # People and programs read different streams: with --json only JSON goes to standard output.
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console = Console(stderr=asked.json, highlight=False, width=wide)
    try:
        code, result = asked.run(asked, console)
    except LakelatchError as error:
        if asked.json:
            print(json.dumps({"error": error.code, "message": error.message}))
        Console(stderr=True, highlight=False, markup=False).print(str(error), soft_wrap=True)
        return 1
    if asked.json:
        print(json.dumps(result, indent=2, default=str))
    return int(code)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(prog="lakelatch", description="Multi-writer coordination for lakehouse tables.")
    parser.add_argument("--version", action="version", version=commands.version_text())
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument("--json", action="store_true", help="print JSON for programs")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = subparsers.add_parser("demo", parents=[every], help="several Spark jobs write one table of real flights")
    demo.add_argument("--mode", choices=("nbcc", "occ"), default="nbcc", help="concurrency control (default: nbcc)")
    demo.add_argument("--folder", default="demo-out", help="where to put the table and the drawings")
    demo.add_argument("--commits", type=int, default=6, help="commits of each feed (default: 6)")
    demo.add_argument("--buckets", type=int, default=2, help="buckets of each partition (default: 2)")
    demo.add_argument("--rows", type=int, default=None, help="use the first so many flights only")
    demo.add_argument("--option", "-o", action="append", default=[], metavar="KEY=VALUE", help="a write option more")
    demo.set_defaults(run=commands.demo)

    timeline = subparsers.add_parser("timeline", parents=[every], help="show a table's timeline")
    timeline.add_argument("table", help="the table's folder or URI")
    timeline.add_argument("--draw", metavar="FILE", help="write a picture as well (.svg, .png)")
    timeline.add_argument("--limit", type=int, help="show the last so many instants (default: 50, with --json all)")
    timeline.set_defaults(run=commands.timeline)

    compact = subparsers.add_parser("compact", parents=[every], help="carry out waiting compactions, and another one")
    compact.add_argument("table", help="the table's folder or URI")
    compact.add_argument("--option", "-o", action="append", default=[], metavar="KEY=VALUE", help="a write option")
    compact.add_argument("--cores", type=int, default=2, help="cores of the local Spark session (default: 2)")
    compact.set_defaults(run=commands.compact)

    lock_commands.add_parsers(subparsers, every)
    conflict_commands.add_parsers(subparsers, every)
    torture_commands.add_parsers(subparsers, every)
    return parser


if __name__ == "__main__":
    sys.exit(main())
