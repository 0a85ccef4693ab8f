"""Names tables near a path that is no table, which the user may have meant."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.console.base.invocation import and_more
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.properties_file import PROPERTIES_PATH, is_table

_LOOKED_AT, _NAMED, _ABOVE = 50, 5, 5


def with_tables_nearby(error: LakelatchError, path: str, options: Mapping[str, str]) -> LakelatchError:
    """The error; if it says that there is no table, it also names tables found below or above the path."""
    if not error.details.get("no_table"):
        return error
    try:
        found = _found(path, StorageOptions.from_options(options))
    except LakelatchError:  # the first error matters more
        return error
    return InvalidRequest(f"{error.message}. {found}", **error.details) if found else error


def _found(path: str, options: StorageOptions) -> str:
    storage = open_storage(path, options)
    listed = storage.list("")
    tables = [name for name in sorted(listed.folders)[:_LOOKED_AT] if storage.exists(f"{name}/{PROPERTIES_PATH}")]
    if tables:
        return f"Below it are tables: {and_more(tables[:_NAMED], len(tables))}"
    above = storage.uri
    for _ in range(_ABOVE):
        above = above.rpartition("/")[0]
        if above.endswith(("/", ":")):
            break
        outer = open_storage(above, options)
        if is_table(outer):
            return f"It is within the table at {outer.uri}"
    return ""
