"""Commits that are put into the log by others: who decides them, what their owners hear, and what ends a record."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from bare_table import add_file, data_files, write
from cancelling import CANCELLABLE, IMMUTABLE, schedule
from group_members import (
    Paused,
    Writer,
    begin,
    committed,
    crowd,
    event_of,
    events,
    nothing_is_left,
    record_bytes,
    records,
    slots,
)
from one_table import Table
from plain_member import PlainMember

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.contract import LEASE
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import MemoryStorage
from lakelatch.storage.checksums import add_checksum
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.log.events import CANCEL, COMPLETE, LOG_FOLDER, PLAN, ROLLBACK, slot_path
from lakelatch.timeline.log.lock_names import WrongLocks
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.ready import READY_FOLDER
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.conflicts.strategies import SIMPLE_STRATEGY


def _commit_into(done: list[Committed], writer: Writer) -> None:
    done.append(writer.commit())


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


# -- one slot for many -----------------------------------------------------------------------------------------------


def test_who_has_the_turn_commits_for_who_waits(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    led: list[Committed] = []
    paused.step = lambda: led.append(leader.commit())
    done = owner.commit()
    assert slots(table) == [committed(leader, owner)]
    event = event_of(table, owner)
    assert (done.instant, done.completion, done.slot) == (owner.instant, event.time, 1)
    assert led[0].completion < done.completion and done.metadata == owner.metadata
    assert table.storage.read(event.path) == add_checksum(owner.metadata.to_avro(), event.path)
    assert owner.transaction.committed == done and nothing_is_left(table)
    assert table.completed() == [leader.instant, owner.instant] and len(table.data_files()) == 2


@pytest.mark.parametrize("where", [LOG_FOLDER, READY_FOLDER])
def test_who_has_looked_too_early_finds_itself_committed_all_the_same(table: Table, where: str) -> None:
    paused = Paused(table.storage, folder=where, operation="list" if where == READY_FOLDER else "put_if_absent")
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    paused.step = leader.commit
    done = owner.commit()
    assert slots(table) == [committed(leader, owner)]
    assert done.completion == event_of(table, owner).time and table.completed() == [leader.instant, owner.instant]
    assert nothing_is_left(table)


def test_many_who_wait_are_in_one_slot_in_the_order_of_their_times(table: Table) -> None:
    """Each is paused with its record there while the next one begins to wait; the last one leads."""
    pauses = [Paused(table.storage) for _ in range(10)]
    owners = [begin(table, f"g{number}", paused=paused) for number, paused in enumerate(pauses)]
    leader = begin(table, "leader")
    done: list[Committed] = []
    for paused, following in zip(pauses, [*owners[1:], leader], strict=True):
        paused.step = partial(_commit_into, done, following)
    done.append(owners[0].commit())
    assert slots(table) == [committed(leader, *owners)]
    assert [one.instant for one in done] == [leader.instant, *(owner.instant for owner in reversed(owners))]
    assert {one.instant: one.completion for one in done} == {event.instant: event.time for event in table.events()}
    assert nothing_is_left(table)


def test_more_records_than_a_slot_takes_are_left_to_the_next(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelatch.transactions.attempts.group._READ_MAX", 2)
    pauses = [Paused(table.storage) for _ in range(3)]
    owners = [begin(table, f"g{number}", paused=paused) for number, paused in enumerate(pauses)]
    leader = begin(table, "leader")
    for paused, following in zip(pauses, [*owners[1:], leader], strict=True):
        paused.step = following.commit
    owners[0].commit()
    assert slots(table) == [committed(leader, *owners[:2]), committed(owners[2])] and nothing_is_left(table)


def test_who_is_first_commits_for_those_who_came_later(table: Table) -> None:
    paused = Paused(table.storage)
    first, later = begin(table, "a"), begin(table, "b", paused=paused)
    paused.step = first.commit
    later.commit()
    assert slots(table) == [committed(first, later)] and nothing_is_left(table)


def test_without_others_nobody_leaves_or_looks_for_records(table: Table) -> None:
    asked: list[str] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: asked.append(path))
    manager = table.manager(storage=storage)
    transaction = manager.begin()
    metadata = CommitMetadata((add_file(transaction, "a"),), "UPSERT")
    transaction.commit(metadata, member=PlainMember(metadata))
    assert asked and not [path for path in asked if path.startswith(READY_FOLDER)]


def test_a_record_is_left_after_two_lost_slots_and_not_before(table: Table) -> None:
    others, left, names = table.manager(), [1, 2, 3], list[list[str]]()

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and left and path == slot_path(left[0]):
            del left[0]
            names.append(records(table.storage))
            write(others, "b")

    writer = Writer.begin(table.manager(storage=FaultyStorage(table.storage, before=before)), "a")
    writer.transaction.commit(writer.metadata, member=PlainMember(writer.metadata))
    assert names == [[], [], [writer.record.rpartition("/")[2]]]
    assert slots(table)[3] == committed(writer) and nothing_is_left(table)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_process_that_has_lost_two_slots_leaves_records_for_a_while(table: Table, lost: int) -> None:
    others, left = table.manager(), list(range(1, lost + 1))

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and left and path == slot_path(left[0]):
            del left[0]
            write(others, "b")

    writer = Writer.begin(table.manager(storage=FaultyStorage(table.storage, before=before)), "a")
    writer.transaction.commit(writer.metadata, member=PlainMember(writer.metadata))
    assert not left and (writer.transaction.record is not None) == (lost == 2)
    assert writer.manager.context.elision.crowded == (lost == 2)


def test_threads_that_commit_at_once_are_committed_once_each(table: Table) -> None:
    writers = [[begin(table, "a", mode=NON_BLOCKING) for _ in range(4)] for _ in range(8)]

    def run(own: list[Writer]) -> list[Committed]:
        return [writer.commit() for writer in own]

    with ThreadPoolExecutor(len(writers)) as pool:
        done = [one for found in pool.map(run, writers) for one in found]
    assert {one.instant: one.completion for one in done} == {event.instant: event.time for event in table.events()}
    assert len(done) == len(table.completed()) == 32 and nothing_is_left(table)
    times = [event.time for event in table.events()]
    assert times == sorted(set(times))


def test_who_was_crowded_and_finds_nobody_goes_back_to_trying_alone(table: Table) -> None:
    manager, asked = table.manager(), list[str]()
    Writer.begin(manager, "a").commit()
    for _ in range(4):
        transaction = manager.begin()
        metadata = CommitMetadata((add_file(transaction, "a"),), "UPSERT")
        transaction.commit(metadata, member=PlainMember(metadata))
        asked.append(transaction.record or "")
    assert asked[0] and not asked[-1]


# -- optimistic control ----------------------------------------------------------------------------------------------


def test_of_two_records_of_one_file_group_the_second_is_left_to_its_owner(table: Table) -> None:
    """Members of one slot see each other, and the conflict names the one that came before."""
    pauses = [Paused(table.storage) for _ in range(2)]
    first, second = (begin(table, "a", paused=paused) for paused in pauses)
    leader = begin(table, "b")
    lost: list[WriteConflict] = []

    def lose() -> None:
        with pytest.raises(WriteConflict) as caught:
            second.commit()
        lost.append(caught.value)

    pauses[0].step, pauses[1].step = lose, leader.commit
    done = first.commit()
    assert slots(table)[0] == committed(leader, first)
    assert (ROLLBACK, second.instant) in events(table)
    details = lost[0].details
    assert (details["winner"], details["seen_slot"], details["seen_time"]) == (first.instant, 1, done.completion)
    assert details["file_groups"] == [("", "a")]
    assert nothing_is_left(table) and data_files(table.storage, second.instant) == []
    assert table.completed() == [leader.instant, first.instant]


def test_a_record_that_conflicts_with_its_leader_is_left_out(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "a")
    paused.step = leader.commit
    with pytest.raises(WriteConflict) as caught:
        owner.commit()
    assert caught.value.details["winner"] == leader.instant and slots(table)[0] == committed(leader)
    assert nothing_is_left(table) and table.completed() == [leader.instant]


def test_a_record_that_conflicts_with_what_came_before_the_slot_is_left_out(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    won = write(table.manager(), "a")
    paused.step = leader.commit
    with pytest.raises(WriteConflict) as caught:
        owner.commit()
    assert caught.value.details["winner"] == won.instant and slots(table)[1] == committed(leader)


def test_without_conflicts_one_file_group_is_written_by_all_of_a_slot(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = (begin(table, "a", paused=one, mode=NON_BLOCKING) for one in (paused, None))
    paused.step = leader.commit
    owner.commit()
    assert slots(table) == [committed(leader, owner)]


def test_a_conflict_is_told_only_when_no_other_can_commit_the_record_any_more(table: Table) -> None:
    """A leader that has read the record, and is paused before its slot, loses that to the withdrawal."""
    late = Paused(table.storage, operation="put_if_absent")
    owner, leader = begin(table, "a"), begin(table, "b", paused=late)
    table.storage.put(owner.record, record_bytes(owner))

    def lose() -> None:
        with pytest.raises(WriteConflict):
            crowd(owner.manager)
            write(table.manager(), "a")
            owner.commit()

    late.step = lose
    leader.commit()
    assert late.done and table.completed().count(owner.instant) == 0 and leader.instant in table.completed()
    assert nothing_is_left(table)


# -- who cannot be decided by others ---------------------------------------------------------------------------------


class OtherLocks(InProcessLockProvider):
    """Names its locks."""

    @property
    def domain(self) -> str:
        return "other"


@pytest.mark.parametrize("more", [{"mode": NON_BLOCKING}, {"conflict_strategy": SIMPLE_STRATEGY}])
def test_what_the_leader_would_decide_in_another_way_is_left_to_its_owner(table: Table, more: dict[str, str]) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused, **more), begin(table, "b")
    paused.step = leader.commit
    done = owner.commit()
    assert slots(table) == [committed(leader), committed(owner)] and done.slot == 2 and nothing_is_left(table)


def test_who_takes_other_locks_is_refused_and_not_committed_by_others(table: Table) -> None:
    paused = Paused(table.storage)
    owner = begin(table, "a", paused=paused, provider=OtherLocks(LockScope(table.storage.uri, {})))
    leader = begin(table, "b")
    paused.step = leader.commit
    with pytest.raises(WrongLocks):
        owner.commit()
    begin(table, "c").commit()
    assert slots(table)[0] == committed(leader) and owner.instant not in table.completed()
    assert records(table.storage) == []


@pytest.mark.parametrize("policy", [CANCELLABLE, IMMUTABLE])
def test_who_is_in_the_way_of_a_plan_sees_to_it_alone(table: Table, policy: PlanPolicy) -> None:
    """Its owner has the plan cancelled, or yields to it."""
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def step() -> None:
        schedule(table.manager(), "a", policy=policy)
        leader.commit()

    paused.step = step
    if policy is CANCELLABLE:
        owner.commit()
    else:
        with pytest.raises(WriteConflict):
            owner.commit()
    kinds = [kind for kind, _ in events(table)]
    assert kinds[:3] == [PLAN, COMPLETE, CANCEL if policy is CANCELLABLE else ROLLBACK]
    assert (owner.instant in table.completed()) == (policy is CANCELLABLE) and records(table.storage) == []


def test_writers_whose_heartbeats_are_leases_are_committed_by_others_as_well(table: Table) -> None:
    paused = Paused(table.storage)
    provider = table.provider()
    owner, leader = (
        begin(table, "ab"[number], paused=one, provider=provider, heartbeat_type=LEASE)
        for number, one in enumerate((paused, None))
    )
    paused.step = leader.commit
    owner.commit()
    assert slots(table) == [committed(leader, owner)] and nothing_is_left(table)


@pytest.mark.parametrize("more", [{"lock_elision": OFF}, {"group_commit": False}])
def test_who_takes_the_lock_leaves_no_record(table: Table, more: dict[str, Any]) -> None:
    paused = Paused(table.storage)
    writer = begin(table, "a", paused=paused, **more)
    assert writer.commit().slot == 1 and writer.transaction.record is None


def test_a_commit_that_only_its_owner_can_decide_leaves_no_record(table: Table) -> None:
    writer = begin(table, "a")
    crowd(writer.manager)
    assert writer.transaction.commit(writer.metadata).slot == 1 and writer.transaction.record is None


def test_metadata_that_is_too_large_to_be_passed_around_leaves_no_record(table: Table) -> None:
    writer = begin(table, "a")
    crowd(writer.manager)
    metadata = CommitMetadata(writer.metadata.stats, "UPSERT", {"x": "y" * 300_000})
    assert writer.transaction.commit(metadata, member=PlainMember(metadata)).slot == 1
    assert writer.transaction.record is None and nothing_is_left(table)
