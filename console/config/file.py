"""Reads and checks `lakelatch.toml`."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakelatch.console.base.exit_codes import WrongCall

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "lakelatch.toml"
VARIABLE = "LAKELATCH_CONFIG"
_TABLES, _OPTIONS, _PATH = "tables", "options", "path"
_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class TableConfig:
    """A table that the file names: its path or URL, and its options, in which secrets are references."""

    name: str
    path: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Config:
    """The file: its tables by name, and the options of all calls."""

    file: str
    tables: Mapping[str, TableConfig]
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)

    def wrong(self, key: str, why: str) -> WrongCall:
        """The error for a key, by its full name, with its line."""
        return _wrong(self.file, self.text, key, why)


def find_config(named: str | None) -> Config | None:
    """The file that `--config` or LAKELATCH_CONFIG names, or the one in the working folder; None if there is none.

    Errors: `WrongCall`, with the file, the line and the nearest key that is known.
    """
    given = named or os.environ.get(VARIABLE, "")
    path = Path(given or NAME)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not given:
            return None
        said = "--config" if named else VARIABLE
        raise WrongCall(f"{said} {given}: there is no such file: name one that is there, or leave it out") from None
    except (OSError, UnicodeDecodeError) as error:
        raise WrongCall(f"{path} cannot be read: {error}") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WrongCall(f"{path} is no TOML: {error}") from None
    return _checked(str(path), text, content)


def _checked(file: str, text: str, content: Mapping[str, Any]) -> Config:
    _refuse_unknown(file, text, "", content, (_OPTIONS, _TABLES))
    tables = _section(file, text, _TABLES, content)
    found = {}
    for name in tables:
        key = f"{_TABLES}.{name}"
        if not _TABLE_NAME.fullmatch(name):
            raise _wrong(file, text, key, "a table's name has letters, digits, and _ . - behind the first of them")
        table = _section(file, text, name, tables, key)
        _refuse_unknown(file, text, key, table, (_OPTIONS, _PATH))
        path = table.get(_PATH)
        if not isinstance(path, str) or not path.strip():
            raise _wrong(file, text, key, f'it needs its path: {_PATH} = "/data/{name}", or a URL')
        options = _flat(file, text, f"{key}.{_OPTIONS}", _section(file, text, _OPTIONS, table, f"{key}.{_OPTIONS}"))
        found[name] = TableConfig(name, _beside(file, path.strip()), options)
    return Config(file, found, _flat(file, text, _OPTIONS, _section(file, text, _OPTIONS, content)), text)


def _section(file: str, text: str, name: str, content: Mapping[str, Any], key: str = "") -> Mapping[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise _wrong(file, text, key or name, f"it is a section, written [{key or name}]")
    return found


def _flat(file: str, text: str, key: str, section: Mapping[str, Any]) -> dict[str, object]:
    """Options whose keys may be written with or without quotes: TOML takes `a.b = 1` for a table in a table."""
    flat: dict[str, object] = {}
    for name, value in section.items():
        if isinstance(value, dict):
            inner = _flat(file, text, f"{key}.{name}", value)
            flat.update({f"{name}.{rest}": one for rest, one in inner.items()})
        elif isinstance(value, str | int | float | list):
            flat[name] = value
        else:
            raise _wrong(file, text, f"{key}.{name}", "use a text, a number, true or false, or a list of them")
    return flat


def _refuse_unknown(file: str, text: str, within: str, content: Iterable[str], known: tuple[str, ...]) -> None:
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            key = f"{within}.{name}" if within else name
            raise _wrong(file, text, key, f"this key is not known: {guess}Known here: {', '.join(known)}")


def _beside(file: str, path: str) -> str:
    """A relative path begins at the file's folder, from wherever the command is called."""
    return path if "://" in path else str(Path(file).parent / Path(path).expanduser())


def _wrong(file: str, text: str, key: str, why: str) -> WrongCall:
    line = _line_of(text, key)
    return WrongCall(f"{file}{f', line {line}' if line else ''}, {key}: {why}", file=file, key=key)


def _line_of(text: str, key: str) -> int:
    """The line of a key; 0 if it is written in a way that is not looked for."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip().replace('"', "").replace("'", "")
        if bare.startswith("["):
            section = bare.strip("[] ").partition("]")[0]
            written = section
        else:
            name = bare.partition("=")[0].strip()
            written = f"{section}.{name}" if section and name else name
        if written and (written == key or written.lower() == key.lower() or written.startswith(f"{key}.")):
            return number
    return 0
