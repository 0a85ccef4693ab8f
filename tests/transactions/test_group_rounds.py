"""Whom a leader waits for before it puts a slot, and the requests that those in a group can do without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from group_members import Writer, begin, committed, slots
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, TransactionEnded, Unavailable
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.awaited_files import _LEAST_NS, _MOST_NS
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, slot_path
from lakelatch.transactions.attempts.group import _GATHERS, _LOOKS_GATHERING
from lakelatch.transactions.base.ready import READY_FOLDER

ALL_OF_IT_NS, ONE_LOOK_NS = round(_GATHERS * _LEAST_NS), round(_LEAST_NS / _LOOKS_GATHERING)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


def ready(table: Table, group: str) -> Writer:
    """A writer that has left its record, and does nothing more."""
    writer = begin(table, group)
    with failpoints.active("group.after_record=raise"), pytest.raises(Unavailable):
        writer.commit()
    writer.transaction._heartbeat.stop()
    return writer


def put_slot(table: Table, *groups: str) -> list[Writer]:
    """One slot with a commit for each of these."""
    members = [ready(table, group) for group in groups[1:]]
    leader = begin(table, groups[0])
    leader.commit()
    return [leader, *members]


def waited_ns(table: Table, writer: Writer) -> int:
    """How long a commit waits where nothing but a wait takes time."""
    began_ns = table.system.monotonic_ns()
    writer.commit()
    return table.system.monotonic_ns() - began_ns


def beside(table: Table, at: Callable[[str, str], bool], step: Callable[[], object]) -> FaultyStorage:
    """A storage where others do this once, right before the first such request."""
    left = [step]

    def before(operation: str, path: str) -> None:
        if at(operation, path) and left:
            left.pop()()

    return FaultyStorage(table.storage, before=before)


def of_process(table: Table, storage: FaultyStorage, group: str) -> Writer:
    return Writer.begin(table.manager(storage=storage), group)


# -- who is waited for -----------------------------------------------------------------------------------------------


def test_who_was_committed_together_is_waited_for_until_all_are_there(table: Table) -> None:
    put_slot(table, "a", "b", "c")
    come: list[Writer] = []
    looks: list[str] = []

    def is_second_look(operation: str, path: str) -> bool:
        looks.extend([path] if (operation, path) == ("list", READY_FOLDER) else [])
        return len(looks) == 2

    storage = beside(table, is_second_look, lambda: come.extend(ready(table, group) for group in "ef"))
    leader = of_process(table, storage, "d")
    assert waited_ns(table, leader) == ONE_LOOK_NS
    assert slots(table)[1:] == [committed(leader, *come)]


def test_who_does_not_come_is_waited_for_twice_and_not_for_long(table: Table) -> None:
    later = [begin(table, group) for group in "def"]  # so they read both of the last slots
    put_slot(table, "a", "b", "c")
    assert [waited_ns(table, writer) for writer in later] == [ALL_OF_IT_NS, ALL_OF_IT_NS, 0]


@pytest.mark.parametrize("began_before", [True, False])
def test_who_began_before_the_slot_of_others_is_one_more(table: Table, began_before: bool) -> None:
    early, leader = begin(table, "c"), begin(table, "d")
    put_slot(table, "a", "b")
    (early if began_before else begin(table, "c")).commit()
    assert waited_ns(table, leader) == (ALL_OF_IT_NS if began_before else 0)


def test_each_who_comes_is_a_reason_to_wait_for_the_next(table: Table) -> None:
    put_slot(table, "a", "b", "c", "x")
    come: list[Writer] = []

    def is_late(operation: str, path: str) -> bool:
        return bool(began) and table.system.monotonic_ns() - began[0] >= ALL_OF_IT_NS - ONE_LOOK_NS

    began: list[int] = []
    storage = beside(table, is_late, lambda: come.append(ready(table, "e")))
    leader = of_process(table, storage, "d")
    began.append(table.system.monotonic_ns())
    assert waited_ns(table, leader) > ALL_OF_IT_NS
    assert slots(table)[1:] == [committed(leader, *come)]


def test_who_has_waited_for_its_turn_takes_those_who_have_come_meanwhile(table: Table) -> None:
    dead, come = ready(table, "a"), list[Writer]()
    looks_for_slot = beside(
        table,
        lambda operation, path: (operation, path) == ("read", slot_path(1)),
        lambda: come.append(ready(table, "c")),
    )
    leader = of_process(table, looks_for_slot, "b")
    leader.commit()
    assert come and slots(table) == [committed(leader, dead, *come)]


# -- what nobody has to ask ------------------------------------------------------------------------------------------


def test_a_member_asks_for_its_file_beside_its_look_at_the_slot(table: Table) -> None:
    dead, third = ready(table, "a"), list[Writer]()
    asked: list[tuple[str, str]] = []

    def is_poll(operation: str, path: str) -> bool:
        asked.append((operation, path))
        return (operation, path) == ("read", slot_path(1))

    def others_commit() -> None:
        third.append(begin(table, "c"))
        third[0].commit()

    owner = of_process(table, beside(table, is_poll, others_commit), "b")
    owner.commit()
    assert slots(table) == [committed(*third, dead, owner)]
    after = asked[asked.index(("read", slot_path(1))) + 1 :]
    assert after[:2] == [("list", LOG_FOLDER), ("list", TIMELINE_FOLDER)], after
    assert ("list", READY_FOLDER) not in after and after.count(("list", TIMELINE_FOLDER)) == 1


def test_a_member_asks_again_if_its_file_could_not_be_asked_for(table: Table) -> None:
    ready(table, "a")
    third, failed = list[Writer](), list[str]()

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("read", slot_path(1)) and not third:
            third.append(begin(table, "c"))
            third[0].commit()
        elif third and (operation, path) == ("list", TIMELINE_FOLDER) and not failed:
            failed.append(path)
            raise Unavailable("no answer")

    owner = of_process(table, FaultyStorage(table.storage, before=before), "b")
    owner.commit()
    assert failed and owner.instant in table.completed()


def test_a_member_whose_slot_others_have_followed_needs_no_answer_about_its_file(table: Table) -> None:
    """All of its slot's files were there before the next slot."""
    ready(table, "a")
    followers, failed = list[Writer](), list[str]()

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("read", slot_path(1)) and not followers:
            for group in ("c", "d"):
                followers.append(begin(table, group))
                followers[-1].commit()
        elif len(followers) == 2 and (operation, path) == ("list", TIMELINE_FOLDER) and len(failed) < 2:
            failed.append(path)
            raise Unavailable("no answer")

    owner = of_process(table, FaultyStorage(table.storage, before=before), "b")
    owner.commit()
    assert failed and len(slots(table)) == 2 and owner.instant in table.completed()


