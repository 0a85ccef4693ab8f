"""A storage that fails on request: answers that get lost, before or after the effect, and calls that fail cleanly."""

from __future__ import annotations

import random  # noqa: TID251  (seeded here, so that a run can be repeated)
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage.contract import FileStatus, Listing, PutUnknown, Storage

LOST_AFTER = "lost_after"  # the put happened, and its answer was lost
LOST_BEFORE = "lost_before"  # the put was lost on its way, and nobody can tell
UNAVAILABLE = "unavailable"  # nothing happened, and the caller is told so
_KINDS = (LOST_AFTER, LOST_BEFORE, UNAVAILABLE)
_PUTS = ("put", "put_if_absent")
OPERATIONS = ("read", "stat", "list", "put", "put_if_absent", "delete")


@dataclass(frozen=True)
class Fault:
    """Which calls fail, and how: of `operation` ("" for every one that can), on paths that start with `prefix`.

    `probability` is that of each such call, and after `times` failures the fault is over (None: never). Only a put's
    answer can be lost, so the kinds `lost_after` and `lost_before` concern `put` and `put_if_absent` alone.
    """

    kind: str
    operation: str = ""
    prefix: str = ""
    probability: float = 1.0
    times: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidRequest(f"kind={self.kind!r} is no fault: use one of {', '.join(_KINDS)}")
        possible = OPERATIONS if self.kind == UNAVAILABLE else _PUTS
        if self.operation and self.operation not in possible:
            raise InvalidRequest(f"operation={self.operation!r} cannot be {self.kind}: use {', '.join(possible)}")
        if not 0 <= self.probability <= 1:
            raise InvalidRequest(f"probability={self.probability}: use 0 to 1")

    def concerns(self, operation: str, path: str) -> bool:
        wanted = self.operation in ("", operation) and path.startswith(self.prefix)
        return wanted and (self.kind == UNAVAILABLE or operation in _PUTS)


class FaultyStorage(Storage):
    """Another storage behind faults. The first fault that concerns a call and is drawn decides; `failed` counts them.

    `before(operation, path)` is called ahead of each call, outside of any lock: what it does to the storage behind, or
    raises, happens at exactly that point. A pickled copy begins anew with the same seed, and without `before`.
    """

    def __init__(
        self,
        behind: Storage,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        before: Callable[[str, str], None] | None = None,
    ) -> None:
        self.behind = behind
        self.before = before
        self.failed = 0
        self._faults = tuple(faults)
        self._seed = seed
        self._random = random.Random(seed)
        self._left = [fault.times for fault in self._faults]
        self._guard = threading.Lock()

    @property
    def uri(self) -> str:
        return self.behind.uri

    def read(self, path: str) -> bytes:
        self._meet("read", path)
        return self.behind.read(path)

    def stat(self, path: str) -> FileStatus:
        self._meet("stat", path)
        return self.behind.stat(path)

    def list(self, folder: str) -> Listing:
        self._meet("list", folder)
        return self.behind.list(folder)

    def put(self, path: str, data: bytes) -> None:
        lost_after = self._meet("put", path)
        self.behind.put(path, data)
        if lost_after:
            raise _lost(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        lost_after = self._meet("put_if_absent", path)
        created = self.behind.put_if_absent(path, data)
        if lost_after:
            raise _lost(path)
        return created

    def delete(self, path: str) -> None:
        self._meet("delete", path)
        self.behind.delete(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.behind, self._faults, self._seed)

    def _meet(self, operation: str, path: str) -> bool:
        """Fails here if it is due before the effect; True if the answer has to get lost after it."""
        if self.before is not None:
            self.before(operation, path)
        kind = self._draw(operation, path)
        if kind == UNAVAILABLE:
            raise Unavailable(f"a fault was asked for: {operation} of {path!r}", path=path)
        if kind == LOST_BEFORE:
            raise _lost(path)
        return kind == LOST_AFTER

    def _draw(self, operation: str, path: str) -> str | None:
        with self._guard:
            for number, fault in enumerate(self._faults):
                left = self._left[number]
                if left == 0 or not fault.concerns(operation, path) or self._random.random() >= fault.probability:
                    continue
                self._left[number] = None if left is None else left - 1
                self.failed += 1
                return fault.kind
        return None


def _lost(path: str) -> PutUnknown:
    return PutUnknown(f"a fault was asked for: the answer about {path!r} was lost", path=path)
