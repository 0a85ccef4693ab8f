from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockScope
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import requested
from lakelatch.timeline.log.events import COMPLETE, PLAN, slot_path
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import PlanBusy, TransactionManager

COMPACTED = CommitMetadata((), "COMPACT", compacted=True)


def plan_of(snapshot: Snapshot) -> bytes:
    """A plan that names what it includes: every completed instant."""
    return ",".join(instant.requested for instant in snapshot.by_completion).encode()


def schedule(manager: TransactionManager) -> str:
    instant = manager.schedule(plan_of)
    assert instant is not None
    return instant


def test_a_plan_is_on_the_timeline_and_waits_for_an_executor(table: Table) -> None:
    done = write(table.manager(), "a")
    plan = schedule(table.manager())
    assert [i.file_name for i in Snapshot.load(table.storage).pending] == [requested(plan, "compaction").file_name]
    assert table.storage.read(requested(plan, "compaction").path) == done.instant.encode()
    assert table.events()[-1].kind == PLAN and table.events()[-1].time == plan
    assert not table.storage.exists(heartbeat_path(plan))
    assert table.manager().recover() == []  # nobody works on it, and it is not a dead writer's


def test_nothing_to_do_leaves_nothing(table: Table) -> None:
    assert table.manager().schedule(lambda _: None) is None
    assert table.events() == [] and table.leftovers() == []


def test_a_plan_includes_exactly_what_completed_before_it(table: Table) -> None:
    """A commit takes the plan's slot from it: the plan looks again and includes it."""
    open_one = table.manager().begin()
    stat = add_file(open_one, "a")
    later = table.manager().begin()
    later_stat = add_file(later, "b")
    raced: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(1) and not raced:
            raced.append(path)
            log = table.manager(lock_timeout_s=60)
            log.context = replace(log.context, provider=_no_lock(table))
            commit(log.resume(open_one.state), stat)

    plan = schedule(table.manager(storage=FaultyStorage(table.storage, before=before)))
    done = commit(later, later_stat)
    assert raced and done.completion > plan
    content = table.storage.read(requested(plan, "compaction").path).decode()
    assert content == open_one.instant
    times = Snapshot.load(table.storage).completion_times()
    assert [instant for instant, time in times.items() if time < plan] == [open_one.instant]
    assert [event.time for event in table.events()] == sorted(event.time for event in table.events())


def _no_lock(table: Table) -> LyingLockProvider:
    return LyingLockProvider(LockScope(table.storage.uri, {}))


def test_executing_a_plan_completes_it(table: Table) -> None:
    plan = schedule(table.manager())
    execution = table.manager().execute(plan)
    execution.commit(COMPACTED)
    assert table.completed() == [plan] and table.leftovers() == []
    with pytest.raises(TransactionEnded, match="not pending"):
        table.manager().execute(plan)


def test_a_plan_that_was_never_scheduled_cannot_be_executed(table: Table) -> None:
    with pytest.raises(TransactionEnded, match="never scheduled"):
        table.manager().execute("20260101000000000")
    transaction = table.manager().begin()
    with pytest.raises(TransactionEnded, match="not pending"):
        table.manager().execute(transaction.instant)


def test_a_plan_is_busy_while_its_executor_lives_and_taken_over_when_it_died(table: Table) -> None:
    plan = schedule(table.manager())
    first = table.manager().execute(plan)
    with pytest.raises(PlanBusy, match=plan):
        table.manager().execute(plan)
    table.expire(plan)
    second = table.manager().execute(plan)
    with pytest.raises(PlanBusy):
        table.manager().execute(plan)
    second.commit(COMPACTED)
    with pytest.raises(TransactionEnded):
        first.commit(COMPACTED)
    table.manager().recover()
    assert table.completed() == [plan] and table.leftovers() == []
    assert [event.instant for event in table.events()] == [plan, plan]


def test_a_plan_that_was_taken_over_is_not_the_zombies_to_complete(table: Table) -> None:
    plan = schedule(table.manager())
    zombie = table.manager().execute(plan)
    table.expire(plan)
    table.manager().execute(plan)
    with pytest.raises(TransactionEnded):
        zombie.commit(COMPACTED)
    assert table.completed() == []


