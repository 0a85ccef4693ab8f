"""Small files of tables without a record key are joined: the same rows in fewer files, for any reader at any moment."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from live_table import batches_by_hudi_rs
from table import BuiltTable, meanwhile

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.run.report import DONE
from lakelatch.engine.services.cancelling import request_cancel
from lakelatch.engine.services.rewrites.budget import spent_today
from lakelatch.engine.services.rewrites.joining import Sized, files_of_a_size, first_within
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import LocalStorage
from lakelatch.timeline.actions import CLUSTERING
from lakelatch.timeline.plans.clustering_plan import ClusteringGroup
from lakelatch.timeline.plans.service_plan import read_service_plan
from lakelatch.timeline.snapshot import Snapshot

OPTIONS = {"hoodie.datasource.write.partitionpath.field": "day", "hoodie.datasource.write.recordkey.field": ""}
OFF = {**OPTIONS, "lakelatch.rewrite.automatic": "false"}
SCHEMA = pa.schema([("day", pa.string()), ("x", pa.int64())])
MB = 1024 * 1024


@pytest.fixture
def events(tmp_path: Path) -> ArrowTable:
    """Two rows of one day, one of another; services run only if the table's caller has them run."""
    table = ArrowTable(str(tmp_path / "events"), OFF)
    for number in range(3):
        add(table, number)
    return table


def add(table: ArrowTable, number: int, **options: object) -> lakelatch.CommitResult:
    return table.insert(
        pa.table({"day": ["a", "b", "a"], "x": [number, number, -number]}, schema=SCHEMA), options=options
    )


def rows_of(table: ArrowTable) -> Counter[tuple[str, int]]:
    rows = Counter((row["day"], row["x"]) for row in table.to_arrow().to_pylist())
    found = pa.Table.from_batches(batches_by_hudi_rs(Path(table.path))).to_pylist()
    assert rows == Counter((row["day"], row["x"]) for row in found), "hudi-rs reads the same"
    return rows


def added(*numbers: int) -> Counter[tuple[str, int]]:
    return Counter(row for number in numbers for row in (("a", number), ("b", number), ("a", -number)))


def files_of(table: ArrowTable) -> Counter[str]:
    built = built_of(table)
    return Counter(found.partition for found in TableView.load(built.storage, built.opened.config).latest())


