"""The suite that every storage must pass: subclass one of these in a test file, and give `make_storage`.

`StorageConformance` is for a storage that one process sees, `SharedStorageConformance` for one that all see.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryFile
from threading import Barrier, Event
from typing import TypeAlias

from lakelatch.errors import LakelatchError
from lakelatch.storage.contract import (
    STAGING_FOLDER,
    Listing,
    NotFound,
    PutUnknown,
    Storage,
    SupportsDeleteAtOnce,
    SupportsFirstPaths,
)
from lakelatch.testing.conformance import in_processes
from lakelatch.testing.conformance.in_processes import run_together

NAMES = ("plain", "ключ 鍵 é", "with space", "a%2Fb", "a#b?c=d", "d=1", "-dash", ".hidden", "x" * 200)
CONTENTS = (b"", b"\x00", b"line\r\nline\n", bytes(range(256)))
LARGE = bytes(range(256)) * 20_480  # 5 MiB
WRITERS = 8
ROUNDS = 20

Attempts: TypeAlias = tuple[int, list[bool]]  # a writer, and for each slot whether it was answered that it created it


def put_and_resolve(storage: Storage, path: str, data: bytes) -> bool:
    """Whether this call created the object; where the storage does not know it, the content shows it."""
    try:
        return storage.put_if_absent(path, data)
    except PutUnknown:
        return storage.exists(path) and storage.read(path) == data


class StorageConformance:
    """Each test gets its own storage, below pytest's `tmp_path` where it needs a folder.

    `shows_emptied_folders`: stores that keep folders may list one for a while after its last object has gone.
    """

    shows_emptied_folders = False

    def make_storage(self, folder: Path) -> Storage:
        """A new storage with nothing in it."""
        raise NotImplementedError

    # One object

    def test_what_was_put_is_read(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for number, data in enumerate((*CONTENTS, LARGE)):
            path = f"folder/{number}"
            storage.put(path, data)
            assert storage.read(path) == data
            assert storage.stat(path).size_bytes == len(data) and storage.exists(path)
            assert storage.put_if_absent(f"other/{number}", data)
            assert storage.read(f"other/{number}") == data

    def test_parts_of_an_object_are_read(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("f/a", LARGE)
        size = len(LARGE)
        for start, count in ((0, 1), (1, 300), (size - 2, 2), (size - 2, 100), (size, 1), (size + 9, 1), (5, 0)):
            assert storage.read_range("f/a", start, count) == LARGE[start : start + count]
        for count in (1, 1000, size - 1, size, size + 1):
            assert storage.read_end("f/a", count) == (LARGE[max(0, size - count) :], size)
        for path, content in (("f/empty", b""), ("f/one", b"1")):
            storage.put(path, content)
            assert storage.read_end(path, 1) == storage.read_end(path, 100) == (content, len(content))
            assert storage.read_range(path, 0, 100) == content
        for path in ("f/b", "nowhere/a", "f"):
            for ask in (partial(storage.read_range, start=0, size_bytes=1), partial(storage.read_end, size_bytes=1)):
                assert path in str(assert_not_found(ask, path))

    def test_a_put_replaces(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for data in (b"first, and long", b"second", b""):
            storage.put("a", data)
            assert storage.read("a") == data and storage.stat("a").size_bytes == len(data)

    def test_the_first_paths_are_some_or_all(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for path in ("f/a", "f/g/b", "fg/c", ".f/d"):
            storage.put(path, b"1")
        for folder in ("", "f", "f/g", "nowhere"):
            found, complete = storage.first_paths(folder) if isinstance(storage, SupportsFirstPaths) else ((), False)
            there = sorted(storage.walk(folder))
            assert sorted(found) == there if complete else set(found) <= set(there)

    def test_a_put_if_absent_leaves_what_is_there(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for content in (b"", b"first"):
            path = f"f/{len(content)}"
            assert storage.put_if_absent(path, content) is True
            assert storage.put_if_absent(path, b"second") is False
            assert storage.put_if_absent(path, content) is False
            assert storage.read(path) == content
        storage.put("by/put", b"first")
        assert storage.put_if_absent("by/put", b"second") is False and storage.read("by/put") == b"first"

    def test_a_file_creates_an_object_once(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for number, data in enumerate((b"", b"small", LARGE * 4)):
            with TemporaryFile() as file:
                file.write(data)
                file.flush()
                assert storage.create_from_file(f"f/{number}", file) is True
                assert storage.create_from_file(f"f/{number}", file) is False
                storage.put("taken", b"before")
                assert storage.create_from_file("taken", file) is False
            assert storage.read(f"f/{number}") == data and storage.read("taken") == b"before"
        assert storage.list(STAGING_FOLDER).files == ()

    def test_a_deleted_object_can_be_created_again(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        assert storage.put_if_absent("f/a", b"1")
        storage.delete("f/a")
        assert not storage.exists("f/a") and storage.list("f").files == ()
        assert storage.put_if_absent("f/a", b"2") and storage.read("f/a") == b"2"

    def test_deleting_nothing_does_nothing(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("f/a", b"1")
        for path in ("f/b", "g/a", "f/a/b"):
            storage.delete(path)
        assert list(storage.walk("f")) == ["f/a"]

    def test_what_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("folder/a", b"1")
        for path in ("b", "folder/b", "nowhere/a", "folder/a/b", "folder"):
            assert not storage.exists(path)
            for ask in (storage.read, storage.stat):
                error = assert_not_found(ask, path)
                assert repr(path) in str(error) and error.details["path"] == path

    def test_times_do_not_go_back(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("a", b"1")
        first = storage.stat("a").modified_ms
        Event().wait(0.02)
        storage.put("a", b"2")
        assert 0 < first <= storage.stat("a").modified_ms
        storage.put("b", b"1")
        assert storage.stat("a").modified_ms <= storage.stat("b").modified_ms

    # Names

    def test_any_name_will_do(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for number, name in enumerate(NAMES):
            storage.put(f"{name}/{name}", str(number).encode())
        assert [name for name in NAMES if name not in storage.list("").folders] == []
        for number, name in enumerate(NAMES):
            assert storage.list(name) == Listing((name,), ())
            assert storage.read(f"{name}/{name}") == str(number).encode()
            storage.delete(f"{name}/{name}")
            assert not storage.exists(f"{name}/{name}")

    def test_full_paths_begin_with_the_uri(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        assert "://" in storage.uri and not storage.uri.endswith("/")
        assert storage.full_path("d=1/a") == f"{storage.uri}/d=1/a"

    # Folders

    def test_a_listing_shows_one_level_in_name_order(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for path in ("f/b", "f/a", "f/d/x", "f/c/y/z", "f/c/x", "f2/a", "a"):
            storage.put(path, b"")
        assert storage.list("f") == Listing(("a", "b"), ("c", "d"))
        assert storage.list("f/c") == Listing(("x",), ("y",))
        assert {"f", "f2"} <= set(storage.list("").folders) and storage.list("").files == ("a",)
        assert storage.list("nowhere") == storage.list("f/a") == Listing((), ())

    def test_a_listing_is_complete(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        names = tuple(f"{number:04}" for number in range(300))
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda name: storage.put(f"many/{name}", b""), names))
        assert storage.list("many").files == names

    def test_a_walk_finds_everything_below(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        paths = ["f/a", "f/b", "f/c/x", "f/c/y/z"]
        for path in [*reversed(paths), "f2/a"]:
            storage.put(path, b"")
        assert list(storage.walk("f")) == paths
        assert sorted(storage.walk("")) == sorted([*paths, "f2/a"])
        assert list(storage.walk("nowhere")) == []

    def test_a_folder_is_deleted_with_all_below(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for path in ("f/a", "f/c/x", "f2/a"):
            storage.put(path, b"")
        storage.delete_folder("f")
        storage.delete_folder("nowhere")
        assert list(storage.walk("")) == ["f2/a"]
        assert self.shows_emptied_folders or "f" not in storage.list("").folders
        assert storage.put_if_absent("f/a", b"again")

    def test_what_is_known_is_removed_at_once_or_not_at_all(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        for path in ("f/a", "f/c/x", "f2/a", "f2/b"):
            storage.put(path, b"")
        removed = isinstance(storage, SupportsDeleteAtOnce)
        if isinstance(storage, SupportsDeleteAtOnce):
            storage.delete_at_once(["f/a", "f/c/x", "f/never", "f2/b"])
            storage.delete_at_once([])
        assert list(storage.walk("")) == (["f2/a"] if removed else ["f/a", "f/c/x", "f2/a", "f2/b"])

    def test_requests_side_by_side_are_answered_in_order(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        names = [f"f/{number}" for number in range(20)]
        puts = [partial(storage.put_if_absent, path, path.encode()) for path in names]
        assert list(storage.together(*puts)) == [True] * 20
        reads = [partial(storage.read, path) for path in names]
        nested = [partial(storage.together, *reads) for _ in range(20)]
        assert [list(found) for found in storage.together(*nested)] == [[path.encode() for path in names]] * 20
        assert list(storage.together()) == []

    def test_of_requests_side_by_side_the_first_error_is_raised_when_none_is_under_way(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("a", b"")
        there, missing = partial(storage.read, "a"), [partial(storage.read, f"missing {number}") for number in range(2)]
        error = assert_not_found(lambda _: storage.together(there, *missing, there), "missing 0")
        assert "missing 0" in str(error)

    # Races

    def test_of_many_threads_one_creates(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        barrier = Barrier(WRITERS)

        def race(writer: int) -> Attempts:
            won = []
            for number in range(ROUNDS):
                barrier.wait(60)
                won.append(put_and_resolve(storage, f"slots/{number}", content_of(writer, number)))
            return writer, won

        with ThreadPoolExecutor(WRITERS) as pool:
            check_winners(storage, list(pool.map(race, range(WRITERS))))

    def test_a_reader_sees_whole_objects_only(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        sizes = (1, 700_000, 3)
        storage.put("a", b"\x00")
        done = Event()

        def replace() -> None:
            try:
                for turn in range(60):
                    storage.put("a", bytes([turn % 3]) * sizes[turn % 3])
            finally:
                done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(replace)
            reads = 0
            while not done.is_set() or reads == 0:
                data = storage.read("a")
                assert data == bytes(data[:1]) * sizes[data[0]]
                reads += 1
            writing.result()

    def test_a_pickled_copy_is_the_same_place(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        copy = pickle.loads(pickle.dumps(storage))
        storage.put("a", b"1")
        assert copy.uri == storage.uri and copy.read("a") == b"1"
        assert copy.put_if_absent("a", b"2") is False
        copy.put("b", b"3")
        assert storage.read("b") == b"3"


class SharedStorageConformance(StorageConformance):
    """For a storage that other processes see too."""

    def test_of_many_processes_one_creates(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        check_winners(storage, run_together(WRITERS, race_in_process, storage))

    def test_another_process_sees_each_change_at_once(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        child = in_processes.Child(tell_what_is_there, storage)

        def seen(path: str) -> bytes | None:
            child.send(path)
            found: bytes | None = child.receive()
            return found

        try:
            for path in ("a", "f/b"):
                assert seen(path) is None
                assert storage.put_if_absent(path, b"1") and seen(path) == b"1"
                storage.put(path, b"2")
                assert seen(path) == b"2"
                storage.delete(path)
                assert seen(path) is None
        finally:
            child.kill()


def content_of(writer: int, number: int) -> bytes:
    return f"{writer} {number} ".encode() * 500


def check_winners(storage: Storage, attempts: list[Attempts]) -> None:
    """Of each slot exactly one writer got the answer that it created it, and the slot holds its content whole."""
    assert len(attempts) == WRITERS
    for number in range(ROUNDS):
        winners = [writer for writer, won in attempts if won[number]]
        assert len(winners) == 1, f"slot {number} was created by {winners}"
        assert storage.read(f"slots/{number}") == content_of(winners[0], number)


def race_in_process(connection: Connection, storage: Storage) -> None:
    """Target of a child process: tries to create every slot, and sends which it created."""
    in_processes.start(connection)
    writer = os.getpid()
    won = [storage.put_if_absent(f"slots/{number}", content_of(writer, number)) for number in range(ROUNDS)]
    connection.send((writer, won))


def tell_what_is_there(connection: Connection, storage: Storage) -> None:
    """Target of a child process: sends the content of each path that it is asked for, None if there is no object."""
    while True:
        path = connection.recv()
        connection.send(storage.read(path) if storage.exists(path) else None)


def assert_not_found(ask: Callable[[str], object], path: str) -> LakelatchError:
    try:
        found = ask(path)
    except NotFound as error:
        return error
    raise AssertionError(f"{path!r} was to be missing, and {found!r} came")
