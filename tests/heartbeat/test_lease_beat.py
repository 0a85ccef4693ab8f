from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest, TransactionEnded
from lakelatch.heartbeat.beat import Heartbeat, ensure_beating
from lakelatch.heartbeat.contract import LEASE, STORAGE, Beat, HeartbeatSettings, heartbeat_key, heartbeat_path
from lakelatch.heartbeat.lease_beat import LeaseHeartbeat
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import PutUnknown
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import LOST_AFTER, Fault, FaultyStorage
from lakelatch.transactions.base.settings import HEARTBEAT_TYPE_OPTION, TransactionSettings

INSTANT = "20261121120000123"
SETTINGS = HeartbeatSettings(interval_ms=1000, tolerable_misses=2)


@pytest.fixture
def system() -> ManualSystem:
    return ManualSystem()


@pytest.fixture
def storage(system: ManualSystem, tmp_path: Path) -> MemoryStorage:
    return MemoryStorage(str(tmp_path), system)


@pytest.fixture
def provider(storage: MemoryStorage) -> Iterator[LockProvider]:
    provider = InProcessLockProvider(LockScope(storage.uri, {}))
    yield provider
    provider.close()


def beating(storage: MemoryStorage, provider: LockProvider, writer: str = "me") -> LeaseHeartbeat:
    return LeaseHeartbeat(storage, INSTANT, Beat(writer, f"op-{writer}", 5, SETTINGS), provider)


def test_a_writer_lives_as_long_as_its_lease(
    storage: MemoryStorage, provider: LockProvider, system: ManualSystem
) -> None:
    mine = beating(storage, provider)
    assert mine.claim()
    observer = Observer(storage, provider=provider)
    beat = observer.beat_of(INSTANT)
    assert beat is not None and beat.proof == LEASE
    system.advance(3600)
    assert observer.dead([INSTANT]) == []
    assert Observer(storage).dead([INSTANT]) == []
    ensure_beating(storage, INSTANT)
    assert provider.break_(heartbeat_key(INSTANT))
    assert observer.dead([INSTANT]) == [INSTANT]


def test_a_claim_that_another_made_leaves_no_lease(storage: MemoryStorage, provider: LockProvider) -> None:
    Heartbeat(storage, INSTANT, Beat("other", "op", 1, SETTINGS)).claim()
    assert not beating(storage, provider).claim()
    assert provider.holders() == []


def test_two_lease_claims_of_one_instant_have_one_winner(storage: MemoryStorage, provider: LockProvider) -> None:
    first, second = beating(storage, provider), beating(storage, provider, "you")
    assert first.claim() and not second.claim()
    first.stop()
    assert provider.holders() == [] and not second.claim()


def test_a_claim_whose_answer_was_lost_seems_alive_to_nobody(
    storage: MemoryStorage, provider: LockProvider, system: ManualSystem
) -> None:
    faulty = FaultyStorage(storage, [Fault(LOST_AFTER, "put_if_absent")])
    with pytest.raises(PutUnknown):
        LeaseHeartbeat(faulty, INSTANT, Beat("me", "op", 5, SETTINGS), provider).claim()
    assert provider.holders() == [] and storage.exists(heartbeat_path(INSTANT))
    assert Observer(storage, provider=provider).dead([INSTANT]) == [INSTANT]


def test_a_claim_whose_taking_over_was_lost_seems_alive_to_nobody(
    storage: MemoryStorage, provider: LockProvider, system: ManualSystem
) -> None:
    """Or nobody could go on with a plan, or with a restore, for as long as this process lives."""
    Heartbeat(storage, INSTANT, Beat("other", "op", 1, SETTINGS)).claim()
    faulty = FaultyStorage(storage, [Fault(LOST_AFTER, "put")])
    with pytest.raises(PutUnknown):
        LeaseHeartbeat(faulty, INSTANT, Beat("me", "op", 5, SETTINGS), provider).take_over()
    assert provider.holders() == []
    assert Observer(storage, provider=provider).dead([INSTANT]) == [INSTANT]


def test_a_lost_lease_is_taken_again_while_the_claim_stands(storage: MemoryStorage, provider: LockProvider) -> None:
    mine = beating(storage, provider)
    mine.claim()
    provider.break_(heartbeat_key(INSTANT))
    mine.beat()
    assert [holder.key for holder in provider.holders()] == [heartbeat_key(INSTANT)]
    storage.delete(heartbeat_path(INSTANT))
    mine.beat()
    assert provider.holders() == [] and not storage.exists(heartbeat_path(INSTANT))
    mine.beat()
    assert provider.holders() == []


def test_a_hand_over_goes_on_as_a_file(storage: MemoryStorage, provider: LockProvider, system: ManualSystem) -> None:
    mine = beating(storage, provider)
    mine.claim()
    mine.stop()
    mine.take_over(patience=20)
    observer = Observer(storage, provider=provider)
    beat = observer.beat_of(INSTANT)
    assert beat is not None and beat.proof == STORAGE and provider.holders() == []
    system.advance(20)
    assert observer.dead([INSTANT]) == []
    next_one = beating(storage, provider)
    next_one.beat()
    beat = observer.beat_of(INSTANT)
    assert beat is not None and beat.proof == LEASE
    system.advance(3600)
    assert observer.dead([INSTANT]) == []


def test_a_writer_whose_own_beats_stopped_is_told_first(storage: MemoryStorage, system: ManualSystem) -> None:
    Heartbeat(storage, INSTANT, Beat("me", "op", 5, SETTINGS)).claim()

    def check() -> None:
        storage.put("now", b"")
        ensure_beating(storage, INSTANT, "now")

    system.advance(2.6)
    check()
    system.advance(0.2)
    assert Observer(storage).dead([INSTANT]) == []
    with pytest.raises(TransactionEnded, match="has stopped"):
        check()
    system.advance(0.3)
    assert Observer(storage).dead([INSTANT]) == [INSTANT]


def test_an_unknown_kind_of_heartbeat_is_refused() -> None:
    assert TransactionSettings.from_options({HEARTBEAT_TYPE_OPTION: "Lease"}).heartbeat_type == LEASE
    with pytest.raises(InvalidRequest, match="use storage or lease"):
        TransactionSettings.from_options({HEARTBEAT_TYPE_OPTION: "pulse"})
