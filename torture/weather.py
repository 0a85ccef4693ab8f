"""What goes wrong around one client, as it is told: its storage, its clock; and what is written down of its locks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from lakelatch.errors import InvalidRequest, InvariantBroken, LakelatchError, LeaseLost, Unavailable
from lakelatch.locks.contract import Holder, LockProvider, Register
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import FileStatus, Listing, PutUnknown, Storage
from lakelatch.system import REAL_SYSTEM, RealThreads, System
from lakelatch.testing.in_processes import in_fork
from lakelatch.torture.recorder import Recorder

_BLIND_S = 0.02


@dataclass
class Weather:
    """What the storage of one client suffers: probabilities of each call, and how slow it is at most.

    `late` puts are reported as unknown and arrive `late_s` later, when nobody waits for them any more.
    """

    cut: bool = False
    slow_s: float = 0.0
    unavailable: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    late: float = 0.0
    late_s: float = 4.0

    def change(self, **values: float) -> None:
        known = {field.name for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise InvalidRequest(f"{name}: no such weather, use {', '.join(sorted(known))}")
            setattr(self, name, value)


class StormyStorage(Storage):
    """A storage under a weather."""

    def __init__(self, behind: Storage, weather: Weather, system: System) -> None:
        self._behind, self._weather, self._system = behind, weather, system

    @property
    def uri(self) -> str:
        return self._behind.uri

    def read(self, path: str) -> bytes:
        self._meet("read", path)
        return self._behind.read(path)

    def stat(self, path: str) -> FileStatus:
        self._meet("stat", path)
        return self._behind.stat(path)

    def list(self, folder: str) -> Listing:
        self._meet("list", folder)
        return self._behind.list(folder)

    def put(self, path: str, data: bytes) -> None:
        self._put(path, lambda: self._behind.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        created: bool = self._put(path, lambda: self._behind.put_if_absent(path, data))
        return created

    def delete(self, path: str) -> None:
        self._meet("delete", path)
        self._behind.delete(path)

    def sweep(self, older_than_s: float) -> int:
        return self._behind.sweep(older_than_s)

    def _put(self, path: str, act: Callable[[], Any]) -> Any:
        self._meet("put", path)
        weather, drawn = self._weather, self._system.random()
        if drawn < weather.lost_before:
            raise PutUnknown(f"the storm swallowed the put of {path}", path=path)
        drawn -= weather.lost_before
        if 0 <= drawn < weather.late:
            self._system.start_thread(partial(self._later, act, weather.late_s), "late-put")
            raise PutUnknown(f"the storm holds the put of {path} up", path=path)
        result = act()
        if 0 <= drawn - weather.late < weather.lost_after:
            raise PutUnknown(f"the storm swallowed the answer about {path}", path=path)
        return result

    def _later(self, act: Callable[[], Any], after_s: float) -> None:
        self._system.sleep(after_s * (0.5 + self._system.random() / 2))
        try:
            act()
        except LakelatchError:
            return

    def _meet(self, operation: str, path: str) -> None:
        weather = self._weather
        if weather.cut:
            self._system.sleep(_BLIND_S)
            raise Unavailable(f"the storm cut this client off: {operation} of {path}", path=path)
        if weather.slow_s:
            self._system.sleep(weather.slow_s * self._system.random())
        if weather.unavailable and self._system.random() < weather.unavailable:
            raise Unavailable(f"the storm failed the {operation} of {path}", path=path)


class ShiftedSystem(RealThreads):
    """The machine, with a wall clock that can be stepped, and that can run fast or slow. Durations stay true."""

    def __init__(self) -> None:
        self._offset_ms, self._rate, self._since_ns = 0.0, 1.0, REAL_SYSTEM.monotonic_ns()

    def set_clock(self, offset_ms: float, rate: float = 1.0) -> None:
        """Ahead of the machine's by so much, and from now on so many times as fast."""
        self._offset_ms, self._rate, self._since_ns = offset_ms, rate, REAL_SYSTEM.monotonic_ns()

    def monotonic_ns(self) -> int:
        return REAL_SYSTEM.monotonic_ns()

    def realtime_ms(self) -> int:
        drift_ms = (self.monotonic_ns() - self._since_ns) / 1e6 * (self._rate - 1)
        return REAL_SYSTEM.realtime_ms() + int(self._offset_ms + drift_ms)

    def sleep(self, duration_s: float) -> None:
        REAL_SYSTEM.sleep(duration_s)

    def random(self) -> float:
        return REAL_SYSTEM.random()

    def new_id(self) -> str:
        return REAL_SYSTEM.new_id()


class WatchedLocks(LockProvider):
    """A lock provider whose leases are written down, with how long they said that they were valid.

    Once `fork_next` is set, the next holder forks: its child must not be able to use or free the lease.
    """

    def __init__(self, behind: LockProvider, recorder: Recorder, forked: Callable[[], None]) -> None:
        super().__init__(behind.scope)
        self._behind, self._recorder, self._forked = behind, recorder, forked
        self.fork_next = threading.Event()

    @property
    def domain(self) -> str:
        return self._behind.domain

    def acquire(self, key: str, timeout_s: float) -> Lease:
        system = self.scope.system
        asked_ns = system.monotonic_ns()
        held = self._behind.acquire(key, timeout_s)
        granted_ns = system.monotonic_ns()
        if self.fork_next.is_set():
            self.fork_next.clear()
            self._forked()
            if not in_fork(lambda: _must_refuse(held)):
                self._recorder.note("broken", what=f"a forked copy of the lease of {key!r} did not refuse to act")

        def release(_: Lease) -> bool:
            until_ns = system.monotonic_ns()  # before the question, so that a yes holds for this moment
            valid = held.valid()
            self._recorder.note(
                "lease",
                key=key,
                token=held.token,
                asked_ns=asked_ns,
                granted_ns=granted_ns,
                until_ns=until_ns,
                valid=valid,
            )
            return held.release()

        return Lease(key, held.token, held.owner, system, None, release, lambda _: held.valid())

    def register(self, key: str) -> Register:
        return self._behind.register(key)

    def holders(self, prefix: str = "") -> list[Holder]:
        return self._behind.holders(prefix)

    def break_(self, key: str) -> bool:
        return self._behind.break_(key)

    def close(self) -> None:
        self._behind.close()


def _must_refuse(copy: Lease) -> None:
    if copy.valid():
        raise InvariantBroken("a forked copy of a lease says that it is valid")
    try:
        copy.release()
    except LeaseLost:
        return
    raise InvariantBroken("a forked copy of a lease was released")
