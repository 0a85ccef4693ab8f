"""What a page shows of one table, by keys, so that each browser gets what has changed since it last heard."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lakelatch.system import System

_encode = json.JSONEncoder(separators=(",", ":")).encode
_GONE_MAX = 5000  # keys that are remembered after they have gone


class Changes:
    """JSON values by key, each with the version at which it changed last. Threads may share it.

    Keys are of two kinds: entries of the timeline, which come and go in thousands, and parts, of which there are few.
    """

    def __init__(self, system: System) -> None:
        self._guard = system.new_lock()
        self._entries: OrderedDict[str, tuple[int, str | None]] = OrderedDict()  # the last change last; None for gone
        self._parts: dict[str, tuple[int, str]] = {}
        self._gone = 0
        self._floor = 0  # of the versions before it, not all that has gone is remembered
        self.version = 0

    def set_entry(self, key: str, value: Any) -> None:
        """Sets an entry, or removes it if the value is None."""
        text = None if value is None else _encode(value)
        with self._guard:
            before = self._entries.get(key)
            if (before is None and text is None) or (before is not None and before[1] == text):
                return
            self._gone += (text is None) - (before is not None and before[1] is None)
            self.version += 1
            self._entries[key] = (self.version, text)
            self._entries.move_to_end(key)
            if self._gone > _GONE_MAX:
                self._forget()

    def has_entry(self, key: str) -> bool:
        """Whether there is an entry of this key now."""
        with self._guard:
            return self._entries.get(key, (0, None))[1] is not None

    def set_part(self, name: str, value: Any) -> None:
        """Sets a part of the page."""
        text = _encode(value)
        with self._guard:
            if self._parts.get(name, (0, ""))[1] != text:
                self.version += 1
                self._parts[name] = (self.version, text)

    def since(self, version: int, head: Callable[[], dict[str, Any]]) -> tuple[int, str]:
        """The version now, and a JSON object with all that changed after another one; "" if nothing has.

        `head` has further values of it. `reset` in it says that what is not named is gone: it is true for version 0.
        """
        with self._guard:
            if version == self.version:
                return version, ""
            reset = version < self._floor or not version or version > self.version
            after = 0 if reset else version
            entries, gone = [], []
            for key in reversed(self._entries):
                changed, text = self._entries[key]
                if changed <= after:
                    break
                if text is not None:
                    entries.append(text)
                elif not reset:
                    gone.append(key)
            parts = [f"{_encode(name)}:{text}" for name, (at, text) in self._parts.items() if at > after]
            fields = [
                _encode({**head(), "reset": reset, "version": self.version, "gone": gone})[1:-1],
                f'"entries":[{",".join(entries)}]',
                f'"parts":{{{",".join(parts)}}}',
            ]
            return self.version, f"{{{','.join(fields)}}}"

    def _forget(self) -> None:
        gone = [(key, at) for key, (at, text) in self._entries.items() if text is None]
        for key, at in gone[: len(gone) // 2]:
            del self._entries[key]
            self._floor = max(self._floor, at)
            self._gone -= 1
