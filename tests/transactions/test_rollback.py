from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from bare_table import add_file, commit, timeline_names, write
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import LakelatchError, LockTimeout, TransactionEnded, Unavailable
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, Beat, HeartbeatSettings, heartbeat_path
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.testing.faults.storage import LOST_BEFORE, Fault, FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER, requested
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, ROLLBACK, slot_path
from lakelatch.timeline.log.waiting import NAME_OF_HOLDER
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.direct import OPEN_FOLDER
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.undo.rollback import roll_back


def test_an_aborted_transaction_leaves_no_file_and_no_marker(table: Table) -> None:
    transaction = table.manager().begin()
    add_file(transaction, "a")
    add_file(transaction, "b", partition="day=1")
    transaction.abort()
    transaction.abort()
    assert table.data_files() == [] and table.leftovers() == []
    assert table.rollbacks() == 1 and table.completed() == []
    assert not any(name.startswith(transaction.instant) for name in timeline_names(table.storage))
    with pytest.raises(TransactionEnded, match="aborted"):
        transaction.reopen()
    write(table.manager(), "a")


def test_who_loses_slot_after_slot_keeps_one_claim_only(table: Table) -> None:
    """Claims that nobody uses look like dead writers, and each would be rolled back with a slot of its own."""
    transaction, others = table.manager().begin(), table.manager()
    add_file(transaction, "a")
    claims: list[list[str]] = []

    def overtake(_: str) -> None:
        if threading.current_thread() is aborting and len(claims) < 3:
            claims.append(list(table.storage.names(HEARTBEAT_FOLDER)))
            table.storage.delete(f"{LOG_FOLDER}/{NAME_OF_HOLDER}")  # others have looked before they were asked to wait
            other = threading.Thread(target=write, args=(others, f"b{len(claims)}"))
            other.start()
            other.join()

    with failpoints.calling(overtake, ["commit.before_slot"]):
        aborting = threading.Thread(target=transaction.abort)
        aborting.start()
        aborting.join()
    assert [len(names) for names in claims] == [2, 2, 2]  # the transaction's own, and that of its rollback
    assert table.rollbacks() == 1 and len(table.completed()) == 3 and table.leftovers() == []