@pytest.mark.parametrize("followed", [False, True])
def test_a_member_that_was_taken_back_before_it_found_its_slot_is_not_told_that_it_has_committed(
    table: Table, followed: bool
) -> None:
    """By another engine, which takes no slots: with the inflight file gone nothing is awaited any more."""
    ready(table, "a")
    others = list[Writer]()

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("read", slot_path(1)) and not others:
            for group in ("c", "d")[: 1 + followed]:
                others.append(begin(table, group))
                others[-1].commit()
            for name in table.storage.list(TIMELINE_FOLDER).files:
                if name.startswith(owner.instant):
                    table.storage.delete(f"{TIMELINE_FOLDER}/{name}")

    owner = of_process(table, FaultyStorage(table.storage, before=before), "b")
    with pytest.raises(TransactionEnded, match="rolled it back"):
        owner.commit()
    assert (COMPLETE, owner.instant) in slots(table)[0] and len(slots(table)) == 1 + followed


REQUEST_S = 0.01


def make_files(table: Table, leader: Writer, slot_ns: int) -> None:
    """As many files of the last slot as can be there by now if each takes a request."""
    made = (table.system.monotonic_ns() - slot_ns) / 1e9 / REQUEST_S
    log = leader.manager.context.log
    for event in table.events()[: int(made)]:
        log.projections.show(event, log.content)


def test_files_that_come_one_after_the_other_are_waited_for_as_long_as_they_come(table: Table) -> None:
    """However many there are. Who waits makes none of them, and does not ask for each."""
    others = [ready(table, f"{number:02}") for number in range(30)]
    leader, asked, slot_ns = begin(table, "leader"), list[tuple[str, str]](), list[int]()

    def before(operation: str, path: str) -> None:
        asked.append((operation, path))
        if operation == "put_if_absent" and path.startswith(READY_FOLDER):
            table.system.advance(REQUEST_S)
        elif (operation, path) == ("read", slot_path(1)) and not slot_ns:
            with failpoints.active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
                leader.commit()
            slot_ns.append(table.system.monotonic_ns())
        elif (operation, path) == ("list", TIMELINE_FOLDER) and slot_ns:
            make_files(table, leader, slot_ns[0])

    owner = of_process(table, FaultyStorage(table.storage, before=before), "z")
    owner.commit()
    assert slots(table) == [committed(leader, *others, owner)]
    files = {event.path for event in table.events()}
    assert not [path for operation, path in asked if operation == "put_if_absent" and path in files]
    assert asked.count(("list", TIMELINE_FOLDER)) < len(files) / 2
    assert table.system.monotonic_ns() - slot_ns[0] >= REQUEST_S * len(files) * 1e9


