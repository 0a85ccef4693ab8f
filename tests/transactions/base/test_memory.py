"""What a process remembers of a table from one manager to the next, and when it forgets it."""

from __future__ import annotations

import pytest
from bare_table import commit, timeline_names, write
from one_table import Table

from lakelatch.engine.services.restoring import roll_back
from lakelatch.errors import InvariantBroken, Unavailable
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import Storage
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.instant import CLAIMS_FOLDER, TIMELINE_FOLDER
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.memory import TableMemory

LATER_S = 61.0  # than a heartbeat interval


def written(table: Table, *groups: str) -> TableMemory:
    """The memory of a process after a commit for each of these file groups."""
    manager = table.manager()
    manager.recover()
    for group in groups:
        write(manager, group)
    return manager.memory


def again(table: Table, memory: TableMemory) -> TransactionManager:
    """The same process once more, after its first look."""
    manager = table.manager(memory=memory)
    manager.begin_ahead()
    assert manager.recover() == []
    return manager


def copy_of(storage: Storage) -> dict[str, bytes]:
    return {path: storage.read(path) for path in storage.walk("")}


def bring_back(storage: Storage, copy: dict[str, bytes]) -> None:
    for path in list(storage.walk("")):
        storage.delete(path)
    for path, data in copy.items():
        storage.put(path, data)


def drop_log(table: Table) -> None:
    for path in list(table.storage.walk(LOG_FOLDER)):
        table.storage.delete(path)


def slots(table: Table) -> list[int]:
    return [event.number for event in table.events()]


def test_the_same_table_is_gone_on_with(table: Table) -> None:
    memory = written(table, "a", "b")
    manager = again(table, memory)
    assert manager.memory is memory and manager.context.log is memory.log
    write(manager, "c")
    assert slots(table) == [1, 2, 3] and table.leftovers() == []


def test_what_others_have_committed_meanwhile_is_seen(table: Table) -> None:
    memory = written(table, "a")
    written(table, "b", "c")
    manager = again(table, memory)
    assert manager.memory is memory
    assert write(manager, "a").slot == 4


@pytest.mark.parametrize("made", [("x",), ("x", "y", "z", "x")], ids=["shorter", "longer"])
def test_another_table_in_its_place_is_another_one(table: Table, made: tuple[str, ...]) -> None:
    memory = written(table, "a", "b")
    bring_back(table.storage, {})
    written(table, *made)
    manager = again(table, memory)
    assert manager.memory is not memory
    write(manager, "b")
    assert slots(table) == list(range(1, len(made) + 2)) and len(table.completed()) == len(made) + 1


def test_an_empty_place_is_no_table_that_is_remembered(table: Table) -> None:
    memory = written(table, "a", "b")
    bring_back(table.storage, {})
    write(again(table, memory), "b")
    assert slots(table) == [1] and len(table.completed()) == 1


@pytest.mark.parametrize("anew", [(), ("x", "y")], ids=["gone", "of the same length"])
def test_a_log_is_known_by_what_its_last_slot_says(table: Table, anew: tuple[str, ...]) -> None:
    """The timeline is as it was."""
    memory = written(table, "a", "b")
    drop_log(table)
    written(table, *anew)
    manager = again(table, memory)
    assert manager.memory is not memory
    write(manager, "c")
    assert slots(table) == list(range(1, len(anew) + 2))


def test_what_a_forgotten_table_had_on_its_timeline_is_forgotten(table: Table) -> None:
    memory = written(table, "a", "b")
    bring_back(table.storage, {})
    written(table, "x")
    assert again(table, memory).begin().state.mark.names <= timeline_names(table.storage)


def test_a_table_that_is_removed_after_the_check_gets_no_slot_behind_a_gap(table: Table) -> None:
    manager = again(table, written(table, "a", "b", "c"))
    bring_back(table.storage, {})
    with pytest.raises(Unavailable, match="another one is in its place"):
        write(manager, "c")
    assert list(table.storage.walk("")) == []


def test_a_check_that_fails_is_made_again(table: Table) -> None:
    memory = written(table, "a", "b")
    bring_back(table.storage, {})
    storage = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "list", CLAIMS_FOLDER, times=1)])
    memory.log._storage = storage
    manager = table.manager(memory=memory, storage=storage)
    with pytest.raises(Unavailable):
        manager.recover()
    manager.recover()
    write(manager, "c")
    assert slots(table) == [1]


