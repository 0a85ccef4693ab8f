"""The faults injected into one client by order of the nemesis, and the record of its locks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lakelatch.errors import InvariantBroken, LakelatchError, LeaseLost
from lakelatch.locks.contract import Holder, LockProvider, Register
from lakelatch.locks.lease import Lease
from lakelatch.system import REAL_SYSTEM, RealThreads, System
from lakelatch.testing.conformance.in_processes import in_fork
from lakelatch.testing.faults.plan import UNAVAILABLE, FaultPlan, FaultRates
from lakelatch.torture.history.recorder import Recorder

_CUT_S = 0.02  # until a call to a storage that cannot be reached fails


@dataclass
class StorageFaults(FaultRates):
    """The faults of one client's storage: how likely each call is to fail, and how slow it is at most.

    Late puts arrive within `late_s`, after their caller has given them up; `cut` is a storage that cannot be reached,
    and one that `hangs` answers when that has ended.
    """

    cut: bool = False
    hangs: bool = False
    slow_s: float = 0.0
    late_s: float = 4.0


class ClientFaultPlan(FaultPlan):
    """Has the storage of one client fail at the present rates, in real time. Only puts get lost."""

    def __init__(self, rates: StorageFaults, system: System) -> None:
        self._rates, self._system = rates, system

    def decide(self, operation: str, path: str, changes: bool) -> str:
        while self._rates.hangs:
            self._system.sleep(_CUT_S)
        if self._rates.cut:
            self._system.sleep(_CUT_S)
            return UNAVAILABLE
        if self._rates.slow_s:
            self._system.sleep(self._rates.slow_s * self._system.random())
        return self._rates.draw(self._system.random(), changes and operation != "delete")

    def act_late(self, act: Callable[[], None]) -> None:
        after_s = self._rates.late_s * (0.5 + self._system.random() / 2)

        def arrive() -> None:
            self._system.sleep(after_s)
            with suppress(LakelatchError):
                act()

        self._system.start_thread(arrive, "late-put")


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
    """A lock provider of a table whose leases are recorded, with the time until which they claimed to be valid.

    Once `fork_next` is set, the next holder forks: its child must not be able to use or free the lease.
    """

    def __init__(self, behind: LockProvider, recorder: Recorder, forked: Callable[[], None], table: int) -> None:
        super().__init__(behind.scope)
        self._behind, self._recorder, self._forked, self._table = behind, recorder, forked, table
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
                table=self._table,
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
