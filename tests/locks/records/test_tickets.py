"""Tickets of those who wait for a lock that wakes nobody: their order, and that nothing but time depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from lock_records import LEASE_S, NAME, MemoryRecordStore, RecordClient

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.hudi.java_lock import JavaLock, JavaLockState
from lakelatch.locks.hudi.shared_keys import SharedKeysBackend
from lakelatch.locks.records.slots import queue_of, slot_of
from lakelatch.locks.records.store import Put, Record
from lakelatch.locks.records.tickets import Turn
from lakelatch.locks.session.backend import Wait
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.lock_provider import assert_raises

ENOUGH_S = 5.0  # for any ticket to lapse


class Waiter:
    """A process that waits, of which a test decides when it looks."""

    def __init__(self, client: RecordClient, request: str) -> None:
        self.client, self.request = client, request
        self.turn = Turn(client.wire, client.system, NAME, {}, f"host:{request}")

    def look(self) -> int | None:
        token = self.client.service.try_once(self.client.session, self.request, NAME, self.turn)
        if token is None:
            self.turn.join()
        return token


def waiters(store: MemoryRecordStore, system: ManualSystem, count: int) -> list[Waiter]:
    """That many processes which have found the name held, in this order."""
    found = [Waiter(RecordClient(store, system), f"w{number}") for number in range(count)]
    assert [waiter.look() for waiter in found] == [None] * count
    return found


def serve(waiter: Waiter) -> int:
    """The token of a waiter whose turn it is; it gives the name back."""
    token = waiter.look()
    assert token is not None and waiter.client.give_back(waiter.request)
    return token


def shown_waiters(client: RecordClient) -> tuple[int | None, tuple[str, ...]]:
    (holder,) = client.service.holders(NAME)
    return holder.waiting, holder.waiters


def queued(store: MemoryRecordStore) -> list[Any]:
    record = store.get(queue_of(NAME))
    return list(record.value["waiting"]) if record is not None else []


# Order


def test_who_waits_is_served_in_the_order_of_tickets(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    tokens = [holder.take("r") or 0]
    waiting = waiters(store, system, 4)
    assert holder.give_back("r")
    for number, waiter in enumerate(waiting):
        after = waiting[number + 1 :]
        assert [other.look() for other in after] == [None] * len(after)
        tokens.append(waiter.look() or 0)
        assert [other.look() for other in after] == [None] * len(after)
        assert waiter.client.give_back(waiter.request)
    assert tokens == sorted(set(tokens)) and tokens[0] > 0


def test_who_waits_is_shown_by_name(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None and shown_waiters(holder) == (0, ())
    first, second, third = waiters(store, system, 3)
    assert shown_waiters(holder) == (3, ("host:w0", "host:w1", "host:w2"))
    second.turn.leave()
    assert shown_waiters(holder) == (2, ("host:w0", "host:w2"))
    assert holder.give_back("r") and first.look() is not None
    assert shown_waiters(holder) == (1, ("host:w2",))
    record = store.get(queue_of(NAME))
    assert record is not None  # an earlier version writes no owners
    store.put(queue_of(NAME), {name: each for name, each in record.value.items() if name != "owners"}, record.version)
    assert shown_waiters(holder) == (1, ("unknown",)) and third.look() is None


def test_a_newcomer_does_not_overtake_once_there_is_an_order(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    first, second = waiters(store, system, 2)
    assert holder.give_back("r") and serve(first)
    newcomer = Waiter(RecordClient(store, system), "n")
    assert newcomer.look() is None
    assert serve(second) < serve(newcomer)


def test_an_order_costs_nothing_when_nobody_waits_any_more(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)
    assert client.take("r") is not None
    [waiter] = waiters(store, system, 1)
    assert client.give_back("r") and serve(waiter)
    for _ in range(3):
        assert client.take("r", timeout_s=1.0) is not None and client.give_back("r")
    client.wire.calls.clear()
    assert client.take("r", timeout_s=1.0) is not None and client.give_back("r")
    assert client.wire.calls == ["put", "put"]


def test_who_is_next_looks_often_and_all_others_rarely(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    waiting = waiters(store, system, 16)
    for waiter in waiting:
        waiter.client.wire.calls.clear()
    due_ns = dict.fromkeys(waiting, 0)
    for _ in range(300):  # a hold of half a minute
        system.advance(0.1)
        for waiter in waiting:
            if system.monotonic_ns() >= due_ns[waiter]:
                assert waiter.look() is None
                due_ns[waiter] = system.monotonic_ns() + int(waiter.turn.rest_s() * 1e9)
        holder.renew()
    first, *others = [len(waiter.client.wire.calls) for waiter in waiting]
    assert 3 * max(others) < 2 * first and first <= 300, (first, others)


# Those who do not come


def test_a_ticket_whose_owner_does_not_come_lapses(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    paused, dead, last = waiters(store, system, 3)
    assert holder.give_back("r")
    assert last.look() is None
    system.advance(0.01)
    assert last.look() is None
    system.advance(ENOUGH_S)
    assert last.look() is not None
    assert paused.look() is None
    assert last.client.give_back(last.request) and serve(paused)
    newcomer = Waiter(RecordClient(store, system), "n")
    assert newcomer.look() is not None and dead.look() is None


def behind_the_dead(store: MemoryRecordStore, system: ManualSystem) -> tuple[RecordClient, Waiter]:
    """A holder that does nothing any more, and who waits behind one that does not either."""
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    _dead, last = waiters(store, system, 2)
    return holder, last


def test_who_is_behind_the_dead_waits_for_no_more_than_their_tickets(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    _, last = behind_the_dead(store, system)
    for _ in range(int(LEASE_S)):
        assert last.look() is None
        system.advance(1.0)
    assert last.look() is None  # it marks the holder as dead; what is left to wait for is the ticket before
    system.advance(0.5)
    assert last.look() is not None


def test_a_last_look_from_behind_asks_whether_the_holder_is_alive(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    holder, last = behind_the_dead(store, system)
    holder.service.sessions.close(holder.session)
    system.advance(1.0)
    last.turn.insist()
    assert last.look() is not None


def test_who_gave_up_has_taken_the_ticket_away(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder, client = RecordClient(store, system), RecordClient(store, system)
    assert holder.take("r") is not None
    assert client.take("w", timeout_s=1.0) is None
    assert queued(store) == [] and store.get(queue_of(NAME)) is not None
    still_open = iter([True, True, True])
    wait = Wait(1.0, system, lambda: not next(still_open, False))
    assert_raises(Unavailable, lambda: client.service.take(client.session, "w2", NAME, wait))
    assert queued(store) == []


def test_nobody_waits_for_one_who_gave_up(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    first, second, third = waiters(store, system, 3)
    first.turn.leave()
    assert holder.give_back("r") and third.look() is None
    system.advance(0.2)  # not enough for a ticket to lapse
    assert second.look() is None and third.look() is None
    system.advance(0.1)
    assert serve(second)


def test_a_last_look_takes_what_is_free(store: MemoryRecordStore, system: ManualSystem) -> None:
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    first, second = waiters(store, system, 2)
    assert holder.give_back("r") and serve(first)
    client = RecordClient(store, system)
    assert client.take("n") is not None and client.give_back("n") and serve(second)


# Records that lie, and those who know no tickets


@pytest.mark.parametrize(
    "queue",
    [
        None,
        {},
        {"last": "x", "waiting": 7},
        {"last": 10**30, "waiting": [[10**29, NAME], 1, [1], ["1", NAME], [True, NAME]]},
        {"last": -5, "waiting": [[number, NAME] for number in range(1000)]},
    ],
)
@pytest.mark.parametrize("served", [None, 7, [], {NAME: "x"}, {NAME: 10**18}, {NAME: -1}, {NAME: True}])
def test_a_lying_record_costs_nothing_but_time(
    queue: dict[str, Any] | None, served: Any, store: MemoryRecordStore, system: ManualSystem
) -> None:
    holder = RecordClient(store, system)
    tokens = [holder.take("r") or 0]
    waiting = waiters(store, system, 3)
    put_anew(store, queue_of(NAME), queue)
    slot = store.get(slot_of(NAME))
    assert slot is not None
    put_anew(store, slot_of(NAME), {**slot.value, "served": served})
    assert holder.give_back("r")
    waiting.append(Waiter(RecordClient(store, system), "n"))
    for _ in range(len(waiting)):
        for _ in range(8):
            system.advance(ENOUGH_S)
            taken = [(waiter, token) for waiter in waiting if (token := waiter.look()) is not None]
            if taken:
                break
        [(waiter, token)] = taken
        tokens.append(token)
        assert waiter.client.give_back(waiter.request)
        waiting.remove(waiter)
    assert tokens == sorted(set(tokens)) and tokens[0] > 0
    left = store.get(queue_of(NAME))
    assert left is None or queue is None or len(str(left.value)) < 20_000


def put_anew(store: MemoryRecordStore, name: str, value: dict[str, Any] | None) -> None:
    found = store.get(name)
    if value is None:
        store.delete(name)
    else:
        assert store.send(name, {**value, "operation": "a stranger's"}, found.version if found else None)


def test_older_versions_take_a_free_name_and_drop_the_order(store: MemoryRecordStore, system: ManualSystem) -> None:
    """As they put a slot: its token and entries alone."""
    holder = RecordClient(store, system)
    assert holder.take("r") is not None
    first, paused, last = waiters(store, system, 3)
    assert holder.give_back("r") and serve(first)
    old = RecordClient(store, system)
    for number in range(4):
        slot = store.get(slot_of(NAME))
        assert slot is not None and NAME not in slot.value["held"]
        token = slot.value["token"] + 1
        entry = {"session": old.session, "request": "old", "token": token, "since_ms": 1}
        put_anew(store, slot_of(NAME), {"token": token, "held": {**slot.value["held"], NAME: entry}})
        assert last.look() is None and last.turn.is_behind == (number < 1)
        put_anew(store, slot_of(NAME), {"token": token, "held": slot.value["held"]})
    assert serve(last) > token and serve(paused) > token


# Java Hudi's locks


class MemoryJavaLock(JavaLock):
    """One that Java writers take as well, in memory."""

    expires_by_silence = False
    state: JavaLockState | None = None
    versions = 0

    def owner_of(self, request: str) -> str:
        return f"ours {request}"

    def read(self) -> JavaLockState | None:
        return self.state

    def write(self, owner: str, expected: JavaLockState | None) -> JavaLockState | None:
        if self.state != expected:
            return None
        self.versions += 1
        self.state = JavaLockState(owner, str(self.versions), LEASE_S)
        return self.state

    def release(self, state: JavaLockState) -> tuple[bool, JavaLockState | None]:
        held = self.state == state
        self.state = None if held else self.state
        return held, None


def test_a_java_writer_takes_a_free_lock_beside_those_who_wait_in_order(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    java = MemoryJavaLock()

    def client() -> RecordClient:
        made = RecordClient(store, system)
        made.service = SharedKeysBackend(made.wire, system, LEASE_S, lambda name: java if name == NAME else None)
        made.session = made.service.open_session("me")
        return made

    holder = client()
    tokens = [holder.take("r") or 0]
    waiting = [Waiter(client(), f"w{number}") for number in range(3)]
    assert [waiter.look() for waiter in waiting] == [None] * 3
    assert holder.give_back("r")
    for waiter in waiting:
        held = java.write("java", None)
        assert held is not None and [each.look() for each in waiting] == [None] * 3
        assert java.release(held)[0]
        assert not any(each.look() for each in waiting if each.turn.is_behind)
        tokens.append(serve(waiter))
    assert tokens == sorted(set(tokens)) and tokens[0] > 0


@pytest.mark.parametrize("step", ["get", "put"])
def test_a_queue_that_cannot_be_read_leaves_no_order(store: MemoryRecordStore, system: ManualSystem, step: str) -> None:
    class Damaged(MemoryRecordStore):
        def get(self, name: str) -> Record | None:
            if name == queue_of(NAME) and step == "get":
                raise CorruptTable("damaged")
            return super().get(name)

        def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
            if name == queue_of(NAME):  # which was damaged since it was read
                raise CorruptTable("damaged")
            return super().send(name, value, expected)

    damaged = Damaged(system)
    holder = RecordClient(damaged, system)
    assert holder.take("r") is not None
    first, second = waiters(damaged, system, 2)
    assert holder.give_back("r") and serve(second) and serve(first)
