"""Commands for Click that say what was asked for: parsing runs nothing, and loads nothing of what a command does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
from click.shell_completion import CompletionItem

from lakelatch.console.parser.completion import complete_option
from lakelatch.console.parser.types import FILLED, PAIR

_WIDTH = 110


@dataclass(frozen=True)
class Parsed:
    """What one command line asks for.

    `run` is the function that does it, as `module:name`; it gets an `Invocation`, and `values` by name.
    """

    name: str
    run: str
    values: Mapping[str, Any]
    table: str | None = None
    tables: tuple[str, ...] = ()
    options: tuple[str, ...] = field(default=(), repr=False)
    json: bool = False
    quiet: bool = False
    debug: bool = False
    config: str | None = None


def shared_options() -> list[click.Option]:
    """Those that stand before a command as well as behind it."""
    return [
        click.Option(
            ["--config"],
            type=FILLED,
            metavar="FILE",
            help="tables and options (default: lakelatch.toml, if it is there)",
        ),
        click.Option(["--quiet", "-q"], is_flag=True, help="the result alone: no progress, no notes"),
        click.Option(["--debug"], is_flag=True, help="where an error came from, as a traceback"),
    ]


class Command(click.Command):
    """A command that a function of `console/commands/` carries out; Click gives back what was asked for."""

    def __init__(
        self, name: str, text: str, run: str, params: Sequence[click.Parameter] = (), json: bool = True
    ) -> None:
        ours = [click.Option(["--json"], is_flag=True, help="the result as JSON, alone on standard output")]
        self.own = list(params)
        self.common = [*(ours if json else []), *shared_options()]
        super().__init__(name, params=[*self.own, *self.common], help=text, short_help=text)
        self.run = run

    def invoke(self, ctx: click.Context) -> Parsed:
        before, values = ctx.find_root().params, dict(ctx.params)
        return Parsed(
            ctx.command_path.partition(" ")[2],
            self.run,
            table=values.pop("table", None),
            tables=tuple(values.pop("tables", ())),
            options=tuple(values.pop("option", ())),
            json=values.pop("json", False),
            quiet=values.pop("quiet") or before["quiet"],
            debug=values.pop("debug") or before["debug"],
            config=values.pop("config") or before["config"],
            values=values,
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, then those of all commands."""
        helping = self.get_help_option(ctx)
        for title, params in (("Options", self.own), ("Options of all commands", [*self.common, helping])):
            shown = [one.get_help_record(ctx) for one in params if isinstance(one, click.Option)]
            rows = [row for row in shown if row is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(click.Group):
    """A word that others follow; `by_default` is the one that is meant where none follows."""

    def __init__(self, name: str, text: str, commands: Iterable[click.Command], by_default: str | None = None) -> None:
        words = "[COMMAND] ARGS..." if by_default else None
        super().__init__(name, commands=list(commands), help=text, short_help=text, subcommand_metavar=words)
        self._by_default = by_default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._by_default and args and args[0] not in (*self.commands, "--help"):
            args = [self._by_default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        if self._by_default and not incomplete.startswith("-"):
            (first, *_) = self.commands[self._by_default].params
            found = [*first.shell_complete(ctx, incomplete), *found]  # folders first: bash forgets what is before them
        return found


class Program(Group):
    """The `lakelatch` command, whose commands are shown in sections."""

    def __init__(self, text: str, sections: Mapping[str, Sequence[click.Command]]) -> None:
        super().__init__("lakelatch", text, [one for commands in sections.values() for one in commands])
        self.sections = sections
        self.context_settings = {"max_content_width": _WIDTH}
        version = click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help="its version"
        )
        self.params = [*shared_options(), version]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(len(name) for name in self.commands)
        for title, commands in self.sections.items():
            with formatter.section(title):
                rows = [(f"{one.name:<{longest}}", one.get_short_help_str(_WIDTH)) for one in commands]
                formatter.write_dl(rows)


def option(*names: str, **more: Any) -> click.Option:
    """An option, with its default in its help."""
    return click.Option(list(names), **{"show_default": more.get("default") not in (None, ""), **more})


def options_of_a_write() -> click.Option:
    """`-o KEY=VALUE`, any number of times."""
    return click.Option(
        ["--option", "-o"],
        multiple=True,
        metavar="KEY=VALUE",
        type=PAIR,
        shell_complete=complete_option,
        help="an option, as of a write; may be repeated",
    )


def _say_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"lakelatch {version('lakelatch')}")
        ctx.exit()
