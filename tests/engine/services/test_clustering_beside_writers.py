"""Clustering beside writers: what came first counts, and neither loses a row or shows one twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clustered import ROWS, WHOLE, bucket_of, done, live, made, planned
from executors import Run, run_here
from live_table import LiveTable, Row

from lakelatch.engine.services.cancelling import request_cancel
from lakelatch.engine.services.service import waiting
from lakelatch.errors import TransactionEnded, WriteConflict
from lakelatch.failpoints import active
from lakelatch.format.bucket_index import bucket_file_id, successor_file_id
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import Storage
from lakelatch.timeline.actions import CLUSTERING
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.base.settings import OPTIMISTIC
from lakelatch.transactions.manager import PlanBusy, TransactionManager


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_writer_that_comes_after_it_is_relocated(tmp_path: Path, partitioned: bool) -> None:
    table = made(tmp_path, partitioned=partitioned)
    writing = table.begin().put("p", [(0, 20, "late"), (1, 5, "older"), (50, 1, "new")])
    deleting = table.begin("delete").put("p", [(2, 20, ""), (3, 5, "")])
    clustered = done(table.cluster())
    deleting.commit()
    writing.commit()
    unchanged = [("p", *row) for row in ROWS if row[0] not in (0, 2)]
    expected = sorted([("p", 0, 20, "late"), *unchanged, ("p", 50, 1, "new")])
    assert table.agreed() == expected
    assert set(live(table).values()) == {successor_file_id(bucket, clustered.instant) for bucket in (0, 1)}
    done(table.compact())
    assert table.agreed() == expected


def test_a_file_group_that_was_written_to_since_the_plan_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path)
    bucket = bucket_of(table, 0)
    plan = planned(table)
    table.write([(0, 20, "w")])
    before = table.agreed()
    result = table.execute_clustering(plan)
    assert result.file_groups_replaced == 1 and table.agreed() == before
    assert live(table) == {bucket: bucket_file_id(bucket), 1 - bucket: successor_file_id(1 - bucket, plan)}
    view = TableView.load(table.storage, table.opened.config)
    assert set(view.replaced()) == {("p", bucket_file_id(1 - bucket)), ("p", successor_file_id(bucket, plan))}
    table.write([(0, 30, "x"), (1, 30, "x"), (2, 30, "x"), (3, 30, "x")])
    assert live(table) == {bucket: bucket_file_id(bucket), 1 - bucket: successor_file_id(1 - bucket, plan)}
    rows = table.agreed()
    assert [row[2:] for row in rows[:4]] == [(30, "x")] * 4 and len(rows) == 40
    done(table.cluster())
    assert table.agreed() == rows and bucket_file_id(bucket) not in live(table).values()


def test_a_late_file_of_a_group_that_was_left_alone_is_hidden_for_good(tmp_path: Path) -> None:
    """An executor is paused with its file ready, another one carries the plan out meanwhile."""
    table = made(tmp_path)
    plan = planned(table)
    left_alone = successor_file_id(bucket_of(table, 0), plan)
    late: list[tuple[str, bytes]] = []

    def paused(task: Any, operations: Any) -> Any:
        reports = run_here(task, operations)
        for path in (path for path in table.storage.walk("p") if left_alone in path):
            late.append((path, table.storage.read(path)))
            table.storage.delete(path)
        table.write([(0, 20, "w")])
        return reports

    assert table.execute_clustering(plan, paused).file_groups_replaced == 1
    before = table.agreed()
    assert late
    for path, data in late:
        table.storage.put_if_absent(path, data)
        assert table.agreed() == before
    table.write([(0, 30, "x")])
    done(table.compact())
    assert table.agreed() == [("p", 0, 30, "x"), *before[1:]]


@pytest.mark.parametrize("in_part", [True, False])
def test_a_writer_calls_off_what_is_in_its_way(tmp_path: Path, in_part: bool) -> None:
    """The plan goes on without the writer's file groups, or ends; its names have tombstones then, for late files."""
    table = made(tmp_path)
    plan = planned(table, **({} if in_part else WHOLE))
    table.write([(key, 20, "w") for key in (range(40) if in_part else [0])])
    before = table.agreed()
    with pytest.raises(PlanCancelled):
        table.execute_clustering(plan)
    assert table.agreed() == before and set(live(table).values()) == {bucket_file_id(0), bucket_file_id(1)}
    assert waiting(str(table.root), [CLUSTERING]) == []
    files = [path for path in table.storage.walk("p") if plan_of(path) == plan]
    assert files and all(table.storage.stat(path).size_bytes == 0 for path in files)
    with pytest.raises(TransactionEnded):
        table.execute_clustering(plan)
    done(table.cluster())
    assert table.agreed() == before


