"""Objects that are read one after the other, some ahead: their order, the requests, the memory, the errors."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from storages.counting import CountingStorage

from lakelatch.format.merge.reading_ahead import AT_ONCE, SMALL_BYTES, read_each
from lakelatch.storage import open_storage
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET


class _Ranges(CountingStorage):
    """Counts ranges as what they are."""

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        self._note("read_range", path)
        with self._uncounted():
            return super().read_range(path, start, size_bytes)


def put_all(storage: Storage, contents: list[bytes]) -> list[str]:
    paths = [f"f/{number:03}" for number in range(len(contents))]
    storage.together(*(partial(storage.put, *one) for one in zip(paths, contents, strict=True)))
    return paths


def test_small_objects_cost_one_request_each_and_few_waits() -> None:
    storage, contents = _Ranges("ahead"), [b"%d" % number for number in range(2 * AT_ONCE - 1)]
    paths = put_all(storage, contents)
    storage.forget()
    assert list(read_each(storage, paths)) == contents
    assert sorted(call.path for call in storage.calls) == paths and storage.steps == 2, storage.story()


def test_one_object_is_read_as_ever() -> None:
    storage = _Ranges("one")
    put_all(storage, [b"1"])
    storage.forget()
    assert list(read_each(storage, ["f/000"])) == [b"1"] and list(read_each(storage, [])) == []
    assert [(call.operation, call.path) for call in storage.calls] == [("read", "f/000")]


@pytest.mark.parametrize("size_bytes", [0, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1])
def test_objects_of_any_size_come_whole_and_in_order(size_bytes: int) -> None:
    storage = CountingStorage("sizes")
    contents = [b"a", b"x" * size_bytes, b"c", b"y" * size_bytes, b""]
    assert list(read_each(storage, put_all(storage, contents))) == contents


def test_a_large_object_is_asked_for_at_its_turn() -> None:
    storage = _Ranges("large")
    paths = put_all(storage, [b"a", b"x" * SMALL_BYTES, b"c"])
    storage.forget()
    found = read_each(storage, paths)
    assert next(found) == b"a" and [call.operation for call in storage.calls] == ["read_range"] * 3
    assert len(next(found)) == SMALL_BYTES and storage.calls[-1].operation == "read" and next(found) == b"c"
    assert len(storage.calls) == 4


def test_an_error_comes_at_its_turn() -> None:
    storage = CountingStorage("error")
    contents = [b"%d" % number for number in range(9)]
    paths = put_all(storage, contents)
    storage.delete(paths[4])
    found = read_each(storage, paths)
    assert [next(found) for _ in range(4)] == contents[:4]
    with pytest.raises(NotFound, match="f/004"):
        next(found)
    assert list(found) == []


@pytest.mark.parametrize("size_bytes", [SMALL_BYTES - 1, 8 * SMALL_BYTES])
def test_memory_holds_what_is_read_ahead_or_one_large_object(size_bytes: int, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    paths = put_all(storage, [b"x" * size_bytes] * (3 * AT_ONCE))
    tracemalloc.start()
    try:
        assert sum(map(len, read_each(storage, paths))) == size_bytes * len(paths)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < (AT_ONCE + 2) * SMALL_BYTES


def test_it_holds_in_an_object_store(seaweedfs_server: Server, tmp_path: Path) -> None:
    """Where requests are made by threads, of parts of objects, of which an empty one has none."""
    options = StorageOptions.from_options(place_options(seaweedfs_server))
    storage = open_storage(f"s3://{BUCKET}/{tmp_path.name}", options)
    contents = [b"%d" % number * 99 for number in range(AT_ONCE + 8)]
    contents[3], contents[5] = b"", b"x" * (SMALL_BYTES + 1)
    paths = put_all(storage, contents)
    assert list(read_each(storage, paths)) == contents
    storage.delete(paths[-2])
    found = read_each(storage, paths)
    assert [next(found) for _ in paths[:-2]] == contents[:-2]
    with pytest.raises(NotFound):
        next(found)
