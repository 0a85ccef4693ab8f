"""Secrets by reference: `env:NAME` and `file:PATH` as values of options, and what keeps them out of all output."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lakelatch.console.base.exit_codes import WrongCall

_ENV, _FILE = "env:", "file:"


class Secrets:
    """The secrets of one command: looked up by reference, and replaced by it in whatever is printed."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(set(self._shown.values())))})"

    def look_up(self, value: object, folder: Path) -> object:
        """The value, or what it refers to; a relative path begins at `folder`.

        Errors: `WrongCall` for a variable or a file that is missing, or empty.
        """
        if not isinstance(value, str) or not is_reference(value):
            return value
        if value.startswith(_ENV):
            what, found = f"the variable {value.removeprefix(_ENV)}", os.environ.get(value.removeprefix(_ENV), "")
        else:
            path = folder / Path(value.removeprefix(_FILE)).expanduser()
            what = f"the file {path}"
            try:
                found = path.read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise WrongCall(f"{value!r}: {what} cannot be read: {why}") from None
        if not found:
            raise WrongCall(f"{value!r}: {what} is not set, or empty")
        self._hide(found, value)
        return found

    def hide(self, text: str) -> str:
        """The text with each secret as its reference."""
        for secret, reference in self._shown.items():
            text = text.replace(secret, f"<{reference}>")
        return text

    def hide_all(self, value: Any) -> Any:
        """The same for all texts within a value of JSON."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {self.hide(str(key)): self.hide_all(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_all(one) for one in value]
        return value

    def _hide(self, secret: str, reference: str) -> None:
        shown = {**self._shown, secret: reference}
        if "://" in secret:  # a part of it may be printed alone
            try:
                password = urlsplit(secret).password
            except ValueError:
                password = None
            shown.update({one: reference for one in (password, unquote(password or "")) if one})
        self._shown = dict(sorted(shown.items(), key=lambda pair: -len(pair[0])))  # a longer one may hold a shorter one


class HidingFormatter(logging.Formatter):
    """Log lines without secrets, those of tracebacks neither."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__("%(asctime)s %(message)s")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.hide(super().format(record))


def is_reference(value: str) -> bool:
    """Whether a value of the file refers to a secret; URLs such as `file:///data` do not."""
    return value.startswith(_ENV) or (value.startswith(_FILE) and not value.startswith(f"{_FILE}//"))
