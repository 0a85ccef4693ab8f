"""Table services after a commit: what is due and asked for, for nothing where nothing is, and never at its expense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from executors import Run, executor_of
from live_table import LiveTable

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import NO_TASKS, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.report import DONE, FAILED, SCHEDULED, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.rewrites.rewriting import Operations, RewriteTask
from lakelatch.engine.services.service import ServiceContext
from lakelatch.locks.contract import service_key
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.plans.service_plan import read_service_plan
from lakelatch.timeline.snapshot import Snapshot

MakeTable = Callable[..., Any]
COMMITS = "hoodie.compact.inline.max.delta.commits"
INLINE = {"hoodie.compact.inline": "true", COMMITS: "3"}
OFF = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def written(
    table: LiveTable,
    number: int,
    options: dict[str, str],
    run: Run | None = None,
    executor: Executor | None = None,
) -> CommitResult:
    """A write as `lakelatch.write` does it, with the services of these options behind it; `run` runs their tasks."""
    writing = table.begin().put("p", [(key, number, f"v{number}") for key in range(4)])
    result = writing.commit()
    parsed = Call({**OFF, **options}).services()
    return after_commit(result, ServiceContext(table.opened, writing.manager, executor or executor_of(run)), parsed)


def outcomes(result: CommitResult) -> list[tuple[str, str]]:
    return [(run.service, run.outcome) for run in result.services]


def test_every_third_commit_compacts(table: LiveTable) -> None:
    found = [outcomes(written(table, number, INLINE)) for number in range(6)]
    assert found == [[], [], [("compaction", DONE)]] * 2
    assert [row[2:] for row in table.agreed()] == [(5, "v5")] * 4


def test_a_plan_alone_waits_for_others_and_is_the_only_one(table: LiveTable) -> None:
    options = {"hoodie.compact.schedule.inline": "true", COMMITS: "2"}
    found = [written(table, number, options) for number in range(5)]
    assert [outcomes(result) for result in found] == [[], [("compaction", SCHEDULED)], [], [], []]
    assert lakelatch.waiting_plans(str(table.root)) == [found[1].services[0].instant]


def test_of_many_writers_one_plans_and_nobody_waits_for_it(table: LiveTable) -> None:
    for number in range(3):
        written(table, number, {})
    with table.manager().context.provider.acquire(service_key("planning.compaction"), 0):
        assert outcomes(written(table, 3, INLINE)) == [] and not lakelatch.waiting_plans(str(table.root))
    tried = [number for number in range(4, 24) if written(table, number, INLINE).services]
    assert tried[0] == 13, "what was passed over is due again some commits later"


@pytest.mark.parametrize("cancellable", ["true", "false"])
def test_a_plan_says_whether_it_can_be_cancelled(table: LiveTable, cancellable: str) -> None:
    options = {"hoodie.compact.schedule.inline": "true", COMMITS: "1", "lakelatch.service.cancellable": cancellable}
    (run,) = written(table, 1, options).services
    plan = read_service_plan(table.storage, run.instant, COMPACTION)
    assert plan.policy.cancellable == (cancellable == "true")


def test_without_being_asked_a_write_compacts_nothing(table: LiveTable) -> None:
    assert not any(written(table, number, {}).services for number in range(4)), "the fifth looks for what pays"
    assert not any(
        written(table, number, {**INLINE, "hoodie.table.services.enabled": "false"}).services for number in range(4, 10)
    )


def test_where_there_is_no_spark_compactions_are_left_to_others(table: LiveTable) -> None:
    assert not any(written(table, number, INLINE, executor=NO_TASKS).services for number in range(5))
    assert outcomes(written(table, 5, INLINE)) == [("compaction", DONE)]


@pytest.mark.parametrize("said", [INLINE, {}], ids=["inline", "by itself"])
def test_while_nothing_is_due_it_reads_and_lists_nothing(table: LiveTable, said: dict[str, str]) -> None:
    calls: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append((operation, path)))
    writing = table.begin(storage=storage).put("p", [(1, 1, "a")])
    result = writing.commit()
    assert calls
    calls.clear()
    options, opened = Call(said).services(), replace(table.opened, storage=storage)
    assert after_commit(result, ServiceContext(opened, writing.manager), options) is result and calls == []


def failing(error: Exception) -> Run:
    """What runs tasks where none can run."""

    def run(task: RewriteTask, operations: Operations) -> list[FileReport]:
        raise error

    return run


@pytest.mark.parametrize("error", [OSError("no space left"), ValueError("a bug")])
def test_a_service_that_fails_never_makes_the_commit_fail(table: LiveTable, error: Exception) -> None:
    found = [written(table, number, INLINE, failing(error)) for number in range(3)]
    assert outcomes(found[-1]) == [("compaction", FAILED)] and str(error) in found[-1].services[0].detail
    assert found[-1].instant in Snapshot.load(table.storage).completion_times()
    assert "compaction failed" in repr(found[-1])
    assert len(lakelatch.waiting_plans(str(table.root))) == 1


def test_what_was_in_vain_is_not_tried_after_each_commit(table: LiveTable) -> None:
    run = failing(OSError("no space left"))
    tried = [number for number in range(1, 26) if written(table, number, INLINE, run).services]
    assert tried == [3, 13, 23]


def test_a_repeated_batch_has_had_its_services(table: LiveTable) -> None:
    for number in range(3):
        result = written(table, number, {})
    options, manager = Call(INLINE).services(), table.manager()
    manager.context.snapshots.take()
    again = replace(result, repeated=True)
    assert after_commit(again, ServiceContext(table.opened, manager), options) is again
    assert after_commit(result, ServiceContext(table.opened, manager), options).services
    assert str(ServiceRun("clean", DONE, "7", "3 files", 0.25)) == "clean 7 done in 0.2 s: 3 files"


@pytest.mark.long
@pytest.mark.spark
def test_a_write_on_spark_says_what_ran(make_table: MakeTable) -> None:
    table = make_table(hoodie__compact__inline="true")
    table.options[COMMITS] = "2"
    results = [table.write([(1, number, f"v{number}")], local=number % 2 == 0) for number in range(4)]
    assert [[run.service for run in result.services] for result in results] == [[], ["compaction"]] * 2
    assert table.read() == [(1, 3, "v3")]
    frame = table.frame([(2, 4, "v4")])
    frame.write.format("lakelatch").options(**table.options).mode("append").save(table.path)
    assert table.read() == [(1, 3, "v3"), (2, 4, "v4")]
