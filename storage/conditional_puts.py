"""Puts whose answer was lost: the one place where they are sent again, and resolved by reading.

Only for objects that nobody else fights for, or that say the same whoever makes them. The slots of the commit log, for
which writers fight, are resolved by the operation's id (`timeline/log/commit_log.py`).
"""

from __future__ import annotations

from lakelatch.errors import Unavailable
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import NotFound, PutUnknown, Storage
from lakelatch.system import System

#: The waits between tries of one request whose answer was lost.
BACKOFF = Backoff(first_s=0.02, longest_s=5.0)
TRIES_MAX = 8


def ensure_created(storage: Storage, path: str, data: bytes, system: System) -> None:
    """Creates an object, or leaves the one that is there. Errors: `Unavailable` if the storage confirms neither."""
    for _ in tries(system, BACKOFF, TRIES_MAX):
        try:
            storage.put_if_absent(path, data)
            return
        except PutUnknown:
            continue
    raise Unavailable(f"the storage did not confirm {path}: try again", path=path)


def create_own(storage: Storage, path: str, data: bytes, system: System) -> bool:
    """Creates an object whose content only this caller makes; False if the name is taken by another content.

    A request that was repeated on its way says 'exists' of its own first copy, so what is there is read.
    Errors: `Unavailable` if the storage confirms neither.
    """
    for _ in tries(system, BACKOFF, TRIES_MAX):
        try:
            return storage.put_if_absent(path, data) or storage.read(path) == data
        except PutUnknown:
            continue
        except NotFound:  # whoever took the name has gone since
            return False
    raise Unavailable(f"the storage did not confirm {path}: try again", path=path)