def test_nothing_begins_before_the_check(table: Table) -> None:
    with pytest.raises(InvariantBroken):
        table.manager(memory=written(table, "a")).begin()


def test_an_older_copy_that_was_brought_back_is_another_table(table: Table) -> None:
    written(table, "a")
    copy = copy_of(table.storage)
    memory = written(table, "b", "c")
    bring_back(table.storage, copy)
    write(again(table, memory), "b")
    assert slots(table) == [1, 2] and len(table.completed()) == 2


def test_an_older_copy_that_has_gone_on_differently_is_another_table(table: Table) -> None:
    written(table, "a")
    copy = copy_of(table.storage)
    memory = written(table, "b")
    bring_back(table.storage, copy)
    other = write(table.manager(), "c")
    manager = again(table, memory)
    state = manager.begin().state
    assert state.mark.slot == other.slot == 2
    assert manager.context.log.events_after(1, manager.context.log.tail())[0].instant == other.instant


def test_a_last_file_that_is_missing_is_looked_into(table: Table) -> None:
    """As after a crash between a slot and its file, of a copy that was made in between."""
    memory = written(table, "a", "b")
    last = memory.log.last
    assert last is not None and last.event is not None
    table.storage.delete(last.event.path)
    write(again(table, memory), "c")
    assert table.storage.exists(last.event.path) and len(table.completed()) == 3


def test_what_foreign_writers_have_done_meanwhile_is_nothing_new(table: Table) -> None:
    """It had completed before this write began, so it is in nobody's way."""
    memory = written(table, "a")
    foreign = table.place_foreign("20200101000000000", "20200101000000001", "b")
    transaction = again(table, memory).begin()
    assert foreign.file_name in transaction.state.mark.names
    commit(transaction)


@pytest.mark.parametrize("stays_open", [False, True])
def test_what_was_undone_meanwhile_is_known_to_nobody(table: Table, stays_open: bool) -> None:
    """A write would look for it, and not find it."""
    first = table.manager()
    first.recover()
    write(first, "a")
    other = table.manager()
    other.recover()
    roll_back(other, write(other, "b").instant)
    manager = first if stays_open else again(table, first.memory)
    assert manager.begin().state.mark.names <= timeline_names(table.storage)


def test_what_foreign_writers_have_undone_meanwhile_is_known_to_nobody(table: Table) -> None:
    memory = written(table, "a")
    gone = write(table.manager(), "b")
    manager = again(table, memory)
    for name in timeline_names(table.storage):
        if name.startswith(gone.instant):
            table.storage.delete(f"{TIMELINE_FOLDER}/{name}")
    assert not any(name.startswith(gone.instant) for name in manager._mark(manager.context.log.tail()).names)


@pytest.mark.parametrize("later_s", [0.0, LATER_S])
def test_dead_writers_are_looked_for_once_in_an_interval(table: Table, later_s: float) -> None:
    memory = written(table, "a")
    dead = table.manager().begin()
    table.expire(dead.instant)
    table.system.advance(later_s)
    manager = table.manager(memory=memory)
    assert manager.recover() == ([dead.instant] if later_s else [])
    assert table.storage.exists(heartbeat_path(dead.instant)) == (not later_s)


@pytest.mark.parametrize("left", ["claim", "instant"])
def test_what_a_dead_writer_has_left_is_found_by_the_check(table: Table, left: str) -> None:
    memory = written(table, "a")
    dead = table.manager().begin().instant
    if left == "claim":
        for name in timeline_names(table.storage):
            if name.startswith(dead):
                table.storage.delete(f"{TIMELINE_FOLDER}/{name}")
        table.expire(dead)
    else:
        table.storage.delete(heartbeat_path(dead))
    table.system.advance(LATER_S)
    assert table.manager(memory=memory).recover() == [dead]


def test_a_forgotten_table_leaves_the_queue_to_the_next_one(table: Table) -> None:
    memory = written(table, "a")
    bring_back(table.storage, {})
    manager = again(table, memory)
    manager.context.elision.lost()
    assert manager.memory is not memory and manager.memory.queue.left > 0


def test_commits_that_have_lost_queue_also_with_the_next_manager(table: Table) -> None:
    memory = written(table, "a")
    manager = again(table, memory)
    manager.context.elision.lost()
    assert again(table, memory).context.elision.crowded
    assert not table.manager().context.elision.crowded
