"""Objects that are read one after the other, where most are small: some are asked for before it is their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

from lakelatch.errors import LakelatchError
from lakelatch.storage.contract import Storage

#: An object of fewer bytes is read ahead; of a larger one nothing is kept before its turn.
SMALL_BYTES = 256 * 1024
#: So many are asked for at once: what is read ahead has at most `SMALL_BYTES` for each.
AT_ONCE = 32


def read_each(storage: Storage, paths: Sequence[str]) -> Iterator[bytes]:
    """The objects in the order of their paths, of which one that is small costs one request, side by side with others.

    A large one is read whole at its turn, so one of them is in memory at a time, beside what was read ahead. For
    objects that never change. Errors: those of `read`, each at its object's turn, after the objects before it.
    """
    for start in range(0, len(paths), AT_ONCE):
        some = paths[start : start + AT_ONCE]
        alone = len(some) < 2  # there is nothing to wait for beside it
        ahead = deque([None] if alone else storage.together(*(partial(_small, storage, path) for path in some)))
        for path in some:
            found = ahead.popleft()
            if isinstance(found, LakelatchError):
                raise found
            if found is None:
                yield storage.read(path)
            else:
                yield found
            del found  # else it stays while the next one is read


def _small(storage: Storage, path: str) -> bytes | LakelatchError | None:
    """The object, or why it cannot be read; None if it is not small."""
    try:
        data = storage.read_range(path, 0, SMALL_BYTES)
    except LakelatchError as error:
        return error
    return data if len(data) < SMALL_BYTES else None
