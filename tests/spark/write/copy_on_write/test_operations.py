"""Each operation on a copy-on-write table: what is read, and what lies in the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import calling
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.storage import LocalStorage
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.snapshot import Snapshot

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
PARTED = "id long, ts long, v string, part string"


def test_an_upsert_makes_the_next_base_file(make_cow: MakeTable, base_files: Callable[[str], list[str]]) -> None:
    table = make_cow(hoodie__bucket__index__num__buckets="1")
    first = table.write([(1, 10, "a"), (2, 10, "b")])
    second = table.write([(2, 9, "older"), (1, 11, "newer"), (3, 1, "new"), (3, 2, "newest")], local=False)

    assert table.read() == [(1, 11, "newer"), (2, 10, "b"), (3, 2, "newest")]
    assert table.read({"as.of.instant": first.completion}) == [(1, 10, "a"), (2, 10, "b")]
    assert (second.rows_written, second.deletes_written) == (3, 0)
    assert base_files(table.path) == sorted([*first.files, *second.files]) and len(second.files) == 1
    timeline = Snapshot.load(LocalStorage(table.path))
    assert {one.action for one in timeline.instants} == {"commit"}
    (stat,) = read_commit(LocalStorage(table.path), timeline.completed[-1]).stats
    assert (stat.previous_commit, stat.previous_base_file) == (first.instant, first.files[0])
    assert (stat.num_writes, stat.base_file, stat.log_files) == (3, None, None)
    assert stat.file_size_bytes == (Path(table.path) / second.files[0]).stat().st_size


def test_deletes_leave_nothing_behind(make_cow: MakeTable) -> None:
    table = make_cow()
    table.write([(key, 10, "a") for key in range(6)])
    result = table.operate("delete", [(1, 20), (7, 20)], "id long, ts long")
    assert result.deletes_written == 2
    table.operate("delete", [(2, 5)], "id long, ts long")  # older than its row
    flagged = table.write(
        [(3, 10, "x", True), (4, 10, "y", False)], "id long, ts long, v string, _hoodie_is_deleted boolean"
    )
    assert flagged.deletes_written == 1
    assert table.read() == [(0, 10, "a"), (2, 10, "a"), (4, 10, "y"), (5, 10, "a")]
    table.write([(1, 15, "again")])  # as in Hudi, nothing says that there was a newer delete
    table.operate("delete", [(key,) for key in (0, 2, 4, 5)], "id long")
    assert table.read() == [(1, 15, "again")]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_an_insert_of_a_known_key_updates_it(make_cow: MakeTable, operation: str) -> None:
    table = make_cow()
    table.write([(1, 10, "a"), (2, 10, "b")])
    table.operate(operation, [(1, 11, "c"), (3, 1, "d"), (3, 1, "e")])
    assert table.read() == [(1, 11, "c"), (2, 10, "b"), (3, 1, "e")]


def test_overwrites_and_deleted_partitions(make_cow: MakeTable, base_files: Callable[[str], list[str]]) -> None:
    table = make_cow(PARTED, partition="part")
    table.write([(key, 10, "a", "pq"[key % 2]) for key in range(6)])
    table.operate("insert_overwrite", [(0, 1, "over", "p")])
    assert table.read(None, "id", "v") == [(0, "over"), (1, "a"), (3, "a"), (5, "a")]
    table.write([(0, 2, "upon", "p"), (2, 1, "late", "p")])
    lakelatch.delete_partitions(table.path, "q", table.options)
    assert table.read(None, "id", "v") == [(0, "upon"), (2, "late")]
    table.write([(1, 1, "again", "q")])
    table.operate("insert_overwrite_table", [(9, 1, "all", "p")])
    assert table.read(None, "id", "v") == [(9, "all")]
    assert base_files(table.path)


def test_commit_time_ordering_and_a_schema_that_grows(make_cow: MakeTable) -> None:
    table = make_cow(ordering=None)
    table.write([(1, 10, "a"), (2, 10, "b")])
    table.write([(1, 9, "c", 7)], "id long, ts long, v string, n long", mergeSchema="true")
    assert table.read(None, "id", "ts", "v", "n") == [(1, 9, "c", 7), (2, 10, "b", None)]


def test_an_incremental_read_has_the_rows_of_its_commits(make_cow: MakeTable) -> None:
    table = make_cow()
    first = table.write([(key, 10, "a") for key in range(4)])
    table.write([(1, 11, "b"), (4, 11, "b")])
    since = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first.completion,
    }
    assert table.read(since, "id", "v") == [(1, "b"), (4, "b")]
    assert table.read({"hoodie.datasource.query.type": "read_optimized"}) == table.read()


def test_several_writers_fill_the_columns_of_one_row(make_cow: MakeTable) -> None:
    groups = "t1: a; t2: b"
    table = make_cow(
        "id long, t1 long, a string, t2 long, b string", ordering=None, lakelatch__table__column__groups=groups
    )
    table.write([(1, 5, "a5", 5, "b5"), (2, 5, "a5", None, None)])
    second = table.write([(1, 4, "a4"), (2, 6, "a6")], "id long, t1 long, a string")
    third = table.write([(1, 7, "b7"), (3, 1, "b1")], "id long, t2 long, b string")
    assert table.read() == [(1, 5, "a5", 7, "b7"), (2, 6, "a6", None, None), (3, None, None, 1, "b1")]
    since = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": second.completion,
    }
    assert table.read({**since, "hoodie.datasource.read.end.instanttime": third.completion}, "id") == [(1,), (3,)]


def test_a_bucket_s_rows_come_together_whatever_the_frame_looks_like(make_cow: MakeTable) -> None:
    table = make_cow(PARTED, partition="part", hoodie__bucket__index__num__buckets="5")
    frame = table.spark.range(3000).selectExpr("id", "id AS ts", "'a' AS v", "concat('p', id % 3) AS part")
    lakelatch.write(frame.repartition(7), table.path, {**table.options, "hoodie.upsert.shuffle.parallelism": "2"})
    lakelatch.write(frame.selectExpr("id", "ts", "'b' AS v", "part").repartition(3), table.path, table.options)
    read = lakelatch.read(table.spark, table.path)
    assert (read.count(), read.where("v = 'b'").count(), read.select("id").distinct().count()) == (3000, 3000, 3000)
    assert len(read.inputFiles()) == 15


def test_what_is_refused(make_cow: MakeTable, tree_hash: Callable[[str], dict[str, str]]) -> None:
    table = make_cow()
    table.write([(1, 10, "a")])
    before = tree_hash(table.path)
    with pytest.raises(InvalidRequest, match="MERGE_ON_READ, and 'trips' is COPY_ON_WRITE"):
        table.write([(1, 11, "b")], hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL")
    with pytest.raises(InvalidRequest, match="was made with COPY_ON_WRITE"):
        table.write([(1, 11, "b")], hoodie__table__type="MERGE_ON_READ")
    with pytest.raises(Exception, match=r"use lakelatch\.write|Use lakelatch\.write"):
        table.frame([(1, 11, "b")]).write.format("lakelatch").options(**table.options).mode("append").save(table.path)
    assert tree_hash(table.path) == before
    assert open_table(LocalStorage(table.path)).config.copies_on_write
    assert isinstance(parse_data_file(table.write([(2, 1, "c")]).files[0]), BaseFile)


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_insert_that_looks_which_keys_are_there(make_table: MakeTable, type_: str) -> None:
    drop, policy = "hoodie.datasource.write.insert.drop.duplicates", "hoodie.datasource.insert.dup.policy"
    table = make_table(hoodie__table__type=type_)
    table.options[drop] = "true"
    table.write([(1, 1, "a"), (2, 1, "b")])  # there is no table yet
    result = table.write([(2, 5, "x"), (3, 1, "c"), (3, 0, "older")], local=False, lakelatch__write__small__rows="0")
    assert (result.operation, result.rows_written, result.rows_skipped) == ("insert", 1, 2)
    assert table.read() == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
    del table.options[drop]

    insert = {"hoodie__datasource__write__operation": "insert", policy.replace(".", "__"): "fail"}
    with pytest.raises(InvalidRequest, match="the table has a row with id=3 already"):
        table.write([(3, 9, "y"), (4, 1, "d")], **insert)
    table.write([(4, 1, "d")], **insert)
    with pytest.raises(InvalidRequest, match="NON_BLOCKING_CONCURRENCY_CONTROL"):
        table.write([(5, 1, "e")], hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL", **insert)
    with pytest.raises(InvalidRequest, match="remove one"):
        table.write([(5, 1, "e")], **{drop.replace(".", "__"): "true"}, **insert)
    result = ArrowTable(table.path, {drop: "true"}).upsert(table.frame([(4, 9, "y"), (6, 1, "f")]).toArrow())
    assert (result.operation, result.rows_written, result.rows_skipped) == ("insert", 1, 1)
    with pytest.raises(InvalidRequest, match="id=4 already"):
        table.write([(4, 9, "y")], "ID long, ts long, v string", **insert)  # which is the column of the key as well
    with pytest.raises(InvalidRequest, match=r"lacks the column\(s\) id, v of the table"):
        table.write([(5, 1)], "other long, ts long", **insert)
    assert table.read() == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 1, "d"), (6, 1, "f")]


def test_a_key_that_another_writer_inserts_meanwhile_is_dropped(make_cow: MakeTable) -> None:
    table = make_cow(hoodie__bucket__index__num__buckets="1", hoodie__write__num__retries__on__conflict__failures="3")
    table.write([(1, 1, "a")])
    others = [lambda: table.write([(2, 1, "other")])]
    with calling(lambda _: others and others.pop()(), ["commit.after_lock"]):
        result = table.write(
            [(2, 9, "late"), (3, 1, "c")], local=False, hoodie__datasource__write__insert__drop__duplicates="true"
        )
    assert (result.conflicts_retried, result.rows_written) == (1, 1)
    assert table.read() == [(1, 1, "a"), (2, 1, "other"), (3, 1, "c")]
