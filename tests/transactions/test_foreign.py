"""Writers that take no slots, as Java Hudi is one: their locks, their rollbacks, and what they leave behind."""

from __future__ import annotations

import logging
from collections.abc import Callable

import cancelling
import pytest
from archiver import Archiver
from bare_table import add_file, commit, timeline_names, write
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import InvalidRequest, TransactionEnded, WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import CLUSTERING, ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.log.events import COMPLETE
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata, RollbackMetadata, RollbackPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.attempts.foreign import OneSidedLock
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.undo.rollback import finish_rollback

LATER = "20991231000003000"


@pytest.fixture
def timed() -> Table:
    """A table whose storage and whose writers go by one clock, which stands still."""
    system = ManualSystem(REAL_SYSTEM.realtime_ms())
    return Table(MemoryStorage("table", system), system, OFF)  # it is about the lock


def _after(instant: str) -> tuple[str, str]:
    """The requested and the completion time of a foreign write that began after this one."""
    return to_instant(to_ms(instant) + 1), to_instant(to_ms(instant) + 2)


def _foreign_while_held(table: Table, began_after: str, group: str) -> Callable[[str], None]:
    def act(point: str) -> None:
        table.system.advance(5)
        table.place_foreign(*_after(began_after), group)
        table.system.advance(1)

    return act


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
def test_a_lock_that_only_we_take_is_told_and_the_table_is_as_it_was(timed: Table, mode: str) -> None:
    first = write(timed.manager(), "a")
    transaction = timed.manager(mode).begin()
    mine = add_file(transaction, "a")
    with (
        failpoints.calling(_foreign_while_held(timed, transaction.instant, "other"), ["commit.after_lock"]),
        pytest.raises(OneSidedLock) as caught,
    ):
        commit(transaction, mine)
    assert isinstance(caught.value, InvalidRequest)
    for said in (_after(transaction.instant)[0], "hoodie.write.lock.provider", "hoodie.write.concurrency.mode"):
        assert said in str(caught.value)
    assert timed.completed() == [first.instant, _after(transaction.instant)[0]]
    assert timed.leftovers() == []


def test_a_clustering_s_plan_stays_for_the_next_executor(timed: Table) -> None:
    """Rolled back, it would leave its names free for a file that comes late."""
    plan = cancelling.schedule(timed.manager(), "a")
    execution = timed.manager().execute(plan, CLUSTERING)
    cancelling.make_files(timed, execution, "a")
    with (
        failpoints.calling(_foreign_while_held(timed, plan, "other"), ["commit.after_lock"]),
        pytest.raises(OneSidedLock),
    ):
        cancelling.finish(execution, ["a"])
    execution.release()
    timed.manager().recover()
    assert timed.rollbacks() == 0
    again = timed.manager().execute(plan, CLUSTERING)
    assert cancelling.finish(again, ["a"]).instant == plan


def test_a_conflict_that_comes_of_it_stays_a_conflict_and_says_so(timed: Table) -> None:
    transaction = timed.manager().begin()
    mine = add_file(transaction, "a")
    with (
        failpoints.calling(_foreign_while_held(timed, transaction.instant, "a"), ["commit.after_lock"]),
        pytest.raises(WriteConflict, match=r"only one side takes it.*hoodie\.write\.lock\.provider") as caught,
    ):
        commit(transaction, mine)
    assert caught.value.winner == _after(transaction.instant)[0]


def test_what_comes_between_the_check_and_the_slot_is_told_afterwards(
    timed: Table, caplog: pytest.LogCaptureFixture
) -> None:
    transaction = timed.manager().begin()
    mine = add_file(transaction, "a")
    with (
        caplog.at_level(logging.WARNING),
        failpoints.calling(_foreign_while_held(timed, transaction.instant, "a"), ["commit.after_check"]),
    ):
        done = commit(transaction, mine)
    assert done.instant in timed.completed()
    assert [
        _after(transaction.instant)[0] in text and "only one side takes it" in text for text in caplog.messages
    ] == [True]


