"""What ends the record of a commit, and what comes of it where processes die and requests fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from archiver import Archiver
from bare_table import add_file, data_files, write
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

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, TransactionEnded, Unavailable, WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, ROLLBACK, WITHDRAW, Event, slot_path
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import At, in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Committed, Displaced, Staged, committed_or_raise
from lakelatch.transactions.base.ready import READY_FOLDER
from lakelatch.transactions.base.settings import NON_BLOCKING


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


# -- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record_left", [False, True])
def test_a_rollback_in_doubt_makes_no_doubt_of_a_conflict_but_where_a_record_is_left(
    table: Table, record_left: bool
) -> None:
    """Whoever lost is told so, and not what the slot of its rollback says of itself."""
    faults = [Fault(LOST_BEFORE, "put_if_absent", slot_path(2), times=100)]
    loser = begin(table, "a", paused=Paused(table.storage, faults=faults))
    begin(table, "a").commit()
    if record_left:
        with pytest.raises(CommitUnknown) as unknown:
            loser.commit()
        assert unknown.value.details["instant"] == loser.instant
    else:
        with pytest.raises(WriteConflict):
            loser.transaction.commit(loser.metadata)


def died(table: Table) -> Writer:
    """A writer whose process died when it had left its record."""
    writer = begin(table, "dead")
    with failpoints.active("group.after_record=raise"), pytest.raises(Unavailable):
        writer.commit()
    writer.transaction._heartbeat.stop()
    assert records(table.storage) == [writer.record.rpartition("/")[2]]
    return writer


def test_the_record_of_who_died_is_committed_by_the_next_leader(table: Table) -> None:
    dead, leader = died(table), begin(table, "a")
    leader.commit()
    assert slots(table) == [committed(leader, dead)]
    table.expire(dead.instant)
    assert table.manager().recover() == [] and table.rollbacks() == 0
    assert table.completed() == [leader.instant, dead.instant] and nothing_is_left(table)


def test_what_is_left_of_a_commit_keeps_nobody_waiting(table: Table) -> None:
    """Its owner died before it tidied: its claim is there for minutes, and its record with it."""
    dead, leader = died(table), begin(table, "a")
    data = table.storage.read(dead.record)
    leader.commit()
    later = begin(table, "b")
    table.storage.put(dead.record, data)
    slept_s = table.system.monotonic_ns()
    later.commit()
    assert table.system.monotonic_ns() - slept_s < 15_000_000  # less than a turn, in which no clock but sleep moves
    assert not table.storage.exists(dead.record)


def test_or_it_is_rolled_back_and_then_it_is_not_committed(table: Table) -> None:
    dead, leader = died(table), begin(table, "a")
    data = table.storage.read(dead.record)
    table.expire(dead.instant)
    assert table.manager().recover() == [dead.instant]
    table.storage.put(dead.record, data)  # by a request that was sent twice
    leader.commit()
    assert slots(table) == [[(ROLLBACK, dead.instant)], committed(leader)] and nothing_is_left(table)


@pytest.mark.parametrize("operation", ["put_if_absent", "list"])
def test_a_rollback_between_the_look_of_a_leader_and_its_slot_wins(table: Table, operation: str) -> None:
    dead = died(table)
    paused = Paused(table.storage, operation=operation, folder=LOG_FOLDER)
    leader = begin(table, "a", paused=paused)

    def recover() -> None:
        table.expire(dead.instant)
        assert table.manager().recover() == [dead.instant]

    paused.step = recover
    leader.commit()
    assert slots(table) == [[(ROLLBACK, dead.instant)], committed(leader)] and nothing_is_left(table)
    assert table.completed() == [leader.instant] and data_files(table.storage, dead.instant) == []


def test_a_leader_is_faster_than_the_rollback(table: Table) -> None:
    dead, leader = died(table), begin(table, "a")
    done: list[bool] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(1) and not done:
            done.append(True)
            leader.commit()

    table.expire(dead.instant)
    assert table.manager(storage=FaultyStorage(table.storage, before=before)).recover() == []
    assert done and slots(table) == [committed(leader, dead)] and table.completed() == [leader.instant, dead.instant]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("ending", ["committed", "aborted", "lost"])
def test_a_record_that_comes_again_after_its_end_is_removed_and_commits_nothing(
    table: Table, ending: str, times: int
) -> None:
    owner = begin(table, "a")
    data = record_bytes(owner)
    if ending == "committed":
        owner.commit()
    elif ending == "aborted":
        owner.transaction.abort()
    else:
        write(table.manager(), "a")
        with pytest.raises(WriteConflict):
            owner.commit()
    before = table.events()
    for number in range(times):
        table.storage.put(owner.record, data)
        begin(table, f"b{number}").commit()
        assert nothing_is_left(table)
    assert [one.kind for one in table.events()[len(before) :]] == [COMPLETE] * times
    assert table.completed().count(owner.instant) == (ending == "committed")


@pytest.mark.parametrize("faster", [False, True])
def test_an_abort_after_a_record_was_left_rolls_back_or_says_that_it_was_too_late(table: Table, faster: bool) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def fail() -> None:
        if faster:
            leader.commit()
        raise Unavailable("the storage is down")

    paused.step = fail
    with pytest.raises(Unavailable):
        owner.commit()
    if faster:
        with pytest.raises(CommitUnknown, match=f"visible since {event_of(table, owner).time}"):
            owner.transaction.abort()
        assert table.completed() == [leader.instant, owner.instant] and table.rollbacks() == 0
        assert len(data_files(table.storage, owner.instant)) == 1
    else:
        owner.transaction.abort()
        leader.commit()
        assert table.completed() == [leader.instant] and table.rollbacks() == 1
        assert data_files(table.storage, owner.instant) == []
    if faster:
        table.expire(owner.instant)
        table.manager().recover()
    assert nothing_is_left(table)


@pytest.mark.parametrize("committed_later", [False, True])
def test_an_abort_that_fails_while_others_may_commit_is_no_abort(table: Table, committed_later: bool) -> None:
    down = [Fault(UNAVAILABLE, "put_if_absent", LOG_FOLDER)]
    paused = Paused(table.storage, faults=down)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    with pytest.raises(Unavailable):
        owner.commit()
    with pytest.raises(CommitUnknown, match="if and only if its completed file appears"):
        owner.transaction.abort_quietly()
    if committed_later:
        leader.commit()
        assert slots(table) == [committed(leader, owner)]
    else:
        table.expire(owner.instant)
        assert table.manager().recover() == [owner.instant]
        leader.commit()
        assert table.completed() == [leader.instant]


def test_who_was_rolled_back_as_dead_while_it_waited_is_told(table: Table) -> None:
    paused = Paused(table.storage)
    owner = begin(table, "a", paused=paused)

    def recover() -> None:
        owner.transaction._heartbeat.stop()
        table.expire(owner.instant)
        assert table.manager().recover() == [owner.instant]

    paused.step = recover
    with pytest.raises(TransactionEnded, match=r"aborted it|missed for too long"):
        owner.commit()
    assert events(table) == [(ROLLBACK, owner.instant)] and nothing_is_left(table)


# -- what goes wrong with requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
@pytest.mark.parametrize(("is_leader", "folder"), [(False, READY_FOLDER), (True, READY_FOLDER), (True, LOG_FOLDER)])
def test_lost_answers_commit_each_once(table: Table, kind: str, is_leader: bool, folder: str) -> None:
    faults = [Fault(kind, "put_if_absent", folder, times=1)]
    paused = Paused(table.storage, faults=() if is_leader else faults)
    leading = FaultyStorage(table.storage, faults if is_leader else ())
    owner, leader = begin(table, "a", paused=paused), Writer.begin(table.manager(storage=leading), "b")
    paused.step = leader.commit
    owner.commit()
    assert sorted(table.completed()) == sorted([leader.instant, owner.instant]) and nothing_is_left(table)
    assert sorted(events(table)) == sorted(committed(leader, owner))


@pytest.mark.parametrize("point", ["commit.after_check", "commit.before_slot"])
def test_a_leader_that_dies_before_its_slot_has_decided_nothing(table: Table, point: str) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def die() -> None:
        with failpoints.active(f"{point}=raise"), pytest.raises(Unavailable):
            leader.commit()

    paused.step = die
    done = owner.commit()
    assert slots(table) == [committed(owner, leader)] and done.slot == 1


@pytest.mark.parametrize("point", ["commit.after_slot", "commit.after_projection"])
def test_a_leader_that_dies_after_its_slot_has_committed_all(table: Table, point: str) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def die() -> None:
        with failpoints.active(f"{point}=raise"), pytest.raises(CommitUnknown):
            leader.commit()

    paused.step = die
    done = owner.commit()
    assert slots(table) == [committed(leader, owner)] and done.completion == event_of(table, owner).time
    assert table.completed() == [leader.instant, owner.instant]


# -- files that move -------------------------------------------------------------------------------------------------


class Moved:
    """A commit that finds its files displaced once, and commits others in their place."""

    def __init__(self, owner: Writer, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.owner, self.meanwhile, self.moved = owner, meanwhile, False

    def check(self, snapshot: Snapshot, at: At) -> Displaced | None:
        return None if self.moved or at.place.tail.number == 0 else Displaced({("", "a"): "b"})

    def move(self, displaced: Displaced) -> Staged:
        self.meanwhile()
        self.moved = True
        return Staged(CommitMetadata((add_file(self.owner.transaction, "b"),), "UPSERT"))

    def commit(self) -> Committed:
        transaction, metadata = self.owner.transaction, self.owner.metadata
        intent = Commit(crowd(self.owner.manager).context)
        intent.start(transaction, Staged(metadata), in_order([self.check]), self.move, member=PlainMember(metadata))
        return committed_or_raise(run(transaction.context, intent))


def test_files_move_only_after_the_log_says_that_the_record_counts_no_more(table: Table) -> None:
    """A leader that finds it once more, as a storage lists it or a request repeats it, leaves it alone."""
    left: list[str] = []

    def before(operation: str, path: str) -> None:
        left.extend([path] if operation == "put_if_absent" and path.startswith(READY_FOLDER) else [])

    owner = Writer.begin(table.manager(NON_BLOCKING, storage=FaultyStorage(table.storage, before=before)), "a")
    leader = begin(table, "c", mode=NON_BLOCKING)
    data = record_bytes(owner)
    write(table.manager(NON_BLOCKING), "x")

    def lead() -> None:
        assert slots(table)[-1] == [(WITHDRAW, owner.instant)] and records(table.storage) == []
        table.storage.put(owner.record, data)
        leader.commit()

    moved = Moved(owner, lead)
    done = moved.commit()
    assert moved.moved and slots(table)[1:] == [[(WITHDRAW, owner.instant)], committed(leader), committed(owner)]
    assert [stat.file_id for stat in done.metadata.stats] == ["b"] and event_of(table, owner).number == done.slot == 4
    assert table.leftovers() == [] and left == [owner.record]
    begin(table, "d", mode=NON_BLOCKING).commit()
    assert nothing_is_left(table) and table.completed().count(owner.instant) == 1


def test_a_withdrawal_that_comes_too_late_finds_the_commit(table: Table) -> None:
    """Nothing moves then: the files are committed as the record names them."""
    paused = Paused(table.storage, operation="put_if_absent")
    owner, leader = begin(table, "a", paused=paused, mode=NON_BLOCKING), begin(table, "c", mode=NON_BLOCKING)
    write(table.manager(NON_BLOCKING), "x")
    paused.step = leader.commit
    moved = Moved(owner)
    done = moved.commit()
    assert paused.done and not moved.moved and slots(table)[1:] == [committed(leader, owner)]
    assert [stat.file_id for stat in done.metadata.stats] == ["a"]
    assert done.completion == event_of(table, owner).time and nothing_is_left(table)


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
def test_the_lost_answer_of_a_withdrawal_is_found(table: Table, kind: str) -> None:
    paused = Paused(table.storage, faults=[Fault(kind, "put_if_absent", slot_path(2), times=1)])
    owner = begin(table, "a", paused=paused, mode=NON_BLOCKING)
    write(table.manager(NON_BLOCKING), "x")
    Moved(owner).commit()
    assert slots(table)[1:] == [[(WITHDRAW, owner.instant)], committed(owner)] and nothing_is_left(table)


def test_files_do_not_move_while_the_withdrawal_is_not_known(table: Table) -> None:
    paused = Paused(table.storage, faults=[Fault(UNAVAILABLE, "put_if_absent", slot_path(2))])
    owner = begin(table, "a", paused=paused, mode=NON_BLOCKING)
    write(table.manager(NON_BLOCKING), "x")
    moved = Moved(owner)
    with pytest.raises(Unavailable):
        moved.commit()
    assert not moved.moved and len(records(table.storage)) == 1
    leader = begin(table, "c", mode=NON_BLOCKING)
    leader.commit()
    assert slots(table)[1:] == [committed(leader, owner)]


def test_an_instant_that_was_withdrawn_is_rolled_back_as_any_other(table: Table) -> None:
    owner = begin(table, "a", mode=NON_BLOCKING)
    write(table.manager(NON_BLOCKING), "x")

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Moved(owner, die).commit()
    owner.transaction._heartbeat.stop()
    table.expire(owner.instant)
    assert table.manager(NON_BLOCKING).recover() == [owner.instant]
    assert nothing_is_left(table) and data_files(table.storage, owner.instant) == []


# -- slots that are gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archived", [False, True])
def test_who_wakes_when_its_slot_is_gone_finds_its_file(table: Table, archived: bool) -> None:
    paused = Paused(table.storage)
    owner = Writer.begin(table.manager(storage=paused.storage), "a")
    leader = Writer.begin(table.manager(slots_kept=1), "b")
    done: list[Event] = []

    def meanwhile() -> None:
        leader.commit()
        done.append(event_of(table, owner))
        table.storage.delete(heartbeat_path(owner.instant))  # so that its slots may go
        others = table.manager(slots_kept=1)
        for _ in range(8):
            write(others, "c")
        assert not table.storage.exists(slot_path(1))
        if archived:
            Archiver(table.storage).archive([leader.instant, owner.instant])

    paused.step = meanwhile
    found = owner.commit()
    assert found.completion == done[0].time and table.completed().count(owner.instant) == (not archived)
    assert len(data_files(table.storage, owner.instant)) == 1


def test_who_wakes_when_all_is_gone_and_was_not_committed_is_told(table: Table) -> None:
    """And the record that it has left commits nothing any more, though its claim is back."""
    paused = Paused(table.storage)
    owner = Writer.begin(table.manager(storage=paused.storage), "a")
    beat = table.storage.read(heartbeat_path(owner.instant))

    def meanwhile() -> None:
        table.storage.delete(heartbeat_path(owner.instant))
        others = table.manager(slots_kept=1)
        for _ in range(8):
            write(others, "c")
        table.storage.put(heartbeat_path(owner.instant), beat)
        begin(table, "d").commit()
        assert owner.instant not in table.completed() and not table.storage.exists(slot_path(1))

    paused.step = meanwhile
    with pytest.raises(TransactionEnded, match="missed for too long"):
        owner.commit()
    assert owner.instant not in table.completed()
