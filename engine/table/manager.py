"""Opening a transaction manager: its lock provider, its time generator, its settings, and cached state."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.opening import agreeing, require_writable
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import LakelatchError
from lakelatch.locks.open import open_recorded_locks
from lakelatch.storage.conditional_puts import ensure_refuses_second
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.open import open_time_generator
from lakelatch.timeline.log.lock_names import WrongLocks
from lakelatch.timeline.recorded_options import groups_commits, shows_side_by_side
from lakelatch.timeline.table_config import TableConfig, recorded_lock_options
from lakelatch.transactions.base.lock_check import LockCheck
from lakelatch.transactions.early.detection import ensure_shared_locks
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.memory import TableMemory

T = TypeVar("T")

_TABLES_MAX = 32  # cached tables of a process, the last that it wrote; and as many lock services
_log = logging.getLogger("lakelatch.transactions")
_memories: OrderedDict[Hashable, TableMemory] = OrderedDict()
_lock_options: OrderedDict[Hashable, Mapping[str, str]] = OrderedDict()  # recorded in tables, as last read
_answering: OrderedDict[Hashable, str] = OrderedDict()  # ids of tables' locks whose service has answered, "" for none
_logged: OrderedDict[Hashable, None] = OrderedDict()  # lock services whose missing answer was logged
_tables: OrderedDict[Hashable, OpenedTable] = OrderedDict()  # as this process has last written them
_guard = threading.Lock()


@contextmanager
def open_manager(
    storage: Storage,
    options: ManagerOptions,
    system: System = REAL_SYSTEM,
    remembers: bool = False,
    config: TableConfig | None = None,
    is_new: bool = False,
    begins: bool = False,
    stays_open: bool = False,
) -> Iterator[TransactionManager]:
    """Opens the manager that the options describe; its lock provider is closed at the end.

    Lock options that are not given come from the table: from `config`, if the caller has opened it (`is_new` if it is
    still to be made), or else from its properties, which are read once in a process. Unless the caller has opened the
    table, the lock service is called once in a process. If it does not answer, that is logged, since a write may never
    need it; for a new table it is an error.
    `remembers`: the manager begins with the state that the last such manager of this table in this process has read,
    and leaves its own to the next one, unless the block fails. If it then `begins` a write, see `begin_ahead`;
    if the table `stays_open`, others follow, see `transactions/next_write.py`.

    Errors: `InvalidRequest` for options, and those of a lock service that does not answer before a table is made.
    """
    ensure_refuses_second(storage, system)
    recorded = _recorded(storage) if config is None else config.lock_options
    provider = open_recorded_locks(storage.uri, options.scope, recorded, system)
    settings = replace(
        options.transactions,
        lock_timeout_s=provider.scope.lock_options.timeout_s,
        group_commit=recorded is None or groups_commits(recorded),
        side_by_side=recorded is not None and shows_side_by_side(recorded),
    )
    # Writers that know no version of the log know no ids of locks either.
    check = LockCheck(provider, recorded or {}) if settings.group_commit else None
    identity = type(provider), provider.identity, storage.uri
    place = (storage, identity, system)
    try:
        ensure_shared_locks(settings, provider)
        generator = open_time_generator(options.scope, provider, system)
        memory = _take_memory(place) if remembers else None
        manager = TransactionManager(
            storage,
            provider,
            generator,
            settings,
            system,
            memory=memory,
            open_table=partial(open_storage, options=options.storage),
            lock_check=check,
            stays_open=stays_open,
        )
        if not _knows_locks(manager, identity) and (config is None or is_new):
            _ask(manager, identity, is_new=is_new or recorded is None)
        if begins:
            manager.begin_ahead()
        try:
            yield manager
        finally:
            manager.give_up()
        if remembers:
            other = _keep_memory(place, manager.memory)
            if other is not None:
                manager.withdraw_ready(other)
    except WrongLocks:
        with _guard:  # they may have been given another id since
            _answering.pop(identity, None)
        raise
    finally:
        provider.close()


def takes_other_locks(manager: TransactionManager, table: OpenedTable, options: ManagerOptions) -> bool:
    """Whether the table's lock options differ by now from those of the manager, which is to be opened again then."""
    storage, recorded = manager.storage, None if table.is_new else table.config.lock_options
    with _guard:
        before = _lock_options.pop(storage, None)
        if recorded is not None:
            _remember(_lock_options, storage, recorded)
    if before == recorded:
        return False
    with closing(open_recorded_locks(storage.uri, options.scope, recorded)) as provider:
        return recorded is None or provider.scope.options != manager.context.provider.scope.options


