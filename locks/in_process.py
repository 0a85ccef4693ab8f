"""Locks among the threads of one process: for tests, notebooks, and jobs that are their table's only writer."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import WAITERS_MOST, Holder, LockProvider, LockScope, ProviderRegister, Register
from lakelatch.locks.lease import EXPIRED, Lease
from lakelatch.locks.options import WAIT_TIME
from lakelatch.locks.renewal import renewals
from lakelatch.system import PerProcess, System, process_name

_MARGIN = 0.1  # of the lease time: the holder gives the key up so much earlier than it is free to others


@dataclass
class _Grant:
    lease: Lease
    provider: InProcessLockProvider
    since_ms: int
    system: System
    expires_ns: int | None

    def over(self) -> bool:
        return self.expires_ns is not None and self.system.monotonic_ns() >= self.expires_ns


@dataclass
class _Key:
    grant: _Grant | None = None
    queue: deque[threading.Condition] = field(default_factory=deque)

    def end_if_over(self) -> None:
        if self.grant is not None and self.grant.over():
            self.grant.lease.lose(EXPIRED)
            self.grant = None

    def wake_next(self) -> None:
        if self.queue:
            self.queue[0].notify()


class _Table:
    """The state that all providers of one table in this process share. `lock` guards everything else."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.keys: dict[str, _Key] = {}
        self.token = 0  # one counter for all keys grows for each of them, and a free key needs no entry
        self.registers: dict[str, int] = {}

    def forget_if_idle(self, key: str) -> None:
        state = self.keys[key]
        if state.grant is None and not state.queue:
            del self.keys[key]


#: By table URI. A lease of a forked child's parent is neither held by the child nor free for it.
_tables: PerProcess[dict[str, _Table]] = PerProcess(dict)


class InProcessLockProvider(LockProvider):
    """Leases and registers in the memory of this process, first come, first served. Other processes see none of it.

    All providers of one `table_uri` in the process share their state. `lakelatch.lock.in_process.lease_s` gives leases
    an end (they are renewed at a third of it); without it they last until released, broken or the process ends.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._lease_s = scope.lock_options.in_process_lease_s
        self._closed = False

    def acquire(self, key: str, timeout_s: float) -> Lease:
        table = self._table()
        with table.lock:
            if self._closed:
                raise InvalidRequest(f"the lock provider of {self.scope.table_uri} is closed: open another one")
            state = table.keys.setdefault(key, _Key())
            place = threading.Condition(table.lock)
            state.queue.append(place)
            try:
                if not self._wait(state, place, timeout_s):
                    raise LockTimeout.of(key, timeout_s, WAIT_TIME, state.grant.lease.owner if state.grant else None)
                return self._grant(table, state, key)
            finally:
                state.queue.remove(place)
                state.wake_next()  # also if the key is held: who is first must watch for the new lease's end
                table.forget_if_idle(key)

    def register(self, key: str) -> Register:
        return ProviderRegister(self._advance, key)

    def ask(self) -> None:
        """There is no service."""

    def holders(self, prefix: str = "") -> list[Holder]:
        table = self._table()
        with table.lock:
            for state in table.keys.values():
                state.end_if_over()
            return [
                _holder(key, state.grant, len(state.queue))
                for key, state in sorted(table.keys.items())
                if key.startswith(prefix) and state.grant is not None
            ]

    def break_(self, key: str) -> bool:
        table = self._table()
        with table.lock:
            state = table.keys.get(key)
            if state is None:
                return False
            state.end_if_over()
            if state.grant is None:
                return False
            state.grant.lease.lose("an operator broke the lock")
            renewals().remove(state.grant.lease)
            self._free(table, key, state)
            return True

    def close(self) -> None:
        table = self._table()
        with table.lock:
            self._closed = True
            held = [state.grant.lease for state in table.keys.values() if state.grant and state.grant.provider is self]
            for state in table.keys.values():
                for place in state.queue:
                    place.notify()  # those of this provider give up, the others look and wait on
        for lease in held:
            lease.release()

    def _advance(self, key: str, at_least: int, count: int) -> int:
        table = self._table()
        with table.lock:
            first = max(table.registers.get(key, 0) + 1, at_least)
            table.registers[key] = first + count - 1
            return first

    def _table(self) -> _Table:
        return _tables().setdefault(self.scope.table_uri, _Table())

    def _wait(self, state: _Key, place: threading.Condition, timeout_s: float) -> bool:
        """Waits until this place in the queue may take the key; False at the deadline.

        The deadline is the scope's clock's, or that much real waiting, whichever is sooner.
        """
        system = self.scope.system
        deadline_ns = system.monotonic_ns() + int(timeout_s * 1e9)
        left_s = timeout_s
        while not self._may_take(state, place):
            left_s = min(left_s, (deadline_ns - system.monotonic_ns()) / 1e9)
            if left_s <= 0:
                return False
            nap_s = left_s
            if state.grant is not None and state.grant.expires_ns is not None:
                until_over_s = (state.grant.expires_ns - state.grant.system.monotonic_ns()) / 1e9
                nap_s = min(left_s, max(until_over_s, 0.001))
            if not place.wait(nap_s):
                left_s -= nap_s
        return True

    def _may_take(self, state: _Key, place: threading.Condition) -> bool:
        if self._closed:
            raise Unavailable(f"the lock provider of {self.scope.table_uri} was closed while a thread waited for a key")
        state.end_if_over()
        return state.grant is None and state.queue[0] is place

    def _grant(self, table: _Table, state: _Key, key: str) -> Lease:
        system = self.scope.system
        table.token += 1
        expires_ns = deadline_ns = None
        if self._lease_s is not None:
            expires_ns, deadline_ns = _ends(system, self._lease_s)
        lease = Lease(key, table.token, process_name(), system, deadline_ns, self._release)
        state.grant = _Grant(lease, self, system.realtime_ms(), system, expires_ns)
        if self._lease_s is not None:
            renewals().add(lease, self._lease_s / 3, self._renew)
        return lease

    def _renew(self, lease: Lease) -> bool:
        table = self._table()
        with table.lock:
            state = table.keys.get(lease.key)
            if self._lease_s is None or state is None or state.grant is None or state.grant.lease is not lease:
                return False
            if not lease.valid():
                return False
            expires_ns, deadline_ns = _ends(self.scope.system, self._lease_s)
            state.grant.expires_ns = expires_ns  # before the holder may rely on it
            lease.extend(deadline_ns)
            return True

    def _release(self, lease: Lease) -> bool:
        table = self._table()
        renewals().remove(lease)
        with table.lock:
            state = table.keys.get(lease.key)
            if state is None or state.grant is None or state.grant.lease is not lease:
                return False
            held = lease.valid()
            self._free(table, lease.key, state)
            return held

    def _free(self, table: _Table, key: str, state: _Key) -> None:
        state.grant = None
        state.wake_next()
        table.forget_if_idle(key)


def _ends(system: System, lease_s: float) -> tuple[int, int]:
    """When the key is free to others, and when its holder must have stopped, in nanoseconds of the monotonic clock."""
    now_ns = system.monotonic_ns()
    return now_ns + int(lease_s * 1e9), now_ns + int(lease_s * (1 - _MARGIN) * 1e9)


def _holder(key: str, grant: _Grant, waiting: int) -> Holder:
    """All who wait are threads of this process."""
    waiters = (process_name(),) * min(waiting, WAITERS_MOST)
    return Holder(key, grant.lease.owner, grant.lease.token, grant.since_ms, waiting, waiters)
