"""Tables that a caller keeps open for several small writes, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lakelatch.engine.writing import end_writes
from lakelatch.system import System

T = TypeVar("T", bound="StaysOpen")


class StaysOpen:
    """A table whose small writes, inside a `with` block, each make the next one ready.

    That one waits less often for its storage if nobody else has written meanwhile. The block's end gives back what
    nobody needs.
    """

    path: str
    _options: Mapping[str, object]
    _system: System
    _stays_open = False

    def __enter__(self: T) -> T:
        self._stays_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self._stays_open = False
        end_writes(self.path, self._options, self._system)
