"""Objects in a dictionary, for simulation and for tests of what stands above storage."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from typing import Any

from lakelatch.storage.contract import FileStatus, Listing, NotFound, Storage
from lakelatch.system import REAL_SYSTEM, System

_places: dict[str, MemoryStorage] = {}
_finding = threading.Lock()
_FILES, _FOLDERS = 0, 1


class MemoryStorage(Storage):
    """Objects that live as long as the process. A copy that was pickled finds the same place again, by its name."""

    def __init__(self, name: str, system: System = REAL_SYSTEM) -> None:
        self._name = name
        self._system = system
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        # By folder: the files and the folders directly below it, in order, so that no listing sorts them.
        self._below: dict[str, tuple[list[str], list[str]]] = {}
        self._listings: dict[str, Listing] = {}  # of folders that have not changed since
        _places[name] = self

    @property
    def uri(self) -> str:
        return f"memory://{self._name}"

    def read(self, path: str) -> bytes:
        with self._lock:
            return self._find(path)[0]

    def stat(self, path: str) -> FileStatus:
        with self._lock:
            data, modified_ms = self._find(path)
        return FileStatus(len(data), modified_ms)

    def list(self, folder: str) -> Listing:
        with self._lock:
            listing = self._listings.get(folder)
            if listing is None:
                files, folders = self._below.get(folder, ((), ()))
                listing = Listing(tuple(files), tuple(folders))
                if files or folders:
                    self._listings[folder] = listing
            return listing

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._set(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self._objects:
                return False
            self._set(path, data)
            return True

    def delete(self, path: str) -> None:
        with self._lock:
            if self._objects.pop(path, None) is not None:
                self._forget_name(path)

    def _set(self, path: str, data: bytes) -> None:
        if path not in self._objects:
            kind, inner = _FILES, path
            while inner:
                inner, _, name = inner.rpartition("/")
                below = self._below.get(inner)
                if below is None:
                    below = self._below[inner] = [], []
                if kind == _FOLDERS and _has(below[kind], name):  # with all those above it
                    break
                insort(below[kind], name)
                self._listings.pop(inner, None)
                kind = _FOLDERS
        self._objects[path] = (bytes(data), self._system.realtime_ms())

    def _forget_name(self, path: str) -> None:
        """Also of folders that are empty now, which do not exist."""
        kind = _FILES
        while path:
            path, _, name = path.rpartition("/")
            below = self._below[path]
            del below[kind][bisect_left(below[kind], name)]
            self._listings.pop(path, None)
            if any(below):
                return
            del self._below[path]
            kind = _FOLDERS

    def _find(self, path: str) -> tuple[bytes, int]:
        if path not in self._objects:
            raise NotFound(f"there is no object {path!r} in {self.uri}", path=path)
        return self._objects[path]

    def __reduce__(self) -> tuple[Any, ...]:
        return find_memory_storage, (self._name,)


def _has(names: list[str], name: str) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def find_memory_storage(name: str) -> MemoryStorage:
    """The place of this name in this process, made on first use."""
    with _finding:
        return _places.get(name) or MemoryStorage(name)