def test_an_executor_at_work_stops_when_it_is_called_off(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)

    def called_off(task: Any, operations: Any) -> Any:
        first = run_here(task, operations[:1])
        request_cancel(table.manager(), plan)
        with pytest.raises(PlanCancelled):
            run_here(task, operations[1:])
        return first

    before = table.agreed()
    with pytest.raises(PlanCancelled):
        table.execute_clustering(plan, called_off)
    assert table.agreed() == before and waiting(str(table.root), [CLUSTERING]) == []
    files = [path for path in table.storage.walk("p") if plan_of(path) == plan]
    assert files and all(table.storage.stat(path).size_bytes == 0 for path in files)


def plan_of(path: str) -> str:
    """The instant in a data file's name."""
    file = parse_data_file(path.rpartition("/")[2])
    return "" if file is None else file.instant


def foreign_write(table: LiveTable, row: Row) -> None:
    """A write that takes no slot and asks for nothing, as Java's: made on a copy, without what is only ours."""
    copy = table.root.with_name("copy")
    shutil.copytree(table.root, copy)
    LiveTable(copy, table.mode).write([row])
    for folder in (".lakelatch", ".cancel", ".heartbeat"):
        shutil.rmtree(copy / ".hoodie" / folder, ignore_errors=True)
    shutil.copytree(copy, table.root, dirs_exist_ok=True)
    shutil.rmtree(copy)


@pytest.mark.parametrize("late", [False, True])
def test_a_file_group_to_which_java_wrote_since_the_plan_is_left_alone(tmp_path: Path, late: bool) -> None:
    """Before the tasks, which pass over it, or when they are done."""
    table = made(tmp_path)
    bucket = bucket_of(table, 0)
    plan = planned(table)
    write = partial(foreign_write, table, (0, 20, "foreign"))
    result = table.execute_clustering(plan, between(write, late))
    assert result.file_groups_replaced == 1 and result.rows_written < 40
    assert table.agreed()[0] == ("p", 0, 20, "foreign") and len(table.agreed()) == 40
    assert live(table)[bucket] == bucket_file_id(bucket)


def between(act: Callable[[], object], late: bool) -> Run:
    """Something happens while a plan is carried out: before the tasks, or after them."""

    def run(task: Any, operations: Any) -> Any:
        reports = run_here(task, operations) if late else None
        act()
        return run_here(task, operations) if reports is None else reports

    return run


@pytest.mark.parametrize("late", [False, True])
def test_a_part_that_is_called_off_is_left_alone(tmp_path: Path, late: bool) -> None:
    table = made(tmp_path)
    plan = planned(table)
    before = table.agreed()
    part = ("p", bucket_file_id(0))
    act = partial(request_cancel, table.manager(), plan, [part])
    assert table.execute_clustering(plan, between(act, late)).file_groups_replaced == 1
    assert table.agreed() == before
    assert live(table) == {0: bucket_file_id(0), 1: successor_file_id(1, plan)}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("immutable", [True, False])
def test_a_plan_for_all_or_nothing_ends_if_one_file_group_was_touched(
    tmp_path: Path, immutable: bool, late: bool
) -> None:
    """An immutable plan of ours does not stop a non-blocking writer: its executor gives it up."""
    table = made(tmp_path)
    plan = planned(table, **({"lakelatch.service.cancellable": "false"} if immutable else WHOLE))
    write = partial(table.write, [(0, 20, "w")]) if immutable else partial(foreign_write, table, (0, 20, "w"))
    with pytest.raises(WriteConflict):
        table.execute_clustering(plan, between(write, late))
    before = table.agreed()
    assert before == [("p", 0, 20, "w"), *(("p", *row) for row in ROWS[1:])]
    assert waiting(str(table.root), [CLUSTERING]) == []
    files = [path for path in table.storage.walk("p") if plan_of(path) == plan]
    assert files and all(table.storage.stat(path).size_bytes == 0 for path in files)
    done(table.cluster())
    assert table.agreed() == before


def test_an_executor_that_dies_while_it_gives_up_is_followed_by_another(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table, **{"lakelatch.service.cancellable": "false"})
    table.write([(0, 20, "w")])
    before = table.agreed()
    with active("cluster.after_given_up=raise"), pytest.raises(WriteConflict):
        table.execute_clustering(plan)
    assert waiting(str(table.root), [CLUSTERING]) == [plan] and table.agreed() == before
    with pytest.raises(PlanCancelled):
        table.execute_clustering(plan)
    assert waiting(str(table.root), [CLUSTERING]) == [] and table.agreed() == before


def test_tasks_do_not_work_on_what_was_touched(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)
    table.write([(0, 20, "w")])
    table.execute_clustering(plan)
    bucket = bucket_of(table, 0)
    assert not [path for path in table.storage.walk("p") if successor_file_id(bucket, plan) in path]


