"""Writes that claim their time beside the check of what is remembered, and ask the log only after that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bare_table import add_file, commit, data_files, write
from one_table import Table, own_file

from lakelatch import failpoints
from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import MemoryStorage, Storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import CLAIMS_FOLDER, TIMELINE_FOLDER, inflight
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.transactions.attempts.claims import Claim, beat_of, claim_time, give_back, make_heartbeat
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.files import MARKERS_FOLDER
from lakelatch.transactions.markers.own_files import NotBegun
from lakelatch.transactions.memory import TableMemory
from lakelatch.transactions.transaction import Transaction


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Whose clock stands still, so that two writers are given the same time."""
    system = ManualSystem(REAL_SYSTEM.realtime_ms())
    return Table(MemoryStorage(str(tmp_path)), system, times=system)


def remembered(table: Table, *groups: str) -> TableMemory:
    manager = table.manager(NON_BLOCKING)
    manager.recover()
    for group in groups or ("z",):
        write(manager, group)
    manager.memory.folders = ("",)
    table.system.advance(1)
    return manager.memory


def ahead(table: Table, memory: TableMemory, storage: Storage | None = None) -> TransactionManager:
    """A manager after the check, and what was asked beside it."""
    memory.log._storage = memory.log.snapshots._storage = storage or table.storage
    manager = table.manager(NON_BLOCKING, storage=storage, memory=memory)
    manager.begin_ahead()
    manager.recover()
    return manager


def before(table: Table, operation: str, prefix: str, work: Callable[[], object]) -> FaultyStorage:
    """A storage where others do this once, right before the first such request."""
    left = [work]

    def act(called: str, path: str) -> None:
        if left and called == operation and path.startswith(prefix):
            left.pop()()

    return FaultyStorage(table.storage, before=act)


def begin(manager: TransactionManager) -> Transaction:
    return manager.begin(for_tasks=False, folders=("",))


def claims(table: Table) -> list[str]:
    return list(table.storage.list(CLAIMS_FOLDER).files)


def test_a_time_that_is_not_used_is_nobodys_until_it_is_long_past(table: Table) -> None:
    """A removal of its claim that arrives late would else take away that of whoever has it next."""
    manager = ahead(table, remembered(table))
    (claimed,) = claims(table)
    manager.give_up()
    other = begin(table.manager(NON_BLOCKING))
    assert other.instant > claimed
    commit(other, own_file(other, "a"))
    assert claims(table) == [claimed]
    table.expire(claimed)
    assert table.manager().recover() == [claimed] and table.leftovers() == []


def test_a_time_below_the_log_is_given_back_at_once(table: Table) -> None:
    memory = remembered(table)

    def commit_later() -> None:
        table.system.advance(5)
        write(table.manager(NON_BLOCKING), "b")
        table.system.advance(-5)

    transaction = begin(ahead(table, memory, before(table, "list", LOG_FOLDER, commit_later)))
    assert claims(table) == [transaction.instant] and transaction.instant > table.completed()[-1]


def test_the_claim_is_that_of_the_next_transaction_alone(table: Table) -> None:
    manager = ahead(table, remembered(table))
    (claimed,) = claims(table)
    first, second = begin(manager), begin(manager)
    assert first.instant == claimed and second.instant != claimed
    assert first.state.operation_id != second.state.operation_id
    for transaction in (first, second):
        commit(transaction, own_file(transaction, transaction.instant))
    assert table.leftovers() == []


def test_a_time_that_others_have_used_meanwhile_is_not_used_again(table: Table) -> None:
    """They end before the claim, so that it is granted, and after the look at the tail."""
    memory, done = remembered(table), []

    def commit_in_between() -> None:
        other = table.manager(NON_BLOCKING).begin()
        done.append(commit(other))

    manager = ahead(table, memory, before(table, "put_if_absent", CLAIMS_FOLDER, commit_in_between))
    timeline = sorted(table.storage.walk(TIMELINE_FOLDER))
    transaction = begin(manager)
    assert [transaction.instant] == [one.instant for one in done]
    with pytest.raises(NotBegun):
        commit(transaction, own_file(transaction, "a"))
    assert (
        data_files(table.storage, transaction.instant) == [] and sorted(table.storage.walk(TIMELINE_FOLDER)) == timeline
    )
    table.expire(transaction.instant)
    assert table.manager().recover() == [] and table.leftovers() == []
    assert done[0].instant in table.completed() and table.rollbacks() == 0


