"""Reading Hudi's LSM history: what counts, what races an archiver, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Collection
from threading import get_ident

import pytest
from archiver import Archiver, row

from lakelatch.errors import CorruptTable
from lakelatch.storage.contract import Storage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.manifest import HISTORY_FOLDER, VERSION_PATH, manifest_path
from lakelatch.timeline.instant import TIMELINE_FOLDER, Instant
from lakelatch.timeline.snapshot import Snapshot

T = [f"202611221200{second:02}000" for second in range(60)]


class Counting(MemoryStorage):
    """Says what it was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.listed: list[str] = []
        self.was_read: list[str] = []

    def read(self, path: str) -> bytes:
        self.was_read.append(path)
        return super().read(path)

    def names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        return list(super().names(folder))


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Counting:
    return Counting(request.node.name)


def put_active(storage: Storage, *instants: tuple[str, str]) -> None:
    for requested, completion in instants:
        storage.put(f"{TIMELINE_FOLDER}/{requested}.deltacommit.requested", b"")
        storage.put(f"{TIMELINE_FOLDER}/{requested}.deltacommit.inflight", b"")
        storage.put(f"{TIMELINE_FOLDER}/{requested}_{completion}.deltacommit", f"of {requested}".encode())


def completion_times(history: History, requested: Collection[str]) -> dict[str, str]:
    return {one: archived.completion for one, archived in history.find_all(requested).items()}


def test_a_table_that_never_archived_costs_one_listing(storage: Counting) -> None:
    history = History.load(storage)
    assert history.instants() == []
    assert history.find(T[1]) is None
    assert (storage.listed, storage.was_read) == ([HISTORY_FOLDER], [])


def test_what_was_archived_is_found_with_its_completion_and_metadata(storage: Counting) -> None:
    put_active(storage, (T[1], T[4]), (T[2], T[3]), (T[5], T[6]))
    Archiver(storage).archive([T[1], T[2]])
    history = History.load(storage)
    assert Snapshot.load(storage).completion_times() == {T[5]: T[6]}
    found = history.find(T[1])
    assert found is not None and found.instant == Instant(T[1], "deltacommit", "completed", T[4])
    assert history.metadata(found) == f"of {T[1]}".encode()
    assert history.plan(found) is None
    assert completion_times(history, [T[1], T[2], T[5]]) == {T[1]: T[4], T[2]: T[3]}
    assert [one.requested for one in history.instants(after=T[3])] == [T[1]]
    assert [one.requested for one in history.instants(until=T[3])] == [T[2]]
    assert [one.requested for one in history.instants()] == [T[2], T[1]]
    assert history.instants(actions=["commit"]) == []


def test_parts_of_a_file_of_unknown_size_are_read_by_the_callers_thread(request: pytest.FixtureRequest) -> None:
    """Of one that no manifest names yet. What belongs to the caller's thread, as its spans, is with each request."""
    threads: list[int] = []

    class OfThreads(MemoryStorage):
        def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
            threads.append(get_ident())
            return super().read_range(path, start, size_bytes)

    storage = OfThreads(request.node.name)
    Archiver(storage).put_level_file([row(T[1], T[4]), row(T[3], T[5])])
    assert completion_times(History.load(storage), [T[2]]) == {}
    assert set(threads) == {get_ident()}


def test_only_files_that_may_have_an_instant_are_read_and_each_once(storage: Counting) -> None:
    archiver = Archiver(storage)
    first = archiver.put_level_file([row(T[1], T[2]), row(T[3], T[4])])
    second = archiver.put_level_file([row(T[11], T[12])])
    archiver.add_version([first, second])
    storage.was_read.clear()
    for _ in range(3):
        history = History.load(storage)
        assert history.find(T[3]) is not None and history.find(T[2]) is None and history.find(T[30]) is None
    assert [path for path in storage.was_read if path.endswith(".parquet")] == [f"{HISTORY_FOLDER}/{first}"]


def test_active_first_and_history_second_miss_nothing_wherever_the_archiver_stands(storage: Counting) -> None:
    put_active(storage, *((T[n], T[n + 1]) for n in range(0, 12, 2)))
    everything = {T[n]: T[n + 1] for n in range(0, 12, 2)}

    def look(step: str) -> None:
        timeline = Snapshot.load(storage)
        history = History.load(storage)
        active = timeline.completion_times()
        assert {**completion_times(history, set(everything).difference(active)), **active} == everything, step

    archiver = Archiver(storage, step=look)
    names = [archiver.archive([T[0], T[2]]), archiver.archive([T[4]])]
    archiver.merge(names)
    look("end")


def test_the_other_order_would_miss_what_is_archived_in_between(storage: Counting) -> None:
    put_active(storage, (T[0], T[1]), (T[2], T[3]))
    history = History.load(storage)
    Archiver(storage).archive([T[0]])
    timeline = Snapshot.load(storage)
    assert {**completion_times(history, T), **timeline.completion_times()} == {T[2]: T[3]}


def test_level_files_that_vanish_under_a_reader_are_found_in_the_next_manifest(storage: Counting) -> None:
    archiver = Archiver(storage)
    names = [archiver.put_level_file([row(T[n], T[n + 1], metadata=b"%d" % n)]) for n in (1, 3)]
    archiver.add_version(names)
    history = History.load(storage)
    archiver.merge(names)
    assert [one.requested for one in history.instants()] == [T[1], T[3]]