def test_what_completed_before_the_lock_was_ours_is_nobodys_fault(
    timed: Table, caplog: pytest.LogCaptureFixture
) -> None:
    transaction = timed.manager().begin()
    mine = add_file(transaction, "a")
    timed.place_foreign(*_after(transaction.instant), "b")
    timed.system.advance(5)
    with caplog.at_level(logging.WARNING):
        commit(transaction, mine)
    assert caplog.messages == []


def _plan(table: Table, victim: str, *files: str, state: str = "inflight", at: str = LATER) -> None:
    """What a rollback of Java's leaves if it dies in its midst; its paths are those of another machine."""
    table.storage.put(requested(at, ROLLBACK).path, RollbackPlan(victim, "deltacommit", files).to_avro())
    if state == "inflight":
        table.storage.put(inflight(at, ROLLBACK).path, b"")


def _overtaken_write(table: Table) -> tuple[Committed, Committed]:
    """A write to `a`, and one to `b` that began and completed meanwhile, whose completion time lies within the first's.

    So it can be the requested time of a rollback that another engine planned when the first one was pending.
    """
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    meanwhile = write(table.manager(), "b")
    return commit(transaction, mine), meanwhile


def _age(table: Table) -> None:
    """A day goes by."""
    table.system.advance(86_400)


@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_a_transaction_that_others_are_rolling_back_cannot_commit(table: Table, state: str) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    _plan(table, transaction.instant, state=state)
    with pytest.raises(TransactionEnded, match=LATER):
        commit(transaction, mine)
    assert table.completed() == []


def test_a_transaction_that_others_may_be_about_to_roll_back_cannot_commit_and_the_next_one_can(timed: Table) -> None:
    """Nobody knows whom a plan is of that is still being written."""
    transaction = timed.manager().begin()
    mine = add_file(transaction, "a")
    at = to_instant(to_ms(transaction.instant) + 1)
    timed.storage.put(requested(at, ROLLBACK).path, b"")
    timed.system.advance(1)
    with pytest.raises(TransactionEnded, match=at):
        commit(transaction, mine)
    done = write(timed.manager(), "a")
    assert timed.completed() == [done.instant]
    assert requested(at, ROLLBACK).path in timed.leftovers()  # who writes it may be alive
    _age(timed)
    assert timed.manager().recover() == [transaction.instant]
    assert timed.leftovers() == [] and timed.completed() == [done.instant]


def test_a_run_that_others_may_be_about_to_roll_back_cannot_commit(timed: Table) -> None:
    """Its plan is another executor's by then; and one that another engine is to begin counts once it has begun."""
    plan = cancelling.schedule(timed.manager(), "a")
    execution = timed.manager().execute(plan, CLUSTERING)
    cancelling.make_files(timed, execution, "a")
    at = to_instant(to_ms(plan) + 1000)
    timed.storage.put(requested(at, ROLLBACK).path, RollbackPlan(plan, CLUSTERING, ()).to_avro())
    with pytest.raises(TransactionEnded, match=at):
        cancelling.finish(execution, ["a"])


def test_a_commit_that_others_rolled_back_is_in_nobodys_way_and_replaces_nothing(table: Table) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    other = write(table.manager(), "a")
    _plan(table, other.instant)
    table.storage.delete(completed(other.instant, "deltacommit", other.completion).path)
    table.storage.delete(inflight(other.instant, "deltacommit").path)
    done = commit(transaction, mine)
    assert table.completed() == [done.instant]


@pytest.mark.parametrize("back", ["completed", "carried out again"])
def test_a_rollback_whose_executor_comes_back_is_not_done_again(table: Table, back: str) -> None:
    """It was pending when recovery listed the timeline; its victim has been carried out anew since."""
    manager = table.manager()
    victim = write(manager, "b")
    rollback = to_instant(to_ms(victim.completion) + 1000)
    _plan(table, victim.instant, f"b_0_{victim.instant}.log", at=rollback)
    if back == "completed":
        done = RollbackMetadata(rollback, victim.instant, "deltacommit", ())
        table.storage.put(completed(rollback, ROLLBACK, to_instant(to_ms(rollback) + 1)).path, done.to_avro())
    else:
        again = completed(victim.instant, "deltacommit", to_instant(to_ms(rollback) + 1))
        table.storage.put(again.path, b"java")
    before = set(table.data_files()), victim.instant in table.completed()
    finish_rollback(manager.context, rollback)
    assert (
        (set(table.data_files()), victim.instant in table.completed())
        == before
        == ({f"b_0_{victim.instant}.log"}, True)
    )


