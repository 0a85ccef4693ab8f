"""Commands as pages show them: ours are run or parsed, and of others it is known what they are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import metadata
from itertools import groupby
from pathlib import Path

from lakelatch.console.base.exit_codes import WrongCall
from lakelatch.console.main import main
from lakelatch.console.parser.program import parse

ROOT = Path(__file__).parents[2]
# Nothing of ours is in these.
OTHERS = (
    ".",
    ".ci/dependencies",
    ".ci/dist",
    ".ci/evidence-page",
    ".venv/bin/pytest",
    "cd",
    "export",
    "install",
    "mkdir",
    "open",
    "pytest",
    "python",
    "python3",
    "spark-submit",
)
WAY_OUT = "say `<!-- not run: REASON -->` above"
WRAPPERS = ("opentelemetry-instrument",)  # run the command behind them
_BETWEEN = ("&&", ";", "|", "||", "&")
_EXTRAS = re.compile(r"\[([\w,-]+)\]")
_AN_INSTANT, _INSTANT = re.compile(r"INSTANT|\d+\.\.\."), "20260101000000000"


def run_commands(text: str, runs: bool, shown: bool) -> None:
    """Runs the `lakelatch` commands whose output is shown, and looks at all others.

    AssertionError if a command is none, or not known here.
    """
    for line in text.replace("\\\n", " ").splitlines():
        for words in _commands(line):
            if words[0] == "lakelatch":
                if runs and shown:
                    main(words[1:])
                else:
                    parse_command(words[1:])
            elif words[:2] == ["pip", "install"]:
                _check_extras(words[2:])
            elif words[0] == "make":
                _check_target(words[1])
            else:
                assert words[0] in OTHERS or not runs, f"{words[0]!r} is not known here: {WAY_OUT}, or add it to OTHERS"


def parse_command(words: list[str]) -> None:
    """AssertionError if the real parser refuses a command, whatever instant it names in other words."""
    try:
        parse([_INSTANT if _AN_INSTANT.fullmatch(word) else word for word in words])
    except WrongCall as error:
        raise AssertionError(f"`lakelatch {shlex.join(words)}` is no command") from error


def _commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without what is set for them alone and what runs them."""
    words = shlex.split(line, comments=True)
    for between, part in groupby(words, lambda word: word in _BETWEEN):
        command = list(part)
        while command and (command[0] in WRAPPERS or re.match(r"\w+=", command[0])):
            del command[0]
        if command and not between:
            yield command


def _check_extras(requirements: list[str]) -> None:
    extras = set(metadata("lakelatch").get_all("Provides-Extra") or ())
    for one in requirements:
        if one.startswith("lakelatch") and (found := _EXTRAS.search(one)):
            unknown = set(found[1].split(",")) - extras
            assert not unknown, f"pip install {one!r}: there is no extra {', '.join(sorted(unknown))}"


def _check_target(target: str) -> None:
    targets = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target in targets, f"make {target}: there is no such target"
