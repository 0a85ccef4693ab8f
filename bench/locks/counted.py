"""Our providers over a store of records, with every request to it counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.dynamodb.provider import DynamodbLockProvider
from lakelatch.locks.object_store.provider import StorageLockProvider
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.store import Put, Record, RecordStore
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.system import System


class CountedStore(RecordStore):
    """Passes everything on, and adds to the number of reads and of writes."""

    def __init__(self, store: RecordStore, system: System, counts: list[int]) -> None:
        super().__init__(system)
        self._store = store
        self._counts = counts

    def get(self, name: str) -> Record | None:
        self._counts[0] += 1
        return self._store.get(name)

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        self._counts[1] += 1
        return self._store.send(name, value, expected)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def names(self, prefix: str) -> list[str]:
        return self._store.names(prefix)

    def get_all(self, names: Iterable[str]) -> dict[str, Record]:
        return self._store.get_all(names)

    def close(self) -> None:
        self._store.close()


class _CountedDynamodb(DynamodbLockProvider):
    counts: list[int]

    def make_backend(self) -> SessionBackend:
        return _counted(super().make_backend(), self.scope.system, self.counts)


class _CountedStorage(StorageLockProvider):
    counts: list[int]

    def make_backend(self) -> SessionBackend:
        return _counted(super().make_backend(), self.scope.system, self.counts)


def _counted(made: SessionBackend, system: System, counts: list[int]) -> SessionBackend:
    assert isinstance(made, RecordBackend)
    return RecordBackend(CountedStore(made.store, system, counts), system, made.lease_s, made.renew_s)


def open_counted(scope: LockScope, counts: list[int]) -> LockProvider:
    """The provider of a scope, which adds to `counts`: reads, and writes with those that are refused."""
    dynamodb = scope.lock_options.provider == "dynamodb"
    provider: _CountedDynamodb | _CountedStorage = _CountedDynamodb(scope) if dynamodb else _CountedStorage(scope)
    provider.counts = counts
    return provider