@pytest.mark.parametrize("state", ["requested", "inflight"])
@pytest.mark.parametrize("where", ["on the timeline", "in the history"])
def test_a_rollback_whose_victim_completed_before_its_plan_came_goes(timed: Table, state: str, where: str) -> None:
    """Its executor died, and Java's next writer would take away what somebody was told is committed."""
    victim, kept = _overtaken_write(timed)
    _plan(timed, victim.instant, f"a_0_{victim.instant}.log", state=state, at=kept.completion)
    if where == "in the history":
        Archiver(timed.storage).archive([victim.instant])
    assert timed.manager().recover() == [] and timed.rollbacks() == 0
    assert timed.leftovers() != []  # its executor may be at work
    _age(timed)
    assert timed.manager().recover() == []
    assert timed.leftovers() == [] and not any("rollback" in name for name in timeline_names(timed.storage))
    assert sorted(timed.data_files()) == [f"a_0_{victim.instant}.log", f"b_0_{kept.instant}.log"]
    assert timed.completed() == [kept.instant, victim.instant][: 1 + (where == "on the timeline")]


def test_a_rollback_that_others_took_away_meanwhile_is_passed_over(timed: Table) -> None:
    victim, kept = _overtaken_write(timed)
    at = kept.completion
    _plan(timed, victim.instant, at=at)
    _age(timed)

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("read", requested(at, ROLLBACK).path):
            finish_rollback(timed.manager().context, at)

    assert timed.manager(storage=FaultyStorage(timed.storage, before=before)).recover() == []
    assert timed.leftovers() == [] and timed.completed() == [kept.instant, victim.instant]


@pytest.mark.parametrize("state", ["inflight", "completed"])
def test_a_file_that_a_late_request_made_after_others_rolled_its_instant_back_is_removed(
    table: Table, state: str
) -> None:
    """The slot of that commit is not the last one any more, so nobody looks at it."""
    victim, kept = write(table.manager(), "a"), write(table.manager(), "b")
    rollback = to_instant(to_ms(victim.completion) + 1000)
    _plan(table, victim.instant, at=rollback)
    if state == "completed":
        done = RollbackMetadata(rollback, victim.instant, "deltacommit", ())
        table.storage.put(completed(rollback, ROLLBACK, to_instant(to_ms(rollback) + 1)).path, done.to_avro())
    table.manager().recover()
    counted = [one.requested for one in WholeTimeline.load(table.storage).completed(WRITE_ACTIONS)]
    assert counted == [kept.instant]
    if state == "inflight":
        assert table.completed() == [victim.instant, kept.instant]  # the rollback has not come so far
    for pending in (inflight, requested):
        table.storage.delete(pending(victim.instant, "deltacommit").path)
    table.manager().recover()
    assert table.completed() == [kept.instant]


def test_a_plan_that_another_engine_has_completed_stands_when_its_executor_here_is_dead(table: Table) -> None:
    plan = cancelling.schedule(table.manager(), "a")
    table.manager().execute(plan, CLUSTERING)
    done = completed(plan, CLUSTERING, "20991231000001000")
    table.storage.put(done.path, CommitMetadata((), "CLUSTER", replaced={"": ("a",)}).to_avro())
    table.expire(plan)
    assert table.manager().recover() == [] and table.rollbacks() == 0
    assert table.completed() == [plan] and not table.storage.exists(heartbeat_path(plan))


