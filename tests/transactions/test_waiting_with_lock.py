"""Who holds the table's lock where slots are put for many is let in by those who put them, for a while."""

from __future__ import annotations

from threading import Event as Signal
from threading import Thread

import pytest
from bare_table import write
from cancelling import schedule
from group_members import Paused, Writer, begin, committed, crowd, slots
from one_table import Table

from lakelatch.errors import CorruptTable
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.log.awaited_files import _LEAST_NS
from lakelatch.timeline.log.events import LOG_FOLDER, PLAN, slot_path
from lakelatch.timeline.log.waiting import NAME_OF_HOLDER
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.group import _TURNS_OF_HOLDER
from lakelatch.transactions.base.ready import READY_FOLDER
from lakelatch.transactions.manager import TransactionManager

ASKED = f"{LOG_FOLDER}/{NAME_OF_HOLDER}"


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


def put_group(table: Table) -> None:
    """The first slot commits two writes."""
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    paused.step = leader.commit
    owner.commit()
    assert slots(table) == [committed(leader, owner)]


def has_met_group(table: Table, storage: FaultyStorage) -> TransactionManager:
    manager = table.manager(storage=storage)
    assert manager.context.log.tail().number == 1 and manager.context.log.has_met_group
    return manager


def time_of(table: Table, writer: Writer) -> int:
    """How long a commit waits, in nanoseconds, where nothing but a wait takes time."""
    began_ns = table.system.monotonic_ns()
    writer.commit()
    return table.system.monotonic_ns() - began_ns


def test_a_leader_lets_the_holder_have_the_next_slot(table: Table) -> None:
    """The holder is slow, just before its slot, and goes on once the leader waits for that."""
    put_group(table)
    is_slow, may_go_on = Signal(), Signal()
    tried: list[str] = []
    looks: list[str] = []

    def before_slot(operation: str, path: str) -> None:
        if (operation, path) == ("put_if_absent", slot_path(2)):
            is_slow.set()
            may_go_on.wait()

    def before_look(operation: str, path: str) -> None:
        if (operation, path) == ("list", LOG_FOLDER):
            looks.append(path)
            if len(looks) == 4:  # beside its record, before its turn, and while it waits
                may_go_on.set()
                holder.join()
        elif operation == "put_if_absent" and path.startswith(LOG_FOLDER):
            tried.append(path)

    manager = has_met_group(table, FaultyStorage(table.storage, before=before_slot))
    leader = Writer.begin(table.manager(storage=FaultyStorage(table.storage, before=before_look)), "c")
    holder = Thread(target=schedule, args=(manager, "z"))
    holder.start()
    try:
        is_slow.wait()
        assert table.storage.exists(ASKED)
        leader.commit()
    finally:
        may_go_on.set()
        holder.join()
    assert slots(table)[1:] == [[(PLAN, "")], committed(leader)] and tried == [slot_path(3)]


def test_a_holder_waits_for_the_slots_that_are_on_their_way(table: Table) -> None:
    """For some requests after it has asked, as one of which it takes that."""
    put_group(table)
    asked_ns: list[int] = []

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("put", ASKED):
            asked_ns.append(table.system.monotonic_ns())
            table.system.advance(0.01)
        elif (operation, path) == ("put_if_absent", slot_path(2)):
            asked_ns.append(table.system.monotonic_ns())

    schedule(has_met_group(table, FaultyStorage(table.storage, before=before)), "z")
    assert asked_ns[1] - asked_ns[0] == 40_000_000 and not table.storage.exists(ASKED)


def test_where_slots_have_one_event_a_holder_asks_for_nothing(table: Table) -> None:
    write(table.manager(), "a")
    puts: list[str] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: puts.append(path))
    schedule(table.manager(storage=storage), "z")
    assert slot_path(2) in puts and ASKED not in puts


def test_a_holder_that_has_lost_a_slot_asks_for_the_next_one(table: Table) -> None:
    """Whoever tries its slots alone is faster than what is planned under the lock."""
    write(table.manager(), "a")
    asked: list[bool] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(LOG_FOLDER):
            asked.append(table.storage.exists(ASKED))
            if len(asked) == 1:
                write(table.manager(), "b")

    schedule(table.manager(storage=FaultyStorage(table.storage, before=before)), "z")
    assert asked == [False, True] and not table.storage.exists(ASKED)


def test_what_a_dead_holder_has_asked_for_delays_one_leader_by_two_turns(table: Table) -> None:
    first, second, third = (begin(table, name) for name in "abc")
    usual_ns = time_of(table, first)
    table.storage.put(ASKED, b"")
    held_ns = time_of(table, second)
    assert held_ns - usual_ns == _TURNS_OF_HOLDER * _LEAST_NS and not table.storage.exists(ASKED)
    assert time_of(table, third) == usual_ns and slots(table) == [committed(one) for one in (first, second, third)]


def test_a_leader_goes_on_once_the_holder_has_given_the_lock_back(table: Table) -> None:
    """Whose slot was there already as the leader looked, and which removes what it has asked for a moment later."""
    first, second = (begin(table, name) for name in "ab")
    usual_ns = time_of(table, first)
    table.storage.put(ASKED, b"")
    looks: list[str] = []

    def before(operation: str, path: str) -> None:
        is_record = operation == "put_if_absent" and path.startswith(READY_FOLDER)
        if is_record or (looks and (operation, path) == ("list", LOG_FOLDER)):
            looks.append(path)
            if len(looks) == 5:  # its record, a look beside that, and two while it waits
                table.storage.delete(ASKED)

    leader = begin(table, "c", paused=Paused(FaultyStorage(table.storage, before=before)))
    held_ns = time_of(table, leader)
    assert 0 < held_ns - usual_ns < _LEAST_NS and len(looks) > 5
    assert time_of(table, second) == usual_ns


def test_where_nothing_is_to_be_planned_nobody_waits_for_the_lock(table: Table) -> None:
    put_group(table)
    asked: list[str] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: asked.append(path))
    with table.manager().context.provider.acquire(TABLE_KEY, 0):
        assert has_met_group(table, storage).schedule(lambda _: None) is None
    assert ASKED not in asked and slots(table)[1:] == []


def test_who_has_lost_a_slot_looks_for_what_is_to_be_planned_without_the_lock(table: Table) -> None:
    write(table.manager(), "a")
    with table.manager().context.provider.acquire(TABLE_KEY, 0):
        assert crowd(table.manager()).schedule(lambda _: None) is None


def test_what_a_plan_has_to_read_is_read_before_the_others_wait(table: Table) -> None:
    put_group(table)
    waited: list[bool] = []

    def build(snapshot: Snapshot) -> bytes:
        waited.append(table.storage.exists(ASKED))
        return b"plan"

    assert has_met_group(table, FaultyStorage(table.storage)).schedule(build) is not None
    assert waited == [False, True] and slots(table)[1:] == [[(PLAN, "")]]


def test_what_fails_before_the_others_wait_is_decided_once_they_do(table: Table) -> None:
    put_group(table)
    calls: list[bool] = []

    def build(snapshot: Snapshot) -> bytes:
        calls.append(table.storage.exists(ASKED))
        if len(calls) == 1:
            raise CorruptTable("it was removed just then", path="x")
        return b"plan"

    assert has_met_group(table, FaultyStorage(table.storage)).schedule(build) is not None
    assert calls == [False, True]
