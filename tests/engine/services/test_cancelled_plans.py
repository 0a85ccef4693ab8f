"""Compactions that are called off, on a table with rows: what both readers see, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch import failpoints
from lakelatch.engine.services import cancelling
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.timeline.actions import CLUSTERING, COMPACTION
from lakelatch.timeline.instant import aborted
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.plans.service_plan import read_service_plan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.outcome import PlanCancelled

CANCELLABLE = {"lakelatch.service.cancellable": "true"}


@pytest.fixture
def live(tmp_path: Path) -> LiveTable:
    return LiveTable(tmp_path / "t")


def cancellable_plan(live: LiveTable) -> str:
    plan = live.plan(CANCELLABLE)
    assert plan is not None
    return plan


def written(live: LiveTable) -> LiveTable:
    live.write([(number, 1, "a") for number in range(10)])
    live.compact()
    live.write([(number, 2, "b") for number in range(5)])
    return live


def files_of(live: LiveTable, plan: str) -> list[str]:
    return [path for path in live.storage.walk("p") if plan in path]


def test_it_is_cancelled_in_mid_flight_and_the_table_goes_on(live: LiveTable) -> None:
    plan = cancellable_plan(written(live))
    before = live.agreed()

    def ask(_: str) -> None:
        cancelling.request_cancel(live.manager(), plan)

    with failpoints.calling(ask, ["compact.before_commit"]), pytest.raises(PlanCancelled):
        live.execute(plan)
    assert live.agreed() == before and files_of(live, plan) == []  # it has tidied up after itself
    assert Snapshot.load(live.storage).aborted == (aborted(plan, COMPACTION),)
    live.write([(1, 3, "c")])
    assert live.compact() is not None
    assert live.agreed()[:2] == [("p", 0, 2, "b"), ("p", 1, 3, "c")]
    assert live.optimized() == live.read()


def test_tasks_stop_before_the_next_operation(live: LiveTable) -> None:
    plan = cancellable_plan(written(live))
    made = []

    def ask(_: str) -> None:
        made.append(files_of(live, plan))
        cancelling.request_cancel(live.manager(), plan)

    with failpoints.calling(ask, ["compact.after_base_file"]), pytest.raises(PlanCancelled):
        live.execute(plan)
    assert len(made) == 1 and files_of(live, plan) == []


def test_an_executor_that_begins_later_tidies_up_instead(live: LiveTable) -> None:
    plan = cancellable_plan(written(live))
    before = live.agreed()
    cancelling.request_cancel(live.manager(), plan)
    with pytest.raises(PlanCancelled):
        live.execute(plan)
    assert cancelling.open_requests(live.manager()) == []
    assert Snapshot.load(live.storage).aborted == (aborted(plan, COMPACTION),) and live.agreed() == before


def test_a_request_for_a_part_that_arrives_once_more_after_the_plan_has_ended_goes(live: LiveTable) -> None:
    live.write([(number, 1, "a") for number in range(10)])
    plan = live.plan_clustering("", CANCELLABLE)
    assert plan is not None
    group = min(read_service_plan(live.storage, plan, CLUSTERING).groups)
    cancelling.request_cancel(live.manager(), plan, [group])
    (late,) = [path for path in live.storage.walk(CANCEL_FOLDER) if path != f"{CANCEL_FOLDER}/{plan}"]
    data = live.storage.read(late)
    cancelling.request_cancel(live.manager(), plan)
    assert cancelling.execute_open(live.manager()) == [plan]
    live.storage.put(late, data)
    assert cancelling.execute_open(live.manager()) == [] and not live.storage.exists(late)


def test_readers_see_nothing_of_what_a_dead_executor_left_before_it_is_swept_nor_after(live: LiveTable) -> None:
    plan = cancellable_plan(written(live))
    with failpoints.active("compact.before_commit=raise"), pytest.raises(LakelatchError):
        live.execute(plan)
    left = {path: live.storage.read(path) for path in files_of(live, plan)}
    assert left
    live.write([(1, 3, "c")])
    before = live.agreed()
    cancelling.request_cancel(live.manager(), plan)
    assert live.agreed() == before
    assert cancelling.execute_open(live.manager()) == [plan] and cancelling.execute_open(live.manager()) == []
    assert live.agreed() == before and files_of(live, plan) == []
    for path, data in left.items():  # its requests arrive once more
        live.storage.put(path, data)
    assert live.agreed() == before
    (over,) = cancelling.aborted_plans(live.manager())
    cancelling.sweep_aborted(live.manager(), over)
    assert live.agreed() == before and files_of(live, plan) == []


def test_a_plan_waits_for_its_policy_and_is_left_to_a_live_executor(live: LiveTable) -> None:
    written(live)
    for policy, past in [("0 hours", True), ("24 hours", False), ("1 instants", True), ("2 instants", False)]:
        plan = live.plan({**CANCELLABLE, "lakelatch.service.cancellation.policy": policy})
        assert plan is not None
        for _ in range(2):
            live.write([(1, 3, "c")], partition="q")
        found = [one.instant for one in cancelling.past_policy(live.manager())]
        assert found == ([plan] if past else []), policy
        assert cancelling.past_policy(live.manager(), least_age_ms=3_600_000) == []
        execution = live.manager().execute(plan)
        assert cancelling.past_policy(live.manager()) == []
        execution.release()
        assert not live.storage.exists(heartbeat_path(plan))
        live.execute(plan)
        live.compact()
        live.write([(number, 4, policy) for number in range(5)])


def test_compactions_are_immutable_unless_asked_for_and_log_compactions_always(live: LiveTable) -> None:
    written(live)
    plan = live.plan()
    assert plan is not None
    with pytest.raises(InvalidRequest, match="is immutable"):
        cancelling.request_cancel(live.manager(), plan)
    live.execute(plan)
    for number in range(2):
        live.write([(number, 5, "d")])
    for number in range(4):
        live.write([(1, 6 + number, "e")])
    plan = live.plan_logs()
    assert plan is not None
    with pytest.raises(InvalidRequest, match="is immutable"):
        cancelling.request_cancel(live.manager(), plan)
