"""The `lakelatch` command."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakelatch.plugins import is_installed

if missing := [library for library in ("click", "rich") if not is_installed(library)]:
    sys.exit(f"the lakelatch command needs {missing[0]}: pip install 'lakelatch[console]'")

from lakelatch.console.base.exit_codes import ExitCode, WrongCall, exit_code_of
from lakelatch.console.base.streams import OutputClosed, People, complain, point_nowhere, say, say_json
from lakelatch.console.config.file import find_config
from lakelatch.console.config.secrets import HidingFormatter, Secrets
from lakelatch.console.parser.commands import Parsed
from lakelatch.console.parser.completion import answer, asked
from lakelatch.console.parser.program import parse, program, read
from lakelatch.errors import InvalidRequest, InvariantBroken, LakelatchError
from lakelatch.progress import told_to

if TYPE_CHECKING:
    from lakelatch.console.base.invocation import Invocation

__all__ = ["main", "parse"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code (`ExitCode`). It raises nothing, whatever is wrong."""
    try:
        try:
            return int(run(list(sys.argv[1:] if arguments is None else arguments)))
        finally:
            say("")
    except (OutputClosed, BrokenPipeError):
        point_nowhere()
        return ExitCode.OUTPUT_CLOSED


def carry_out(parsed: Parsed, secrets: Secrets) -> tuple[int, Any]:
    """Finds out what the tables and options are, and calls the command's function; its code and its result."""
    module, _, name = parsed.run.partition(":")
    work: Callable[..., tuple[int, Any]] = getattr(import_module(f"lakelatch.console.commands.{module}"), name)
    call = _invocation(parsed, secrets)
    try:
        with told_to(None):  # commands show their own
            return work(call, **parsed.values)
    except LakelatchError as error:
        if isinstance(error, InvalidRequest) and _is_said(error, call):
            raise WrongCall(error.message, **error.details) from error
        if not error.details.get("no_table") or not call.tables:
            raise
        from lakelatch.console.base.places import with_tables_nearby

        table = next((one for one in call.tables if one.path in error.message), call.tables[0])
        raise with_tables_nearby(error, table.path, table.options) from error


def _is_said(error: InvalidRequest, call: Invocation) -> bool:
    """Whether an option of the command line or lakelatch.toml was refused for itself, and not beside the table."""
    from lakelatch.timeline.log.lock_names import WrongLocks

    option = str(error.details.get("option", ""))
    if isinstance(error, WrongLocks):  # that the service has lost its data is nobody's mistake here
        return False
    return option.startswith("--") or any(option.lower() in one for one in call.all_options())


def run(arguments: list[str], work: Callable[[Parsed, Secrets], tuple[int, Any]] = carry_out) -> int:
    """Has `work` do what a command line asks for, prints its result, and returns the exit code."""
    if asked():
        say(answer(program(), asked()) + "\n")
        return ExitCode.DONE
    secrets = Secrets()
    try:
        parsed = read(arguments)
    except LakelatchError as error:
        return _ended(error, secrets, "--json" in arguments, "--debug" in arguments)
    if parsed is None:
        return ExitCode.DONE
    try:
        with _logs(secrets):
            code, result = work(parsed, secrets)
    except KeyboardInterrupt:
        complain("interrupted")
        return ExitCode.INTERRUPTED
    except OutputClosed:
        raise
    except Exception as error:
        return _ended(error, secrets, parsed.json, parsed.debug)
    if parsed.json:
        say_json(secrets.hide_all(result), indent=2)
    return int(code)


def _invocation(parsed: Parsed, secrets: Secrets) -> Invocation:
    from lakelatch.console.base.invocation import Invocation
    from lakelatch.console.config.naming import Names

    names = Names(find_config(parsed.config), secrets, parsed.options)
    tables = tuple(
        names.table(name) for name in (*([parsed.table] if parsed.table is not None else ()), *parsed.tables)
    )
    return Invocation(
        People(secrets.hide, to_errors=parsed.json, quiet=parsed.json and parsed.quiet),
        People(secrets.hide, to_errors=parsed.json, quiet=parsed.quiet),
        tables[0].options if parsed.table is not None else names.options,
        tables,
        parsed.json,
        parsed.quiet,
        progress=not parsed.quiet and sys.stdout.isatty() and sys.stderr.isatty(),
    )


def _ended(error: Exception, secrets: Secrets, as_json: bool, debug: bool) -> int:
    """Says in one line why a command has ended; returns its exit code."""
    if isinstance(error, LakelatchError):
        code, message, text = error.code, error.message, str(error)
    else:
        kind = "LAKELATCH-UNAVAILABLE" if isinstance(error, OSError) else InvariantBroken.code
        said = " ".join(str(error).split()) or "no more is known"
        code, message = kind, said if isinstance(error, OSError) else f"{type(error).__name__}: {said}"
        text = f"[{code}] {message}" + ("" if debug else " (--debug shows where)")
    if as_json:
        say_json(secrets.hide_all({"error": code, "message": message}))
    if debug:
        complain(secrets.hide("".join(traceback.format_exception(error)).rstrip()))
    complain(secrets.hide(text))
    return exit_code_of(error)


@contextmanager
def _logs(secrets: Secrets) -> Iterator[None]:
    """Warnings go to standard error while the command runs, unless the process logs already."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(HidingFormatter(secrets))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