def built_of(table: ArrowTable) -> BuiltTable:
    return BuiltTable(
        LocalStorage(table.path), SCHEMA, {**OPTIONS, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    )


def test_appends_end_as_few_files_without_anybodys_call(events: ArrowTable) -> None:
    events = ArrowTable(events.path, OPTIONS)
    services = [add(events, number).services for number in range(3, 14)]
    assert [run.service for found in services for run in found if run.service != "clean"] == ["clustering"] * 2
    assert max(files_of(events).values()) <= 5
    assert rows_of(events) == added(*range(14))


def test_rows_keep_their_keys_and_times(events: ArrowTable) -> None:
    before = events.to_arrow(meta_columns=True).drop_columns(["_hoodie_file_name"])
    third = add(events, 3)
    (result,) = events.cluster()
    assert files_of(events) == {"a": 1, "b": 1} and result.rows_written == 12
    now = events.to_arrow(meta_columns=True).drop_columns(["_hoodie_file_name"])
    older = now.filter(pa.compute.not_equal(now["_hoodie_commit_time"], third.instant))
    order = [("_hoodie_record_key", "ascending")]
    assert older.sort_by(order) == before.sort_by(order)
    assert events.to_arrow(as_of=third.completion).num_rows == 12
    assert sorted(events.changes(third.instant).read_all()["x"].to_pylist()) == [-3, 3, 3]
    assert not events.changes(third.completion).read_all().num_rows
    assert events.cluster() == [], "one file is joined with nothing"


def test_they_are_sorted_by_columns_that_are_named(events: ArrowTable) -> None:
    events.cluster({"hoodie.clustering.plan.strategy.sort.columns": "x"})
    assert events.to_arrow(where="day = 'a'")["x"].to_pylist() == [-2, -1, 0, 0, 1, 2]


def test_maintenance_joins_them(events: ArrowTable) -> None:
    add(events, 3)
    assert [run.service for run in events.maintain().runs] == ["clustering"]
    assert files_of(events) == {"a": 1, "b": 1}


def test_what_was_overwritten_since_the_plan_is_left_alone_whole(events: ArrowTable) -> None:
    table = built_of(events)
    plan = table.plan_clustering("")
    assert plan is not None
    add(events, 3)
    events.overwrite(pa.table({"day": ["a"], "x": [7]}, schema=SCHEMA), partitions="touched")
    result = table.execute_clustering(plan)
    assert len(result.files) == 1 and files_of(events) == {"a": 1, "b": 2}
    assert rows_of(events) == Counter({("a", 7): 1, ("b", 0): 1, ("b", 1): 1, ("b", 2): 1, ("b", 3): 1})


@pytest.mark.parametrize(
    "point", ["begin.after_open", "write.before_rows", "mark.after", "commit.after_lock", "commit.after_check"]
)
def test_an_overwrite_does_not_lose_to_a_join_wherever_it_is(events: ArrowTable, point: str) -> None:
    joined: list[str] = []
    optimistic = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    overwriting, others = ArrowTable(events.path, {**OFF, **optimistic}), ArrowTable(events.path, OPTIONS)
    with meanwhile(
        lambda: joined.extend(run.outcome for run in add(others, 3, **{"lakelatch.rewrite.commits": "1"}).services),
        point,
    ):
        overwriting.overwrite(pa.table({"day": ["b"], "x": [7]}, schema=SCHEMA), partitions="touched")
    assert joined == [DONE]
    assert rows_of(events) == Counter(
        {("b", 7): 1, **{row: n for row, n in added(0, 1, 2, 3).items() if row[0] == "a"}}
    )


def test_a_join_that_nobody_asked_for_gives_way_whatever_options_say_of_clusterings(events: ArrowTable) -> None:
    never = {"lakelatch.service.cancellable": "false", "lakelatch.rewrite.commits": "1"}
    optimistic = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    overwriting, others = ArrowTable(events.path, {**OFF, **optimistic}), ArrowTable(events.path, {**OPTIONS, **never})
    with meanwhile(
        lambda: overwriting.overwrite(pa.table({"day": ["b"], "x": [7]}, schema=SCHEMA), partitions="touched"),
        "cluster.before_commit",
    ):
        add(others, 3)
    assert [row for row in rows_of(events) if row[0] == "b"] == [("b", 7)]


def test_a_file_that_was_called_off_keeps_its_neighbours(events: ArrowTable) -> None:
    table = built_of(events)
    plan = table.plan_clustering("")
    assert plan is not None
    groups = sorted(read_service_plan(table.storage, plan, CLUSTERING).groups)
    with meanwhile(lambda: request_cancel(table.manager(), plan, [groups[1]]), "cluster.before_commit"):
        table.execute_clustering(plan)
    assert groups[1][0] == "a" and files_of(events) == {"a": 3, "b": 1}
    assert rows_of(events) == added(0, 1, 2)


def test_a_plan_that_was_called_off_leaves_the_files(events: ArrowTable) -> None:
    table = built_of(events)
    plan = table.plan_clustering("")
    assert plan is not None and table.cancel(plan)
    assert files_of(events) == {"a": 3, "b": 3} and rows_of(events) == added(0, 1, 2)
    assert len(events.cluster()) == 1 and rows_of(events) == added(0, 1, 2)


def sized(*sizes_mb: float) -> list[Sized]:
    return [(ClusteringGroup("", str(at), "f", ()), int(size * MB)) for at, size in enumerate(sizes_mb)]


def test_files_are_joined_with_those_of_their_size() -> None:
    def sets(*sizes: float) -> list[list[float]]:
        return [[size / MB for _, size in found] for found in files_of_a_size(sized(*sizes))]

    assert sets(0.375, 0.5, 3, 0.75) == [], "three of a size"
    assert sets(0.375, 0.5, 3, 0.75, 0.25) == [[0.375, 0.5, 0.75, 0.25]]
    kb = 1 / 1024
    assert sets(9 * kb, 60 * kb, 64 * kb, 20 * kb, 30 * kb) == [[9 * kb, 60 * kb, 20 * kb, 30 * kb]]
    assert sets(20, 1, 3, 1, 40, 3, 2, 20, 20) == [[1, 3, 1, 3, 2], [20, 40, 20, 20]]
    assert sets(60, 60, 60, 60, 60) == [[60, 60], [60, 60]], "about 128 MB each"
    assert sets(64, 64, 64, 64) == []


@pytest.mark.parametrize("appended_kb", [5, 20, 100, 300, 3000])
def test_however_small_what_is_appended_a_row_is_written_anew_a_few_times(appended_kb: int) -> None:
    """With an append at a time, the most bytes that are written anew for each one that is appended."""
    files = [0.0]
    appended = written = 0.0
    while appended < 60:
        files.append(appended_kb / 1024)
        appended += files[-1]
        for found in files_of_a_size(sized(*files)):
            size = sum(size for _, size in found) / MB
            joined = {int(group.file_id) for group, _ in found}
            files = [one for at, one in enumerate(files) if at not in joined] + [size]
            written += size
            break
    assert written / appended < 9


def test_of_a_set_that_a_budget_does_not_hold_the_first_files_are_joined() -> None:
    def counts(*sizes: float) -> list[int]:
        return [len(first_within(found, 32 * MB)) for found in files_of_a_size(sized(*sizes))]

    assert counts(*[1.1] * 31) == [29] and counts(*[0.5] * 5) == [5]
    assert counts(*[9] * 4) == [3] and counts(*[15] * 4) == [2], "they are of the next tier then"
    assert counts(*[20] * 4) == [0]
    assert not first_within(sized(1, 1, 1, 1), 3 * MB), "they would be joined again"


def test_a_table_joins_as_much_as_a_days_budget_has_left(tmp_path: Path) -> None:
    table = ArrowTable(str(tmp_path / "events"), OFF)
    for _ in range(12):
        table.insert(pa.table({"day": ["a"], "x": pa.array([os.urandom(150_000)])}))
    budget = {"lakelatch.rewrite.daily.mb": "2", "lakelatch.rewrite.commits": "1"}
    small = pa.table({"day": ["b"], "x": [b"b"]})
    (run,) = ArrowTable(table.path, OPTIONS).insert(small, options=budget).services
    assert run.outcome == DONE and files_of(table) == {"a": 7, "b": 1}, "six of 150 KB are read and written"


@pytest.mark.usefixtures("one_day")
def test_overwrites_do_not_hide_what_a_day_has_come_to(events: ArrowTable) -> None:
    add(ArrowTable(events.path, OPTIONS), 3, **{"lakelatch.rewrite.commits": "1"})
    table = built_of(events)
    spent = spent_today(table.context(), CLUSTERING, Snapshot.load(table.storage))
    for _ in range(22):
        events.overwrite(pa.table({"day": ["c"], "x": [7]}, schema=SCHEMA), partitions="touched")
    assert spent and spent_today(table.context(), CLUSTERING, Snapshot.load(table.storage)) == spent
