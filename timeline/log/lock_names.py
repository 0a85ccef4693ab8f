"""The name of a table's locks, as slots of the commit log carry it: what kind they are, and the id that they keep.

`redis #0123456789abcdef`. The id is drawn once and kept by the lock service itself (`LockProvider.lock_id`), so it says
which one it is, by whatever host, port or alias it is reached; the service's namespaces have an id each. Names without
one are of locks that have no place for it, of writers that have not asked for it, and of slots of earlier versions:
they agree with each of their kind.
"""

from __future__ import annotations

import re

from lakelatch.errors import InvalidRequest

_ID = re.compile(r"(.*) #([0-9a-z]{1,32})", re.DOTALL)


class WrongLocks(InvalidRequest):
    """The table's writers use other locks, perhaps since a moment ago. Nothing of this call was committed."""


def named_locks(domain: str, lock_id: str) -> str:
    """The name of locks of a kind (`LockProvider.domain`), with their id unless that is empty."""
    return f"{domain} #{lock_id}" if domain and lock_id else domain


def split_locks(name: str) -> tuple[str, str]:
    """Kind and id of a name; an empty id if it has none."""
    found = _ID.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def is_lock_id(text: str) -> bool:
    """Whether a text can be an id."""
    return named_locks("-", text) != "-" and split_locks(named_locks("-", text))[1] == text


def agree(one: str, other: str) -> bool:
    """Whether two names may be of the same locks. An empty name agrees with all."""
    (kind, lock_id), (other_kind, other_id) = split_locks(one), split_locks(other)
    return (not kind or not other_kind or kind == other_kind) and (
        not lock_id or not other_id or lock_id == other_id or kind != other_kind
    )


def joined(one: str, other: str) -> str:
    """The first of two names that agree, or the second if that says more."""
    return other if len(other) > len(one) and (not one or split_locks(other)[0] == one) else one
