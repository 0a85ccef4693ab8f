"""Making an empty table, with its fixed properties as keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from lakelatch.engine.options.calls import keywords
from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.manager import open_manager
from lakelatch.errors import InvalidRequest
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.properties_file import is_table


def create(
    path: str,
    schema: Callable[[], pa.Schema],
    options: Options | None,
    *,
    key: str | Iterable[str] | None,
    ordering: str | None = None,
    partition_by: str | Iterable[str] = (),
    buckets: int | None = None,
    if_exists: str = "error",
) -> None:
    """See `Table.create`; `schema` is asked once the options are known to be right."""
    if if_exists not in ("error", "ignore"):
        raise InvalidRequest(f"if_exists={if_exists!r}: it is 'error' or 'ignore'", option="if_exists")
    said = keywords.options(key=key, ordering=ordering, partition_by=partition_by or None, buckets=buckets)
    parsed = Call({**(options or {}), **said}).write()
    storage = open_storage(path, parsed.manager.storage)
    if if_exists == "error" and is_table(storage):
        raise InvalidRequest(f"there is a table at {path} already: use it, or say if_exists='ignore'")
    with open_manager(storage, parsed.manager):  # so that wrong lock options make no table
        open_for_write(storage, parsed, schema())
