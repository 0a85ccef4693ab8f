"""Objects with versions, which are created once, and replaced only as they were read.

`put_if_absent` is the one of `storage/contract.py`, and so are the promises: whole or not at all, durable, exactly one,
visible to all at once, and an unknown outcome is said to be one. A request is sent once, here and by client libraries,
because the first try of a put could refuse the second.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from zlib import crc32

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage.contract import NotFound, PutUnknown, Storage, path_below
from lakelatch.storage.kernel_locks import kernel_locks
from lakelatch.storage.local import LocalStorage
from lakelatch.system import PerProcess, System

_GUARDS = 16
_GUARD = "+guard."


class PutCollided(PutUnknown):
    """Two puts of one object met, and the store does not say which of them won; this one is not on its way any more."""


@dataclass(frozen=True)
class VersionedObject:
    """An object as it was read. A version stays until the content changes; the same content may have the same again.

    `modified_ms` is when it was put, by the store's clock; None if it is not told.
    """

    data: bytes
    version: str
    modified_ms: int | None = field(default=None, compare=False)


class ObjectStore(ABC):
    """Objects by path. Values of it pickle, and the copy holds no connection.

    Errors of all calls: `Unavailable`, and `InvalidRequest` for wrong settings, credentials and rights.
    """

    #: The place, for messages, without secrets.
    where: str

    @abstractmethod
    def get(self, path: str) -> VersionedObject:
        """The newest object, or `NotFound`."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> str | None:
        """Creates the object; its version, or None if there is one already; `PutUnknown` if it cannot tell."""

    @abstractmethod
    def replace(self, path: str, data: bytes, version: str) -> str | None:
        """Replaces the object if it still has this version; its new one, or None if it is another one's or gone.

        Errors: `PutUnknown` if it cannot tell.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes the object, whatever its version; nothing happens if there is none."""

    @abstractmethod
    def paths(self, folder: str) -> list[str]:
        """All paths below a folder, in no order."""

    @abstractmethod
    def close(self) -> None:
        """Gives up connections."""


class GuardedObjectStore(ObjectStore):
    """Replaces in a storage that cannot compare: under a kernel lock, among all processes of one machine.

    The locked files lie in `guard_folder` of the storage, which has to be local, or in memory. Readers need no guard,
    since the storage replaces whole files. `option` is where the user chose the place, for messages.
    """

    def __init__(self, storage: Storage, guard_folder: str, wait_s: float, option: str) -> None:
        self.where = storage.uri
        self._storage = storage
        self._guards = os.path.join(storage.root, guard_folder) if isinstance(storage, LocalStorage) else None
        self._wait_s = wait_s
        self._option = option

    def get(self, path: str) -> VersionedObject:
        data = self._storage.read(path)
        return VersionedObject(data, _digest(data))

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        with self._guard(path):
            return _digest(data) if self._storage.put_if_absent(path, data) else None

    def replace(self, path: str, data: bytes, version: str) -> str | None:
        with self._guard(path):
            try:
                if self.get(path).version != version:
                    return None
            except NotFound:
                return None
            self._storage.put(path, data)
        return _digest(data)

    def delete(self, path: str) -> None:
        with self._guard(path):
            self._storage.delete(path)

    def paths(self, folder: str) -> list[str]:
        return list(self._storage.walk(folder))

    def close(self) -> None:
        """Closes the locked files, which are kept open while they are in use."""
        if self._guards is not None:
            kernel_locks().forget(self._guards)

    @contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        if self._guards is None:
            with _in_memory():
                yield
            return
        file = os.path.join(self._guards, f"{_GUARD}{crc32(path.encode()) % _GUARDS:02d}")
        try:
            taken = kernel_locks().take(file, self._wait_s)
        except Unavailable as error:
            raise Unavailable(
                f"the objects in {self.where} cannot be guarded ({error.message}); {self._option} may name another "
                "place for them",
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


class CheckedObjectStore(ObjectStore):
    """A store that is tried out before its first use, once in this process: by a few puts below a folder.

    `identity` says which stores are one; `option` is where the user chose the store, for the refusal.
    """

    def __init__(self, objects: ObjectStore, folder: str, system: System, option: str, identity: Hashable) -> None:
        self.where = objects.where
        self._objects = objects
        self._folder = folder
        self._system = system
        self._option = option
        self._identity = identity

    def get(self, path: str) -> VersionedObject:
        return self._checked().get(path)

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        return self._checked().put_if_absent(path, data)

    def replace(self, path: str, data: bytes, version: str) -> str | None:
        return self._checked().replace(path, data, version)

    def delete(self, path: str) -> None:
        self._checked().delete(path)

    def paths(self, folder: str) -> list[str]:
        return self._checked().paths(folder)

    def close(self) -> None:
        self._objects.close()

    def _checked(self) -> ObjectStore:
        if self._identity not in _known_to_be_good:
            check_conditions(self._objects, self._folder, self._system, self._option)
            _known_to_be_good.add(self._identity)
        return self._objects


def check_conditions(objects: ObjectStore, folder: str, system: System, option: str) -> None:
    """Refuses a store that does not keep its conditions; some clones of object stores ignore them without a word.

    Errors: `InvalidRequest`, naming the option that chose the store.
    """
    trial = system.new_id()
    path = path_below(folder, f"checks/{trial}.json")

    def put(number: int, version: str | None) -> str | None:
        """The new version if this put happened, also if the answer to it was lost and the second one says no."""
        data = f'{{"trial": "{trial}", "put": {number}}}'.encode()
        try:
            done = objects.put_if_absent(path, data) if version is None else objects.replace(path, data, version)
            if done is not None:
                return done
            found = objects.get(path)
        except NotFound:
            return None
        except PutUnknown as error:
            raise Unavailable(error.message, **error.details) from error
        return found.version if found.data == data else None

    try:
        first = put(1, None)
        if first is None or put(2, None) is not None:
            raise _lies(objects, "creates an object that must not exist yet a second time (If-None-Match: *)", option)
        if put(3, first) is None:
            raise _lies(objects, "refuses to replace an unchanged object (If-Match)", option)
        if put(4, first) is not None:
            raise _lies(objects, "replaces an object that has changed since (If-Match)", option)
    finally:
        objects.delete(path)


def _lies(objects: ObjectStore, lie: str, option: str) -> InvalidRequest:
    return InvalidRequest(
        f"{objects.where} {lie}, so that two writers could both win: set {option} to a store with conditional puts",
        option=option,
    )


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


_known_to_be_good: set[Hashable] = set()
_in_memory = PerProcess(threading.Lock)  # a thread that held it does not exist in a forked child
