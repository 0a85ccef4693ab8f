"""How the values of options and arguments are read; a wrong one ends the command before it begins."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from lakelatch.errors import InvalidRequest
from lakelatch.locks.open import LOCK_PROVIDERS
from lakelatch.plugins import ensure_known
from lakelatch.storage.uris import ensure_place
from lakelatch.timegen.instant_time import to_ms

T = TypeVar("T")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_EMPTY = "'' is empty: give it a value, or leave it out"


class Value(click.ParamType[T]):
    """Values that a function reads. Its `InvalidRequest` says what is wrong with one, and what to write instead."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):  # a default
            return cast("T", value)
        try:
            return self._read(value)
        except InvalidRequest as error:
            self.fail(error.message, param, ctx)


class Number(click.ParamType[float]):
    """A number within bounds; `inf` and `nan` are none."""

    name = "number"

    def __init__(self, least: float, most: float) -> None:
        self.min, self.max = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not self.min <= found <= self.max:
            self.fail(f"{value!r} is out of range: use {self.min:g} to {self.max:g}", param, ctx)
        return found


def duration_s(text: str) -> int:
    """Seconds of `90`, `30s`, `1m`, `2h` or `1d`. Errors: `InvalidRequest`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidRequest(f"{text!r} is no time between rounds: write 30s, 1m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def duration(most_s: int) -> Value[int]:
    """A time, at most so long."""

    def read(text: str) -> int:
        value_s = duration_s(text)
        if value_s > most_s:
            raise InvalidRequest(f"{text!r} is too long: use {most_s:,} s at most")
        return value_s

    return Value("duration", read)


def _filled(text: str) -> str:
    if not text.strip():
        raise InvalidRequest(_EMPTY)
    return text


def _place(text: str) -> str:
    ensure_place(_filled(text))
    return text


def _instant(text: str) -> str:
    to_ms(text)
    return text


def _provider(text: str) -> str:
    ensure_known(LOCK_PROVIDERS, _filled(text).strip(), "lock provider")
    return text


def _names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise InvalidRequest(f"{text!r} has an empty name: write names with commas between them, as a,b")
    return found


def _file_group(text: str) -> tuple[str, str]:
    partition, slash, file_id = text.rpartition("/")
    if not slash or not file_id:
        raise InvalidRequest(f"{text!r}: write PARTITION/FILE_ID, or ./FILE_ID where there are no partitions")
    return ("" if partition == "." else partition), file_id


def _pair(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not (key and equals):
        raise InvalidRequest(f"{text!r} has no key or no value: write KEY=VALUE")
    return text


def _folder(text: str) -> str:
    """A folder that is there, or that can be made."""
    _ensure_can_make(text, Path(_filled(text)))
    return text


def _ensure_can_make(text: str, folder: Path) -> None:
    path = folder.absolute()
    while not path.exists():
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        raise InvalidRequest(f"{text!r}: {str(path)!r} is no folder that can be written to: name another place")


def _file(text: str) -> str:
    path = Path(_filled(text))
    if path.is_dir():
        raise InvalidRequest(f"{text!r} is a folder: name a file")
    if not path.absolute().parent.is_dir():
        raise InvalidRequest(f"{text!r}: there is no folder {str(path.parent)!r}: make it, or name another file")
    return text


def _file_to_make(text: str) -> str:
    """A file in a folder that is there, or that can be made."""
    if Path(_filled(text)).is_dir():
        raise InvalidRequest(f"{text!r} is a folder: name a file")
    _ensure_can_make(text, Path(text).absolute().parent)
    return text


def file_named(*suffixes: str) -> Value[str]:
    """A file that is written, whose name ends in one of these."""

    def read(text: str) -> str:
        if Path(_file(text)).suffix.lower() not in suffixes:
            raise InvalidRequest(f"{text!r}: let its name end in {' or '.join(suffixes)}")
        return text

    return Value("file", read)


FILE = Value("file", _file)
FILE_TO_MAKE = Value("file", _file_to_make)
FILE_GROUP = Value("file group", _file_group)
FILLED = Value("text", _filled)
FOLDER = Value("folder", _folder)
INSTANT = Value("instant", _instant)
NAMES = Value("names", _names)
PAIR = Value("pair", _pair)
PLACE = Value("place", _place)
PORT = click.IntRange(0, 65535)
PROVIDER = Value("provider", _provider)
