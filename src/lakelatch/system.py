"""Clock, sleep, randomness and ids: the one module that reads them.

Everything else takes a `System`, so that a simulation can stand in for the machine. There are two clocks, and they
are never mixed: `monotonic_ns` for durations and deadlines, `realtime_ms` for stamps that people read.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from dataclasses import dataclass
from typing import Protocol


class System(Protocol):
    """What a process may ask of the machine that it runs on."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back; only differences mean anything, and only in this process."""

    def realtime_ms(self) -> int:
        """Milliseconds since 1970 in UTC; may step, forwards or back."""

    def sleep(self, duration_s: float) -> None:
        """Waits at least this many seconds."""

    def random(self) -> float:
        """A number from [0, 1)."""

    def new_id(self) -> str:
        """32 hexadecimal digits that nobody else has drawn."""


@dataclass(frozen=True)
class RealSystem:
    """The machine itself."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def realtime_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def random(self) -> float:
        return random.random()

    def new_id(self) -> str:
        return uuid.uuid4().hex


REAL_SYSTEM = RealSystem()


def process_name() -> str:
    """Host and process id, for people who look for a lock's holder."""
    return f"{socket.gethostname()}:{os.getpid()}"
