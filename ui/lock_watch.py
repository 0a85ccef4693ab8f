"""Who holds a table's locks, as its provider says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelatch.engine.table.lock_state import look_at_locks
from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.open import open_recorded_locks
from lakelatch.storage.contract import Storage
from lakelatch.system import System
from lakelatch.timeline.table_config import recorded_lock_options

_PAUSE_LEAST_S, _PAUSE_MOST_S = 2.0, 60.0


class LockWatch:
    """One table's locks. A service that fails is asked again after pauses that grow. For one thread."""

    def __init__(self, storage: Storage, options: Mapping[str, str], system: System) -> None:
        self._storage = storage
        self._options = options
        self._system = system
        self._provider: LockProvider | None = None
        self._id = ""
        self._pause_s = 0.0
        self._again_ns = 0
        self.part: dict[str, Any] = {"held": [], "options": {}, "others": "", "problem": ""}
        #: The keys under which writers that live hold leases; None if nobody knows.
        self.leases: set[str] | None = None

    def look(self, of_table: str) -> None:
        """Asks who holds what; `of_table` names the locks of the table's writers.

        Raises nothing: a failure is a part of what is shown.
        """
        if self._system.monotonic_ns() < self._again_ns:
            return
        try:
            found = look_at_locks(self._open(), of_table, self._id)
            self._id = found.lock_id
            held = [{**vars(one), "token": str(one.token)} for one in found.held]  # JavaScript's numbers have 53 bits
            others = "" if found.are_the_tables else of_table
            self.part = {"held": held, "options": found.options, "others": others, "problem": ""}
            self.leases = set(found.heartbeats)
            self._pause_s = 0.0
        except LakelatchError as error:
            self.close()  # what is recorded in the table, and leads to the service, may change
            self.leases = None
            self._pause_s = min(max(self._pause_s * 2, _PAUSE_LEAST_S), _PAUSE_MOST_S)
            self._again_ns = self._system.monotonic_ns() + int(self._pause_s * 1e9)
            self.part = {**self.part, "held": [], "problem": error.message}

    def close(self) -> None:
        """Gives up the connection, until it is asked again."""
        provider, self._provider, self._id = self._provider, None, ""
        if provider is not None:
            provider.close()

    def _open(self) -> LockProvider:
        if self._provider is None:
            recorded = recorded_lock_options(self._storage)
            self._provider = open_recorded_locks(self._storage.uri, self._options, recorded, self._system)
        return self._provider
