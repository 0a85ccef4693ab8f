"""Which instants count as committed, with the active timeline and the history as one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from archiver import Archiver, row

from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.instant import CLAIMS_FOLDER, completed, inflight, requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_commit, read_completed, read_plan
from lakelatch.timeline.metadata import CommitMetadata, RollbackPlan

T = [f"202611221200{second:02}000" for second in range(60)]


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> MemoryStorage:
    return MemoryStorage(request.node.name)


def put(storage: Storage, start: str, end: str, action: str = "deltacommit") -> None:
    for pending in (requested(start, action), inflight(start, action)):
        storage.put(pending.path, b"")
    storage.put(completed(start, action, end).path, CommitMetadata((), "UPSERT").to_avro())


def archive(storage: Storage, *rows: tuple[str, str]) -> None:
    archiver = Archiver(storage)
    content = CommitMetadata((), "UPSERT").to_avro()
    name = archiver.put_level_file([row(start, end, metadata=content) for start, end in rows])
    archiver.add_version([*archiver.files_now(), name])


def count(storage: Storage, *times: str) -> dict[str, str]:
    return WholeTimeline.load(storage).completion_times(times)


def test_the_history_says_when_what_is_not_active_completed(storage: MemoryStorage) -> None:
    archive(storage, (T[1], T[9]))
    put(storage, T[10], T[12])
    assert count(storage, T[1], T[10]) == {T[1]: T[9], T[10]: T[12]}
    assert WholeTimeline.load(storage).unrecorded([T[1], T[10]]) == []
    assert WholeTimeline.load(storage).all_completion_times() == {T[1]: T[9], T[10]: T[12]}


def test_older_than_the_first_write_counts_as_completed_when_requested(storage: MemoryStorage) -> None:
    put(storage, T[10], T[12])
    assert count(storage, T[5], T[11], T[13]) == {T[5]: T[5]}
    assert WholeTimeline.load(storage).unrecorded([T[5], T[10], T[11]]) == [T[5]]


def test_a_pending_write_begins_the_timeline_and_never_counts(storage: MemoryStorage) -> None:
    storage.put(requested(T[5], "compaction").path, b"")
    put(storage, T[10], T[12])
    assert WholeTimeline.load(storage).start == T[5]
    assert count(storage, T[4], T[5], T[6]) == {T[4]: T[4]}


def test_a_writer_with_an_old_time_that_is_still_at_work_does_not_count(storage: MemoryStorage) -> None:
    """It has claimed a time, and shows its requested file, writes and commits after the timeline was listed."""
    put(storage, T[10], T[12])
    whole = WholeTimeline.load(storage)
    storage.put(f"{CLAIMS_FOLDER}/{T[5]}", b"")
    assert whole.completion_times([T[4], T[5]]) == {T[4]: T[4]} and whole.unrecorded([T[5]]) == []
    put(storage, T[5], T[13])
    storage.delete(f"{CLAIMS_FOLDER}/{T[5]}")
    assert whole.completion_times([T[4], T[5]]) == {T[4]: T[4]}
    assert count(storage, T[5]) == {T[5]: T[13]}


def test_cleans_and_rollbacks_do_not_begin_the_timeline(storage: MemoryStorage) -> None:
    storage.put(completed(T[1], "clean", T[2]).path, b"")
    put(storage, T[10], T[12])
    assert WholeTimeline.load(storage).start == T[10]


def test_a_commit_that_a_savepoint_keeps_does_not_begin_the_timeline(storage: MemoryStorage) -> None:
    put(storage, T[1], T[2])
    storage.put(completed(T[1], "savepoint", T[3]).path, b"")
    archive(storage, (T[4], T[5]))
    put(storage, T[10], T[12])
    assert WholeTimeline.load(storage).start == T[10]
    assert count(storage, T[1], T[4], T[6]) == {T[1]: T[2], T[4]: T[5], T[6]: T[6]}


def test_nothing_counts_by_its_age_where_nothing_is_active(storage: MemoryStorage) -> None:
    archive(storage, (T[1], T[2]))
    assert count(storage, T[0], T[1]) == {T[1]: T[2]}


def test_what_completed_after_the_listing_is_not_seen_although_it_was_archived(storage: MemoryStorage) -> None:
    put(storage, T[10], T[12])
    put(storage, T[20], T[21])
    whole = WholeTimeline.load(storage)
    archive(storage, (T[10], T[12]), (T[11], T[30]))
    later = replace(whole, history=WholeTimeline.load(storage).history)
    assert later.completion_times([T[11]]) == {}
    assert [instant.requested for instant in later.completed(("deltacommit",))] == [T[10], T[20]]


def test_instants_that_are_on_both_are_named_once(storage: MemoryStorage) -> None:
    put(storage, T[1], T[2])
    put(storage, T[10], T[12])
    archive(storage, (T[1], T[2]))
    whole = WholeTimeline.load(storage)
    assert [instant.requested for instant in whole.completed(("deltacommit",))] == [T[1], T[10]]
    assert [instant.requested for instant in whole.completed(("deltacommit",), T[2], T[12])] == [T[10]]
    assert [instant.requested for instant in whole.completed(("deltacommit",), until=T[11])] == [T[1]]


def test_archived_cleans_are_no_writes(storage: MemoryStorage) -> None:
    archiver = Archiver(storage)
    archiver.add_version([archiver.put_level_file([row(T[1], T[2], "clean")])])
    put(storage, T[10], T[12])
    assert count(storage, T[1]) == {}


def test_what_is_being_rolled_back_does_not_count_by_its_age(storage: MemoryStorage) -> None:
    put(storage, T[10], T[12])
    storage.put(requested(T[13], "rollback").path, RollbackPlan(T[5], "deltacommit", ()).to_avro())
    assert count(storage, T[4], T[5]) == {T[4]: T[4]}


def test_a_file_that_was_archived_since_it_was_listed_is_read_from_the_history(storage: MemoryStorage) -> None:
    put(storage, T[1], T[2])
    put(storage, T[10], T[12])
    instant = completed(T[1], "deltacommit", T[2])
    content = storage.read(instant.path)
    whole = WholeTimeline.load(storage)
    Archiver(storage).archive([T[1]])
    assert whole.content(instant) == content == read_completed(storage, instant)
    assert whole.metadata(instant) == read_commit(storage, instant)
    with pytest.raises(NotFound):
        read_plan(storage, requested(T[1], "deltacommit"))
    with pytest.raises(NotFound):
        read_completed(storage, completed(T[3], "deltacommit", T[4]))
