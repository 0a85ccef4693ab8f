"""What a shell offers behind `-o`, and for a table; and the scripts that make shells ask."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from lakelatch.console.config.file import find_config
from lakelatch.errors import LakelatchError

ASKED = "_LAKELATCH_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_PROVIDER = "hoodie.write.lock.provider"


def complete_table(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Folders, and the tables that lakelatch.toml names."""
    try:
        config = find_config(ctx.params.get("config") or ctx.find_root().params.get("config"))
        named = [] if config is None else [name for name in config.tables if name.startswith(incomplete)]
    except LakelatchError:  # the command itself says what is wrong with the file
        named = []
    # The folders first: bash forgets what it was told before it is told of them.
    return [CompletionItem(incomplete, type="dir"), *(CompletionItem(name) for name in named)]


def complete_option(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Keys of options, and behind `=` the values that are possible."""
    # Loaded when it is asked for: it takes longer than all else.
    from lakelatch.engine.options.calls.registry import OPTIONS

    key, equals, begun = incomplete.partition("=")
    if not equals:
        return [CompletionItem(f"{one.key}=") for one in OPTIONS if one.key.startswith(key.lower())]
    found = next((one for one in OPTIONS if one.key == key.lower()), None)
    values = _providers() if key.lower() == _PROVIDER else () if found is None else _allowed(found.parse)
    return [CompletionItem(f"{key}={value}") for value in values if value.lower().startswith(begun.lower())]


def complete_provider(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Lock providers by name."""
    return [CompletionItem(name) for name in _providers() if name.lower().startswith(incomplete.lower())]


def _providers() -> list[str]:
    """Lock providers that are registered, by their short names first."""
    from importlib.metadata import entry_points

    names = {point.name for point in entry_points(group="lakelatch.lock_providers")}
    return sorted(names, key=lambda name: ("." in name, name))


def _allowed(parse: Any) -> tuple[str, ...]:
    """The values that an option's parser takes, if they are few."""
    from lakelatch.option_values import flag

    if parse is flag:
        return ("true", "false")
    inside = zip(parse.__code__.co_freevars, parse.__closure__ or (), strict=True)
    return next((tuple(cell.cell_contents) for name, cell in inside if name == "allowed"), ())


class _Bash(BashComplete):
    """Bash takes `key=value` apart at `=`; here it is one word, and no blank is put behind a `=`."""

    name = "bash"
    source_template: ClassVar[str] = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n\n    return 0\n", 1
    )
    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if incomplete == "=":
            args, incomplete = [*args, "="], ""
        if len(args) > 1 and args[-1] == "=":
            self._before = f"{args[-2]}="
            args, incomplete = args[:-2], self._before + incomplete
        return args, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        if item.type == "plain":
            item = CompletionItem(str(item.value).removeprefix(self._before))
        return super().format_completion(item)


add_completion_class(_Bash)


def answer(program: click.Command, environment: str) -> str:
    """What a shell is told that asks; `environment` is what it has set, as `bash_complete`."""
    return _of(program, environment.partition("_")[0]).complete()


def script(program: click.Command, shell: str) -> str:
    """The script for a shell, which makes it ask."""
    return _of(program, shell).source()


def asked() -> str:
    """What a shell asks; empty if none does."""
    return os.environ.get(ASKED, "")


def _of(program: click.Command, shell: str) -> ShellComplete:
    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(program, {}, "lakelatch", ASKED)