def test_metadata_is_found_in_whatever_file_lies_there_now(storage: Counting) -> None:
    archiver = Archiver(storage)
    names = [archiver.put_level_file([row(T[n], T[n + 1], metadata=b"%d" % n)]) for n in (1, 3)]
    archiver.add_version(names)
    history = History.load(storage)
    found = history.find(T[3])
    assert found is not None
    archiver.merge(names)
    assert history.metadata(found) == b"3"


def test_without_a_version_file_the_greatest_manifest_counts(storage: Counting) -> None:
    archiver = Archiver(storage)
    archiver.add_version([archiver.put_level_file([row(T[1], T[2])])])
    archiver.add_version([*archiver.files_now(), archiver.put_level_file([row(T[3], T[4])])])
    storage.delete(VERSION_PATH)
    assert [one.requested for one in History.load(storage).instants()] == [T[1], T[3]]


def test_a_manifest_that_no_version_names_does_not_count(storage: Counting) -> None:
    archiver = Archiver(storage)
    archiver.add_version([archiver.put_level_file([row(T[1], T[2])])])
    storage.put(manifest_path(2), b"cut")  # an archiver died before it put the version
    assert [one.requested for one in History.load(storage).instants()] == [T[1]]


def test_an_instant_without_a_completion_time_counts_as_completed_when_requested(storage: Counting) -> None:
    archiver = Archiver(storage)
    archiver.add_version([archiver.put_level_file([{**row(T[1], ""), "completionTime": None}])])
    assert completion_times(History.load(storage), [T[1]]) == {T[1]: T[1]}


def archived(storage: Counting) -> str:
    archiver = Archiver(storage)
    name = archiver.put_level_file([row(T[1], T[2]), row(T[3], T[4], metadata=b"")])
    archiver.add_version([name])
    return f"{HISTORY_FOLDER}/{name}"


def test_a_missing_manifest_is_named(storage: Counting) -> None:
    archived(storage)
    storage.delete(manifest_path(1))
    with pytest.raises(CorruptTable, match=r"_version_ names .*manifest_1, which is not there"):
        History.load(storage)


@pytest.mark.parametrize(
    "content",
    [b"", b'{"files": [', b"[]", b"[" * 100_000, b'{"files": null}', b'{"files": [{"fileName": "x", "fileLen": 1}]}'],
)
def test_a_manifest_that_is_none_is_named(storage: Counting, content: bytes) -> None:
    archived(storage)
    storage.put(manifest_path(1), content)
    with pytest.raises(CorruptTable, match=r"manifest_1 holds .* no manifest of the history"):
        History.load(storage)


@pytest.mark.parametrize("content", [b"", b"one", b"-1", "\u0661".encode(), b"9" * 5000])
def test_a_version_that_is_no_number_is_named(storage: Counting, content: bytes) -> None:
    archived(storage)
    storage.put(VERSION_PATH, content)
    with pytest.raises(CorruptTable, match=r"_version_ holds '.*write 1 to it"):
        History.load(storage)


def test_a_missing_level_file_is_named(storage: Counting) -> None:
    path = archived(storage)
    storage.delete(path)
    with pytest.raises(CorruptTable, match=f"manifest_1 names {path}, which is not there"):
        History.load(storage).find(T[1])


def test_a_level_file_of_another_size_is_named(storage: Counting) -> None:
    path = archived(storage)
    storage.put(path, storage.read(path)[:-20])
    with pytest.raises(CorruptTable, match=rf"{path} has \d+ bytes, and the manifest says"):
        History.load(storage).find(T[1])


def test_a_level_file_that_is_no_parquet_is_named(storage: Counting) -> None:
    path = archived(storage)
    storage.put(path, b"x" * len(storage.read(path)))
    with pytest.raises(CorruptTable, match=f"{path} is no level file of the history"):
        History.load(storage).find(T[1])


def test_metadata_that_is_missing_is_named_where_it_is_asked_for(storage: Counting) -> None:
    path = archived(storage)
    history = History.load(storage)
    found = history.find(T[3])
    assert found is not None
    with pytest.raises(CorruptTable, match=f"{path} has no metadata of deltacommit {T[3]}"):
        history.metadata(found)


def test_level_files_without_any_manifest_may_have_what_the_active_timeline_lacks(storage: Counting) -> None:
    path = archived(storage)
    storage.delete(manifest_path(1))
    storage.delete(VERSION_PATH)
    history = History.load(storage)
    assert history.instants() == [] and history.find(T[9]) is None
    with pytest.raises(CorruptTable, match=f"{path} has the instant {T[1]}, which the active timeline has not"):
        history.find(T[1])


def test_java_writes_its_manifests_so(storage: Counting) -> None:
    path = archived(storage)
    java = '{\n  "files" : [ {\n    "fileName" : "%s",\n    "fileLen" : %d\n  } ]\n}'
    storage.put(manifest_path(1), (java % (path.rpartition("/")[2], len(storage.read(path)))).encode())
    assert json.loads(storage.read(manifest_path(1)))["files"]
    assert History.load(storage).find(T[1]) is not None
