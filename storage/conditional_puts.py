"""Conditional puts: the check that a storage keeps their condition, and the one place where they are sent again.

`ensure_created` and `create_own` resolve a lost answer by reading. They are for objects that no other writer competes
for, or whose content is the same for all that make them. The slots of the commit log, for which writers compete, are
resolved by the operation's id (`timeline/log/commit_log.py`).
"""

from __future__ import annotations

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import NotFound, PutUnknown, Storage
from lakelatch.storage.uris import scheme_of, without_secrets
from lakelatch.system import System

CHECKS_FOLDER = ".hoodie/.lakelatch/checks"

#: The waits between tries of one request whose answer was lost.
BACKOFF = Backoff(first_s=0.02, longest_s=5.0)
TRIES_MAX = 8

_KNOWN_GOOD = ("", "file", "memory")  # by the kernel, and by a lock in this process
_checked: set[Storage] = set()


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
        except NotFound:  # the object that took the name was deleted since
            return False
    raise Unavailable(f"the storage did not confirm {path}: try again", path=path)


def ensure_refuses_second(storage: Storage, system: System) -> None:
    """Checks, once in a process for each place, that a second put is refused: some clones of object stores ignore this.

    Errors: `InvalidRequest` for a place where two writers could both win, and those of the storage.
    """
    if scheme_of(storage.uri) in _KNOWN_GOOD or storage in _checked:
        return
    path = f"{CHECKS_FOLDER}/{system.new_id()}"
    try:
        created = _creates(storage, path, b"first") and not _creates(storage, path, b"second")
        if not created or storage.read(path) != b"first":
            raise InvalidRequest(
                f"{without_secrets(storage.uri)} creates an object that is there already a second time "
                "(If-None-Match: *), so that two writers could both win: put the table where conditional puts are kept",
                option="path",
            )
    finally:
        storage.delete(path)
    _checked.add(storage)


def _creates(storage: Storage, path: str, data: bytes) -> bool:
    """Whether this put is the one that counts, also if its answer was lost."""
    try:
        return storage.put_if_absent(path, data)
    except PutUnknown:
        return storage.exists(path) and storage.read(path) == data