@pytest.mark.parametrize("deleted", [False, True])
def test_a_rollback_that_another_engine_left_is_finished_by_its_plan(timed: Table, deleted: bool) -> None:
    """Java rolls back what has completed, too, and its plan alone knows the files: markers are gone by then."""
    kept, victim = write(timed.manager(), "a"), write(timed.manager(), "b")
    last = write(timed.manager(), "c")  # so that nobody looks at the victim's slot any more
    path = f"b_0_{victim.instant}.log"
    _plan(timed, victim.instant, path, f"a_0_{kept.instant}.log", at=to_instant(to_ms(victim.completion) + 1000))
    if deleted:
        timed.storage.delete(completed(victim.instant, "deltacommit", victim.completion).path)
    assert timed.manager().recover() == []  # its executor may be at work
    _age(timed)
    assert timed.manager().recover() == [victim.instant]
    assert timed.completed() == [kept.instant, last.instant]
    assert timed.data_files() == [f"a_0_{kept.instant}.log", f"c_0_{last.instant}.log"]
    assert timed.leftovers() == [] and timed.rollbacks() == 1
    following = write(timed.manager(), "d")
    assert timed.completed() == [kept.instant, last.instant, following.instant]


def test_a_plan_of_rollback_names_files_of_the_table_whatever_machine_wrote_it() -> None:
    plan = RollbackPlan("1", "deltacommit", ("p/x=1/f.log", "g.log"))
    assert RollbackPlan.from_avro(plan.to_avro()).files == plan.files


def test_a_foreign_dead_writer_whose_markers_are_gone_is_rolled_back_by_the_names_of_its_files(table: Table) -> None:
    kept = write(table.manager(), "a")
    victim = "20260101000000000"
    table.storage.put(requested(victim, "deltacommit").path, b"")
    table.storage.put(inflight(victim, "deltacommit").path, b"")
    table.storage.put(f"p/.00000001-0_{victim}.log.1_0-1-2", b"rows")
    table.storage.put(f"p/00000002-0_0-1-2_{victim}.parquet", b"rows")
    assert not table.storage.exists(heartbeat_path(victim))
    assert table.manager().recover() == [victim]
    assert table.data_files() == [f"a_0_{kept.instant}.log"] and table.leftovers() == []
    assert not any(name.startswith(victim) for name in timeline_names(table.storage))


def test_a_replacement_that_others_rolled_back_took_nothing_away(table: Table) -> None:
    """Whoever resolves what is live at its place in the log is not told of it."""
    transaction = table.manager().begin()
    mine = add_file(transaction, "b")
    replacing = table.manager(NON_BLOCKING).begin("replacecommit")
    new = add_file(replacing, "new")
    gone = replacing.commit(CommitMetadata((new,), "INSERT_OVERWRITE", replaced={"": ("a",)}))
    _plan(table, gone.instant)
    table.storage.delete(completed(gone.instant, "replacecommit", gone.completion).path)
    seen: list[list[str]] = []

    def look(snapshot: Snapshot, at: At) -> None:
        seen.append([other.instant for other in at.since])

    transaction.commit(CommitMetadata((mine,), "UPSERT"), [look])
    assert seen and not any(seen)


@pytest.mark.parametrize("point", ["rollback.after_slot", "rollback.after_plan", "rollback.after_files"])
def test_a_rollback_that_others_finished_and_archived_meanwhile_is_not_done_again(table: Table, point: str) -> None:
    kept = write(table.manager(), "a")
    dead = table.manager().begin()
    add_file(dead, "b")
    table.expire(dead.instant)

    def meanwhile(_: str) -> None:
        rollback = next(event.instant for event in table.events() if event.kind == ROLLBACK)
        finish_rollback(table.manager().context, rollback)
        Archiver(table.storage).archive([kept.instant, rollback])

    with failpoints.calling(_once(meanwhile), [point]):
        table.manager().recover()
    assert [name for name in timeline_names(table.storage) if "rollback" in name] == []
    assert [event.kind for event in table.events()] == [COMPLETE, ROLLBACK, COMPLETE] and table.data_files() == [
        f"a_0_{kept.instant}.log"
    ]


def _once(act: Callable[[str], None]) -> Callable[[str], None]:
    done: list[str] = []

    def acting(point: str) -> None:
        if not done:
            done.append(point)
            act(point)

    return acting
