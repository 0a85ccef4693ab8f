"""One call that does what is due: in order, nothing twice, and no service kept from running by another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from executors import Run, executor_of, run_here
from live_table import LiveTable
from taken_back_table import new_table

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.report import CANCELLED, FAILED, LEFT, MaintenanceReport, ServiceRun
from lakelatch.engine.services.cancelling import request_cancel
from lakelatch.engine.services.keeping.maintenance import keep, maintain_with
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.rewriting import Operations, RewriteTask
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER

COMMITS = "hoodie.compact.inline.max.delta.commits"
LOGS = {"hoodie.log.compaction.enable": "true", "hoodie.log.compaction.blocks.threshold": "2", COMMITS: "100"}


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return LiveTable(tmp_path / "table")


def kept(table: LiveTable, run: Run | None = None, **more: Any) -> MaintenanceReport:
    options = Call({COMMITS: "3", **more.pop("options", {})}).services()
    return maintain_with(executor_of(run), str(table.root), options, **more)


def filled(table: LiveTable, commits: int, first: int = 0) -> None:
    for number in range(first, first + commits):
        table.write([(key, number, f"v{number}") for key in range(4)])


def done(report: MaintenanceReport) -> list[tuple[str, str]]:
    return [(run.service, run.outcome) for run in report.runs]


def test_nothing_is_done_before_it_is_due_and_nothing_twice(table: LiveTable) -> None:
    filled(table, 2)
    assert kept(table).runs == ()
    filled(table, 1, first=2)
    assert done(kept(table)) == [("compaction", "done")]
    assert kept(table).runs == ()
    filled(table, 3, first=3)
    assert done(kept(table)) == [("compaction", "done")]
    assert [row[2:] for row in table.agreed()] == [(5, "v5")] * 4


def test_what_waits_is_carried_out_before_anything_is_planned(table: LiveTable) -> None:
    filled(table, 1)
    plan = table.plan()
    filled(table, 3, first=1)
    report = kept(table)
    assert done(report) == [("compaction", "done")] * 2 and report.runs[0].instant == plan
    assert "base files" in report.runs[0].detail and report.runs[0].seconds > 0
    assert len(table.agreed()) == 4


def test_a_plan_of_a_live_process_is_left_to_it(table: LiveTable) -> None:
    filled(table, 1)
    plan = table.plan()
    assert plan is not None
    executor = table.manager().execute(plan)
    report = kept(table)
    assert done(report) == [("compaction", LEFT)] and "another process" in report.runs[0].detail and report.ok
    executor.release()
    assert done(kept(table)) == [("compaction", "done")]


def test_a_service_that_fails_keeps_no_other_from_running(table: LiveTable) -> None:
    filled(table, 3)
    broken: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "stat" and ".log." in path and not broken:  # while the compaction is planned
            broken.append(path)
            raise OSError("no such device\nat line 2")

    storage, options = FaultyStorage(table.storage, before=before), Call({**LOGS, COMMITS: "3"}).services()
    context = ServiceContext(open_table(storage), table.manager(storage))
    report = MaintenanceReport(str(table.root), keep(context, Steps(options).of_maintenance()))
    assert done(report) == [("compaction", FAILED), ("logcompaction", "done")] and not report.ok
    assert report.failed[0].detail == "OSError: no such device"
    assert done(kept(table)) == [("compaction", "done")], "and the next call tries it again"
    assert len(table.agreed()) == 4


def test_one_plan_that_fails_keeps_no_other_plan_back(table: LiveTable) -> None:
    table.write([(1, 1, "a")], partition="p")
    first = table.plan()
    table.write([(2, 1, "b")], partition="q")
    second = table.plan()

    def run(task: RewriteTask, operations: Operations) -> list[FileReport]:
        if task.instant == first:
            raise Unavailable("the storage is slow")
        return run_here(task, operations)

    report = kept(table, run=run)
    assert [(run.instant, run.outcome) for run in report.runs] == [(first, FAILED), (second, "done")]


def test_log_compactions_where_they_are_asked_for(table: LiveTable) -> None:
    filled(table, 2)
    assert kept(table).runs == ()
    assert done(kept(table, options=LOGS)) == [("logcompaction", "done")]
    assert kept(table, options=LOGS).runs == ()
    assert len(table.agreed()) == 4


def test_whoever_asks_stops_it_between_two_pieces(table: LiveTable) -> None:
    filled(table, 1)
    table.plan()
    filled(table, 3, first=1)
    told: list[ServiceRun] = []
    report = kept(table, tell=told.append, go_on=lambda: len(told) < 1)
    assert done(report) == [("compaction", "done")] and tuple(told) == report.runs


def test_what_the_dead_left_comes_first(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    filled(table, 3)
    dead = table.begin().put("p", [(9, 9, "never")]).instant
    table.all_died()
    report = kept(table)
    assert done(report) == [("recover", "done"), ("compaction", "done")] and dead in report.runs[0].detail
    assert [row[1] for row in table.agreed()] == [0, 1, 2, 3]


def test_several_at_once_do_each_thing_once(table: LiveTable) -> None:
    filled(table, 3)
    reports: list[MaintenanceReport] = []
    threads = [threading.Thread(target=lambda: reports.append(kept(table))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    runs = [run for report in reports for run in report.runs]
    assert len(reports) == 4 and [run.outcome for run in runs].count("done") == 1, runs
    assert all(report.ok for report in reports) and len(table.agreed()) == 4


def test_nothing_is_listed_twice_to_find_that_nothing_is_due(table: LiveTable) -> None:
    """The price of a call: one look at the log and one listing, whatever the number of steps."""
    filled(table, 1)
    calls: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append((operation, path)))
    context, options = ServiceContext(table.opened, table.manager(storage)), Call(LOGS).services()
    steps = [one for one in Steps(options).of_maintenance() if one.service in ("compaction", "logcompaction")]
    assert len(steps) == 4 and keep(context, steps) == () and calls.count(("list", TIMELINE_FOLDER)) == 1


def test_where_there_is_no_table_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no table"):
        maintain_with(HERE, str(tmp_path), Call({}).services())
    assert "maintain" in lakelatch.__all__


def test_a_table_that_is_kept_stays_small(table: LiveTable) -> None:
    """Compacted, cleaned and archived in one call after each commit, with the readers of others at every step."""
    options = {"hoodie.clean.commits.retained": "2", "hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "6"}
    options["lakelatch.archive.minimum.age.seconds"] = "0"
    services: set[tuple[str, str]] = set()
    sizes = []
    for number in range(24):
        table.write([(key, number, f"v{number}") for key in range(4)])
        report = kept(table, options=options)
        services.update((run.service, run.outcome) for run in report.runs)
        data = [path for path in table.storage.walk("") if not path.startswith(".hoodie/")]
        sizes.append(len(data) + len(table.storage.list(TIMELINE_FOLDER).files))
        assert [row[2:] for row in table.agreed()] == [(number, f"v{number}")] * 4
    assert services == {("compaction", "done"), ("clean", "done"), ("archive", "done")}
    assert max(sizes[16:]) <= max(sizes[8:16]), sizes
    assert not lakelatch.waiting_plans(str(table.root))


def test_clusterings_where_columns_are_named(table: LiveTable) -> None:
    filled(table, 4)
    columns = {"hoodie.clustering.plan.strategy.sort.columns": "v", COMMITS: "100"}
    assert kept(table, options={COMMITS: "100"}).runs == ()
    report = kept(table, options=columns)
    assert done(report) == [("clustering", "done")] and "4 rows" in report.runs[0].detail
    assert kept(table, options=columns).runs == () and len(table.agreed()) == 4


def test_a_plan_that_was_cancelled_is_ended_and_not_carried_out(table: LiveTable) -> None:
    filled(table, 1)
    options = Call({}).services()
    manager = table.manager()
    plan = Clustering(options.clustering, options.cancellation).schedule(ServiceContext(table.opened, manager))
    assert plan is not None and request_cancel(manager, plan) is not None
    report = kept(table)
    assert done(report) == [("cancel", "done")] and plan in report.runs[0].detail
    assert kept(table).runs == () and len(table.agreed()) == 4


def test_a_clustering_that_was_called_off_on_its_way_is_no_failure(table: LiveTable) -> None:
    filled(table, 4)
    columns = {"hoodie.clustering.plan.strategy.sort.columns": "v", COMMITS: "100"}

    def run(task: Any, operations: Any) -> Any:
        reports = run_here(task, operations)
        plan = task.instant
        assert request_cancel(table.manager(), plan) is not None
        return reports

    report = maintain_with(executor_of(run), str(table.root), Call(columns).services())
    assert done(report) == [("clustering", CANCELLED)] and report.ok
    kept(table)
    assert len(table.agreed()) == 4
