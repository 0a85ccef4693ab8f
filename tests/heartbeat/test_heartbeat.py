from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest, TransactionEnded
from lakelatch.heartbeat.beat import Heartbeat, TaskHeartbeat, ensure_beating
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, Beat, HeartbeatSettings, heartbeat_path
from lakelatch.heartbeat.observer import Observer
from lakelatch.storage import FileStatus, LocalStorage, MemoryStorage
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage

INSTANT = "20261121120000123"
SETTINGS = HeartbeatSettings(interval_ms=1000, tolerable_misses=2)


@pytest.fixture
def system() -> ManualSystem:
    return ManualSystem()


@pytest.fixture
def storage(system: ManualSystem, tmp_path: Path) -> Iterator[MemoryStorage]:
    yield MemoryStorage(str(tmp_path), system)


def heartbeat(storage: MemoryStorage | LocalStorage | FaultyStorage, writer: str = "me", slot: int = 5) -> Heartbeat:
    return Heartbeat(storage, INSTANT, Beat(writer, f"op-{writer}", slot, SETTINGS))


def test_one_of_many_claims_an_instant(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    claimed: list[str] = []
    together = threading.Barrier(6)

    def claim(name: str) -> None:
        together.wait()
        if heartbeat(storage, name).claim():
            claimed.append(name)

    threads = [threading.Thread(target=claim, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 1
    beat = Observer(storage).beat_of(INSTANT)
    assert beat is not None and beat.writer == claimed[0]


def test_a_beat_renews_the_files_time_and_keeps_what_it_says(storage: MemoryStorage, system: ManualSystem) -> None:
    mine = heartbeat(storage)
    mine.claim()
    first = storage.stat(heartbeat_path(INSTANT)).modified_ms
    system.advance(0.7)
    mine.beat()
    assert storage.stat(heartbeat_path(INSTANT)).modified_ms == first + 700
    assert Observer(storage).beat_of(INSTANT) == Beat("me", "op-me", 5, SETTINGS)


def test_death_is_told_by_the_storages_clock_and_the_writers_settings(
    storage: MemoryStorage, system: ManualSystem
) -> None:
    mine = heartbeat(storage)
    mine.claim()
    observer = Observer(storage, HeartbeatSettings(interval_ms=100))
    assert observer.dead([INSTANT]) == []
    system.advance(3.0)
    assert observer.dead([INSTANT]) == []  # exactly three intervals: the limit itself is alive
    system.advance(0.001)
    assert observer.dead([INSTANT]) == [INSTANT]
    mine.beat()
    assert observer.dead([INSTANT]) == []


class InSeconds(MemoryStorage):
    """Tells when a file was put as object stores do: in whole seconds, with the rest cut off."""

    def stat(self, path: str) -> FileStatus:
        found = super().stat(path)
        return FileStatus(found.size_bytes, found.modified_ms // 1000 * 1000)


def test_a_clock_of_whole_seconds_makes_nobody_older_than_he_is(system: ManualSystem, tmp_path: Path) -> None:
    storage = InSeconds(str(tmp_path), system)
    mine = Heartbeat(storage, INSTANT, Beat("me", "op-me", 5, HeartbeatSettings(interval_ms=100, tolerable_misses=4)))
    system.advance(0.95)
    mine.claim()
    system.advance(0.1)
    assert Observer(storage).dead([INSTANT]) == []  # a tenth of a second old, and a second by its stamps
    system.advance(1.95)
    assert Observer(storage).dead([INSTANT]) == [INSTANT]


def test_no_file_is_dead_and_judging_nothing_writes_nothing(
    storage: MemoryStorage, faults_are_injected: dict[Fault, bool]
) -> None:
    unreachable = FaultyStorage(storage, [Fault(UNAVAILABLE)])
    assert Observer(unreachable).dead([]) == [] and unreachable.failed == 0
    faults_are_injected.clear()
    assert list(storage.walk("")) == []
    assert Observer(storage).dead([INSTANT]) == [INSTANT]


@pytest.mark.parametrize("content", [b"", b"not json", b"[1]", b"null", b'{"writer": "x"}', b"\xff"])
def test_foreign_beats_expire_by_the_default_settings(
    storage: MemoryStorage, system: ManualSystem, content: bytes
) -> None:
    storage.put(heartbeat_path(INSTANT), content)
    observer = Observer(storage, HeartbeatSettings(interval_ms=10_000, tolerable_misses=1))
    assert observer.beat_of(INSTANT) is None
    system.advance(20)
    assert observer.dead([INSTANT]) == []
    system.advance(0.001)
    assert observer.dead([INSTANT]) == [INSTANT]
    assert observer.oldest_start_slot(default=77) == 77


def test_who_does_not_beat_is_silent_when_the_last_of_its_files_is_as_old_as_a_beat_may_be(
    storage: MemoryStorage, system: ManualSystem
) -> None:
    observer = Observer(storage, HeartbeatSettings(interval_ms=10_000, tolerable_misses=1))
    assert not observer.is_silent("first", "second")
    storage.put("first", b"")
    system.advance(15)
    storage.put("second", b"")
    system.advance(20)
    assert observer.is_silent("first") and not observer.is_silent("first", "second")
    system.advance(0.001)
    assert observer.is_silent("first", "second") and not observer.is_silent("third")


def test_a_beat_with_impossible_settings_is_foreign(storage: MemoryStorage, system: ManualSystem) -> None:
    said = Beat("me", "op", 1, SETTINGS).to_bytes(0).replace(b'"interval_ms": 1000', b'"interval_ms": 1')
    storage.put(heartbeat_path(INSTANT), said)
    assert Observer(storage).beat_of(INSTANT) is None


def test_a_beat_never_makes_a_removed_file_again(storage: MemoryStorage) -> None:
    mine = heartbeat(storage)
    mine.claim()
    storage.delete(heartbeat_path(INSTANT))
    mine.beat()
    assert not storage.exists(heartbeat_path(INSTANT))
    assert heartbeat(storage, "other").claim()
    mine.beat()  # it has noticed, and leaves the new owner's claim alone
    beat = Observer(storage).beat_of(INSTANT)
    assert beat is not None and beat.writer == "other"


def test_the_thread_beats_survives_failures_and_stops(tmp_path: Path) -> None:
    beaten = threading.Semaphore(0)

    def before(operation: str, path: str) -> None:
        if operation == "put" and path == heartbeat_path(INSTANT):
            beaten.release()

    storage = FaultyStorage(MemoryStorage(str(tmp_path)), [Fault(UNAVAILABLE, "put", times=2)], before=before)
    mine = Heartbeat(storage, INSTANT, Beat("me", "op", 1, HeartbeatSettings(interval_ms=100)))
    mine.claim()
    mine.start()
    for _ in range(4):
        assert beaten.acquire(timeout=30)
    mine.stop()
    last = storage.read(heartbeat_path(INSTANT))
    mine.beat()
    assert storage.failed == 2 and storage.read(heartbeat_path(INSTANT)) == last


def test_a_takeover_replaces_the_dead_ones_claim(storage: MemoryStorage) -> None:
    heartbeat(storage, "dead").claim()
    mine = heartbeat(storage, "new", slot=9)
    assert not mine.claim()
    mine.take_over()
    assert Observer(storage).beat_of(INSTANT) == Beat("new", "op-new", 9, SETTINGS)


def test_the_oldest_start_slot_is_that_of_any_file_dead_or_alive(storage: MemoryStorage, system: ManualSystem) -> None:
    observer = Observer(storage)
    assert observer.oldest_start_slot(default=3) == 3
    heartbeat(storage, slot=5).claim()
    Heartbeat(storage, "20261121120000124", Beat("other", "op", 2, SETTINGS)).claim()
    system.advance(1000)
    assert observer.oldest_start_slot(default=99) == 3
    assert observer.instants() == [INSTANT, "20261121120000124"]


def test_tasks_are_told_that_their_instant_has_ended(storage: MemoryStorage) -> None:
    heartbeat(storage).claim()
    ensure_beating(storage, INSTANT)
    storage.delete(heartbeat_path(INSTANT))
    with pytest.raises(TransactionEnded, match=INSTANT):
        ensure_beating(storage, INSTANT)


def test_beats_lie_where_hudi_looks_for_them() -> None:
    assert heartbeat_path(INSTANT) == f".hoodie/.heartbeat/{INSTANT}" == f"{HEARTBEAT_FOLDER}/{INSTANT}"


@pytest.mark.parametrize(
    ("values", "option"),
    [({"interval_ms": 99}, "interval_in_ms=99"), ({"tolerable_misses": 0}, "tolerable.misses=0")],
)
def test_settings_under_which_everybody_looks_dead_are_refused(values: dict[str, int], option: str) -> None:
    with pytest.raises(InvalidRequest, match=option):
        HeartbeatSettings(**values)


def test_a_task_keeps_a_transaction_alive_and_never_writes_its_claim(
    storage: MemoryStorage, system: ManualSystem
) -> None:
    heartbeat(storage).claim()
    system.sleep(3.5)
    assert Observer(storage).dead([INSTANT]) == [INSTANT]

    task = TaskHeartbeat(storage, INSTANT, "0-1-2", interval_ms=60_000)
    task.start()  # beats at once, also if it ends before its interval
    task.stop()
    assert Observer(storage).dead([INSTANT]) == []

    storage.delete(heartbeat_path(INSTANT))  # committed, and a late attempt beats once more
    late = TaskHeartbeat(storage, INSTANT, "0-1-3", interval_ms=60_000)
    late.start()
    late.stop()
    with pytest.raises(TransactionEnded):
        ensure_beating(storage, INSTANT)


def test_a_beat_leaves_a_claim_alone_that_another_has_taken_over(storage: MemoryStorage) -> None:
    mine, other = heartbeat(storage), heartbeat(storage, "other")
    assert mine.claim()
    other.take_over()
    mine.beat()
    beat = Observer(storage).beat_of(INSTANT)
    assert beat is not None and beat.writer == "other"


def test_who_is_handed_a_transaction_gets_more_time(storage: MemoryStorage, system: ManualSystem) -> None:
    owner = heartbeat(storage)
    owner.claim()
    owner.take_over(patience=20)
    system.sleep(40.0)
    assert Observer(storage).dead([INSTANT]) == []
    system.sleep(2.5)
    assert Observer(storage).dead([INSTANT]) == [INSTANT]
