"""Clock, sleep, randomness, ids and threads: the one module that reaches for them.

Everything else takes a `System`, so that a simulation can stand in for the machine. There are two clocks, and they
are never mixed: `monotonic_ns` for durations and deadlines, `realtime_ms` for stamps that people read.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Lock = AbstractContextManager[Any]


class Condition(Protocol):
    """A re-entrant lock, as a context manager, on which its holder can wait to be notified."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> bool | None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def notify_all(self) -> None: ...


class Event(Protocol):
    """Set once, for all that wait."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """A thread that runs at the same time as its starter, and ends with the process at the latest."""

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended. Nothing happens if it is the caller itself."""


class System(Protocol):
    """The services of the machine that a process runs on."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back, and goes on while the machine is suspended.

        Only differences mean anything, and only on this machine since it was booted.
        """

    def realtime_ms(self) -> int:
        """Milliseconds since 1970 in UTC; may step, forwards or back."""

    def sleep(self, duration_s: float) -> None:
        """Waits at least this many seconds."""

    def random(self) -> float:
        """A number from [0, 1)."""

    def new_id(self) -> str:
        """32 hexadecimal digits that no other process has drawn."""

    def new_lock(self) -> Lock:
        """A re-entrant lock among the threads of `start_thread`; for what may be held while others have to run."""

    def new_condition(self) -> Condition: ...

    def new_event(self) -> Event: ...

    def start_thread(self, run: Callable[[], None], name: str) -> Thread:
        """Runs something in a thread of its own."""


# A lease ends while its holder's machine sleeps, and Linux's CLOCK_MONOTONIC would not notice.
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _RealThread:
    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


class RealThreads:
    """The part of a `System` that concerns threads, for those whose clocks are not the machine's."""

    def new_lock(self) -> Lock:
        return threading.RLock()

    def new_condition(self) -> Condition:
        return threading.Condition()

    def new_event(self) -> Event:
        return threading.Event()

    def start_thread(self, run: Callable[[], None], name: str) -> Thread:
        return _RealThread(run, name)


# Not the process's generator, whose state a forked child inherits and others may have seeded.
_CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class RealSystem(RealThreads):
    """The machine itself."""

    def monotonic_ns(self) -> int:
        return time.clock_gettime_ns(_STEADY_CLOCK)

    def realtime_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def random(self) -> float:
        return _CHANCE.random()

    def new_id(self) -> str:
        return uuid.uuid4().hex


REAL_SYSTEM = RealSystem()
T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value of which each process has its own: a forked child begins with a new one.

    Its parent's is kept there, untouched: locks of it may have been taken at the fork, and collecting connections would
    close them.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values = [make()]
        os.register_at_fork(after_in_child=self._begin_anew)

    def __call__(self) -> T:
        return self._values[-1]

    def _begin_anew(self) -> None:
        self._values.append(self._make())


def process_name() -> str:
    """Host and process id, for people who look for a lock's holder."""
    return f"{socket.gethostname()}:{os.getpid()}"
