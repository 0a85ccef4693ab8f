"""Objects with conditional puts, whatever keeps them, and records on top of them."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from zlib import crc32

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.kernel_locks import kernel_locks
from lakelatch.locks.records import Put, Record, RecordStore, check_conditions
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.seals import json_object, open_sealed_json, sealed_json
from lakelatch.system import System

_GUARDS = 16
_GUARD = "+guard."
_SUFFIX = ".json"


class Blobs(ABC):
    """Objects by path. A version stays until the content changes; the same content may have the same version again."""

    #: For messages, without secrets.
    where: str

    @abstractmethod
    def get(self, path: str) -> tuple[bytes, str] | None:
        """The newest content and its version."""

    @abstractmethod
    def put(self, path: str, data: bytes, expected: str | None) -> str | None:
        """Puts the object if it still has the expected version (None: if there is none); the new version.

        None says that it was refused. It is sent once, and `Unavailable` means that it may have happened.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes the object, whatever its version."""

    @abstractmethod
    def paths(self, folder: str) -> list[str]:
        """All paths below a folder."""

    @abstractmethod
    def close(self) -> None:
        """Gives up connections."""


class BlobRecords(RecordStore):
    """Each record a JSON object below a folder of the blobs."""

    def __init__(self, blobs: Blobs, folder: str, system: System) -> None:
        super().__init__(system)
        self._blobs = blobs
        self._folder = folder + "/" if folder else ""

    def get(self, name: str) -> Record | None:
        found = self._blobs.get(self._path(name))
        return Record(self._open(found[0], name), found[1]) if found else None

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        version = self._blobs.put(self._path(name), sealed_json(value, name), expected)
        return None if version is None else Put(True, Record(value, version))

    def delete(self, name: str) -> None:
        self._blobs.delete(self._path(name))

    def names(self, prefix: str) -> list[str]:
        paths = self._blobs.paths(self._folder + prefix.rstrip("/"))
        return [path[len(self._folder) : -len(_SUFFIX)] for path in paths if path.endswith(_SUFFIX)]

    def close(self) -> None:
        self._blobs.close()

    def _open(self, data: bytes, name: str) -> dict[str, Any]:
        found = open_sealed_json(data, name)
        if found is None:
            path = self._path(name)
            raise CorruptTable(
                f"the lock record {path!r} in {self._blobs.where} is damaged, or another one's: stop all writers, and "
                "remove it",
                path=path,
            )
        return found

    def _path(self, name: str) -> str:
        return self._folder + name + _SUFFIX


class GuardedBlobs(Blobs):
    """Compare and replace in a storage that cannot do so itself: under a kernel lock, among all processes of a machine.

    The guards' files lie in `guard_folder` of the storage, which has to be local, or in memory. A put is on the disk
    when it returns. Readers need no guard, since the storage replaces whole files.
    """

    def __init__(self, storage: Storage, guard_folder: str, wait_s: float, option: str) -> None:
        self.where = storage.uri
        self._storage = storage
        self._guards = os.path.join(storage.root, guard_folder) if isinstance(storage, LocalStorage) else None
        self._wait_s = wait_s
        self._option = option

    def get(self, path: str) -> tuple[bytes, str] | None:
        try:
            data = self._storage.read(path)
        except NotFound:
            return None
        return data, sha256(data).hexdigest()

    def put(self, path: str, data: bytes, expected: str | None) -> str | None:
        with self._guard(path):
            found = self.get(path)
            if (found[1] if found else None) != expected:
                return None
            self._storage.put(path, data)
        return sha256(data).hexdigest()

    def delete(self, path: str) -> None:
        with self._guard(path):
            self._storage.delete(path)

    def paths(self, folder: str) -> list[str]:
        return list(self._storage.walk(folder))

    def close(self) -> None:
        """Nothing stays open, not even the guards."""
        if self._guards is not None:
            kernel_locks().forget(self._guards)

    @contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        if self._guards is None:
            with _in_memory:
                yield
            return
        file = os.path.join(self._guards, f"{_GUARD}{crc32(path.encode()) % _GUARDS:02d}")
        try:
            taken = kernel_locks().take(file, self._wait_s)
        except Unavailable as error:
            raise Unavailable(
                f"the lock records in {self.where} cannot be guarded ({error.message}); {self._option} may name "
                "another place for them",
                option=self._option,
            ) from error
        if taken is None:
            raise Unavailable(
                f"another process holds {file} for longer than {self._wait_s:g} s, which takes a few milliseconds: "
                "look for one that is stopped"
            )
        try:
            yield
        finally:
            taken.free()


class CheckedBlobs(Blobs):
    """Blobs whose promise is tried out before they are used: by a few puts below a folder, once in this process."""

    def __init__(self, blobs: Blobs, folder: str, system: System, option: str, identity: Hashable) -> None:
        self.where = blobs.where
        self._blobs = blobs
        self._trial = BlobRecords(blobs, folder, system)
        self._option = option
        self._identity = identity

    def get(self, path: str) -> tuple[bytes, str] | None:
        return self._ready().get(path)

    def put(self, path: str, data: bytes, expected: str | None) -> str | None:
        return self._ready().put(path, data, expected)

    def delete(self, path: str) -> None:
        self._ready().delete(path)

    def paths(self, folder: str) -> list[str]:
        return self._ready().paths(folder)

    def close(self) -> None:
        self._blobs.close()

    def _ready(self) -> Blobs:
        if self._identity not in _checked:
            check_conditions(self._trial, self.where, self._option)
            _checked.add(self._identity)
        return self._blobs


_checked: set[Hashable] = set()
_in_memory = threading.Lock()


def _begin_anew() -> None:
    global _in_memory
    _in_memory = threading.Lock()  # a thread that held it does not exist in a forked child


os.register_at_fork(after_in_child=_begin_anew)


def read_json(data: bytes, path: str, where: str) -> dict[str, Any]:
    """A JSON object that Java Hudi writes too."""
    found = json_object(data)
    if found is None:
        raise CorruptTable(
            f"{path!r} in {where} is no JSON object, as a lock has to be: stop all writers, and remove it", path=path
        )
    return found
