"""Tables and options of one call: from the command line, and from `lakelatch.toml`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakelatch.console.base.exit_codes import WrongCall
from lakelatch.console.base.invocation import NamedTable
from lakelatch.console.config.file import Config
from lakelatch.console.config.secrets import Secrets
from lakelatch.engine.options.calls.registry import Call
from lakelatch.errors import InvalidRequest
from lakelatch.locks.open import LOCK_PROVIDERS
from lakelatch.locks.options import PROVIDER
from lakelatch.plugins import ensure_known

_BARE = re.compile(r"[^./\\:~][^/\\:]*")  # everything else is a path or a URL


class Names:
    """What the tables of a call are called, and their options: those of -o before a table's before everybody's."""

    def __init__(self, config: Config | None, secrets: Secrets, pairs: Sequence[str]) -> None:
        self._config = config
        self._secrets = secrets
        self._given = self._of_pairs(pairs)
        shared = {} if config is None else self._read(config, "options", config.options)
        self.options: dict[str, str] = {**shared, **self._given}

    def table(self, name: str) -> NamedTable:
        """The table that a word names: one of the file, or a path or URL. Errors: `WrongCall` for neither."""
        config = self._config
        if config is None or not _BARE.fullmatch(name):
            return NamedTable(name, self.options)
        table = config.tables.get(name)
        if table is not None:
            own = self._read(config, f"tables.{name}.options", table.options)
            return NamedTable(table.path, {**self.options, **own, **self._given})
        if config.tables and not Path(name).exists():
            near = difflib.get_close_matches(name, config.tables, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise WrongCall(
                f"{name!r} is neither a folder here nor a table of {config.file}: {guess}It has: "
                f"{', '.join(config.tables)}"
            )
        return NamedTable(name, self.options)

    def _read(self, config: Config, section: str, values: Mapping[str, object]) -> dict[str, str]:
        """Options of the file, with the line of a mistake."""
        found: dict[str, object] = {}
        for key, value in values.items():
            try:
                found[key] = self._secrets.look_up(value, Path(config.file).parent)
            except WrongCall as error:
                raise config.wrong(f"{section}.{key}", error.message) from None
        try:
            return _checked(found)
        except InvalidRequest as error:
            option = str(error.details.get("option", ""))
            key = next((key for key in values if key.lower() == option.lower()), "")
            raise config.wrong(f"{section}.{key}" if key else section, self._secrets.hide(error.message)) from None

    def _of_pairs(self, pairs: Sequence[str]) -> dict[str, str]:
        """Options of `KEY=VALUE` pairs."""
        found = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
        try:
            return _checked({key: self._secrets.look_up(value, Path()) for key, value in found.items()})
        except InvalidRequest as error:
            raise WrongCall(self._secrets.hide(error.message), **error.details) from None


def _checked(options: Mapping[str, object]) -> dict[str, str]:
    """The options, normalised, of which each has a value that is possible. Errors: `InvalidRequest`."""
    call = Call(options)
    call.check()
    if PROVIDER in call:
        ensure_known(LOCK_PROVIDERS, call[PROVIDER].strip(), "lock provider", PROVIDER)
    return dict(call)