def _recorded(storage: Storage) -> Mapping[str, str] | None:
    """The lock options recorded in the table, as this process read them last; None if there was no table."""
    with _guard:
        known = _lock_options.get(storage)
    if known is not None:
        return known
    found = recorded_lock_options(storage)
    if found is not None:
        with _guard:
            _remember(_lock_options, storage, found)
    return found


def _knows_locks(manager: TransactionManager, identity: Hashable) -> bool:
    """Whether the service of a table's locks has answered this process; then their id is known, if they have one."""
    log, check = manager.context.log, manager.context.lock_check
    if check is not None:
        log.lock_hint = check.hint
    with _guard:
        known = _answering.get(identity)
    log.lock_id = known or log.lock_id
    return known is not None


def _ask(manager: TransactionManager, identity: Hashable, is_new: bool) -> None:
    """Asks the service of a table's locks for their id, once in a process, and sees whether it answers.

    With elision no write may ever call it.
    """
    provider, check, log = manager.context.provider, manager.context.lock_check, manager.context.log
    with _guard:
        if identity in _logged and not is_new:
            return
    try:
        if check is not None:
            check.confirm(log)
        if not log.lock_id:
            provider.ask()
    except WrongLocks:
        raise
    except LakelatchError as error:
        said = ", ".join(f"{key}={without_secrets(value)}" for key, value in provider.record().items())
        if is_new:
            raise type(error)(
                f"no table was made at {manager.storage.uri}, since its locks ({said}) cannot be asked for: correct "
                f"these options, or start the service. {error.message}",
                **error.details,
            ) from error
        with _guard:
            _remember(_logged, identity, None)
        _log.warning(
            "the locks of the table at %s (%s) cannot be asked for: what needs none goes on, and what meets another "
            "writer, as every table service does, will wait for them in vain. %s",
            manager.storage.uri,
            said,
            error.message,
        )
    else:
        with _guard:
            _remember(_answering, identity, log.lock_id)


def _begin_anew() -> None:
    """Resets a forked child: another thread of its parent may have held the lock."""
    global _guard
    _guard = threading.Lock()
    for known in (_memories, _lock_options, _answering, _logged, _tables):
        known.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _take_memory(place: Hashable) -> TableMemory | None:
    """Takes a table's cached state out, until it is kept again: a call that fails leaves none."""
    with _guard:
        return _memories.pop(place, None)


def _keep_memory(place: Hashable, memory: TableMemory) -> TableMemory | None:
    """Keeps a table's state for the next call; what another call, at the same time, has kept goes."""
    memory.log.forget_old()
    with _guard:
        other = _memories.get(place)
        _remember(_memories, place, memory)
    return other


def keep_written(table: OpenedTable) -> None:
    """Keeps a table as a write has left it."""
    with _guard:
        _remember(_tables, table.storage, table)


def fitted_to_last_written(storage: Storage, options: WriteOptions, schema: pa.Schema) -> OpenedTable | None:
    """The table as this process has last left it, if a write of rows with these columns fits it, without a request.

    It may not fit any more what is there now. None if this process has not written the table.
    """
    with _guard:
        table = _tables.get(storage)
    if table is None:
        return None
    try:
        return fitted(agreeing(table, options), schema, options.on(table.config))
    except LakelatchError:
        return None


def _remember(known: OrderedDict[Hashable, T], place: Hashable, value: T) -> None:
    known[place] = value
    known.move_to_end(place)
    while len(known) > _TABLES_MAX:
        known.popitem(last=False)


@contextmanager
def table_at_rest(
    path: str, options: Mapping[str, object] | None, system: System
) -> Iterator[tuple[OpenedTable, TransactionManager, ServiceOptions]]:
    """An existing table, its manager and the parsed options, after a rollback of dead writers.

    Errors: `InvalidRequest` for the options, and for a read-only table.
    """
    parsed = Call(options).services()
    table = require_writable(open_storage(path, parsed.manager.storage)).with_base_files(parsed.base_files)
    with open_manager(table.storage, parsed.manager, system, config=table.config) as manager:
        manager.recover()
        yield table, manager, parsed
