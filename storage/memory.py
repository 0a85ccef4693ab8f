"""Objects in a dictionary, for simulation and for tests of what stands above storage."""

from __future__ import annotations

import threading
from typing import Any

from lakelatch.storage.contract import FileStatus, Listing, NotFound, Storage
from lakelatch.system import REAL_SYSTEM, System

_places: dict[str, MemoryStorage] = {}
_finding = threading.Lock()


class MemoryStorage(Storage):
    """Objects that live as long as the process. A copy that was pickled finds the same place again, by its name."""

    def __init__(self, name: str, system: System = REAL_SYSTEM) -> None:
        self._name = name
        self._system = system
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
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
        prefix = f"{folder}/" if folder else ""
        files: set[str] = set()
        folders: set[str] = set()
        with self._lock:
            for path in self._objects:
                if path.startswith(prefix):
                    name, slash, _ = path[len(prefix) :].partition("/")
                    (folders if slash else files).add(name)
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._objects[path] = (bytes(data), self._system.realtime_ms())

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self._objects:
                return False
            self._objects[path] = (bytes(data), self._system.realtime_ms())
            return True

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(path, None)

    def _find(self, path: str) -> tuple[bytes, int]:
        if path not in self._objects:
            raise NotFound(f"there is no object {path!r} in {self.uri}", path=path)
        return self._objects[path]

    def __reduce__(self) -> tuple[Any, ...]:
        return find_memory_storage, (self._name,)


def find_memory_storage(name: str) -> MemoryStorage:
    """The place of this name in this process, made on first use."""
    with _finding:
        return _places.get(name) or MemoryStorage(name)
