"""Registers at etcd: numbers in keys, written on condition that they have not been written since."""

from __future__ import annotations

import threading
from typing import Any

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.etcd.client import EtcdClient
from lakelatch.locks.etcd.messages import Put, Read, Unchanged
from lakelatch.system import System


class EtcdRegister:
    """One register; threads of this process take turns, and remember what is stored."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._guard = threading.Lock()
        self._value, self._revision = 0, 0  # as if it did not exist yet, which the first answer corrects

    def advance(self, client: EtcdClient, at_least: int, count: int, system: System) -> int:
        until_ns = system.monotonic_ns() + int(client.timeout_s * 1e9)
        if not self._guard.acquire(timeout=client.timeout_s):
            raise Unavailable(f"a register at {client.where} is waited for by too many threads: try again")
        try:
            while True:
                first = max(self._value + 1, at_least)
                put = Put(self._key, str(first + count - 1))
                done = client.transact([put], [Unchanged(self._key, self._revision)], [Read(self._key)])
                if done.held:
                    self._value, self._revision = first + count - 1, done.revision
                    return first
                self._remember(done.results[0])
                if system.monotonic_ns() > until_ns:
                    raise Unavailable(f"a register at {client.where} is written by too many at once: try again")
        finally:
            self._guard.release()

    def _remember(self, found: list[Any]) -> None:
        self._value, self._revision = 0, 0
        for stored in found:
            if not stored.value.isdigit():
                raise CorruptTable(
                    f"the register {self._key!r} at etcd holds {stored.value[:40]!r}, which is no number: put back a "
                    "number that is greater than all that it gave out"
                )
            self._value, self._revision = int(stored.value), stored.mod_revision
