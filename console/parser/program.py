"""The whole command line, and one line of it read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO

import click

from lakelatch.console.base.exit_codes import WrongCall
from lakelatch.console.parser import agreeing, keeping, looking, trying, undoing
from lakelatch.console.parser.commands import Parsed, Program


@cache
def program() -> Program:
    """All commands, in sections."""
    return Program(
        "Multi-writer coordination for lakehouse tables.",
        {
            "Look at tables": looking.commands(),
            "Keep tables": keeping.commands(),
            "Go back": undoing.commands(),
            "What writers agree on": agreeing.commands(),
            "Try it": trying.commands(),
            "Shells": trying.completion(),
        },
    )


def read(arguments: Sequence[str]) -> Parsed | None:
    """What a command line asks for; None if it asks for help or the version, which is printed.

    Errors: `WrongCall`.
    """
    root = program()
    try:
        with root.make_context("lakelatch", list(arguments)) as context:
            found = root.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        raise WrongCall(f"{_path(error)}: a command is missing") from None
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        said = " ".join(error.format_message().split())
        said += "" if said.endswith((".", "?")) else "."
        raise WrongCall(f"{_path(error)}: {said} See {_path(error)} --help") from None
    assert isinstance(found, Parsed)
    return found


def parse(arguments: Sequence[str]) -> Parsed | None:
    """What a command line asks for, without doing or printing anything; None if it asks for help or the version.

    Errors: `WrongCall`.
    """
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return read(arguments)


def _path(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context.command_path if context is not None else "lakelatch"
