"""A lock provider that Lakelatch knows nothing of: an entry point, and a store with conditional puts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.record_service import RecordService
from lakelatch.locks.records import Put, Record, RecordStore
from lakelatch.locks.service import LockService
from lakelatch.locks.service_options import ServiceOptions
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.system import System

Result = TypeVar("Result")
_TABLE = "create table if not exists records (name text primary key, value text, version integer)"


class SqliteLockProvider(SessionLockProvider):
    """Leases in the SQLite database `hoodie.write.lock.sqlite.path`."""

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = ServiceOptions.of("sqlite", scope.options, frozenset({"path"}))
        self._path = self._options.required("path", "/var/lib/latch.db")

    @property
    def identity(self) -> Hashable:
        return self._options.identity()

    def make_service(self) -> LockService:
        store = SqliteRecordStore(self._path, self.scope.system)
        return RecordService(store, self.scope.system, self._options.lease_s)


class SqliteRecordStore(RecordStore):
    """Opens the database for each call, so that threads and processes need not share a connection."""

    def __init__(self, path: str, system: System) -> None:
        super().__init__(system)
        self._path = path

    def get(self, name: str) -> Record | None:
        return self._run(lambda database: self._look(database, name))

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        def put(database: sqlite3.Connection) -> Put:
            found = self._look(database, name)
            if (found.version if found else None) != expected:
                return Put(False, found)
            (count,) = database.execute("select coalesce(max(version), 0) from records").fetchone()
            row = name, json.dumps(value), count + 1
            database.execute("insert or replace into records values (?, ?, ?)", row)
            return Put(True, self._look(database, name))

        return self._run(put)

    def delete(self, name: str) -> None:
        self._run(lambda database: database.execute("delete from records where name = ?", (name,)))

    def names(self, prefix: str) -> list[str]:
        rows = self._run(lambda database: database.execute("select name from records").fetchall())
        return [name for (name,) in rows if name.startswith(prefix)]

    def close(self) -> None:
        """There is nothing that stays open."""

    def _look(self, database: sqlite3.Connection, name: str) -> Record | None:
        row = database.execute("select value, version from records where name = ?", (name,)).fetchone()
        return Record(json.loads(row[0]), str(row[1])) if row else None

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            database = sqlite3.connect(self._path, timeout=5, isolation_level=None)
            try:
                database.execute(_TABLE)
                database.execute("begin immediate")
                result = work(database)
                database.execute("commit")
                return result
            finally:
                database.close()
        except sqlite3.Error as error:
            raise Unavailable(f"the SQLite database {self._path} could not be used: {error}") from error
