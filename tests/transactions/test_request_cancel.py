"""`request_cancel`, step by step: reload; committed, aborted, immutable, no plan; the event and its file; for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bare_table import write
from cancelling import IMMUTABLE, WHOLE_ONLY, execute, finish, make_files, request, schedule
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, CorruptTable, InvalidRequest, LakelatchError, TransactionEnded
from lakelatch.locks.contract import LockScope
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.actions import CLUSTERING, COMPACTION, LOG_COMPACTION
from lakelatch.timeline.instant import requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import CANCEL, CANCEL_FOLDER, LOG_FOLDER
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.cancellation import PlanCompleted, PlanGone
from lakelatch.transactions.base.cancel_requests import CancelRequest, cancel_requests
from lakelatch.transactions.base.outcome import PlanCancelled


def files(table: Table) -> list[str]:
    return sorted(table.storage.list(CANCEL_FOLDER).files)


@pytest.mark.parametrize("action", [CLUSTERING, COMPACTION])
def test_once_acknowledged_the_plan_can_never_commit(table: Table, action: str) -> None:
    plan = schedule(table.manager(), "a", action=action)
    execution = table.manager().execute(plan, action)
    make_files(table, execution, "a")
    assert request(table.manager(), plan) == CancelRequest(plan, action)
    event = table.events()[-1]
    assert (event.kind, event.instant, event.target, event.file_groups) == (CANCEL, plan, plan, frozenset())
    assert files(table) == [plan] and execution.is_cancelled()
    with pytest.raises(PlanCancelled, match="was cancelled"):
        finish(execution, "a")
    assert table.completed() == []


def test_an_executor_that_comes_later_does_not_begin(table: Table) -> None:
    """The short circuit."""
    plan = schedule(table.manager(), "a")
    request(table.manager(), plan)
    with pytest.raises(PlanCancelled):
        table.manager().execute(plan, CLUSTERING)
    assert table.leftovers() == [requested(plan, CLUSTERING).path]


def test_an_executor_looks_after_the_tails_projection_is_complete(table: Table) -> None:
    """The request is acknowledged by its slot; its file may still be missing when an executor begins."""
    plan = schedule(table.manager(), "a")
    with failpoints.active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
        request(table.manager(), plan)
    assert files(table) == []
    with pytest.raises(PlanCancelled):
        table.manager().execute(plan, CLUSTERING)
    assert files(table) == [plan]


def test_what_has_completed_cannot_be_cancelled(table: Table) -> None:
    plan = schedule(table.manager(), "a")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    done = finish(execution, "a")
    with pytest.raises(PlanCompleted, match=done.completion):
        request(table.manager(), plan)
    assert files(table) == [] and table.completed() == [plan]


def test_of_a_completion_and_a_request_the_first_slot_wins(table: Table) -> None:
    """The canceller reads the timeline, and the plan completes before its slot: it looks again."""
    plan = schedule(table.manager(), "a")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    raced: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(LOG_FOLDER) and not raced:
            raced.append(path)
            finish(execution, "a")

    faulty = table.manager(storage=FaultyStorage(table.storage, before=before))
    lying = LyingLockProvider(LockScope(table.storage.uri, {}))  # as if its lease had ended
    faulty.context = replace(faulty.context, provider=lying)
    with pytest.raises(PlanCompleted):
        request(faulty, plan)
    assert raced and table.completed() == [plan] and files(table) == []


def test_a_plan_that_a_restore_takes_away_while_it_is_read_is_refused_as_gone(table: Table) -> None:
    plan = schedule(table.manager(), "a")
    path = requested(plan, CLUSTERING).path

    def before(operation: str, read: str) -> None:
        if (operation, read) == ("read", path):
            table.storage.delete(path)

    with pytest.raises(PlanGone, match="taken off the timeline"):
        request(table.manager(storage=FaultyStorage(table.storage, before=before)), plan)
    assert files(table) == []


def test_what_was_aborted_is_answered_quietly(table: Table) -> None:
    plan = schedule(table.manager(), "a")
    request(table.manager(), plan)
    assert execute(table.manager(), plan)
    slots = len(table.events())
    assert request(table.manager(), plan) is None
    assert len(table.events()) == slots and files(table) == []


def test_asking_again_changes_nothing(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    first = request(table.manager(), plan)
    slots = len(table.events())
    assert request(table.manager(), plan) == request(table.manager(), plan, "a") == first
    assert len(table.events()) == slots


def test_an_instant_that_is_not_there(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="there is no instant '20260101000000000'"):
        request(table.manager(), "20260101000000000")
    assert table.events() == []


def test_a_commit_that_is_no_plan(table: Table) -> None:
    done = write(table.manager(), "a")
    with pytest.raises(PlanCompleted):
        request(table.manager(), done.instant)
    begun = table.manager().begin()
    with pytest.raises(InvalidRequest, match="a deltacommit, which is no plan"):
        request(table.manager(), begun.instant)


def test_an_immutable_plan(table: Table) -> None:
    plan = schedule(table.manager(), "a", policy=IMMUTABLE)
    with pytest.raises(InvalidRequest, match="is immutable"):
        request(table.manager(), plan)
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    finish(execution, "a")


def test_a_log_compaction_is_immutable_whatever_it_says(table: Table) -> None:
    """Its file is named after a log, so one that comes late could be taken for the next plan's."""
    plan = schedule(table.manager(), "a", action=LOG_COMPACTION)
    with pytest.raises(InvalidRequest, match="is immutable"):
        request(table.manager(), plan)


