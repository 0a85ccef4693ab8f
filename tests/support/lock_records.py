"""Lock records in memory, a way to them that can be disturbed at every put, and processes that use it."""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.store import Put, Record, RecordStore
from lakelatch.locks.session.backend import Wait
from lakelatch.system import System

LEASE_S = 10.0
TABLE = "0123456789abcdef"
NAME = f"{TABLE}/=table"


class MemoryRecordStore(RecordStore):
    """Records in this process."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._guard = threading.Lock()
        self._records: dict[str, Record] = {}
        self._puts = 0

    def get(self, name: str) -> Record | None:
        with self._guard:
            return self._records.get(name)

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        with self._guard:
            found = self._records.get(name)
            if (found.version if found else None) != expected:
                return Put(False, found)
            self._puts += 1
            # What a service would have of a JSON object, which its sender may go on to change.
            self._records[name] = Record(marshal.loads(marshal.dumps(dict(value))), str(self._puts))
            return Put(True, self._records[name])

    def delete(self, name: str) -> None:
        with self._guard:
            self._records.pop(name, None)

    def names(self, prefix: str) -> list[str]:
        with self._guard:
            return [name for name in self._records if name.startswith(prefix)]

    def close(self) -> None:
        """Nothing to give up; the records stay for whoever has this store."""


class RecordWire(RecordStore):
    """The way to a store, which can be disturbed: `disturb` is called instead of the next put that it is set for."""

    def __init__(self, store: MemoryRecordStore, system: System) -> None:
        super().__init__(system)
        self.store = store
        self.calls: list[str] = []
        self.disturb: Callable[[str, Mapping[str, Any], str | None], Put | None] | None = None

    def get(self, name: str) -> Record | None:
        self.calls.append("get")
        return self.store.get(name)

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        self.calls.append("put")
        disturb, self.disturb = self.disturb, None
        return (disturb or self.store.send)(name, value, expected)

    def delete(self, name: str) -> None:
        self.store.delete(name)

    def names(self, prefix: str) -> list[str]:
        return self.store.names(prefix)

    def close(self) -> None:
        self.store.close()


class RecordClient:
    """A process with a session, and one request after the other."""

    def __init__(self, store: MemoryRecordStore, system: System) -> None:
        self.system = system
        self.wire = RecordWire(store, system)
        self.service = RecordBackend(self.wire, system, LEASE_S)
        self.session = self.service.open_session("me")

    def take(self, request: str, name: str = NAME, timeout_s: float = 0.0) -> int | None:
        return self.service.take(self.session, request, name, Wait(timeout_s, self.system, lambda: False))

    def give_back(self, request: str, name: str = NAME) -> bool:
        return self.service.give_back(self.session, request, name)

    def renew(self) -> list[str]:
        return self.service.renew_session(self.session)


def names_noted(store: RecordStore) -> list[str]:
    """The names that are noted as held, whether anybody alive holds them or not."""
    return sorted(name for record in store.get_all(store.names("locks/")).values() for name in record.value["held"])
