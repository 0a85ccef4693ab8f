"""Values of options, which come as texts: read, checked, and refused with the option, the value and the way out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from numbers import Real

from lakelatch.errors import InvalidRequest

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


def text_of(key: str, value: object) -> str:
    """An option's value as the text that Spark would hand over: of lists with commas, of times in UTC.

    Errors: `InvalidRequest` for a time without a zone, for a part of a list that has a comma, and for what has no text.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Real):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, list | tuple):
        return ",".join(_part_of(key, part) for part in value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, datetime):
        raise InvalidRequest(
            f"{key}={value!r} has no zone: use datetime.now(timezone.utc), or a text in UTC", option=key
        )
    raise InvalidRequest(
        f"{key}: a {type(value).__name__} is no value of an option: use a text, a number, True or False, a list of "
        "them, a path or a datetime",
        option=key,
    )


def _part_of(key: str, part: object) -> str:
    text = text_of(key, part)
    if "," in text:
        raise InvalidRequest(f"{key}: {text!r} has a comma, which separates the parts of a list", option=key)
    return text


def whole_number(options: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """An option's value as an integer within bounds; the default if none is given. Errors: `InvalidRequest`."""
    if key not in options:
        return default
    text = str(options[key]).strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidRequest(f"{key}={text!r} is no whole number: use {least} to {most}", option=key)
    value = int(text)
    if not least <= value <= most:
        raise InvalidRequest(f"{key}={value} is out of range: use {least} to {most}", option=key)
    return value


def fraction(options: Mapping[str, str], key: str, default: float) -> float:
    """An option's value as a number between 0 and 1, neither of them. Errors: `InvalidRequest`."""
    text = str(options.get(key, default)).strip()
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < value < 1:
        raise InvalidRequest(f"{key}={text!r} is not between 0 and 1: use a number such as {default}", option=key)
    return value


def one_of(options: Mapping[str, str], key: str, allowed: tuple[str, ...], default: str) -> str:
    """An option's value in the spelling of `allowed`, which it must equal but for case; the default if none is given.

    Errors: `InvalidRequest`.
    """
    if key not in options:
        return default
    text = str(options[key]).strip()
    for choice in allowed:
        if text.lower() == choice.lower():
            return choice
    raise InvalidRequest(f"{key}={text!r} is not supported: use {' or '.join(allowed)}", option=key)


def flag(options: Mapping[str, str], key: str, default: bool = False) -> bool:
    """Whether an option is on. Errors: `InvalidRequest`."""
    return one_of(options, key, ("true", "false"), "") == "true" if key in options else default
