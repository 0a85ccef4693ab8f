"""One daemon thread per process that keeps leases alive, or notices that they have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from lakelatch.locks.lease import Lease
from lakelatch.system import REAL_SYSTEM, PerProcess


@dataclass
class _Entry:
    interval_s: float
    due_ns: int
    renew: Callable[[Lease], bool]


class Renewals:
    """Calls `renew(lease)` at every interval until it says False or the lease is removed.

    Intervals are counted on the machine's own clock, since one thread serves all providers; deadlines are the
    providers' business, on the clock of their scope. A `renew` must not raise and must be quick: others wait for it.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._entries: dict[Lease, _Entry] = {}
        self._running = False

    def add(self, lease: Lease, interval_s: float, renew: Callable[[Lease], bool]) -> None:
        """Starts renewing; the first call comes one interval from now."""
        with self._wake:
            due_ns = REAL_SYSTEM.monotonic_ns() + int(interval_s * 1e9)
            self._entries[lease] = _Entry(interval_s, due_ns, renew)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="lakelatch-renewals", daemon=True).start()
            self._wake.notify()

    def remove(self, lease: Lease) -> None:
        """Stops renewing this lease; a call that is under way may still finish."""
        with self._wake:
            self._entries.pop(lease, None)

    def _run(self) -> None:
        while True:
            for lease, entry in self._next_due():
                if not entry.renew(lease):
                    self.remove(lease)

    def _next_due(self) -> list[tuple[Lease, _Entry]]:
        """Waits for the next interval to end; the callbacks then run outside of the lock."""
        with self._wake:
            while not self._entries:
                self._wake.wait()
            now_ns = REAL_SYSTEM.monotonic_ns()
            first_ns = min(entry.due_ns for entry in self._entries.values())
            if first_ns > now_ns:
                self._wake.wait((first_ns - now_ns) / 1e9)
                now_ns = REAL_SYSTEM.monotonic_ns()
            due = [(lease, entry) for lease, entry in self._entries.items() if entry.due_ns <= now_ns]
            for _, entry in due:
                entry.due_ns = now_ns + int(entry.interval_s * 1e9)
            return due


#: A forked child begins with none, since its parent's leases are not its to renew.
renewals = PerProcess(Renewals)
