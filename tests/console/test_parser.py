"""The command line as it is read: what each command takes, without anything being done."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from lakelatch.console.base.exit_codes import WrongCall
from lakelatch.console.main import main, parse
from lakelatch.console.parser.commands import Command
from lakelatch.console.parser.program import program

ROOT = Path(__file__).parents[2]
NO_JSON = {"completion"}
NO_OPTIONS = {"completion", "torture"}


def commands(group: click.Group | None = None, before: str = "") -> Iterator[tuple[str, Command]]:
    for name, one in (group or program()).commands.items():
        if isinstance(one, click.Group):
            yield from commands(one, f"{before}{name} ")
        else:
            assert isinstance(one, Command)
            yield f"{before}{name}", one


def test_each_command_has_its_function() -> None:
    """The function is loaded by name when the command is called, and gets all that is not for everybody."""
    for path, command in commands():
        module, _, name = command.run.partition(":")
        function = getattr(import_module(f"lakelatch.console.commands.{module}"), name)
        own = {param.name: None for param in command.own if param.name not in ("table", "tables", "option")}
        inspect.signature(function).bind(None, **own)
        assert command.help and all(param.help for param in command.own if isinstance(param, click.Option)), path


def test_every_result_comes_as_json_and_every_table_takes_options() -> None:
    for path, command in commands():
        names = {param.name for param in command.params}
        assert ("json" in names) == (path not in NO_JSON) and ("option" in names) == (path not in NO_OPTIONS), path


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "cli-page"))
    text = made["PAGE"].read_text()
    assert text == made["page"](text), "run .ci/cli-page"


def test_help_and_reading_load_nothing_of_what_commands_do() -> None:
    script = (
        "import sys; from lakelatch.console.main import main, parse; main(['--help']); parse(['compact', 't'])\n"
        "heavy = {'pyarrow', 'pyspark', 'numpy', 'pandas', 'matplotlib', 'lakelatch.engine'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_help_shows_commands_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    found = [text.index(f"\n{title}:\n") for title in program().sections]
    assert found == sorted(found) and all(f"\n  {name} " in text for name in program().commands)
    assert main(["timeline", "--help"]) == 0
    own, _, all_commands = capsys.readouterr().out.partition("Options of all commands:")
    assert "--draw" in own and "--json" in all_commands and "--help" in all_commands
    assert main([]) == 2
    assert "Keep tables:" in capsys.readouterr().err


def test_reading_says_what_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    found = parse(["-q", "timeline", "--limit", "3", "flights", "-o", "a=1", "-o", "b=2", "--json"])
    assert found is not None and found.values == {"draw": None, "trace": None, "limit": 3}
    assert (found.name, found.table, found.options) == ("timeline", "flights", ("a=1", "b=2"))
    assert found.json and found.quiet and not found.debug
    several = parse(["service", "run", "a", "b", "--every", "2m"])
    assert several is not None and several.tables == ("a", "b") and several.values["every_s"] == 120
    assert parse(["--help"]) is None and parse(["--version"]) is None and parse(["locks", "break", "--help"]) is None
    for wrong in (["nothing"], ["timeline"], ["timeline", "t", "--no-such"], [], ["restore", "t"], ["locks"]):
        with pytest.raises(WrongCall):
            parse(wrong)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["t"], "locks show"),
        (["--json", "t"], "locks show"),
        (["./break"], "locks show"),
        (["break", "t", "k"], "locks break"),
        (["record", "t"], "locks record"),
        (["show", "t"], "locks show"),
    ],
)
def test_locks_alone_shows_them(words: list[str], name: str) -> None:
    found = parse(["locks", *words])
    assert found is not None and found.name == name