def test_of_two_executors_one_completes(table: Table) -> None:
    """The second began when the first was taken for dead; both try to commit at once."""
    plan = schedule(table.manager())
    first = table.manager().execute(plan)
    table.expire(plan)
    second = table.manager().execute(plan)

    def end(number: int) -> bool:
        try:
            (first, second)[number].commit(COMPACTED)
        except TransactionEnded:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(end, range(2))) == 1
    assert table.completed() == [plan]


def test_a_completion_in_the_log_alone_refuses_a_second_one(table: Table) -> None:
    """Beats of two executors take turns in one file: its owner at the end may still come second."""
    plan = schedule(table.manager())
    first = table.manager().execute(plan)
    one = table.storage.read(heartbeat_path(plan))
    table.expire(plan)
    second = table.manager().execute(plan)
    other = table.storage.read(heartbeat_path(plan))
    table.storage.put(heartbeat_path(plan), one)
    first.commit(COMPACTED)
    table.storage.put(heartbeat_path(plan), other)
    with pytest.raises(TransactionEnded, match="completed by another process first"):
        second.commit(COMPACTED)
    assert [event.kind for event in table.events()] == [PLAN, COMPLETE]


def test_recovery_frees_the_plan_of_a_dead_executor_and_keeps_the_plan(table: Table) -> None:
    plan = schedule(table.manager())
    table.manager().execute(plan)
    assert table.manager().recover() == [] and table.storage.exists(heartbeat_path(plan))
    table.expire(plan)
    assert table.manager().recover() == []
    assert not table.storage.exists(heartbeat_path(plan)) and table.rollbacks() == 0
    table.manager().execute(plan).commit(COMPACTED)


def test_an_executor_may_release_its_plan(table: Table) -> None:
    plan = schedule(table.manager())
    manager = table.manager()
    manager.execute(plan).release()
    table.manager().execute(plan).commit(COMPACTED)
    assert table.completed() == [plan]


def test_a_compaction_is_no_conflict_for_a_writer_of_its_groups(table: Table) -> None:
    write(table.manager(), "a")
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    plan = schedule(table.manager())
    compaction = table.manager().execute(plan)
    compaction.commit(CommitMetadata((stat,), "COMPACT", compacted=True))
    commit(transaction, stat)
    assert table.completed()[-2:] == [plan, transaction.instant]


def test_a_schedule_that_died_after_its_slot_is_shown_by_the_next_writer(table: Table) -> None:
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        schedule(table.manager())
    plan = table.events()[0].instant
    table.expire(plan)
    assert table.manager().recover() == []
    table.manager().execute(plan).commit(COMPACTED)
    assert table.completed() == [plan] and table.leftovers() == []


def test_a_plan_without_rows_completes_with_whatever_it_has_to_say(table: Table) -> None:
    """And is no write: nobody's commit is held against it."""
    begun = table.manager().begin()
    plan = table.manager().schedule(plan_of, "clean")
    assert plan is not None
    write(table.manager(), "a")
    event = table.manager().execute(plan, "clean").complete(lambda snapshot: plan_of(snapshot) or b"")
    assert table.storage.read(event.path) == ",".join(table.completed()).encode()
    commit(begun, add_file(begun, "b"))
    assert [found.file_name for found in Snapshot.load(table.storage).completed if found.action == "clean"] == [
        event.file
    ]
    assert table.events()[-2].instant == plan and table.leftovers() == []


def test_a_plan_without_rows_completes_once(table: Table) -> None:
    plan = table.manager().schedule(plan_of, "clean")
    assert plan is not None
    zombie = table.manager().execute(plan, "clean")
    table.expire(plan)
    successor = table.manager().execute(plan, "clean")
    with pytest.raises(TransactionEnded):
        zombie.complete(b"of the zombie")
    event = successor.complete(b"of its successor")
    assert table.storage.read(event.path) == b"of its successor"
    with pytest.raises(TransactionEnded):
        table.manager().execute(plan, "clean")