def test_a_time_that_others_gave_back_below_the_log_is_nobodys(table: Table) -> None:
    """No slot says so. Their removals may arrive once more, and would take what its next owner has announced."""
    memory, other = remembered(table), table.manager(NON_BLOCKING)
    given_back = list[str]()

    def give_back_below_the_log() -> None:
        claim = claim_time(other.context, memory.log.snapshots.current.latest_time, 1)
        given_back.append(claim.instant)
        table.system.advance(5)
        write(table.manager(NON_BLOCKING), "b")
        table.system.advance(-5)
        give_back(other.context, claim, other.context.log.tail())

    manager = ahead(table, memory, before(table, "put_if_absent", CLAIMS_FOLDER, give_back_below_the_log))
    transaction = begin(manager)
    assert [transaction.instant] == given_back == claims(table)
    with pytest.raises(NotBegun, match="later time"):
        commit(transaction, own_file(transaction, "a"))
    assert data_files(table.storage, transaction.instant) == table.leftovers() == []


def test_markers_under_a_time_that_was_used_are_left_to_its_rollback(table: Table) -> None:
    """Which finds by them what was announced after its slot, if it has to begin anew."""
    used = table.manager(NON_BLOCKING).begin()
    add_file(used, "a")
    table.expire(used.instant)
    with failpoints.calling(_die, ["rollback.after_slot"]), pytest.raises(_Died):
        table.manager().recover()
    table.storage.delete(heartbeat_path(used.instant))
    manager = table.manager(NON_BLOCKING)
    heartbeat = make_heartbeat(manager.context, used.instant, beat_of(manager.context, "next", 0))
    assert heartbeat.claim()
    give_back(manager.context, Claim(used.instant, heartbeat, "next", 0, ("b_0.log",)), manager.context.log.tail())
    assert list(table.storage.walk(MARKERS_FOLDER)) and used.instant in claims(table)
    for dead in claims(table):
        table.expire(dead)
    table.manager().recover()
    assert data_files(table.storage, used.instant) == table.leftovers() == []


