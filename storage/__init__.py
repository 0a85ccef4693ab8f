"""One place with objects in it: read, list, put, put if absent, delete."""

from lakelatch.storage.contract import FileStatus, Listing, NotFound, PutUnknown, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.storage.uris import open_storage

__all__ = [
    "FileStatus",
    "Listing",
    "LocalStorage",
    "MemoryStorage",
    "NotFound",
    "PutUnknown",
    "Storage",
    "open_storage",
]
