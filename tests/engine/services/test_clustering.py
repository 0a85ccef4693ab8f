"""Clustering: the rows stay the same for every reader, sorted, in the next file group of their bucket."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from clustered import ROWS, done, live, made, planned
from grouped_table import A, D, GroupedTable
from live_table import LiveTable, rows_since
from table import stops_at

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.service import ServiceContext, waiting
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest
from lakelatch.format.bucket_index import successor_file_id
from lakelatch.format.names import BASE_TOKEN, NO_TASK, token_within
from lakelatch.timeline.actions import CLUSTERING


def test_rows_are_sorted_in_the_bucket_s_next_file_group(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = table.agreed()
    result = done(table.cluster())
    assert table.agreed() == before
    assert result.operation == "cluster" and result.rows_written == 40 and result.file_groups_replaced == 2
    assert live(table) == {bucket: successor_file_id(bucket, result.instant) for bucket in (0, 1)}
    for name in result.files:
        values = pq.read_table(table.root / "p" / name)["v"].to_pylist()
        assert values == sorted(values) and len(values) > 5


def test_what_is_sorted_already_is_not_planned_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    done(table.cluster())
    assert table.plan_clustering() is None
    assert table.plan_clustering("") is None  # by record key, as a compaction leaves it
    assert table.plan_clustering("v,id") is not None


def test_without_columns_only_logs_are_a_reason(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert done(table.cluster("")).rows_written == 40
    table.write([(0, 20, "w")])
    assert done(table.cluster("")).file_groups_replaced == 1
    assert table.agreed()[0] == ("p", 0, 20, "w")


def test_later_writes_go_on_in_the_new_file_groups_and_time_travel_reads_the_old_ones(tmp_path: Path) -> None:
    table = made(tmp_path)
    second = table.write([(0, 20, "w")])
    before = table.agreed()
    clustered = done(table.cluster())
    table.write([(0, 30, "x"), (1, 5, "older"), (99, 1, "new")])
    expected = [("p", 0, 30, "x"), *before[1:], ("p", 99, 1, "new")]
    assert table.agreed() == expected
    assert table.as_of(second.completion) == before and table.as_of(clustered.completion) == before
    assert table.since(second.completion) == [("p", 0, 30, "x"), ("p", 99, 1, "new")]
    done(table.compact())
    assert table.agreed() == expected
    done(table.cluster("id"))
    assert table.agreed() == expected


def test_a_window_before_the_clustering_has_its_rows_and_the_clustering_none(tmp_path: Path) -> None:
    table = made(tmp_path)
    first = table.write([(0, 20, "w")])
    second = table.write([(1, 20, "w")])
    clustered = done(table.cluster())
    assert table.since(first.completion) == [("p", 1, 20, "w")]
    assert table.since(first.completion, second.completion) == [("p", 1, 20, "w")]
    assert table.since(second.completion, clustered.completion) == []
    table.write([(0, 30, "x")])
    assert table.by_hudi_rs(rows_since(clustered.completion)) == table.since(clustered.completion)
    assert table.since(clustered.completion) == [("p", 0, 30, "x")]


def test_a_delete_that_was_carried_out_holds_for_rows_that_come_late(tmp_path: Path) -> None:
    table = made(tmp_path)
    late = table.begin().put("p", [(3, 15, "older than its delete"), (4, 25, "newer")])
    table.delete([(3, 20, ""), (4, 20, "")])
    done(table.cluster())
    late.commit()
    keys = {row[1]: row for row in table.agreed()}
    assert 3 not in keys and keys[4] == ("p", 4, 25, "newer")
    done(table.compact())
    assert table.agreed() == sorted(keys.values())


def test_tables_with_column_groups_are_clustered(tmp_path: Path) -> None:
    """Each column keeps its own winner, and deletes hold for the columns that come late."""
    table = GroupedTable(tmp_path / "t")
    ids = (1, 2, 3)
    table.write(D, *({"id": key, "dt": 10, "d": f"d{5 - key}", "e": key} for key in ids))
    table.write(A, *({"id": key, "at": 10, "a": "a"} for key in ids))
    late = table.begin().put_table(table.frame(A, [{"id": key, "at": 15, "a": "late"} for key in ids]))
    table.delete((*A,), {"id": 3, "at": 20})
    parsed = Call({"hoodie.clustering.plan.strategy.sort.columns": "d"}).services()
    opened = open_table(table.storage)
    before = table.read()
    plan = Clustering(parsed.clustering, parsed.cancellation).schedule(ServiceContext(opened, table.manager()))
    assert plan is not None
    Clustering().execute(ServiceContext(opened, table.manager()), plan)
    assert table.read() == before
    late.commit()
    rows = {row["id"]: row for row in table.read()}
    assert rows[1] == {"id": 1, "dt": 10, "d": "d4", "e": 1, "at": 15, "a": "late"}
    assert rows[3] == next(row for row in before if row["id"] == 3)
    table.compact()
    assert {row["id"]: row for row in table.read()} == rows


def test_a_clustering_that_failed_is_carried_out_by_the_next(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)
    with stops_at("cluster.before_commit"):
        table.execute_clustering(plan)
    before = table.agreed()
    files = {path for path in table.storage.walk("p") if plan in path}
    assert waiting(str(table.root), [CLUSTERING]) == [plan] and len(files) == 2
    table.execute_clustering(plan)
    assert table.agreed() == before and {path for path in table.storage.walk("p") if plan in path} == files


def test_files_under_other_names_of_an_executor_that_died_go_with_the_next(tmp_path: Path) -> None:
    """Earlier versions named them alike in every partition; hudi-rs refuses two base files of one instant."""
    table = made(tmp_path)
    plan = planned(table)
    with stops_at("cluster.before_commit"):
        table.execute_clustering(plan)
    before = table.agreed()
    made_by_now = {path for path in table.storage.walk("p") if plan in path}
    token = token_within("p", BASE_TOKEN)
    for path in made_by_now:
        (table.root / path).rename(table.root / path.replace(f"_{token}_", f"_{NO_TASK}_"))
    table.execute_clustering(plan)
    assert {path for path in table.storage.walk("p") if plan in path} == made_by_now
    assert table.agreed() == before


def test_row_groups_are_small_and_narrow(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(key, 1, f"{key * 7919 % 150_000:06d}") for key in range(150_000)])
    (name,) = done(table.cluster()).files
    file = pq.ParquetFile(table.root / "p" / name)
    column = file.schema_arrow.get_field_index("v")
    bounds = [file.metadata.row_group(i).column(column).statistics for i in range(file.num_row_groups)]
    assert len(bounds) == 3
    assert all(one.max < two.min for one, two in itertools.pairwise(bounds))


def test_the_partitions_that_options_name_are_clustered(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=1)
    for partition in ("q", "r"):
        table.write(ROWS[:5], partition)

    def partitions(**options: object) -> list[str]:
        plan = table.plan_clustering("v", {name.replace("__", "."): value for name, value in options.items()})
        result = table.execute_clustering(plan) if plan is not None else None
        files = result.files if result is not None else ()
        return sorted(path[0] for path in table.storage.walk("") if path.rpartition("/")[2] in files)

    mode, strategy = "hoodie.clustering.plan.partition.filter.mode", "hoodie.clustering.plan.strategy"
    assert partitions(**{f"{strategy}.partition.regex.pattern": "x|y"}) == []
    assert partitions(**{mode: "SELECTED_PARTITIONS", f"{strategy}.partition.selected": "q, x"}) == ["q"]
    recent = {mode: "RECENT_DAYS", f"{strategy}.daybased.lookback.partitions": 1}
    assert partitions(**recent) == ["r"]
    assert partitions(**{f"{strategy}.small.file.limit": 10}) == []
    assert partitions(**{"hoodie.clustering.inline.max.commits": 4}) == []
    assert partitions(**{f"{strategy}.max.num.groups": 1}) == ["p"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.bucket.index.num.buckets": 3}, "hoodie.bucket.index.num.buckets=3, and the table has 2"),
        ({"hoodie.clustering.plan.strategy.sort.columns": "nix"}, "the table's columns are id, ts, v, part"),
        ({"hoodie.layout.optimize.strategy": "z-order"}, "2 to 8 columns"),
        ({"hoodie.layout.optimize.strategy": "spiral"}, "is not supported"),
        ({"hoodie.clustering.plan.partition.filter.mode": "DAY_ROLLING"}, "is not supported"),
        ({"hoodie.clustering.plan.strategy.partition.regex.pattern": "("}, "no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, object], says: str) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidRequest, match=says.replace("(", r"\(")):
        table.plan_clustering(options=options)