def test_a_rollback_says_what_it_removed(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    transaction.abort()
    name = next(name for name in timeline_names(table.storage) if name.endswith(".rollback"))
    assert stat.path.encode() in table.storage.read(f"{TIMELINE_FOLDER}/{name}")
    assert [event.kind for event in table.events()] == [ROLLBACK, COMPLETE]
    assert table.events()[0].target == transaction.instant


def test_the_living_are_left_alone(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    assert table.manager().recover() == []
    commit(transaction, stat)


@pytest.mark.parametrize("beat", ["late", "removed"])
def test_a_dead_writer_is_rolled_back_once(table: Table, beat: str) -> None:
    dead = table.manager().begin()
    stat = add_file(dead, "a")
    alive = table.manager().begin()
    if beat == "late":
        table.expire(dead.instant)
    else:
        table.storage.delete(heartbeat_path(dead.instant))
    assert table.manager().recover() == [dead.instant]
    assert table.manager().recover() == []
    assert table.rollbacks() == 1 and table.data_files() == []
    with pytest.raises(TransactionEnded):
        commit(dead, stat)
    commit(alive, add_file(alive, "a"))
    assert table.manager().recover() == [] and table.leftovers() == []


def test_a_write_does_not_need_the_rollback_of_others(table: Table) -> None:
    """Where the lock is not to be had, the next writer may see to it."""
    table.elision = OFF
    dead = table.manager().begin()
    table.expire(dead.instant)
    writer = table.manager(lock_timeout_s=0.05)
    with table.provider().acquire(TABLE_KEY, 1.0):
        with pytest.raises(LockTimeout):
            table.manager(lock_timeout_s=0.05).recover()
        writer.recover_before_write()
        transaction = writer.begin()
        stat = add_file(transaction, "a")
    commit(transaction, stat)
    assert table.manager().recover() == [dead.instant]


def test_a_rollback_under_way_keeps_its_markers_from_a_recovery_that_listed_before_it_began(table: Table) -> None:
    """The recovery sees a heartbeat that has begun since its listing of the timeline, and later misses it."""
    begun: list[Transaction] = []
    broken: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "list" and path == HEARTBEAT_FOLDER and not begun:
            begun.append(table.manager().begin())
            add_file(begun[0], "a")
        elif operation == "put" and begun and not broken:  # asked for the storage's time, to know the dead
            broken.append(path)
            with failpoints.active("rollback.after_plan=raise"), pytest.raises(LakelatchError):
                begun[0].abort()
            table.storage.delete(heartbeat_path(begun[0].instant))

    table.manager(storage=FaultyStorage(table.storage, before=before)).recover()
    assert begun and broken and table.data_files() != []
    for path in list(table.storage.walk(HEARTBEAT_FOLDER)):
        table.expire(path.rpartition("/")[2])
    table.manager().recover()
    assert table.data_files() == [] and table.leftovers() == []


@pytest.mark.parametrize("taken_again", [False, True])
def test_a_claim_that_is_given_up_while_a_recovery_looks_is_not_rolled_back(table: Table, taken_again: bool) -> None:
    """Its time may be another writer's by then, whose claim the recovery must leave alone."""
    instant, settings = "20260101000000000", HeartbeatSettings()
    claim = Heartbeat(table.storage, instant, Beat("ours", "operation", 0, settings), table.system)
    assert claim.claim()
    seen: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put" and not seen:  # asked for the storage's time, to know the dead
            seen.append(path)
            table.storage.delete(heartbeat_path(instant))
        elif operation == "list" and path == TIMELINE_FOLDER and len(seen) == 1:
            seen.append(path)
            assert not taken_again or claim.claim()

    assert table.manager(storage=FaultyStorage(table.storage, before=before)).recover() == []
    assert len(seen) == 2 and table.rollbacks() == 0
    assert table.storage.exists(heartbeat_path(instant)) is taken_again


def test_a_zombie_leaves_nothing_that_the_next_recovery_does_not_remove(table: Table) -> None:
    dead = table.manager().begin()
    stat = add_file(dead, "a")
    table.expire(dead.instant)
    table.manager().recover()
    with pytest.raises(TransactionEnded):
        commit(dead, stat)  # it closes before it asks the log
    with pytest.raises(TransactionEnded):
        dead.markers.announce("", "late.log")
    table.manager().recover()
    assert table.leftovers() == [] and table.data_files() == []


def test_two_recoveries_at_once_roll_back_once(table: Table) -> None:
    dead = [table.manager().begin() for _ in range(3)]
    for transaction in dead:
        add_file(transaction, "a")
        table.expire(transaction.instant)
    together = threading.Barrier(2)

    def recover(manager: TransactionManager) -> list[str]:
        together.wait()
        return manager.recover()

    with ThreadPoolExecutor(2) as pool:
        recovered = list(pool.map(recover, [table.manager(), table.manager()]))
    aborted = [event.target for event in table.events() if event.kind == ROLLBACK]
    assert sorted(aborted) == sorted(transaction.instant for transaction in dead)  # type: ignore[type-var]
    assert {instant for found in recovered for instant in found} == {transaction.instant for transaction in dead}
    assert table.rollbacks() == 3 and table.data_files() == [] and table.leftovers() == []


@pytest.mark.parametrize("first", ["commit", "rollback"])
def test_of_commit_and_rollback_the_first_slot_wins(table: Table, first: str) -> None:
    """No lock at all: whoever is about to create slot 1 is overtaken by the other."""
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    table.expire(transaction.instant)
    overtaken: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(1) and not overtaken:
            overtaken.append(path)
            if first == "commit":
                commit(lockless(table).resume(transaction.state), stat)
            else:
                assert lockless(table).recover() == [transaction.instant]

    slow = lockless(table, FaultyStorage(table.storage, before=before))
    if first == "commit":
        assert slow.recover() == []
        assert table.completed() == [transaction.instant] and table.rollbacks() == 0
        assert table.data_files() == [stat.path]
    else:
        with pytest.raises(TransactionEnded):
            commit(slow.resume(transaction.state), stat)
        assert table.completed() == [] and table.rollbacks() == 1 and table.data_files() == []
    assert overtaken
    lockless(table).recover()
    assert table.leftovers() == []


def lockless(table: Table, storage: FaultyStorage | None = None) -> TransactionManager:
    return table.manager(storage=storage, provider=LyingLockProvider(LockScope(table.storage.uri, {})))


def test_the_rollbacks_slot_alone_ends_a_transaction(table: Table) -> None:
    """The process that recovered died right after its slot: the victim's heartbeat and files are all still there."""
    zombie = table.manager().begin()
    stat = add_file(zombie, "a")
    beat = table.storage.read(heartbeat_path(zombie.instant))
    table.expire(zombie.instant)
    with failpoints.active("rollback.after_slot=raise"), pytest.raises(LakelatchError):
        table.manager().recover()
    table.storage.put(heartbeat_path(zombie.instant), beat)
    with pytest.raises(TransactionEnded, match="aborted it"):
        commit(zombie, stat)
    assert table.completed() == []


@pytest.mark.parametrize(
    "point", ["rollback.after_slot", "rollback.after_plan", "rollback.after_files", "rollback.after_completed"]
)
def test_a_rollback_that_died_is_finished_by_the_next(table: Table, point: str) -> None:
    dead = table.manager().begin()
    add_file(dead, "a")
    table.expire(dead.instant)
    with failpoints.active(f"{point}=raise"), pytest.raises(LakelatchError):
        table.manager().recover()
    for event in table.events():
        if event.kind == ROLLBACK and table.storage.exists(heartbeat_path(event.instant)):
            table.expire(event.instant)
    table.manager().recover()
    assert table.data_files() == [] and table.leftovers() == [] and table.rollbacks() == 1
    assert [event.kind for event in table.events()] == [ROLLBACK, COMPLETE]
    before = list(table.storage.walk(TIMELINE_FOLDER))
    assert table.manager().recover() == [] and list(table.storage.walk(TIMELINE_FOLDER)) == before


@pytest.mark.parametrize("point", ["begin.after_claim", "begin.after_requested", "begin.after_inflight"])
def test_a_begin_that_died_leaves_nothing(table: Table, point: str) -> None:
    with failpoints.active(f"{point}=raise"), pytest.raises(LakelatchError):
        table.manager().begin()
    for name in table.storage.list(".hoodie/.heartbeat").files:
        table.expire(name)
    assert len(table.manager().recover()) == 1 and table.rollbacks() == 1
    assert table.leftovers() == [] and table.manager().recover() == []


def test_a_cleanup_that_died_halfway_is_finished(table: Table) -> None:
    """Between the two things that it removes."""
    done = write(table.manager(), "a")
    table.storage.put(f".hoodie/.lakelatch/open/{done.instant}", b"")
    assert table.manager().recover() == []
    assert table.leftovers() == [] and len(table.data_files()) == 1


def test_a_beginner_that_was_aborted_before_its_first_file_ends(table: Table) -> None:
    """It is rolled back while it is paused between the claim and the requested file."""
    aborted: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.endswith(".deltacommit.requested") and not aborted:
            aborted.append(path.rpartition("/")[2].partition(".")[0])
            table.expire(aborted[0])
            assert table.manager().recover() == aborted

    transaction = table.manager(storage=FaultyStorage(table.storage, before=before)).begin()
    with pytest.raises(TransactionEnded):
        add_file(transaction, "a")
    with pytest.raises(TransactionEnded):
        commit(transaction)
    assert table.manager().recover() == aborted == [transaction.instant]
    assert table.leftovers() == [] and table.completed() == []


def test_a_claim_that_a_late_beat_brings_back_does_not_let_an_aborted_beginner_commit(table: Table) -> None:
    """Its claim was removed while it was paused between the claim and the requested file: the log has said why."""
    claimed: list[str] = []

    def pause(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.endswith(".deltacommit.requested") and not claimed:
            claimed.append(path.rpartition("/")[2].partition(".")[0])
            beat = table.storage.read(heartbeat_path(claimed[0]))
            table.expire(claimed[0])
            table.manager().recover()
            table.storage.put(heartbeat_path(claimed[0]), beat)

    begun = table.manager(storage=FaultyStorage(table.storage, before=pause)).begin()
    with pytest.raises(TransactionEnded, match="rollback"):
        commit(begun)
    assert table.completed() == []
    table.expire(begun.instant)
    table.manager().recover()
    assert table.leftovers() == [] and table.completed() == []


def test_what_is_rolled_back_is_what_the_timeline_says(table: Table) -> None:
    """Whoever found a claim alone does not know what its owner has begun with it meanwhile."""
    dead = table.manager().begin("replacecommit")
    table.expire(dead.instant)
    assert roll_back(table.manager().context, dead.instant, "deltacommit")
    assert not any(name.startswith(dead.instant) for name in timeline_names(table.storage))
    assert table.leftovers() == []
    plan = table.manager().schedule(lambda folder: b"")
    assert plan is not None and not roll_back(table.manager().context, plan, "deltacommit")
    assert [pending.requested for pending in Snapshot.load(table.storage).pending] == [plan]


@pytest.mark.parametrize("marked", [True, False], ids=["by its markers", "by its name"])
def test_a_foreign_dead_writer_is_rolled_back(table: Table, marked: bool) -> None:
    instant = "20260101000000000"
    data = "day=1/f.parquet" if marked else f"day=1/f_0_{instant}.parquet"
    for file in (requested(instant, "deltacommit"),):
        table.storage.put(file.path, b"")
    table.storage.put(heartbeat_path(instant), b"")
    if marked:
        table.storage.put(f".hoodie/.temp/{instant}/{data}.marker.CREATE", b"")
    table.storage.put(data, b"rows")
    assert table.manager().recover() == []
    table.expire(instant)
    assert table.manager().recover() == [instant]
    assert not table.storage.exists(data), "an empty base file is damage to its readers"
    assert table.data_files() == [] and table.leftovers() == []


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_requested_time_that_has_come_and_gone_is_not_claimed_again(table: Table, ending: str) -> None:
    """Its clock stands still, its locks lie, and it is paused between its look at the table and its claim."""
    ended: list[Transaction] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(HEARTBEAT_FOLDER) and not ended:
            ended.append(frozen(table).begin())
            assert heartbeat_path(ended[0].instant) == path
            stat = add_file(ended[0], "a")
            commit(ended[0], stat) if ending == "commit" else ended[0].abort()

    late = frozen(table, FaultyStorage(table.storage, before=before)).begin()
    assert late.instant > ended[0].instant
    kept = add_file(late, "b")
    commit(late, kept)
    assert table.leftovers() == [] and len(table.data_files()) == (2 if ending == "commit" else 1)


def test_a_time_whose_beginning_failed_is_not_given_again(table: Table) -> None:
    """Its opening may still arrive, and would open the other instant of that time after it was closed."""
    lost = FaultyStorage(table.storage, [Fault(LOST_BEFORE, "put_if_absent", OPEN_FOLDER)])
    with pytest.raises(Unavailable):
        frozen(table, lost).begin()
    (failed,) = table.storage.list(HEARTBEAT_FOLDER).files
    later = frozen(table).begin()
    assert later.instant > failed
    kept = add_file(later, "a")
    commit(later, kept)
    table.storage.put_if_absent(f"{OPEN_FOLDER}/{failed}", b"")
    table.expire(failed)
    assert table.manager().recover() == [failed]
    assert table.leftovers() == [] and table.data_files() == [kept.path]


def frozen(table: Table, storage: FaultyStorage | None = None) -> TransactionManager:
    provider = LyingLockProvider(LockScope(table.storage.uri, {}, table.system))
    return table.manager(storage=storage, provider=provider, times=table.system)
