"""Executors that find their plan cancelled, and zombies of them: paused past their heartbeat, and then resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bare_table import write
from cancelling import WHOLE_ONLY, execute, finish, make_files, output, request, schedule
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import TransactionEnded
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockScope
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.instant import aborted, inflight
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.claims import PlanBusy
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.transaction import Transaction

ACTIONS = [CLUSTERING, COMPACTION]


def begun(table: Table, action: str = CLUSTERING) -> Transaction:
    plan = schedule(table.manager(), "a", "b", action=action, policy=WHOLE_ONLY)
    return table.manager().execute(plan, action)


def ensure_ended(table: Table, plan: str, action: str) -> None:
    table.manager().recover()
    assert Snapshot.load(table.storage).aborted == (aborted(plan, action),)
    assert table.completed() == [] and table.leftovers() == [] and table.data_files() == []
    assert table.rollbacks() == 0


@pytest.mark.parametrize("action", ACTIONS)
def test_an_executor_finds_the_request_at_its_commit(table: Table, action: str) -> None:
    execution = begun(table, action)
    make_files(table, execution, "a", "b")
    request(table.manager(), execution.instant)
    with pytest.raises(PlanCancelled):
        finish(execution, "ab")
    execute(table.manager(), execution.instant)
    ensure_ended(table, execution.instant, action)


@pytest.mark.parametrize("action", ACTIONS)
def test_the_request_takes_the_slot_for_which_the_executor_was_checked(table: Table, action: str) -> None:
    """Paused between its check and its slot."""
    execution = begun(table, action)
    make_files(table, execution, "a", "b")
    asked: list[object] = []

    def ask(_: str) -> None:
        if not asked:
            asked.append(None)
            lying_request(table, execution.instant)

    with failpoints.calling(ask, ["commit.before_slot"]), pytest.raises(PlanCancelled):
        finish(execution, "ab")
    assert asked and table.completed() == []


def lying_request(table: Table, plan: str) -> None:
    """From a process whose lock service grants everything."""
    manager = table.manager()
    manager.context = replace(manager.context, provider=LyingLockProvider(LockScope(table.storage.uri, {})))
    request(manager, plan)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("slots", [0, 70], ids=["slots there", "slots gone"])
def test_a_zombie_resumed_after_the_cancellation_neither_commits_nor_is_read(
    table: Table, action: str, slots: int
) -> None:
    zombie = begun(table, action)
    plan = zombie.instant
    make_files(table, zombie, "a")
    table.expire(plan)
    request(table.manager(), plan)
    execute(table.manager(), plan)
    for _ in range(slots):
        write(table.manager(slots_kept=4), "c")
    with pytest.raises(TransactionEnded):
        ensure_beating(table.storage, plan)  # what its tasks ask before they put a file
    with pytest.raises(TransactionEnded):
        finish(zombie, "ab")
    zombie.release()
    assert plan not in table.completed()
    assert Snapshot.load(table.storage).aborted == (aborted(plan, action),)


@pytest.mark.parametrize("action", ACTIONS)
def test_two_generations_of_zombies(table: Table, action: str) -> None:
    """The second took over from the first, both are resumed, and one of them was past its look at the claim."""
    first = begun(table, action)
    plan = first.instant
    table.expire(plan)
    second = table.manager().execute(plan, action)
    make_files(table, second, "a")
    table.expire(plan)
    request(table.manager(), plan)
    execute(table.manager(), plan)
    # A beat of each was under way, so the claim is back, and so is the file that says that it is carried out.
    for zombie in (second, first):
        zombie._heartbeat.take_over()
        table.storage.put(inflight(plan, action).path, b"")
        with pytest.raises(TransactionEnded):
            finish(zombie, "ab")
        zombie.release()
    # A task that was past its look puts a file: its name has a tombstone, or it is swept.
    make_files(table, first, "a", "b")
    if action == CLUSTERING:
        assert table.data_files() == []
    execute(table.manager(), plan)
    ensure_ended(table, plan, action)


def test_a_zombie_of_the_one_who_cancels_disturbs_nobody(table: Table) -> None:
    """Resumed after another has ended the plan, in each of its steps, and after the table has gone on."""
    for point in ("cancel.after_claim", "cancel.after_files", "cancel.after_plan_gone", "cancel.after_claim_gone"):
        plan = begun(table).instant
        table.expire(plan)
        request(table.manager(), plan)
        met: list[str] = []

        def meanwhile(_: str, plan: str = plan, met: list[str] = met) -> None:
            if not met:
                met.append(plan)
                if table.storage.exists(heartbeat_path(plan)):
                    table.expire(plan)
                execute(table.manager(), plan)

        with failpoints.calling(meanwhile, [point]):
            execute(table.manager(), plan)
        assert met
        table.manager().recover()
        assert table.leftovers() == [] and table.data_files() == []
    assert table.completed() == []


def test_an_executor_that_was_paused_before_its_inflight_file_takes_it_away_again(table: Table) -> None:
    """Else other engines would find a plan at work without its plan."""
    plan = schedule(table.manager(), "a", "b")

    def meanwhile(_: str) -> None:
        table.expire(plan)
        request(table.manager(), plan)
        execute(table.manager(), plan)
        table.storage.put(inflight(plan, CLUSTERING).path, b"")  # as its own request does, late

    with failpoints.calling(meanwhile, ["execute.after_inflight"]), pytest.raises(PlanCancelled):
        table.manager().execute(plan, CLUSTERING)
    ensure_ended(table, plan, CLUSTERING)


def test_a_recovery_leaves_a_plan_whose_cancellation_is_open_to_the_one_who_carries_it_out(table: Table) -> None:
    execution = begun(table)
    table.expire(execution.instant)
    request(table.manager(), execution.instant)
    assert table.manager().recover() == []
    assert table.rollbacks() == 0 and not table.storage.exists(heartbeat_path(execution.instant))
    execute(table.manager(), execution.instant)
    ensure_ended(table, execution.instant, CLUSTERING)


def test_a_recovery_that_meets_the_claim_of_an_ended_plan_only_removes_it(table: Table) -> None:
    execution = begun(table)
    plan = execution.instant
    table.expire(plan)
    request(table.manager(), plan)
    execute(table.manager(), plan)
    execution._heartbeat.take_over()
    table.expire(plan)
    table.manager().recover()
    ensure_ended(table, plan, CLUSTERING)


def test_only_one_executor_and_it_is_told(table: Table) -> None:
    execution = begun(table)
    with pytest.raises(PlanBusy):
        table.manager().execute(execution.instant, CLUSTERING)
    assert not execution.is_cancelled()
    request(table.manager(), execution.instant)
    assert execution.is_cancelled()
    assert not table.storage.exists(output(execution.instant, "a"))
