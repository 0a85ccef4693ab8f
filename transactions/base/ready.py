"""The folder in which commits that are ready leave their records, and the records' names."""

from __future__ import annotations

import logging

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage.contract import Storage

READY_FOLDER = ".hoodie/.lakelatch/ready"
INSTANT_DIGITS = 17
_SUFFIX = ".json"
_log = logging.getLogger("lakelatch.transactions")


def record_path(instant: str) -> str:
    """Where the record of an instant lies."""
    return f"{READY_FOLDER}/{instant}{_SUFFIX}"


def instant_of_record(name: str) -> str:
    """The instant of a record's file name, "" for a file that is none."""
    instant = name.removesuffix(_SUFFIX)
    known = name.endswith(_SUFFIX) and len(instant) == INSTANT_DIGITS and instant.isascii() and instant.isdigit()
    return instant if known else ""


def remove_record(storage: Storage, path: str) -> None:
    """Removes a record that counts no more, as the log says; one that stays is removed by who has the next turn."""
    try:
        storage.delete(path)
    except (Unavailable, InvalidRequest) as error:
        _log.warning("%s is left to others: %s", path, error)
