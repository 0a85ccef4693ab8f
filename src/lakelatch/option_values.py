"""Values of options, which come as texts: read, checked, and refused with the option, the value and the way out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelatch.errors import InvalidRequest

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def whole_number(options: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """An option's value as an integer within bounds. Errors: `InvalidRequest`."""
    text = str(options.get(key, default)).strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidRequest(f"{key}={text!r} is no whole number: use {least} to {most}", option=key)
    value = int(text)
    if not least <= value <= most:
        raise InvalidRequest(f"{key}={value} is out of range: use {least} to {most}", option=key)
    return value


def one_of(options: Mapping[str, str], key: str, allowed: tuple[str, ...], default: str) -> str:
    """An option's value in the spelling of `allowed`, which it must equal but for case. Errors: `InvalidRequest`."""
    text = str(options.get(key, default)).strip()
    for choice in allowed:
        if text.lower() == choice.lower():
            return choice
    raise InvalidRequest(f"{key}={text!r} is not supported: use {' or '.join(allowed)}", option=key)


def flag(options: Mapping[str, str], key: str, default: bool = False) -> bool:
    """Whether an option is on. Errors: `InvalidRequest`."""
    return one_of(options, key, ("true", "false"), str(default)) == "true"
