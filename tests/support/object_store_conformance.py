"""The suite that every object store must pass: subclass one of these in a test file.

`ObjectStoreConformance` is for one that one process sees, `SharedObjectStoreConformance` for one that all see.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.storage.object_store import ObjectStore, VersionedObject
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance import in_processes
from lakelatch.testing.conformance.in_processes import run_together

WRITERS, ROUNDS = 4, 25


class ObjectStoreConformance:
    """Each test gets its own store, below pytest's `tmp_path` where it needs a folder."""

    def make_objects(self, folder: Path) -> ObjectStore:
        """A new store with nothing in it."""
        raise NotImplementedError

    def test_an_object_is_created_once_and_replaced_as_it_was_read(self, tmp_path: Path) -> None:
        objects = self.make_objects(tmp_path)
        with pytest.raises(NotFound, match="'f/a'"):
            objects.get("f/a")
        first = objects.put_if_absent("f/a", b"1")
        assert first is not None and objects.get("f/a") == VersionedObject(b"1", first)
        assert objects.put_if_absent("f/a", b"2") is None
        second = objects.replace("f/a", b"2", first)
        assert second is not None and objects.get("f/a") == VersionedObject(b"2", second)
        assert objects.replace("f/a", b"3", first) is None and objects.get("f/a").data == b"2"
        assert objects.put_if_absent("f/b/c", b"4") and sorted(objects.paths("f")) == ["f/a", "f/b/c"]
        objects.delete("f/a")
        objects.delete("f/a")
        assert objects.replace("f/a", b"5", second) is None
        assert objects.paths("f") == ["f/b/c"] and objects.paths("nowhere") == []
        objects.close()

    def test_no_replacement_of_many_threads_is_lost(self, tmp_path: Path) -> None:
        objects = self.make_objects(tmp_path)
        assert objects.put_if_absent("list", b"")
        with ThreadPoolExecutor(WRITERS) as threads:
            added = [name for names in threads.map(lambda _: add_names(objects), range(WRITERS)) for name in names]
        assert sorted(objects.get("list").data.decode().split()) == sorted(added)


class SharedObjectStoreConformance(ObjectStoreConformance):
    """For a store that other processes see too."""

    def test_no_replacement_of_many_processes_is_lost(self, tmp_path: Path) -> None:
        objects = self.make_objects(tmp_path)
        assert objects.put_if_absent("list", b"")
        added = [name for names in run_together(WRITERS, add_in_process, objects) for name in names]
        assert sorted(objects.get("list").data.decode().split()) == sorted(added)


def add_names(objects: ObjectStore) -> list[str]:
    """Adds names to a list that others add to; says which it has added."""
    added: list[str] = []
    while len(added) < ROUNDS:
        name, found = REAL_SYSTEM.new_id(), objects.get("list")
        try:
            done = objects.replace("list", found.data + f"{name}\n".encode(), found.version) is not None
        except PutUnknown:
            done = name in objects.get("list").data.decode()
        added += [name] if done else []
    return added


def add_in_process(connection: Connection, objects: ObjectStore) -> None:
    """Target of a child process."""
    in_processes.start(connection)
    connection.send(add_names(objects))
