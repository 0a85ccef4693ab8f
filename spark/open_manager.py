"""Opening a transaction manager: its lock provider, its time generator, its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.spark.options import ManagerOptions
from lakelatch.storage.contract import Storage
from lakelatch.storage.proof import ensure_refuses_second
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.open import open_time_generator
from lakelatch.transactions.early.detection import ensure_shared_locks
from lakelatch.transactions.manager import TransactionManager


@contextmanager
def open_manager(
    storage: Storage, options: ManagerOptions, system: System = REAL_SYSTEM
) -> Iterator[TransactionManager]:
    """The manager that the options describe; its lock provider is closed at the end."""
    ensure_refuses_second(storage, system)
    scope = LockScope(storage.uri, options.scope, system)
    settings = replace(options.transactions, lock_timeout_s=scope.lock_options.timeout_s)
    provider = open_lock_provider(scope)
    try:
        ensure_shared_locks(settings, provider)
        generator = open_time_generator(options.scope, provider, system)
        yield TransactionManager(storage, provider, generator, settings, system)
    finally:
        provider.close()
