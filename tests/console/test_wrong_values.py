"""A wrong value of any option of any command ends it with exit code 2, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lakelatch.console.base.exit_codes import ExitCode
from lakelatch.console.main import main
from lakelatch.console.parser.commands import Command
from lakelatch.console.parser.program import program
from lakelatch.engine.options.calls.registry import OPTIONS, Call
from lakelatch.errors import InvalidRequest
from lakelatch.storage.local import LocalStorage
from lakelatch.torture.settings import ROLES

#: Wrong values of the parameters of that name; in those of a whole command with a space, of that command alone.
WRONG: dict[str, tuple[str, ...]] = {
    "table": ("", "~/t", "s4://bucket/t"),
    "tables": ("", "~/t", "s4://bucket/t"),
    "instant": ("", "yesterday", "20260230000000000"),
    "key": ("",),
    "option": (
        "nonsense",
        "hoodie.write.lock.provder=redis",
        "hoodie.write.lock.provider=zookeper",
        "hoodie.write.lock.wait_time_ms=soon",
        "hoodie.clean.commits.retained=x",
    ),
    "config": ("", "no.toml"),
    "limit": ("0", "x"),
    "draw": ("", "t.xyz", "no/t.svg"),
    "trace": ("", "no/t.json", "."),
    "port": ("65536", "-1", "http"),
    "host": ("", "0.0.0.0", "no such host"),
    "ui every_s": ("0", "2h", "often"),
    "service run every_s": ("0", "31d", "often"),
    "timeout_s": ("0", "nan", "inf", "1m"),
    "buckets": ("0", "x"),
    "hash_fields": ("", "a,,b"),
    "old": ("", "zookeper"),
    "new": ("", "zookeper"),
    "file_groups": ("", "alone", "p/"),
    "by": ("", "a,,b"),
    "layout": ("z",),
    "cores": ("-1", "x"),
    "mode": ("both",),
    "folder": ("", "a-file", "a-file/within"),
    "place": ("", "~/t", "s4://bucket/t"),
    "commits": ("1", "x"),
    "rows": ("999", "x"),
    "writers": ("1", "x"),
    "demo table_count": ("1", "99", "x"),
    "torture table_count": ("0", "9", "x"),
    "seconds": ("0", "nan", "inf", "x"),
    "provider": ("", "zookeper", "Redis"),
    "minutes": ("0", "nan", "x"),
    "report": ("", ".", "a-file/report.html"),
    "ledger": (".", "a-file", "a-file/ledger"),
    "seed": ("x",),
    "round_s": ("1", "nan", "x"),
    "lease_s": ("0.5", "nan", "x"),
    "pace_s": ("0", "nan", "x"),
    "store": ("tape",),
    **dict.fromkeys(ROLES.values(), ("-1", "65", "x")),
    "shell": ("tcsh",),
}
FREE = {"comment"}  # of these no value is wrong
RIGHT = {"instant": "20260101000000000", "new": "storage", "shell": "bash"}  # what each of these needs


def commands(
    group: click.Group | None = None, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, one in (group or program()).commands.items():
        if isinstance(one, click.Group):
            yield from commands(one, (*before, name))
        else:
            assert isinstance(one, Command)
            yield (*before, name), one


def wrong_values(words: tuple[str, ...], param: click.Parameter) -> tuple[str, ...]:
    return WRONG.get(f"{' '.join(words)} {param.name}") or WRONG[str(param.name)]


CASES = [
    (words, command, param)
    for words, command in commands()
    for param in command.params
    if not (isinstance(param, click.Option) and param.is_flag)
    and param.name not in FREE
    and (param.name != "config" or words == ("timeline",))  # read at one place for all
]


def test_each_value_that_can_be_wrong_is_tried() -> None:
    tried = {name.rpartition(" ")[2] for name in WRONG}
    assert {param.name for _, _, param in CASES} == tried
    assert tried.isdisjoint(FREE)


@pytest.mark.parametrize(
    ("words", "command", "param"), CASES, ids=[f"{'-'.join(words)}-{param.name}" for words, _, param in CASES]
)
def test_a_wrong_value_is_a_wrong_call_that_names_the_option_and_the_value(
    words: tuple[str, ...],
    command: Command,
    param: click.Parameter,
    storage: LocalStorage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("no line of a ledger")
    before = sorted(tmp_path.rglob("*"))
    for value in wrong_values(words, param):
        assert main([*words, *call_with(command, param, value, storage.root)]) == ExitCode.WRONG_CALL, value
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and (value.rpartition("=")[2] in said or value.partition("=")[0] in said), said
        assert any(name in said for name in names_of(param, value)), said
        assert any(word in said for word in (" use ", "name ", "write ", "--help", "did you mean", "Did you mean")), (
            said
        )
    assert sorted(tmp_path.rglob("*")) == before


def call_with(command: Command, param: click.Parameter, value: str, table: str) -> Iterator[str]:
    """The words of a call that is right but for this value."""
    for one in command.params:
        fits = value if one is param else {**RIGHT, "table": table, "tables": table}.get(str(one.name))
        if one is param or one.required:
            assert fits is not None, one.name
            yield from (fits,) if isinstance(one, click.Argument) else (f"{one.opts[0]}={fits}",)


def names_of(param: click.Parameter, value: str) -> tuple[str, ...]:
    """By which a message may name an option; a table's key stands for itself."""
    key = value.partition("=")[0]
    return (*param.opts, key) if param.name == "option" and key else (*param.opts, param.metavar or param.opts[0])


def test_a_value_that_an_option_cannot_have_is_refused_whatever_the_option_is_for() -> None:
    refused = set()
    for one in OPTIONS:
        try:
            Call({one.key: "\n"}).check()
        except InvalidRequest as error:
            assert one.key in error.message and error.details["option"] == one.key
            refused.add(one.key)
    assert len(refused) > 80
