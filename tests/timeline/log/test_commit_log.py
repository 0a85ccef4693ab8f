from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from added_events import Times, add, event, shown, slots
from slots import append, nobody_reads

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, CorruptTable, InvariantBroken, LakelatchError, Unavailable
from lakelatch.storage import Storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.instant import CLAIMS_FOLDER, TIMELINE_FOLDER
from lakelatch.timeline.log.commit_log import INLINE_LIMIT_BYTES, CommitLog
from lakelatch.timeline.log.events import (
    LOG_FOLDER,
    PLAN,
    Event,
    slot_bytes,
    slot_events,
    slot_path,
)
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.old_slots import CONTENT_FOLDER


def test_slots_are_numbered_without_gaps_and_shown_in_order(storage: Storage, times: Times) -> None:
    log = CommitLog(storage)
    assert log.tail() == Tail(0)
    added = [add(log, times, name) for name in range(10)]
    assert [one.number for one in added] == slots(storage) == list(range(1, 11))
    assert log.events_after(0, log.tail()) == added
    assert log.events_after(7, log.tail()) == added[7:]
    assert shown(storage) == [one.instant for one in added]
    assert storage.read(added[3].path) == b"x"


@pytest.mark.parametrize("kept", [2, 1000])
def test_racing_logs_commit_each_event_once(storage: Storage, times: Times, kept: int) -> None:
    logs = [CommitLog(storage, slots_kept=kept) for _ in range(3)]

    def work(writer: int) -> list[Event]:
        return [add(logs[writer], times, writer * 100 + number) for number in range(15)]

    with ThreadPoolExecutor(len(logs)) as pool:
        added = [one for found in pool.map(work, range(len(logs))) for one in found]
    assert sorted(one.number for one in added) == list(range(1, 46))
    in_order = sorted(added, key=lambda one: one.number)
    assert [one.time for one in in_order] == sorted({one.time for one in in_order})
    assert shown(storage) == [one.instant for one in in_order]
    if kept > 45:
        assert slots(storage) == list(range(1, 46))


def test_a_slot_whose_writer_died_is_shown_before_the_next_one(storage: Storage, times: Times) -> None:
    log = CommitLog(storage)
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        add(log, times, 1)
    assert slots(storage) == [1] and shown(storage) == []
    names: list[list[str]] = []

    def decide(tail: Tail) -> Event:
        names.append(shown(storage))
        return event(2)

    append(CommitLog(storage), decide, times.take)
    assert names == [[event(1).instant]]
    assert shown(storage) == [event(1).instant, event(2).instant]


def test_a_failure_after_the_slot_is_never_called_a_failure_of_the_commit(storage: Storage, times: Times) -> None:
    faulty = FaultyStorage(storage, [Fault(UNAVAILABLE, "put_if_absent", TIMELINE_FOLDER)])
    with pytest.raises(CommitUnknown) as caught:
        add(CommitLog(faulty, ManualSystem()), times, 1)
    assert caught.value.details == {"instant": event(1).instant, "slot": 1}
    assert slots(storage) == [1]


def test_failing_to_remove_old_slots_does_not_fail_the_commit(storage: Storage, times: Times) -> None:
    log = CommitLog(FaultyStorage(storage, [Fault(UNAVAILABLE, "delete")]), slots_kept=1)
    added = [add(log, times, name) for name in range(6)]
    assert added[-1].watermark > 1 and slots(storage) == list(range(1, 7))
    add(CommitLog(storage, slots_kept=1), times, 7)
    assert slots(storage)[0] >= added[-1].watermark


def test_a_lost_race_takes_a_fresh_time_and_asks_again(storage: Storage, times: Times) -> None:
    log, other = CommitLog(storage), CommitLog(storage)
    tails: list[int] = []
    asked: list[str] = []

    def decide(tail: Tail) -> Event:
        tails.append(tail.number)
        return event(1)

    def take(above: str) -> str:
        time = times.take(above)
        asked.append(time)
        if len(asked) < 3:
            add(other, times, 10 + len(asked))
        return time

    added = append(log, decide, take)
    assert tails == [0, 1, 2] and added.number == 3 and added.time == asked[2]
    assert added.time > log.events_after(1, log.tail())[0].time


