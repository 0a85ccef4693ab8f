"""The file `.hoodie/hoodie.properties`, or the backup that stands for it while it is replaced, and its values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import javaproperties

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage.contract import NotFound, Storage

PROPERTIES_PATH, BACKUP_PATH = ".hoodie/hoodie.properties", ".hoodie/hoodie.properties.backup"
NAME_PROPERTY, VERSION_PROPERTY = "hoodie.table.name", "hoodie.table.version"
_NUMBER_DIGITS_MOST = 9
_parsed = lru_cache(32)(javaproperties.loads)  # each call on a table reads the same text again


def is_table(storage: Storage) -> bool:
    """Whether there is a table here (whole or with a left-over backup of its properties)."""
    return storage.exists(PROPERTIES_PATH) or storage.exists(BACKUP_PATH)


def read_properties(storage: Storage) -> dict[str, str]:
    """The main file if it is whole, else the backup that an updater leaves while it replaces the main file.

    Errors: `CorruptTable` if neither is whole, `InvalidRequest` if neither is there.
    """
    problem = ""
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        values, wrong = properties_at(storage, path)
        if values is not None:
            return values
        problem = problem or wrong
    if problem:
        raise CorruptTable(f"the table at {storage.uri} cannot be opened: {problem}. Restore the file from a copy")
    raise InvalidRequest(
        f"there is no table at {storage.uri} (no {PROPERTIES_PATH}): check the path, or write to it first",
        no_table=True,
    )


def properties_at(storage: Storage, path: str) -> tuple[dict[str, str] | None, str]:
    """The values of one of the two files, or None and what is wrong with it; "" for a missing file."""
    try:
        values = _parsed(storage.read(path).decode("utf-8"))
    except NotFound:
        return None, ""
    except ValueError as error:
        return None, f"{path} is no properties file: {error}"
    if NAME_PROPERTY in values and VERSION_PROPERTY in values:
        return dict(values), ""
    return None, f"{path} has no {NAME_PROPERTY} or {VERSION_PROPERTY}"


def integer_in(values: Mapping[str, str], key: str, default: int) -> int:
    """The number under a key. Errors: `CorruptTable`."""
    text = values.get(key, str(default))
    if not is_number(text):
        raise CorruptTable(f"{PROPERTIES_PATH} has {key}={text!r}, which is no number")
    return int(text)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MOST


def fields_in(values: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The names under a key, which commas separate."""
    return tuple(name.strip() for name in values.get(key, "").split(",") if name.strip())


def flag_in(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "false").lower() == "true"


def flag_text(flag: bool) -> str:
    return "true" if flag else "false"
