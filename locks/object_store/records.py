"""Lock records as objects, each of them JSON with a checksum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.records.store import Put, Record, RecordStore
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.storage.object_store import ObjectStore, PutCollided
from lakelatch.system import System

_SUFFIX = ".json"
_FEW = 4  # reads cost as much as one listing for each folder


class ObjectRecords(RecordStore):
    """Each record an object below a folder of the store."""

    def __init__(self, objects: ObjectStore, folder: str, system: System) -> None:
        super().__init__(system)
        self._objects = objects
        self._folder = folder + "/" if folder else ""

    def get(self, name: str) -> Record | None:
        path = self._path(name)
        try:
            found = self._objects.get(path)
        except NotFound:
            return None
        value = open_checksummed_json(found.data, name)
        if value is None:
            raise CorruptTable(
                f"the lock record {path!r} in {self._objects.where} is damaged, or another one's: stop all writers, "
                "and remove it",
                path=path,
            )
        return Record(value, found.version)

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        version = put_version(self._objects, self._path(name), checksummed_json(value, name), expected)
        return None if version is None else Put(True, Record(value, version))

    def delete(self, name: str) -> None:
        self._objects.delete(self._path(name))

    def names(self, prefix: str) -> list[str]:
        paths = self._objects.paths(self._folder + prefix.rstrip("/"))
        return [path[len(self._folder) : -len(_SUFFIX)] for path in paths if path.endswith(_SUFFIX)]

    def get_all(self, names: Iterable[str]) -> dict[str, Record]:
        """Of many names, of which few have a record, those that a listing shows are read."""
        wanted = list(names)
        if len(wanted) > _FEW:
            folders = sorted({name.rpartition("/")[0] + "/" for name in wanted})
            there = {name for folder in folders for name in self.names(folder)}
            wanted = [name for name in wanted if name in there]
        return super().get_all(wanted)

    def time_ms(self) -> int | None:
        """By the stamp of an object that is put for it, and removed."""
        path = self._path(f"now/{self.system.new_id()}")
        self._objects.put_if_absent(path, b"")
        try:
            return self._objects.get(path).modified_ms
        finally:
            self._objects.delete(path)

    def close(self) -> None:
        self._objects.close()

    def _path(self, name: str) -> str:
        return self._folder + name + _SUFFIX


def put_version(objects: ObjectStore, path: str, data: bytes, expected: str | None) -> str | None:
    """Puts an object if it still has the expected version (None: if there is none); the new version.

    None says that it was refused, and not what is there instead. `Unavailable` means that it may have happened.
    """
    try:
        if expected is None:
            return objects.put_if_absent(path, data)
        return objects.replace(path, data, expected)
    except PutCollided:
        return None
    except PutUnknown as error:  # a caller who asked for a lease has put nothing into the table
        raise Unavailable(error.message, **error.details) from error
