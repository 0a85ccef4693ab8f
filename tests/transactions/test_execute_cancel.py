"""`execute_cancel`, step by step, and what becomes of it if it breaks off at any of them."""

from __future__ import annotations

import pytest
from bare_table import timeline_names, write
from cancelling import execute, finish, make_files, output, request, schedule
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import InvalidRequest, LakelatchError, TransactionEnded
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.contract import Storage
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.instant import aborted, completed, inflight, requested
from lakelatch.timeline.log.events import ABORT, CANCEL_FOLDER, PLAN
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.plans.service_plan import read_aborted_plan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.cancellation import PlanCompleted, remove_tombstones
from lakelatch.transactions.attempts.claims import PlanBusy
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.undo.restore import undo_instant
from lakelatch.transactions.undo.undoing import data_files_of

POINTS = [name for name in failpoints.NAMES if name.startswith("cancel.") and name != "cancel.after_request"]
POINTS += ["commit.before_slot", "commit.after_slot", "commit.after_projection", "lock.after_release"]


def died_at_work(table: Table, action: str = CLUSTERING) -> Transaction:
    """An executor that has made a file and is gone; its plan is cancelled."""
    plan = schedule(table.manager(), "a", "b", action=action)
    execution = table.manager().execute(plan, action)
    make_files(table, execution, "a")
    table.expire(plan)
    request(table.manager(), plan)
    return execution


def ensure_ended(table: Table, plan: str, action: str = CLUSTERING) -> None:
    """Nothing is left of it but its terminal state, and tombstones where they do no harm."""
    assert [name for name in timeline_names(table.storage) if name.startswith(plan)] == [
        aborted(plan, action).file_name
    ]
    assert Snapshot.load(table.storage).aborted == (aborted(plan, action),)
    assert table.leftovers() == [] and table.storage.list(CANCEL_FOLDER).files == ()
    assert table.data_files() == []
    tombstones = [table.storage.exists(output(plan, group)) for group in "ab"]
    assert tombstones == [action == CLUSTERING] * 2
    assert [event.kind for event in table.events()].count(ABORT) == 1
    with pytest.raises(TransactionEnded):
        table.manager().execute(plan, action)
    assert table.manager().recover() == [] and table.rollbacks() == 0


@pytest.mark.parametrize("action", [CLUSTERING, COMPACTION])
def test_a_dead_executors_plan_is_ended_and_its_files_go(table: Table, action: str) -> None:
    plan = died_at_work(table, action).instant
    assert execute(table.manager(), plan)
    ensure_ended(table, plan, action)


