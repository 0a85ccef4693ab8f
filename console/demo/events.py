"""Events of the demo's processes for their parent: a line each, in a file for each process."""

from __future__ import annotations

import json
from pathlib import Path

from lakelatch.system import REAL_SYSTEM


class Events:
    """The events of one process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, event: str, **details: object) -> None:
        with open(self._file, "a", encoding="utf-8") as out:
            out.write(json.dumps({"event": event, "at_ms": REAL_SYSTEM.realtime_ms(), **details}) + "\n")


def read_events(file: Path) -> list[dict[str, object]]:
    """The whole lines that a process has written so far."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