def test_an_optimistic_writer_that_comes_after_it_has_a_conflict_only_where_it_was_replaced(tmp_path: Path) -> None:
    table = made(tmp_path, OPTIMISTIC)
    bucket = bucket_of(table, 0)
    other = next(key for key in range(40) if bucket_of(table, key) != bucket)
    plan = planned(table)
    table.write([(0, 20, "w")])
    spared, hit = (table.begin().put("p", [(key, 30, "x")]) for key in (0, other))
    table.execute_clustering(plan)
    spared.commit()
    hit.loses()
    rows = {row[1]: row for row in table.agreed()}
    assert rows[0] == ("p", 0, 30, "x") and rows[other][2] == 10


@pytest.mark.parametrize("mode", ["NON_BLOCKING_CONCURRENCY_CONTROL", OPTIMISTIC])
def test_an_overwrite_between_plan_and_commit_wins(tmp_path: Path, mode: str) -> None:
    table = made(tmp_path, mode)
    table.write([(key, 10, "q") for key in range(40)], "q")
    plan = planned(table)
    table.write([(7, 1, "only")], operation="insert_overwrite")
    assert table.execute_clustering(plan).file_groups_replaced == 2  # of the other partition
    assert [row for row in table.agreed() if row[0] == "p"] == [("p", 7, 1, "only")]
    table.write([(8, 1, "more")])
    assert [row for row in table.agreed() if row[0] == "p"] == [("p", 7, 1, "only"), ("p", 8, 1, "more")]


def test_an_overwrite_that_comes_after_it_takes_the_new_file_groups_away(tmp_path: Path) -> None:
    table = made(tmp_path)
    overwriting = table.begin("insert_overwrite").put("p", [(7, 1, "only")])
    done(table.cluster())
    overwriting.commit()
    assert table.agreed() == [("p", 7, 1, "only")]


def test_compactions_and_clusterings_leave_each_other_s_file_groups_alone(tmp_path: Path) -> None:
    table = made(tmp_path)
    compaction = table.plan()
    assert compaction is not None and table.plan_clustering() is None
    table.execute(compaction)
    plan = planned(table)
    table.write([(0, 20, "w")])
    assert table.plan() is None and table.plan_clustering("id") is None
    table.execute_clustering(plan)
    assert table.plan() is not None


def test_a_second_executor_is_refused_and_a_later_one_finds_it_done(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)

    def meanwhile(task: Any, operations: Any) -> Any:
        with pytest.raises(PlanBusy):
            table.execute_clustering(plan)
        return run_here(task, operations)

    table.execute_clustering(plan, meanwhile)
    with pytest.raises(TransactionEnded):
        table.execute_clustering(plan)


def test_a_write_that_was_rolled_back_after_the_plan_does_not_come_back(tmp_path: Path) -> None:
    """Another engine takes a completed write away, whose rows the clustering has read."""
    table = made(tmp_path)
    wrong = table.write([(0, 20, "wrong")])
    plan = planned(table)
    (table.root / f".hoodie/timeline/{wrong.instant}_{wrong.completion}.deltacommit").unlink()
    for state in ("inflight", "requested"):
        (table.root / f".hoodie/timeline/{wrong.instant}.deltacommit.{state}").unlink()
    result = table.execute_clustering(plan)
    assert result.file_groups_replaced == 1
    assert ("p", *ROWS[0]) in table.read()


class PrefersWriters(LiveTable):
    def manager(self, storage: Storage | None = None, **settings: Any) -> TransactionManager:
        return super().manager(storage, mode=OPTIMISTIC, conflict_strategy="prefer_writer", **settings)


def test_one_that_yields_to_a_writer_at_work_leaves_tombstones(tmp_path: Path) -> None:
    """As one that was cancelled: an executor that was paused finds its names taken."""
    table = PrefersWriters(tmp_path)
    table.write(ROWS)
    plan = planned(table, **{"lakelatch.service.cancellable": "false"})
    late: dict[str, bytes] = {}

    def meanwhile(task: Any, operations: Any) -> Any:
        reports = run_here(task, operations)
        late.update((path, table.storage.read(path)) for path in table.storage.walk("p") if plan in path)
        return reports

    writing = table.begin().put("p", [(key, 20, "w") for key in range(40)])
    with pytest.raises(WriteConflict):
        table.execute_clustering(plan, meanwhile)
    assert late and not any(table.storage.put_if_absent(path, data) for path, data in late.items())
    assert [one.requested for one in Snapshot.load(table.storage).aborted] == [plan]
    writing.commit()
    assert [row[3] for row in table.agreed()] == ["w"] * 40
    done(table.cluster())
    assert [row[3] for row in table.agreed()] == ["w"] * 40
