"""Proof, before a place is written to, that a conditional put refuses the second writer."""

from __future__ import annotations

from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.storage.uris import scheme_of, without_secrets
from lakelatch.system import System

CHECKS_FOLDER = ".hoodie/.lakelatch/checks"
_KNOWN_GOOD = ("", "file", "memory")  # by the kernel, and by a lock in this process
_proved: set[Storage] = set()


def ensure_refuses_second(storage: Storage, system: System) -> None:
    """Tries it out, once in a process for a place; some clones of object stores ignore conditions without a word.

    Errors: `InvalidRequest` for a place where two writers could both win, and those of the storage.
    """
    if scheme_of(storage.uri) in _KNOWN_GOOD or storage in _proved:
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
    _proved.add(storage)


def _creates(storage: Storage, path: str, data: bytes) -> bool:
    """Whether this put is the one that counts, also if its answer was lost."""
    try:
        return storage.put_if_absent(path, data)
    except PutUnknown:
        return storage.exists(path) and storage.read(path) == data
