"""The base of providers by Hudi's class names: the table's key is a lock that Java writers take too."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from lakelatch.locks.contract import TABLE_KEY, Holder
from lakelatch.locks.session.provider import SessionLockProvider


class SharedTableKey(SessionLockProvider):
    """A provider whose table key has a name of its own at the backend; all other keys have their usual ones."""

    @property
    def taken_by_hudi(self) -> bool:
        return True

    @property
    @abstractmethod
    def table_lock(self) -> str:
        """The name of the table's key at the backend; no other name is like it."""

    def name_of(self, key: str) -> str:
        return self.table_lock if key == TABLE_KEY else super().name_of(key)

    def key_of(self, name: str) -> str | None:
        return TABLE_KEY if name == self.table_lock else super().key_of(name)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = super().holders(prefix)
        if TABLE_KEY.startswith(prefix):
            of_table = self._session().backend.holders(self.table_lock)
            found += [replace(holder, key=TABLE_KEY) for holder in of_table]
        return sorted(found, key=lambda holder: holder.key)
