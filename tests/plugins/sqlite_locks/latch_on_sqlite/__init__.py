"""Leases in an SQLite database, which all processes of a machine can open."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.store import OPERATION, Put, Record, RecordStore
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.options import BackendOptions
from lakelatch.locks.session.provider import SessionLockProvider
from lakelatch.system import System


class SqliteLockProvider(SessionLockProvider):
    """Leases in the SQLite database `hoodie.write.lock.sqlite.path`."""

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = BackendOptions.of("sqlite", scope, frozenset({"path"}))
        self._path = self._options.required("path", "/var/lib/locks.db")

    @property
    def identity(self) -> Hashable:
        return self._options.identity()

    def make_backend(self) -> SessionBackend:
        store = SqliteRecordStore(self._path, self.scope.system)
        return RecordBackend(store, self.scope.system, self._options.lease_s)


class SqliteRecordStore(RecordStore):
    """Each call is one transaction on a connection of its own, so that threads share nothing."""

    def __init__(self, path: str, system: System) -> None:
        super().__init__(system)
        self._path = path

    def get(self, name: str) -> Record | None:
        with self._database() as database:
            return _look(database, name)

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        with self._database() as database:
            found = _look(database, name)
            if (found.version if found else None) != expected:
                return Put(False, found)
            database.execute("insert or replace into records values (?, ?)", (name, json.dumps(value)))
            return Put(True, _look(database, name))

    def delete(self, name: str) -> None:
        with self._database() as database:
            database.execute("delete from records where name = ?", (name,))

    def names(self, prefix: str) -> list[str]:
        with self._database() as database:
            names = [name for (name,) in database.execute("select name from records")]
        return [name for name in names if name.startswith(prefix)]

    def close(self) -> None:
        """Nothing stays open."""

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=5, isolation_level=None)) as database:
                database.execute("create table if not exists records (name text primary key, value text)")
                database.execute("begin immediate")
                yield database
                database.execute("commit")
        except sqlite3.Error as error:
            raise Unavailable(f"the SQLite database {self._path} could not be used: {error}") from error


def _look(database: sqlite3.Connection, name: str) -> Record | None:
    row = database.execute("select value from records where name = ?", (name,)).fetchone()
    value = json.loads(row[0]) if row else None
    return Record(value, value[OPERATION]) if value else None  # the id of the put: no two versions are alike
