"""The lock protocol over conditional puts when answers are lost, calls are slow and clocks drift."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lock_records import LEASE_S, MemoryRecordStore, RecordClient, names_noted

from lakelatch.errors import Unavailable
from lakelatch.locks.records.store import Put
from lakelatch.locks.session.backend import SessionGone
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.lock_provider import assert_raises


def test_a_put_whose_answer_was_lost_is_resolved_by_giving_back(store: MemoryRecordStore, system: ManualSystem) -> None:
    client, other = RecordClient(store, system), RecordClient(store, system)

    def lose_answer(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        store.send(name, value, expected)
        raise Unavailable("the answer was lost")

    client.wire.disturb = lose_answer
    assert_raises(Unavailable, lambda: client.take("r1"))
    assert other.take("r2") is None
    assert client.give_back("r1")
    assert other.take("r2") is not None


def test_a_put_that_arrives_after_it_was_given_back_changes_nothing(
    store: MemoryRecordStore, system: ManualSystem
) -> None:
    for _ in range(2):  # with the slot's record missing, and there
        client, other = RecordClient(store, system), RecordClient(store, system)
        late: list[tuple[str, Mapping[str, Any], str | None]] = []

        def delay(*put: Any, late: list[Any] = late) -> Put | None:
            late.append(put)
            raise Unavailable("it is still on its way")

        client.wire.disturb = delay
        assert_raises(Unavailable, partial(client.take, "r1"))
        assert not client.give_back("r1")
        refused = store.send(*late[0])
        assert refused is not None and not refused.done
        assert names_noted(store) == [] and other.take("r2") is not None
        assert other.give_back("r2")


def test_a_refusal_of_a_put_that_happened_is_not_believed(store: MemoryRecordStore, system: ManualSystem) -> None:
    client = RecordClient(store, system)

    def refuse_what_was_done(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        assert store.send(name, value, expected) is not None
        return None

    for _ in range(2):
        client.wire.disturb = refuse_what_was_done
        assert client.take("r1") is not None
        client.wire.disturb = refuse_what_was_done
        assert client.give_back("r1")
        client.wire.disturb = refuse_what_was_done
        assert client.renew() == []


class Drifting(ManualSystem):
    """A clock that runs faster or slower than the world's."""

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__(seed=seed)
        self._rate = rate

    def pass_by(self, duration_s: float) -> None:
        self.advance(duration_s * self._rate)

    def sleep(self, duration_s: float) -> None:
        """The world goes on by itself here."""


def test_no_lease_is_valid_when_another_takes_the_name() -> None:
    """Clocks that drift by 5 %, calls that take their time, renewals that come late or not at all."""
    assert sum(overtake_each_other(seed) for seed in range(60)) > 100


def overtake_each_other(seed: int) -> int:
    """How often a name went from one holder to another in one run."""
    world = ManualSystem(seed=seed)
    systems = [Drifting(0.95 + 0.1 * world.random(), seed * 10 + number) for number in range(3)]
    store = MemoryRecordStore(ManualSystem(seed=seed + 1000))
    clients = [RecordClient(store, system) for system in systems]
    deadlines_ns = [0, 0, 0]
    holding: int | None = None
    overtaken = 0

    def pass_by(most_s: float) -> None:
        step_s = most_s * world.random()
        for system in systems:
            system.pass_by(step_s)

    def slowly(name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        pass_by(LEASE_S / 3)
        put = store.send(name, value, expected)
        pass_by(LEASE_S / 3)
        return put

    for turn in range(300):
        who = int(world.random() * 3)
        client = clients[who]
        begun_ns = systems[who].monotonic_ns()
        client.wire.disturb = slowly if world.random() < 0.5 else None
        try:
            if world.random() < 0.5 or begun_ns >= deadlines_ns[who]:
                client.renew()
                deadlines_ns[who] = begun_ns + int(0.9 * LEASE_S * 1e9)
            elif client.take(f"r{turn}") is not None:
                if holding is not None and holding != who:
                    overtaken += 1
                    assert systems[holding].monotonic_ns() >= deadlines_ns[holding], f"two held it: run {seed}, {turn}"
                holding = who
        except SessionGone:
            assert systems[who].monotonic_ns() >= deadlines_ns[who], f"dead too early: run {seed}, turn {turn}"
            client.session = client.service.open_session("me")
            holding = None if holding == who else holding
            deadlines_ns[who] = begun_ns + int(0.9 * LEASE_S * 1e9)
        client.wire.disturb = None
        pass_by(LEASE_S / 3 if world.random() < 0.9 else LEASE_S * 2)
    return overtaken
