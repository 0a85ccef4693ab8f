"""A way to lock records that can be disturbed at every put, and processes that use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakelatch.locks.record_service import RecordService
from lakelatch.locks.records import MemoryRecordStore, Put, Record, RecordStore
from lakelatch.locks.service import Wait
from lakelatch.system import System

LEASE_S = 10.0
TABLE = "0123456789abcdef"
NAME = f"{TABLE}/=table"


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
        self.service = RecordService(self.wire, system, LEASE_S)
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
