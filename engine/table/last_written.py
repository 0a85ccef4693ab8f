"""The tables that this process has written last: who does not fit one of them need not ask for anything ahead."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import pyarrow as pa

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.opening import agreeing
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import LakelatchError
from lakelatch.storage.contract import Storage

_TABLES_MAX = 32
_tables: OrderedDict[Storage, OpenedTable] = OrderedDict()
_guard = threading.Lock()


def keep_written(table: OpenedTable) -> None:
    """Keeps a table as a write has left it."""
    with _guard:
        _tables[table.storage] = table
        _tables.move_to_end(table.storage)
        while len(_tables) > _TABLES_MAX:
            _tables.popitem(last=False)


def fits_last_written(storage: Storage, options: WriteOptions, schema: pa.Schema) -> bool:
    """Whether a write of rows with these columns fits the table as this process has last left it, without a request.

    It may not fit any more what is there now. False if this process has not written the table.
    """
    with _guard:
        table = _tables.get(storage)
    if table is None:
        return False
    try:
        fitted(agreeing(table, options), schema, options.on(table.config))
    except LakelatchError:
        return False
    return True


def _begin_anew() -> None:
    """Resets a forked child: another thread of its parent may have held the lock."""
    global _guard
    _guard = threading.Lock()
    _tables.clear()


os.register_at_fork(after_in_child=_begin_anew)