def test_a_time_that_does_not_increase_is_refused(storage: Storage, times: Times) -> None:
    log = CommitLog(storage)
    first = add(log, times, 1)
    with pytest.raises(InvariantBroken, match="not above"):
        append(log, lambda tail: event(2), lambda above: first.time)
    assert slots(storage) == [1]


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
@pytest.mark.parametrize("folder", [LOG_FOLDER, TIMELINE_FOLDER, ""])
def test_lost_answers_commit_once(storage: Storage, times: Times, kind: str, folder: str) -> None:
    faulty = FaultyStorage(storage, [Fault(kind, "put_if_absent", folder, probability=0.5)], seed=3)
    log = CommitLog(faulty, ManualSystem())
    added = [add(log, times, name) for name in range(30)]
    assert faulty.failed > 5
    assert [one.number for one in added] == slots(storage) == list(range(1, 31))
    assert shown(storage) == [one.instant for one in added]


def test_lost_answers_in_a_race_commit_once(storage: Storage, times: Times) -> None:
    faults = [
        Fault(LOST_AFTER, "put_if_absent", probability=0.15),
        Fault(LOST_BEFORE, "put_if_absent", probability=0.1),
    ]
    logs = [CommitLog(FaultyStorage(storage, faults, seed), ManualSystem(), slots_kept=3) for seed in range(3)]

    def work(writer: int) -> list[Event]:
        return [add(logs[writer], times, writer * 100 + number) for number in range(10)]

    with ThreadPoolExecutor(len(logs)) as pool:
        added = sorted((one for found in pool.map(work, range(3)) for one in found), key=lambda one: one.number)
    assert [one.number for one in added] == list(range(1, 31))
    assert shown(storage) == [one.instant for one in added]


def test_a_storage_that_never_answers_leaves_the_commit_unknown(storage: Storage, times: Times) -> None:
    faulty = FaultyStorage(storage, [Fault(LOST_BEFORE, "put_if_absent", LOG_FOLDER)])
    with pytest.raises(CommitUnknown, match="slot 1") as caught:
        add(CommitLog(faulty, ManualSystem()), times, 1)
    assert caught.value.details["instant"] == event(1).instant
    assert add(CommitLog(storage), times, 2).number == 1


def test_a_clean_failure_before_the_slot_changes_nothing(storage: Storage, times: Times) -> None:
    faulty = FaultyStorage(storage, [Fault(UNAVAILABLE, "put_if_absent", LOG_FOLDER, times=1)])
    log = CommitLog(faulty, ManualSystem())
    with pytest.raises(Unavailable) as caught:
        add(log, times, 1, b"y" * (INLINE_LIMIT_BYTES + 1))
    assert not isinstance(caught.value, CommitUnknown)
    assert slots(storage) == [] and storage.list(CONTENT_FOLDER).files == ()
    assert add(log, times, 1).number == 1


def test_old_slots_are_removed_below_the_watermark(storage: Storage, times: Times) -> None:
    log = CommitLog(storage, slots_kept=3)
    for name in range(50):
        added = add(log, times, name)
        left = slots(storage)
        assert left == list(range(max(added.watermark, 1), added.number + 1))
        assert added.number - added.watermark < 2 * 3
        assert len(left) >= min(3, added.number)
    assert len(shown(storage)) == 50


def test_slots_that_somebody_may_still_read_stay(storage: Storage, times: Times) -> None:
    log = CommitLog(storage, slots_kept=1)
    for name in range(20):
        append(log, partial(lambda name, _: event(name), name), times.take, lambda: 5)
    assert slots(storage)[0] == 5
    assert [one.number for one in log.events_after(4, log.tail())] == list(range(5, 21))


def test_large_content_lies_beside_its_slot_and_goes_with_it(storage: Storage, times: Times) -> None:
    log = CommitLog(storage, slots_kept=1)
    large = b"y" * (INLINE_LIMIT_BYTES + 1)
    added = add(log, times, 1, large)
    assert added.content == b"" and len(storage.read(slot_path(1))) < 2000
    assert log.content(added) == large == storage.read(added.path)
    for name in range(2, 9):
        add(log, times, name)
    assert storage.list(CONTENT_FOLDER).files == ()
    assert storage.read(added.path) == large