@pytest.mark.parametrize("is_alive", [True, False])
def test_who_begins_meanwhile_makes_none_of_them_unless_no_more_come(table: Table, is_alive: bool) -> None:
    for number in range(30):
        ready(table, f"{number:02}")
    leader, asked = begin(table, "leader"), list[tuple[str, str]]()
    with failpoints.active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
        leader.commit()
    slot_ns = table.system.monotonic_ns()

    def before(operation: str, path: str) -> None:
        asked.append((operation, path))
        if (operation, path) == ("list", TIMELINE_FOLDER):
            table.system.advance(REQUEST_S)
            if is_alive:
                make_files(table, leader, slot_ns)

    began = of_process(table, FaultyStorage(table.storage, before=before), "z")
    files = {event.path for event in table.events()}
    assert len(files) == 31 and {one.instant for one in table.events()} <= set(table.completed())
    assert began.instant > leader.instant
    made = [path for operation, path in asked if operation == "put_if_absent" and path in files]
    assert made == ([] if is_alive else sorted(files, key=lambda path: path.rpartition("_")[2]))


def test_slow_listings_make_nobody_wait_the_longer_for_files_that_do_not_come(table: Table) -> None:
    """Who waits may hold the table's lock."""
    ready(table, "a")
    leader, slow = begin(table, "leader"), [0.0, 60.0]
    with failpoints.active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
        leader.commit()

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("list", TIMELINE_FOLDER):
            table.system.advance(slow.pop(0) if slow else 0)

    log = table.manager(storage=FaultyStorage(table.storage, before=before)).context.log
    began_ns = table.system.monotonic_ns()
    log.look(log.tail())
    assert not slow and table.system.monotonic_ns() - began_ns <= 60e9 + 2 * _MOST_NS
    assert {one.instant for one in table.events()} <= set(table.completed())


def test_nobody_waits_for_a_file_that_was_there_and_that_others_have_taken_away(table: Table) -> None:
    """As a rollback of another engine does, which takes the inflight file away later, or never if it has died."""
    gone, *_ = put_slot(table, "a", "b")
    log = table.manager().context.log
    log.look(log.tail())
    event = next(one for one in table.events() if one.instant == gone.instant)
    table.storage.delete(event.path)
    began_ns = table.system.monotonic_ns()
    log.look(log.tail())
    assert table.system.monotonic_ns() == began_ns and gone.instant not in table.completed()


def looks_for_slot(table: Table) -> int:
    """How often a commit asks for the next slot before it takes its turn."""
    asked: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda *call: asked.append(call))
    with failpoints.active("commit.before_slot=raise"), pytest.raises(Unavailable):
        of_process(table, storage, "z").commit()
    return asked.count(("read", slot_path(1)))


def test_who_has_many_before_it_looks_for_their_slot_more_rarely(table: Table) -> None:
    for number in range(16):
        ready(table, f"{number:02}")
    few = looks_for_slot(table)
    for number in range(16, 48):
        ready(table, f"{number:02}")
    assert 0 < looks_for_slot(table) < few


def test_records_of_what_has_ended_since_are_not_read(table: Table) -> None:
    asked: list[tuple[str, str]] = []

    def note(operation: str, path: str) -> bool:
        asked.append((operation, path))
        return False

    leader = of_process(table, beside(table, note, list), "c")
    ended = put_slot(table, "a", "b")[1]
    assert table.storage.exists(ended.record)
    leader.commit()
    assert ("read_range", ended.record) not in asked and ("delete", ended.record) not in asked
    begin(table, "d").commit()
    assert not table.storage.exists(ended.record)


def test_a_record_of_what_is_being_rolled_back_since_before_the_leader_began_is_left_out(table: Table) -> None:
    """Its claim and its inflight file are there, and no slot since the leader's beginning says that it has ended."""
    dead = ready(table, "a")
    table.expire(dead.instant)

    def dies(operation: str, path: str) -> None:
        if operation.startswith("delete"):
            raise Unavailable("the process that rolls it back has died")

    with suppress(Unavailable):
        table.manager(storage=FaultyStorage(table.storage, before=dies)).recover()
    assert table.events()[0].target == dead.instant and table.storage.exists(dead.record)
    leader = begin(table, "b")
    leader.commit()
    assert [event.instant for event in table.events() if event.kind == COMPLETE] == [leader.instant]