def test_slots_that_might_have_been_removed_before_the_claim_are_not_relied_on(table: Table) -> None:
    memory = remembered(table)

    def commit_many() -> None:
        manager = table.manager(NON_BLOCKING)
        for _ in range(manager.context.log.slots_kept // 2 + 1):
            write(manager, "b")

    manager = ahead(table, memory, before(table, "put_if_absent", MARKERS_FOLDER, commit_many))
    transaction = begin(manager)
    assert transaction.own_files is not None
    commit_many()
    with pytest.raises(NotBegun):
        commit(transaction, own_file(transaction, "a"))
    assert not table.storage.exists(inflight(transaction.instant, transaction.state.action).path)


def test_a_claim_that_came_too_late_to_keep_its_slots_is_not_taken(table: Table) -> None:
    """Recoverers would count its writer as one that has ended, and remove the claim without a slot."""
    memory = remembered(table)
    memory.recovered_ns = memory.cleared_ns = None  # so that a recovery looks at the log once more

    def commit_many() -> None:
        manager = table.manager(NON_BLOCKING)
        for _ in range(manager.context.log.slots_kept + 1):
            write(manager, "b")
        table.system.advance(5)

    manager = ahead(table, memory, before(table, "list", LOG_FOLDER, commit_many))
    (early,) = claims(table)
    assert begin(manager).instant > early


@pytest.mark.parametrize(
    ("operation", "path"), [("list", LOG_FOLDER), ("put_if_absent", TIMELINE_FOLDER)], ids=["look", "timeline"]
)
def test_who_was_rolled_back_before_it_was_shown_makes_no_file(operation: str, path: str, table: Table) -> None:
    memory, begun = remembered(table), list[str]()

    def roll_back() -> None:
        table.expire(begun[0])
        assert table.manager().recover() == begun

    def act(called: str, at: str) -> None:
        if begun and called == operation and at.startswith(path) and not table.rollbacks():
            roll_back()

    manager = ahead(table, memory, FaultyStorage(table.storage, before=act))
    transaction = begin(manager)
    file = own_file(transaction, "a")
    begun.append(transaction.instant)
    with pytest.raises(TransactionEnded):
        commit(transaction, file)
    assert data_files(table.storage, transaction.instant) == []
    table.manager().recover()
    assert table.leftovers() == []


def test_nothing_is_on_the_timeline_before_the_look_that_comes_after_the_claim(table: Table) -> None:
    asked: list[str] = []

    def note(called: str, path: str) -> None:
        folders = {LOG_FOLDER: "log", MARKERS_FOLDER: "marker", TIMELINE_FOLDER: "timeline", CLAIMS_FOLDER: "claim"}
        name = next((name for folder, name in folders.items() if path.startswith(folder)), "")
        if name and called in ("put_if_absent", "list") and (called == "list") == (name == "log"):
            asked.append(name)
        elif called == "put_if_absent":
            asked.append("slot" if name else "file")

    manager = ahead(table, remembered(table), FaultyStorage(table.storage, before=note))
    transaction = begin(manager)
    commit(transaction, own_file(transaction, "a"))
    assert asked == ["log", "claim", "log", "marker", "log", "timeline", "timeline", "file", "slot", "log"]


def test_a_write_that_dies_between_its_marker_and_the_timeline_leaves_nothing(table: Table) -> None:
    def die() -> None:
        raise Unavailable("killed")

    memory = remembered(table)
    manager = ahead(table, memory, before(table, "put_if_absent", TIMELINE_FOLDER, die))
    transaction = begin(manager)
    with pytest.raises(Unavailable):
        commit(transaction, own_file(transaction, "a"))
    assert table.leftovers() != []
    table.expire(transaction.instant)
    assert table.manager().recover() == [transaction.instant]
    assert table.leftovers() == [] and data_files(table.storage, transaction.instant) == []


def test_a_table_that_is_removed_after_the_check_gets_nothing(table: Table) -> None:
    manager = ahead(table, remembered(table))
    for path in list(table.storage.walk("")):
        table.storage.delete(path)
    transaction = begin(manager)
    with pytest.raises(Unavailable, match="another one is in its place"):
        commit(transaction, own_file(transaction, "a"))
    assert list(table.storage.walk("")) == []


def test_another_table_in_its_place_is_not_asked_for_a_time(table: Table) -> None:
    memory = remembered(table)
    for path in list(table.storage.walk("")):
        table.storage.delete(path)
    write(table.manager(), "x")
    asked = before(table, "put_if_absent", CLAIMS_FOLDER, pytest.fail)
    assert ahead(table, memory, asked).memory is not memory


def test_a_table_of_another_timeline_is_another_one(table: Table) -> None:
    """Its last slot is as it was, and the file of that was taken away."""
    memory = remembered(table)
    for path in list(table.storage.walk(TIMELINE_FOLDER)):
        table.storage.delete(path)
    assert ahead(table, memory).memory is not memory


def test_what_was_listed_counts_if_nobody_has_committed_since(table: Table) -> None:
    memory, listed = remembered(table), list[str]()

    def note(called: str, path: str) -> None:
        if (called, path) == ("list", ""):
            listed.append(path)

    transaction = begin(ahead(table, memory, FaultyStorage(table.storage, before=note)))
    assert transaction.own_files is not None and "" in transaction.own_files.listed and len(listed) == 1


def test_a_foreign_commit_that_the_timeline_shows_may_have_files_that_were_not_listed(table: Table) -> None:
    """They come with that commit, right after the folder was listed, and the timeline right after that."""
    memory = remembered(table)
    name = "b_20200101000000000.log"

    def place(called: str, path: str) -> None:
        if called == "list" and path == TIMELINE_FOLDER and not table.storage.exists(name):
            table.place_foreign("20200101000000000", "20200101000000001", "b")
        elif called == "put_if_absent" and path.startswith(CLAIMS_FOLDER):
            table.storage.put(name, b"rows")

    transaction = begin(ahead(table, memory, FaultyStorage(table.storage, before=place)))
    assert transaction.own_files is not None and name in transaction.own_files.listed.get("", [name])


@pytest.mark.parametrize("kind", ["commit", "plan"])
def test_who_finds_that_others_have_added_a_slot_begins_after_it(kind: str, table: Table) -> None:
    memory, other = remembered(table), table.manager()
    if kind == "commit":
        write(other, "b")
    else:
        other.schedule(lambda folder: b"plan")
    transaction = begin(ahead(table, memory))
    assert transaction.state.mark.slot == 2
    commit(transaction, own_file(transaction, "b"))
    assert transaction.instant in table.completed() and claims(table) == []


@pytest.mark.parametrize("has_waited", [True, False])
def test_who_has_waited_for_the_slot_of_others_begins_without_another_listing(table: Table, has_waited: bool) -> None:
    """The listing that is checked shows the files of that slot; and of one that is new one is enough."""
    memory, asked = remembered(table), list[tuple[str, str]]()
    write(table.manager(NON_BLOCKING), "a")
    if has_waited:
        memory.log.tail()
    table.system.advance(1)
    storage = FaultyStorage(table.storage, before=lambda operation, path: asked.append((operation, path)))
    transaction = begin(ahead(table, memory, storage))
    assert asked.count(("list", TIMELINE_FOLDER)) == (1 if has_waited else 2), asked
    transaction.abort()


class _Died(BaseException):
    """As of a process that is killed."""


def _die(_: str) -> None:
    raise _Died
