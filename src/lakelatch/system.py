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
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
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
        """Waits until it has ended; if it was to begin later, it never does. Nothing happens if it is the caller."""


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

    def start_thread(self, run: Callable[[], None], name: str, after_s: float = 0.0) -> Thread:
        """Runs something in a thread of its own, at once or so many seconds later."""


# A lease ends while its holder's machine sleeps, and Linux's CLOCK_MONOTONIC would not notice.
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NO_THREAD_NS = 1_000_000_000  # until a thread that could not begin is tried again


class _RealThread:
    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


class _LateThread:
    """Begins at its time, unless it is joined before."""

    def __init__(self, run: Callable[[], None], name: str, after_s: float) -> None:
        self.due_ns = time.monotonic_ns() + int(after_s * 1e9)
        self._begin = partial(_RealThread, run, name)
        self._begun: _RealThread | None = None
        _late_threads.add(self)

    def begin(self) -> None:
        self._begun = self._begin()

    def join(self, timeout: float | None = None) -> None:
        _late_threads.remove(self)
        if self._begun is not None:
            self._begun.join(timeout)


class _LateThreads:
    """Has threads begin at their time, by one thread, which is there while any are to come.

    Most are joined before their time, and then cost no thread: that of a heartbeat is to beat in a minute.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: set[_LateThread] = set()
        self._wakes_ns: int | None = None  # when its thread wakes at the latest; None if there is none

    def add(self, thread: _LateThread) -> None:
        with self._changed:
            if self._wakes_ns is None:
                _RealThread(self._run, "lakelatch-late-threads")  # first: one that cannot begin leaves nothing behind
            elif thread.due_ns < self._wakes_ns:
                self._changed.notify()
            self._waiting.add(thread)
            self._wakes_ns = min(self._wakes_ns or thread.due_ns, thread.due_ns)

    def remove(self, thread: _LateThread) -> None:
        with self._changed:
            self._waiting.discard(thread)

    def _run(self) -> None:
        with self._changed:
            while self._waiting:
                now_ns = time.monotonic_ns()
                for thread in [one for one in self._waiting if one.due_ns <= now_ns]:
                    try:
                        thread.begin()
                    except Exception:  # the machine has no thread to give, or no memory
                        thread.due_ns = now_ns + _NO_THREAD_NS
                    else:
                        self._waiting.discard(thread)
                self._wakes_ns = min((one.due_ns for one in self._waiting), default=now_ns)
                self._changed.wait((self._wakes_ns - now_ns) / 1e9)
            self._wakes_ns = None


_late_threads = _LateThreads()


def _begin_anew() -> None:
    """In a forked child, which has none of its parent's threads."""
    global _late_threads
    _late_threads = _LateThreads()


os.register_at_fork(after_in_child=_begin_anew)


class RealThreads:
    """The part of a `System` that concerns threads, for those whose clocks are not the machine's."""

    def new_lock(self) -> Lock:
        return threading.RLock()

    def new_condition(self) -> Condition:
        return threading.Condition()

    def new_event(self) -> Event:
        return threading.Event()

    def start_thread(self, run: Callable[[], None], name: str, after_s: float = 0.0) -> Thread:
        return _LateThread(run, name, after_s) if after_s else _RealThread(run, name)


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
        return os.urandom(16).hex()


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


@cache
def own_version() -> str:
    """The version of lakelatch in this process."""
    from importlib.metadata import version  # which takes a while, and is rarely needed before a write

    return version("lakelatch")


def process_name(process: int | None = None) -> str:
    """Host and process id, of this process or of another one here, for people who look for a lock's holder."""
    return f"{socket.gethostname()}:{os.getpid() if process is None else process}"
