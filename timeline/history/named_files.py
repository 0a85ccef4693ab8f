"""The data files that completed writes name, cached by each process, so that they are read once.

Only files that have bytes by their commit's metadata are *expected*: empty ones are placeholders, and no loss.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from lakelatch.storage.contract import Storage
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.metadata import CommitMetadata

Named = Mapping[str, tuple[str, ...]]  # names by partition
_COMMITS_MAX = 256  # that a process remembers: those that it read last
_FILES_MAX = 50_000  # of all of them together; some ten megabytes


class _Remembered:
    """This process's cache, for any table. Threads share it."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Storage, Instant], Named] = OrderedDict()
        self._count = 0
        self._guard = threading.Lock()

    def put(self, storage: Storage, instant: Instant, named: Named) -> None:
        with self._guard:
            self._drop((storage, instant))
            if _count(named) > _FILES_MAX // 2:
                return
            self._found[storage, instant] = named
            self._count += _count(named)
            while len(self._found) > _COMMITS_MAX or self._count > _FILES_MAX:
                self._drop(next(iter(self._found)))

    def get(self, storage: Storage, instant: Instant) -> Named | None:
        with self._guard:
            found = self._found.get((storage, instant))
            if found is not None:
                self._found.move_to_end((storage, instant))
            return found

    def clear(self) -> None:
        with self._guard:
            self._found.clear()
            self._count = 0

    def _drop(self, key: tuple[Storage, Instant]) -> None:
        self._count -= _count(self._found.pop(key, {}))


_remembered = _Remembered()


def expected_of(metadata: CommitMetadata) -> Named:
    """The names of the files with bytes that a completed write names, by partition."""
    found: dict[str, list[str]] = {}
    for stat in metadata.stats:
        if stat.file_size_bytes > 0:
            partition, _, name = stat.path.rpartition("/")
            found.setdefault(partition, []).append(name)
    return {partition: tuple(names) for partition, names in found.items()}


def remember(storage: Storage, instant: Instant, metadata: CommitMetadata) -> Named:
    """Caches the names of a completed write's files, and returns them."""
    named = expected_of(metadata)
    _remembered.put(storage, instant, named)
    return named


def recall(storage: Storage, instant: Instant) -> Named | None:
    """The cached names of a completed write's files; None if they are not in the cache."""
    return _remembered.get(storage, instant)


def forget_all() -> None:
    """Clears the cache, to simulate a new process."""
    _remembered.clear()


def _count(named: Named) -> int:
    return sum(map(len, named.values()))