def test_content_of_a_lost_race_is_removed(storage: Storage, times: Times) -> None:
    other = CommitLog(storage)
    large = b"y" * (INLINE_LIMIT_BYTES + 1)
    raced = [False]

    def take(above: str) -> str:
        if not raced[0]:
            raced[0] = True
            add(other, times, 2)
        return times.take(above)

    added = append(CommitLog(storage), lambda tail: event(1, large), take)
    assert added.content_path is not None
    assert [f"{CONTENT_FOLDER}/{name}" for name in storage.list(CONTENT_FOLDER).files] == [added.content_path]


def test_content_of_a_writer_that_died_goes_with_the_slots_of_its_time(storage: Storage, times: Times) -> None:
    log = CommitLog(storage, slots_kept=1)
    with failpoints.active("commit.before_slot=raise"), pytest.raises(LakelatchError):
        add(log, times, 1, b"y" * (INLINE_LIMIT_BYTES + 1))
    assert len(storage.list(CONTENT_FOLDER).files) == 1
    for name in range(2, 9):
        add(log, times, name)
    assert storage.list(CONTENT_FOLDER).files == ()


def test_a_plan_is_named_by_its_slots_time(storage: Storage, times: Times) -> None:
    plan = Event(PLAN, "compaction", "", "op", "me", content=b"plan")

    def take(above: str) -> str:
        time = times.take(above)
        storage.put(f"{CLAIMS_FOLDER}/{time}", b"")
        return time

    added = append(CommitLog(storage), lambda tail: plan, take)
    assert added.instant == added.time and added.file == f"{added.time}.compaction.requested"
    assert storage.read(added.path) == b"plan"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff" + data,
        lambda data: data.replace(b'"format": 1', b'"format": 2'),
        lambda data: data.replace(b'"number": 2', b'"number": 3'),
        lambda data: data.replace(b'"content": "', b'"content": "!'),
        lambda data: data.replace(b'"writer"', b'"author"'),
        lambda data: b"[]",
        lambda data: b"null",
    ],
)
def test_a_damaged_slot_is_named(storage: Storage, times: Times, damage: Callable[[bytes], bytes]) -> None:
    log = CommitLog(storage)
    for name in (1, 2):
        add(log, times, name)
    data = storage.read(slot_path(2))
    assert damage(data) != data
    storage.put(slot_path(2), damage(data))
    log = CommitLog(storage)  # what this process has read before, it need not read again
    with pytest.raises(CorruptTable, match=slot_path(2)) as caught:
        log.tail()
    assert caught.value.details["slot"] == 2
    with pytest.raises(CorruptTable):
        add(log, times, 3)
    assert slots(storage) == [1, 2]


def test_events_survive_their_slot() -> None:
    groups = frozenset({("", "a"), ("day=1", "b")})
    stored = replace(event(1, bytes(range(256))), file_groups=groups, token=7, target="t").placed(5, "9", "name", 3)
    assert slot_events(slot_bytes([stored]), 5) == (stored,)


@pytest.mark.parametrize("name", ["1.json", "0" * 20, "0" * 20 + ".tmp", "x" * 20 + ".json", "²" * 20 + ".json"])
def test_other_files_in_the_log_folder_are_no_slots(storage: Storage, times: Times, name: str) -> None:
    storage.put(f"{LOG_FOLDER}/{name}", b"")
    assert add(CommitLog(storage), times, 1).number == 1


def test_a_listing_of_before_a_file_was_seen_is_not_taken_for_one_without_it(storage: Storage, times: Times) -> None:
    """Another thread sees the file in between: then its absence from the older listing says nothing."""
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        add(CommitLog(storage), times, 1)
    log = CommitLog(storage)
    tail, listing = log.tail(), log.snapshots.list()
    assert tail.event is not None and tail.event.file not in listing.names
    log.look(tail)
    found = log.look(tail, listing).listing
    assert found is not None and tail.event.file in found.names


def test_a_slot_that_is_there_and_cannot_be_read_is_asked_for_again(storage: Storage, times: Times) -> None:
    """It may be ours, by a request that was sent twice: that nothing has happened is not known."""
    log = CommitLog(FaultyStorage(storage, [Fault(UNAVAILABLE, "read", slot_path(1), times=1)]))
    tail = log.look(log.tail())
    theirs = add(CommitLog(storage), times, 1)
    assert log.create(event(2), tail, times.take, nobody_reads) is None and log.tail().event == theirs
