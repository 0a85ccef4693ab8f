"""A table of a round as one process reaches it: its storage, its locks, its transaction managers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from lakelatch.errors import LakelatchError
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.torture.settings import LYING, Place
from lakelatch.torture.traffic.client_faults import ClientFaultPlan, StorageFaults, WatchedLocks
from lakelatch.torture.traffic.keeping_storage import storage_at
from lakelatch.transactions.base.settings import TransactionSettings
from lakelatch.transactions.manager import TransactionManager

if TYPE_CHECKING:
    from lakelatch.torture.traffic.clients import Client

_SLOTS_KEPT = 32


def heartbeat_of(lease_s: float) -> HeartbeatSettings:
    """Heartbeat settings by which a writer without beats for a lease time counts as dead."""
    return HeartbeatSettings(interval_ms=max(100, int(lease_s * 1000 / 4)), tolerable_misses=3)


class Desk:
    """One table as a client reaches it: a storage into which faults are injected, and locks that are watched."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client, self.place = client, place
        self.faults = StorageFaults(late_s=place.late_s)
        self.storage = FaultyStorage(storage_at(place), ClientFaultPlan(self.faults, client.system))
        self._provider: WatchedLocks | None = None
        self._managers: dict[str, TransactionManager] = {}

    def manager(self, mode: str) -> TransactionManager:
        """The transaction manager of this mode, opened once."""
        client = self._client
        if self._provider is None:
            locks = open_locks(self.place, client.options, client.system)
            forked = partial(client.tell_run, {"fault": "forked_holder"})
            self._provider = WatchedLocks(locks, client.recorder, forked, self.place.number)
        if mode not in self._managers:
            self._managers[mode] = manager_at(
                self.place, self.storage, self._provider, mode, str(client.name), client.system, client.open_table
            )
        return self._managers[mode]

    def fork_next(self) -> None:
        """Has the next holder of a lease fork."""
        if self._provider is not None:
            self._provider.fork_next.set()

    def close(self) -> None:
        if self._provider is not None:
            with suppress(LakelatchError):
                self._provider.close()


def manager_at(
    place: Place,
    storage: Storage,
    provider: LockProvider,
    mode: str,
    writer: str,
    system: System = REAL_SYSTEM,
    open_table: Callable[[str], Storage] | None = None,
) -> TransactionManager:
    """The transaction manager of one process of a round."""
    settings = TransactionSettings(
        mode=mode, lock_timeout_s=3 * place.lease_s, heartbeat=heartbeat_of(place.lease_s), writer=writer
    )
    generator = HybridTimeGenerator(provider, system)
    open_other = open_table or (lambda uri: next(one for one in map(storage_at, place.all_tables) if one.uri == uri))
    return TransactionManager(
        storage, provider, generator, settings, system, slots_kept=_SLOTS_KEPT, open_table=open_other
    )


def open_locks(place: Place, options: dict[str, str], system: System) -> LockProvider:
    """The round's lock provider, or the one that lies."""
    scope = LockScope(place.table_uri, {**place.more_options, **options}, system)
    return LyingLockProvider(scope) if place.provider == LYING else open_lock_provider(scope)