def test_a_plan_that_nobody_began(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    request(table.manager(), plan)
    assert execute(table.manager(), plan)
    ensure_ended(table, plan)


@pytest.mark.parametrize("point", [name for name in POINTS if name.startswith("cancel.")])
@pytest.mark.parametrize("action", [CLUSTERING, COMPACTION])
def test_a_restore_that_takes_the_plan_away_meanwhile_ends_it_quietly(table: Table, point: str, action: str) -> None:
    plan = died_at_work(table, action).instant
    context = table.manager().context

    def restore(_: str) -> None:
        undo_instant(context, plan, data_files_of(table.storage, [plan]).get(plan, []))

    with failpoints.calling(restore, [point]):
        assert execute(table.manager(), plan) == (point in ("cancel.after_claim_gone", "cancel.after_sweep"))
    assert not any(name.startswith(plan) for name in timeline_names(table.storage))
    assert table.leftovers() == [] and table.data_files() == [] and table.storage.list(CANCEL_FOLDER).files == ()
    with pytest.raises(InvalidRequest, match="there is no instant"):
        execute(table.manager(), plan)


@pytest.mark.parametrize("point", ["cancel.before_files", "cancel.after_claim_gone"])
def test_one_that_was_paused_until_its_plan_was_archived_bars_no_name_again(table: Table, point: str) -> None:
    """A day later the names are free, and an empty base file behind the active timeline would count."""
    plan = died_at_work(table).instant
    others: list[str] = []

    def a_day_goes_by(_: str) -> None:
        if others:
            return
        others.append(point)
        if point == "cancel.before_files":
            table.expire(plan)
            assert execute(table.manager(), plan)
        over = aborted(plan, CLUSTERING)
        remove_tombstones(table.storage, read_aborted_plan(table.storage, over))
        table.storage.delete(over.path)

    with failpoints.calling(a_day_goes_by, [point]):
        execute(table.manager(), plan)
    assert [path for path in table.storage.walk("") if plan in path] == [] and others
    assert [event.kind for event in table.events()].count(ABORT) == 1


def test_an_aborted_one_tidies_up_and_returns(table: Table) -> None:
    """What came late after it: a request's file, the plan's own files, a data file."""
    plan = died_at_work(table).instant
    kept = table.storage.read(f"{CANCEL_FOLDER}/{plan}")
    assert execute(table.manager(), plan)
    table.storage.put(f"{CANCEL_FOLDER}/{plan}", kept)
    table.storage.put(inflight(plan, CLUSTERING).path, b"")
    table.storage.put(f"a_late_{plan}.parquet", b"late")
    assert not execute(table.manager(), plan)
    ensure_ended(table, plan)


def test_a_live_heartbeat_refuses(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    request(table.manager(), plan)
    with pytest.raises(PlanBusy, match="still works on it"):
        execute(table.manager(), plan)
    assert table.data_files() == [output(plan, "a")]
    execution.release()
    assert execute(table.manager(), plan)
    ensure_ended(table, plan)


def test_one_caller_at_a_time_is_at_it(table: Table) -> None:
    plan = died_at_work(table).instant
    met = []

    def second(name: str) -> None:
        with pytest.raises(PlanBusy):
            execute(table.manager(), plan)
        met.append(name)

    with failpoints.calling(second, ["cancel.after_claim"]):
        assert execute(table.manager(), plan)
    assert met
    ensure_ended(table, plan)


def test_nobody_has_asked(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    with pytest.raises(InvalidRequest, match="there is no request to cancel clustering"):
        execute(table.manager(), plan)
    request(table.manager(), plan, "a")
    with pytest.raises(InvalidRequest, match="only for 1 of its file groups"):
        execute(table.manager(), plan)
    with pytest.raises(InvalidRequest, match="there is no instant"):
        execute(table.manager(), "20260101000000000")
    assert table.manager().execute(plan, CLUSTERING).cancelled_groups() == {("", "a")}


def test_what_has_completed_in_the_rest_is_completed(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a", "b")
    request(table.manager(), plan, "a")
    finish(execution, "b", dropped="a")
    with pytest.raises(PlanCompleted, match="left out"):
        execute(table.manager(), plan)
    assert table.completed() == [plan] and table.storage.list(CANCEL_FOLDER).files == ()


def test_a_foreign_writer_that_completes_it_meanwhile_has_won(table: Table) -> None:
    """It asks nobody. Its names are its own, and our tombstones go again."""
    plan = died_at_work(table).instant

    done = completed(plan, CLUSTERING, "20991231000001000")
    metadata = CommitMetadata((), "CLUSTER", replaced={"": ("a", "b")})

    def complete(_: str) -> None:
        table.storage.put(done.path, metadata.to_avro())

    with failpoints.calling(complete, ["cancel.after_files"]), pytest.raises(PlanCompleted):
        execute(table.manager(), plan)
    assert Snapshot.load(table.storage).aborted == () and plan in table.completed()
    assert not table.storage.exists(output(plan, "b")) and table.storage.list(CANCEL_FOLDER).files == ()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", [CLUSTERING, COMPACTION])
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "fails"])
def test_whatever_step_it_breaks_off_at_the_next_caller_finishes(
    table: Table, point: str, action: str, dies: bool
) -> None:
    plan = died_at_work(table, action).instant
    table.storage.put(f"a_other_{plan}.parquet", b"rows under a name of another engine's")

    def die(_: str) -> None:
        raise Killed

    with failpoints.calling(die, [point]) if dies else failpoints.active(f"{point}=raise"):
        try:
            execute(table.manager(), plan)
            assert point == "lock.after_release" and not dies
        except (Killed, LakelatchError):
            pass
    if table.storage.exists(heartbeat_path(plan)):
        assert dies  # an error gives the claim back
        table.expire(plan)
    table.manager().recover()
    execute(table.manager(), plan)
    ensure_ended(table, plan, action)


class Killed(BaseException):
    """The process has died here."""


@pytest.mark.parametrize("kind", [UNAVAILABLE, LOST_BEFORE, LOST_AFTER])
@pytest.mark.parametrize("seed", range(8))
def test_faults_delay_it_and_change_nothing(table: Table, kind: str, seed: int) -> None:
    plan = died_at_work(table).instant
    faulty = FaultyStorage(table.storage, [Fault(kind, probability=0.1)], seed)
    for _ in range(30):
        try:
            execute(table.manager(storage=faulty), plan)
            break
        except LakelatchError:
            if table.storage.exists(heartbeat_path(plan)):
                table.expire(plan)
    execute(table.manager(), plan)
    ensure_ended(table, plan)


def test_what_a_late_request_makes_of_an_ended_plan_is_removed_by_the_next_writer(table: Table) -> None:
    plan = died_at_work(table).instant
    content = table.storage.read(requested(plan, CLUSTERING).path)
    execute(table.manager(), plan)
    for instant in (requested(plan, CLUSTERING), inflight(plan, CLUSTERING)):
        table.storage.put(instant.path, content)
    assert Snapshot.look(table.storage).pending == () and Snapshot.load(table.storage).pending == ()
    table.manager().recover()
    ensure_ended(table, plan)


def test_a_plan_is_not_shown_again_after_it_was_aborted(table: Table) -> None:
    """Whoever completes the projection of an old slot, late, brings nothing back."""
    plan = schedule(table.manager(), "a", "b")
    request(table.manager(), plan)
    manager = table.manager()
    old = table.events()
    execute(table.manager(), plan)
    for event in old:
        manager.context.log.projections.show(event, manager.context.log.content)
    assert [event.kind for event in old] == [PLAN, "cancel"]
    ensure_ended(table, plan)


def test_a_request_that_is_shown_while_the_plan_ends_is_taken_back(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    request(table.manager(), plan)
    event = table.events()[-1]
    table.storage.delete(event.path)

    def end_it(storage: Storage) -> None:
        storage.delete(requested(plan, CLUSTERING).path)

    manager = table.manager()
    with failpoints.calling(lambda _: end_it(table.storage), ["commit.after_projection"]):
        manager.context.log.projections.show(event, manager.context.log.content)
    assert not table.storage.exists(event.path)


def test_what_was_archived_does_not_come_back(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    request(table.manager(), plan)
    execute(table.manager(), plan)
    over = aborted(plan, CLUSTERING)
    assert read_aborted_plan(table.storage, over).groups == {("", "a"), ("", "b")}
    table.storage.delete(over.path)
    write(table.manager(), "c")
    log = table.manager().context.log
    for event in table.events():
        log.projections.show(event, log.content)
    assert not table.storage.exists(over.path)
    with pytest.raises(InvalidRequest, match="there is no instant"):
        request(table.manager(), plan)
