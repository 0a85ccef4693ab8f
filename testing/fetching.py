"""Programs that fetch servers, and how far they are."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from lakelatch.errors import Unavailable
from lakelatch.system import REAL_SYSTEM, System

_TIMEOUT_S = 600
_SHOWN_EVERY_S = 5.0
_LINES_KEPT = 40
_UNITS = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_MB = 1000**2


@dataclass
class _Seen:
    """The output of a program: files that arrived, and their bytes where it says them."""

    files: int = 0
    size_bytes: float = 0.0
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=_LINES_KEPT))

    def read(self, output: IO[str], arrived: re.Pattern[str]) -> None:
        for line in output:
            self.lines.append(line)
            found = arrived.search(line)
            if found is not None:
                self.files += 1
                said = found.groupdict()
                if said.get("size"):
                    self.size_bytes += float(said["size"]) * _UNITS.get(said["unit"], 0)

    def __str__(self) -> str:
        size = f", {self.size_bytes / _MB:,.1f} MB" if self.size_bytes else ""
        return f", {self.files} files{size}" if self.files else ""


def to_stderr(text: str) -> None:
    """One line for the user who waits."""
    print(text, file=sys.stderr, flush=True)


def run_fetch(
    what: str,
    command: Sequence[str],
    arrived: str,
    say: Callable[[str], None] = to_stderr,
    every_s: float = _SHOWN_EVERY_S,
    system: System = REAL_SYSTEM,
) -> None:
    """Runs a program that fetches `what`, and says every few seconds how far it is.

    `arrived` matches each line of its output that is about one file, with groups `size` and `unit` if they are there.
    Errors: `Unavailable`, with what the program has said.
    """
    started_ns, seen = system.monotonic_ns(), _Seen()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=seen.read, args=(process.stdout, re.compile(arrived)), daemon=True)
        reader.start()
        try:
            while _passed_s(started_ns, system) < _TIMEOUT_S:
                try:
                    process.wait(every_s)
                    break
                except subprocess.TimeoutExpired:
                    say(f"fetching {what}: {_passed_s(started_ns, system):.0f} s{seen}")
        finally:
            process.kill()  # of no effect once it has ended
        reader.join(every_s)
    if process.returncode != 0:
        raise Unavailable(f"{what} could not be fetched by {command[0]}:\n{''.join(seen.lines)}")


def _passed_s(since_ns: int, system: System) -> float:
    return (system.monotonic_ns() - since_ns) / 1e9
