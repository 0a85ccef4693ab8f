"""Writes a history: a line an event, in the file of one process, on the clock that all processes of a host share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lakelatch.system import REAL_SYSTEM, System


class Recorder:
    """Appends whole lines, so that a killed process leaves at most one torn line, its last. Threads may share it."""

    def __init__(self, path: Path, system: System = REAL_SYSTEM) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._system = system

    def note(self, event: str, **details: Any) -> int:
        """Records an event; returns its time in nanoseconds."""
        at_ns = self._system.monotonic_ns()
        os.write(self._handle, json.dumps({"at_ns": at_ns, "event": event, **details}).encode() + b"\n")
        return at_ns

    def close(self) -> None:
        os.close(self._handle)
