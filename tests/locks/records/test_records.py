"""The lock protocol over conditional puts, in memory: its races, its lost answers, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from lock_records import LEASE_S, NAME, TABLE, MemoryRecordStore, RecordClient, RecordWire, names_noted

from lakelatch.errors import CorruptTable, LockTimeout, Unavailable
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.slots import slot_of
from lakelatch.locks.records.store import Put
from lakelatch.locks.session.backend import SessionBackend, SessionGone
from lakelatch.locks.session.provider import SessionLockProvider
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.lock_provider import LockProviderConformance, assert_raises

# Calls, tokens, slots


def test_taking_and_giving_back_again_are_one_call_each(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)
    client.take("r1")
    client.give_back("r1")
    client.wire.calls.clear()
    assert client.take("r2") is not None and client.give_back("r2")
    assert client.wire.calls == ["put", "put"]
    other = RecordClient(store, system)
    other.wire.calls.clear()
    assert other.take("r3") is not None
    assert other.wire.calls == ["get", "put"]


def test_tokens_grow_even_if_the_wall_clock_goes_back_or_the_store_is_wiped(system: ManualSystem) -> None:
    tokens: list[int] = []
    first, second = MemoryRecordStore(system), MemoryRecordStore(system)
    for store, step_ms in ((first, 0), (first, 0), (first, -3_600_000), (first, 0), (second, 3_700_000)):
        system.set_realtime_ms(system.realtime_ms() + step_ms)
        client = RecordClient(store, system)
        for request in ("r1", "r2"):
            tokens.append(client.take(request) or 0)
            assert client.give_back(request)
    assert tokens == sorted(set(tokens))


def test_a_thousand_file_groups_leave_few_records(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)
    names = [f"{TABLE}/=file_group%2Fp%2F{number}" for number in range(1000)]
    for name in names:
        assert client.take(name, name) is not None
    assert names_noted(store) == sorted(names)
    for name in names:
        assert client.give_back(name, name)
    assert names_noted(store) == []
    assert len(store.names("locks/")) <= 64


@pytest.mark.parametrize("ahead", range(6))
def test_two_processes_that_draw_the_same_ids_do_no_harm(ahead: int, system: ManualSystem) -> None:
    """As simulated systems of one seed draw them."""
    store, other = MemoryRecordStore(system), ManualSystem()
    first = RecordClient(store, ManualSystem())
    assert_raises(Unavailable, lambda: RecordClient(store, other))
    second = RecordClient(store, other)
    assert first.take("r1") is not None and second.take("r1") is None
    assert not second.give_back("r1") and first.give_back("r1")
    for _ in range(ahead):
        other.new_id()
    turns = (first, second, second, first, second, first, first, second)
    assert [client.service.advance(NAME, 0, 1) for client in turns] == list(range(1, 9))


def test_keys_that_share_a_slot_do_not_wait_for_each_other(store: MemoryRecordStore, system: ManualSystem) -> None:
    first, second = RecordClient(store, system), RecordClient(store, system)
    names = [f"{TABLE}/=file_group%2Fp%2F{number}" for number in range(300)]
    shared = next([a, b] for a in names for b in names if a != b and slot_of(a) == slot_of(b))
    assert first.take("r1", shared[0]) is not None
    assert second.take("r2", shared[1]) is not None
    assert second.take("r3", shared[0]) is None
    assert first.give_back("r1", shared[0]) and second.give_back("r2", shared[1])


# Dead sessions


def test_a_holder_that_was_silent_for_its_lease_time_is_overtaken(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    holder, other = RecordClient(store, system), RecordClient(store, system)
    first = holder.take("r1")
    assert first is not None
    started_ns = system.monotonic_ns()
    second = other.take("r2", timeout_s=3 * LEASE_S)
    waited_s = (system.monotonic_ns() - started_ns) / 1e9
    assert second is not None and second > first and LEASE_S <= waited_s <= LEASE_S + 0.5
    for _ in range(2):
        assert_raises(SessionGone, holder.renew)
    assert not holder.give_back("r1")
    assert other.give_back("r2")


def test_a_session_that_its_own_process_forgot_is_overtaken_too(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)
    assert client.take("r1") is not None
    system.advance(LEASE_S)
    client.session = client.service.open_session("me")
    assert client.take("r2") is None
    assert client.take("r2", timeout_s=3 * LEASE_S) is not None and client.give_back("r2")


def test_a_holder_that_renews_is_never_overtaken(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder, other = RecordClient(store, system), RecordClient(store, system)
    assert holder.take("r1") is not None
    for _ in range(50):
        system.advance(LEASE_S * 0.3)
        holder.renew()
        assert other.take("r2") is None


def test_a_renewal_between_the_last_look_and_the_mark_saves_the_session(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    holder, other = RecordClient(store, system), RecordClient(store, system)
    assert holder.take("r1") is not None and other.take("r2") is None
    system.advance(LEASE_S)

    def renew_first(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        assert value["dead"]
        holder.renew()
        return store.send(name, value, expected)

    other.wire.disturb = renew_first
    assert other.take("r2") is None
    assert holder.renew() == [] and holder.give_back("r1")


def test_one_of_two_contenders_overtakes(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder, first, second = (RecordClient(store, system) for _ in range(3))
    assert holder.take("r1") is not None and first.take("r2") is None
    system.advance(LEASE_S)
    first.service.sessions.look(holder.session)  # marks it
    second.renew(), first.renew()
    won: list[int | None] = []

    def overtake(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        won.append(second.take("r3"))
        return store.send(name, value, expected)

    first.wire.disturb = overtake
    assert first.take("r2") is None
    assert won[0] is not None and second.give_back("r3")


# Release requests, and what is left behind


def test_a_release_request_reaches_the_holder_though_it_renews_at_that_moment(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    holder, operator = RecordClient(store, system), RecordClient(store, system)
    assert holder.take("r1") is not None
    held = operator.service.find_holder(NAME)
    assert held is not None and (held.request, held.lease_s) == ("r1", LEASE_S)

    def ask_first(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        operator.service.ask_to_give_up(held, NAME)
        return store.send(name, value, expected)

    holder.wire.disturb = ask_first
    assert holder.renew() == ["r1"]
    assert holder.renew() == ["r1"]  # until it is given back, for the first answer may have been lost
    assert holder.give_back("r1") and holder.renew() == []
    assert not operator.service.force(held, NAME)


def test_force_frees_a_name_of_this_request_only(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder, operator = RecordClient(store, system), RecordClient(store, system)
    assert holder.take("r1") is not None
    held = operator.service.find_holder(NAME)
    assert held is not None
    assert operator.service.force(held, NAME) and operator.service.find_holder(NAME) is None
    assert holder.take("r2") is not None
    assert not operator.service.force(held, NAME)
    assert holder.give_back("r2")


def test_a_closed_session_leaves_nothing(store: MemoryRecordStore, system: ManualSystem) -> None:
    client, other = RecordClient(store, system), RecordClient(store, system)
    for number in range(20):
        assert client.take(f"r{number}", f"{TABLE}/={number}") is not None
    client.service.close_session(client.session)
    assert store.names("sessions/") == [f"sessions/{other.session}"]
    assert names_noted(store) == [] and other.take("r", f"{TABLE}/=3") is not None
    client.service.close_session(client.session)


def test_others_remove_what_a_crash_left(store: MemoryRecordStore, system: ManualSystem) -> None:
    crashed, alive = RecordClient(store, system), RecordClient(store, system)
    for number in range(20):
        assert crashed.take(f"r{number}", f"{TABLE}/={number}") is not None
    for _ in range(40):
        system.advance(LEASE_S * 0.3)
        alive.renew()
    assert store.names("sessions/") == [f"sessions/{alive.session}"]
    assert names_noted(store) == []


def test_only_live_sessions_are_shown_as_holders(store: MemoryRecordStore, system: ManualSystem) -> None:
    crashed, alive = RecordClient(store, system), RecordClient(store, system)
    assert crashed.take("r1", f"{TABLE}/=a") is not None
    assert alive.take("r2", f"{TABLE}/=b") is not None
    assert [holder.key[-1] for holder in alive.service.holders(f"{TABLE}/=")] == ["a", "b"]
    system.advance(LEASE_S)
    alive.renew()
    assert [holder.key[-1] for holder in alive.service.holders(f"{TABLE}/=")] == ["b"]
    assert alive.service.holders("fedcba9876543210/=") == []


# Registers, and records of others


def test_a_register_survives_a_race_and_a_lost_answer(store: MemoryRecordStore, system: ManualSystem) -> None:
    first, second = RecordClient(store, system), RecordClient(store, system)
    between: list[int] = []

    def advance_first(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        between.append(second.service.advance(NAME, 0, 5))
        return store.send(name, value, expected)

    assert first.service.advance(NAME, 0, 1) == 1
    first.wire.disturb = advance_first
    assert first.service.advance(NAME, 0, 1) == 7 and between == [2]


def test_a_foreign_record_is_not_overwritten(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)
    for value in (
        {},
        {"token": "1", "held": {}},
        {"token": 1, "held": []},
        {"token": 1, "held": {NAME: {"session": 1}}},
    ):
        found = store.get(slot_of(NAME))
        store.send(slot_of(NAME), value, found.version if found else None)
        assert_raises(CorruptTable, lambda: client.take("r1"))
        left = store.get(slot_of(NAME))
        assert left is not None and left.value == value


SHARED = MemoryRecordStore(REAL_SYSTEM)


class MemoryLockProvider(SessionLockProvider):
    @property
    def identity(self) -> Hashable:
        return "memory"

    def make_backend(self) -> SessionBackend:
        return RecordBackend(SHARED, self.scope.system, 3.0)


class TestMemoryRecords(LockProviderConformance):
    across_processes = False

    def make_provider(self, table_uri: str) -> LockProvider:
        return MemoryLockProvider(LockScope(table_uri, {}))


WATCHED = RecordWire(MemoryRecordStore(REAL_SYSTEM), REAL_SYSTEM)


class WatchedLockProvider(SessionLockProvider):
    @property
    def identity(self) -> Hashable:
        return "watched"

    def make_backend(self) -> SessionBackend:
        return RecordBackend(WATCHED, self.scope.system, 60.0)


def test_who_finds_a_lock_held_reads_its_slot_and_its_session_and_no_other_slot() -> None:
    holder = RecordClient(WATCHED.store, REAL_SYSTEM)
    provider = WatchedLockProvider(LockScope("file:///watched", {}))
    with closing(provider):
        name = provider.name_of("service")
        assert holder.take("r1", name) is not None
        with pytest.raises(LockTimeout):  # opens the session
            provider.acquire("service", 0)
        WATCHED.calls.clear()
        with pytest.raises(LockTimeout, match="by me") as caught:
            provider.acquire("service", 0)
        assert caught.value.details["holder"] == "me"
        assert WATCHED.calls.count("get") <= 4


class SilentStore(MemoryRecordStore):
    """One that does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__(REAL_SYSTEM)
        self.asked, self.answers = threading.Event(), threading.Event()

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        self.asked.set()
        assert self.answers.wait(60)
        return super().send(name, value, expected)


SILENT = SilentStore()


class SilentLockProvider(SessionLockProvider):
    @property
    def identity(self) -> Hashable:
        return "silent"

    def make_backend(self) -> SessionBackend:
        return RecordBackend(SILENT, self.scope.system, 3.0)


def test_a_service_that_does_not_answer_keeps_no_other_service_waiting() -> None:
    """Whose session is being opened, while somebody else comes to use the same session."""
    silent = [SilentLockProvider(LockScope("memory://table", {})) for _ in range(2)]
    answering = MemoryLockProvider(LockScope("memory://table", {}))
    with ThreadPoolExecutor(3) as threads:
        opened = threads.submit(silent[0].acquire, "k1", 50.0)
        assert SILENT.asked.wait(10)
        joined = threads.submit(silent[1].acquire, "k2", 50.0)
        REAL_SYSTEM.sleep(0.2)
        other = threads.submit(answering.acquire, "k", 10.0)
        try:
            other.result(timeout=10).release()
            assert not opened.done() and not joined.done()
        finally:
            SILENT.answers.set()
        for lease in (opened.result(), joined.result()):
            lease.release()
    for provider in (*silent, answering):
        provider.close()
