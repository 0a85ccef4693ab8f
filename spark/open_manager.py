"""Opening a transaction manager: its lock provider, its time generator, its settings, and what is remembered."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.spark.options import ManagerOptions
from lakelatch.storage.contract import Storage
from lakelatch.storage.proof import ensure_refuses_second
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.open import open_time_generator
from lakelatch.transactions.context import TableMemory
from lakelatch.transactions.early.detection import ensure_shared_locks
from lakelatch.transactions.manager import TransactionManager

_TABLES_MAX = 32  # that a process remembers: those it wrote last
_memories: OrderedDict[Hashable, TableMemory] = OrderedDict()
_guard = threading.Lock()


@contextmanager
def open_manager(
    storage: Storage, options: ManagerOptions, system: System = REAL_SYSTEM, remembers: bool = False
) -> Iterator[TransactionManager]:
    """The manager that the options describe; its lock provider is closed at the end.

    `remembers`: it begins with what the last such manager of this table in this process has read, and leaves what it
    reads to the next one, unless the block fails.
    """
    ensure_refuses_second(storage, system)
    scope = LockScope(storage.uri, options.scope, system)
    settings = replace(options.transactions, lock_timeout_s=scope.lock_options.timeout_s)
    provider = open_lock_provider(scope)
    place = (storage, provider.domain, system)
    try:
        ensure_shared_locks(settings, provider)
        generator = open_time_generator(options.scope, provider, system)
        memory = _take_memory(place) if remembers else None
        manager = TransactionManager(storage, provider, generator, settings, system, memory=memory)
        yield manager
        if remembers:
            _keep_memory(place, manager.memory)
    finally:
        provider.close()


def _begin_anew() -> None:
    """In a forked child: another thread of its parent may have had the lock."""
    global _guard
    _guard = threading.Lock()
    _memories.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _take_memory(place: Hashable) -> TableMemory | None:
    """What is remembered, out of reach of others until it is kept again: who fails leaves nothing behind."""
    with _guard:
        return _memories.pop(place, None)


def _keep_memory(place: Hashable, memory: TableMemory) -> None:
    memory.log.forget_old()
    with _guard:
        _memories[place] = memory
        while len(_memories) > _TABLES_MAX:
            _memories.popitem(last=False)