def test_a_part_is_called_off_and_the_rest_goes_on(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b", "c")
    execution = table.manager().execute(plan, CLUSTERING)
    assert execution.cancelled_groups() == frozenset()
    assert request(table.manager(), plan, "a") == CancelRequest(plan, CLUSTERING, frozenset({("", "a")}))
    assert not execution.is_cancelled() and execution.cancelled_groups() == {("", "a")}
    make_files(table, execution, "a", "b", "c")
    done = finish(execution, "bc", dropped="a")
    assert done.metadata.replaced_file_groups() == {("", "b"), ("", "c"), ("", "a_new")}


def test_a_part_that_was_called_off_never_commits(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a", "b")
    request(table.manager(), plan, "a")
    with pytest.raises(PlanCancelled):
        finish(execution, "ab")
    assert table.completed() == []


def test_parts_add_up_and_all_of_them_are_the_whole(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b", "c")
    request(table.manager(), plan, "a")
    assert request(table.manager(), plan, "a", "b") == CancelRequest(
        plan, CLUSTERING, frozenset({("", "a"), ("", "b")})
    )
    slots = len(table.events())
    request(table.manager(), plan, "b")
    assert len(table.events()) == slots
    assert request(table.manager(), plan, "c") == CancelRequest(plan, CLUSTERING)
    with pytest.raises(PlanCancelled):
        table.manager().execute(plan, CLUSTERING)
    assert cancel_requests(table.storage) == [CancelRequest(plan, CLUSTERING)]


def test_parts_that_cannot_be_cancelled(table: Table) -> None:
    whole = schedule(table.manager(), "a", "b", policy=WHOLE_ONLY)
    with pytest.raises(InvalidRequest, match="whole or not at all"):
        request(table.manager(), whole, "a")
    plan = schedule(table.manager(), "c", "d")
    with pytest.raises(InvalidRequest, match=r"has no file group \./x"):
        request(table.manager(), plan, "c", "x")
    assert files(table) == []


def test_a_damaged_request_is_told(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    table.storage.put(f"{CANCEL_FOLDER}/{plan}_20990101000000000", b"{}")
    with pytest.raises(CorruptTable, match="is no request to cancel a plan"):
        cancel_requests(table.storage)


@pytest.mark.parametrize("kind", [UNAVAILABLE, LOST_BEFORE, LOST_AFTER])
@pytest.mark.parametrize("seed", range(8))
def test_faults_leave_a_plan_that_is_asked_for_or_not(table: Table, kind: str, seed: int) -> None:
    plan = schedule(table.manager(), "a")
    faulty = FaultyStorage(table.storage, [Fault(kind, probability=0.3)], seed)
    told = unknown = False
    try:
        request(table.manager(storage=faulty), plan)
        told = True
    except CommitUnknown:
        unknown = True
    except LakelatchError:
        pass
    log = CommitLog(table.storage)
    log.project(log.tail())
    asked = any(event.kind == CANCEL for event in table.events())
    assert unknown or asked == told
    assert files(table) == ([plan] if asked else [])
    if asked:
        with pytest.raises(TransactionEnded):
            table.manager().execute(plan, CLUSTERING)
    assert [one.requested for one in Snapshot.load(table.storage).pending] == [plan]
