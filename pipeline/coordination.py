"""From write options to a transaction manager: the lock provider, the time generator, the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakelatch.locks.contract import LockScope
from lakelatch.locks.options import LockOptions
from lakelatch.locks.registry import open_lock_provider
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.registry import open_time_generator
from lakelatch.transactions.early_detection import ensure_shared_locks
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.settings import TransactionSettings


@contextmanager
def open_manager(
    storage: Storage, options: Mapping[str, str], system: System = REAL_SYSTEM
) -> Iterator[TransactionManager]:
    """The manager that the options describe; its lock provider is closed at the end."""
    locks = LockOptions.from_options(options)
    settings = TransactionSettings.from_options(options, locks.timeout_s)
    provider = open_lock_provider(LockScope(storage.uri, options, system))
    try:
        ensure_shared_locks(settings, provider)
        generator = open_time_generator(options, provider, system)
        yield TransactionManager(storage, provider, generator, settings, system)
    finally:
        provider.close()
