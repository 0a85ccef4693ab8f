"""Writers that meet pending clusterings on their file groups: they ask for a cancellation, or they yield."""

from __future__ import annotations

import pytest
from bare_table import add_file, commit, write
from cancelling import CANCELLABLE, FOREIGN, IMMUTABLE, WHOLE_ONLY, execute, finish, make_files, request, schedule
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import WriteConflict
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.log.events import CANCEL, CANCEL_FOLDER, COMPLETE
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

MODES = [OPTIMISTIC, NON_BLOCKING]


def kinds(table: Table) -> list[str]:
    return [event.kind for event in table.events()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("running", [True, False], ids=["running", "pending"])
def test_a_writer_asks_for_the_part_that_it_touches_and_commits(table: Table, mode: str, running: bool) -> None:
    plan = schedule(table.manager(), "a", "b", "c")
    execution = table.manager().execute(plan, CLUSTERING) if running else None
    done = write(table.manager(mode), "a", "x")
    assert kinds(table)[-2:] == [CANCEL, COMPLETE] and table.completed() == [done.instant]
    execution = execution or table.manager().execute(plan, CLUSTERING)
    assert execution.cancelled_groups() == {("", "a")}
    make_files(table, execution, "a", "b", "c")
    finish(execution, "bc", dropped="a")
    assert table.completed() == [done.instant, plan]


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_that_is_cancelled_whole_or_not_at_all_goes_whole(table: Table, mode: str) -> None:
    plan = schedule(table.manager(), "a", "b", policy=WHOLE_ONLY)
    execution = table.manager().execute(plan, CLUSTERING)
    done = write(table.manager(mode), "a")
    assert execution.is_cancelled() and table.completed() == [done.instant]
    with pytest.raises(PlanCancelled):
        finish(execution, "b")


@pytest.mark.parametrize("mode", MODES)
def test_from_then_on_it_is_ignored(table: Table, mode: str) -> None:
    plan = schedule(table.manager(), "a", "b")
    write(table.manager(mode), "a")
    slots = len(table.events())
    write(table.manager(mode), "a")
    write(table.manager(mode), "z")
    assert kinds(table)[slots:] == [COMPLETE, COMPLETE]
    write(table.manager(mode), "a", "b")  # which is the rest
    assert kinds(table)[slots + 2 :] == [CANCEL, COMPLETE]
    assert table.storage.exists(f"{CANCEL_FOLDER}/{plan}")
    assert execute(table.manager(), plan)


@pytest.mark.parametrize("policy", [CANCELLABLE, WHOLE_ONLY, IMMUTABLE, FOREIGN])
@pytest.mark.parametrize("mode", MODES)
def test_if_the_service_completes_first_ingestion_loses(table: Table, mode: str, policy: PlanPolicy) -> None:
    plan = schedule(table.manager(), "a", policy=policy)
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    writer = table.manager(mode).begin()
    stat = add_file(writer, "a")
    finish(execution, "a")
    with pytest.raises(WriteConflict) as caught:
        commit(writer, stat)
    assert caught.value.winner == plan and CANCEL not in kinds(table)


def test_the_service_completes_between_the_writers_look_and_its_request(table: Table) -> None:
    table.elision = OFF  # the point is where the lock is given back
    plan = schedule(table.manager(), "a")
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a")
    writer = table.manager().begin()
    stat = add_file(writer, "a")
    met: list[str] = []

    def complete(_: str) -> None:
        if not met:
            met.append(plan)
            finish(execution, "a")

    with failpoints.calling(complete, ["lock.after_release"]), pytest.raises(WriteConflict) as caught:
        commit(writer, stat)
    assert met and caught.value.winner == plan and CANCEL not in kinds(table)


@pytest.mark.parametrize("policy", [IMMUTABLE, FOREIGN])
@pytest.mark.parametrize("running", [True, False], ids=["running", "pending"])
def test_an_optimistic_writer_yields_to_an_immutable_plan(table: Table, policy: PlanPolicy, running: bool) -> None:
    plan = schedule(table.manager(), "a", "b", policy=policy)
    if running:
        table.manager().execute(plan, CLUSTERING)
    with pytest.raises(WriteConflict, match="gives way to clustering") as caught:
        write(table.manager(), "a", "x")
    assert caught.value.winner == plan and caught.value.file_groups == [("", "a")]
    assert write(table.manager(), "x").instant in table.completed()


def test_a_non_blocking_writer_yields_to_a_foreign_plan_alone(table: Table) -> None:
    """An executor of ours leaves alone what was written since its plan; another engine's may not look."""
    schedule(table.manager(), "a", policy=IMMUTABLE)
    schedule(table.manager(), "b", policy=FOREIGN)
    write(table.manager(NON_BLOCKING), "a")
    with pytest.raises(WriteConflict, match="gives way to clustering"):
        write(table.manager(NON_BLOCKING), "b")


@pytest.mark.parametrize("mode", MODES)
def test_a_compaction_is_in_nobodys_way(table: Table, mode: str) -> None:
    schedule(table.manager(), "a", action=COMPACTION)
    schedule(table.manager(), "b", action=COMPACTION, policy=FOREIGN)
    write(table.manager(mode), "a", "b")
    assert CANCEL not in kinds(table)


def test_cancellable_and_immutable_plans_live_side_by_side(table: Table) -> None:
    mine = schedule(table.manager(), "a", "b")
    theirs = schedule(table.manager(), "c", policy=IMMUTABLE)
    with pytest.raises(WriteConflict) as caught:
        write(table.manager(), "a", "c")
    assert caught.value.winner == theirs
    write(table.manager(), "b")
    execution = table.manager().execute(theirs, CLUSTERING)
    make_files(table, execution, "c")
    finish(execution, "c")
    assert table.manager().execute(mine, CLUSTERING).cancelled_groups() == {("", "b")}


def test_a_service_yields_to_an_immutable_plan_on_its_file_groups(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    schedule(table.manager(), "a", policy=FOREIGN)
    execution = table.manager().execute(plan, CLUSTERING)
    make_files(table, execution, "a", "b")
    with pytest.raises(WriteConflict, match="gives way to clustering"):
        finish(execution, "ab")


def test_a_writer_of_other_file_groups_pays_for_no_cancellation(table: Table) -> None:
    schedule(table.manager(), "a")
    write(table.manager(), "x")
    assert CANCEL not in kinds(table)


def test_without_a_pending_clustering_nothing_is_looked_at(table: Table) -> None:
    schedule(table.manager(), "a", action=COMPACTION)
    looked: list[str] = []

    def before(_: str, path: str) -> None:
        looked.append(path)

    write(table.manager(storage=FaultyStorage(table.storage, before=before)), "a")
    assert looked and not [path for path in looked if path.startswith(CANCEL_FOLDER)]


def test_a_request_is_not_lost_with_the_write_that_asked(table: Table) -> None:
    plan = schedule(table.manager(), "a", "b")
    early, late = table.manager().begin(), table.manager().begin()
    stats = add_file(early, "a"), add_file(late, "a")
    commit(late, stats[1])
    with pytest.raises(WriteConflict):
        commit(early, stats[0])
    assert request(table.manager(), plan, "a") is not None
    assert table.manager().execute(plan, CLUSTERING).cancelled_groups() == {("", "a")}
