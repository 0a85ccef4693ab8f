"""From the path that a user writes to the storage that holds the table."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import find_memory_storage


def open_storage(path: str) -> Storage:
    """The storage at a path or URI; makes nothing and asks nothing of it yet.

    Errors: `InvalidRequest` for an empty path and for a scheme that this version has no storage for.
    """
    if not path:
        raise InvalidRequest("the option 'path' is empty: name the table's folder, as in save('/data/flights')")
    scheme = urlsplit(path).scheme if "://" in path or path.startswith("file:") else ""
    if scheme == "":
        return LocalStorage(os.path.abspath(path))
    if scheme == "file":
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequest(f"the path {path!r} names the host {parts.netloc!r}: write file:///folder")
        return LocalStorage(os.path.abspath(unquote(parts.path)))
    if scheme == "memory":
        return find_memory_storage(urlsplit(path).netloc)
    raise InvalidRequest(
        f"the path {path!r} is on {scheme!r}, for which this version has no storage: use a local path or file:///..."
    )
