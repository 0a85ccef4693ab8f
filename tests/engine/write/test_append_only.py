"""Tables without a record key: rows are added, by as many writers as there are, and none is found again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from table import BuiltTable, meanwhile

from lakelatch.engine.arrow import ArrowTable
from lakelatch.errors import InvalidRequest, InvariantBroken
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.names import parse_data_file
from lakelatch.storage import LocalStorage

PARTITION = "hoodie.datasource.write.partitionpath.field"
NO_KEY = {
    "hoodie.datasource.write.recordkey.field": "",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
ROWS = pa.table({"day": ["a", "b", "a"], "x": [1, 2, 1]})


@pytest.fixture(params=["", "day"], ids=["one folder", "partitions"])
def events(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowTable:
    return ArrowTable(str(tmp_path / "events"), {PARTITION: request.param} if request.param else {})


def rows_of(table: ArrowTable) -> Counter[tuple[str, int]]:
    return Counter((row["day"], row["x"]) for row in table.to_arrow().to_pylist())


def test_rows_are_added_even_if_they_are_there(events: ArrowTable) -> None:
    first = events.insert(ROWS)
    events.insert(ROWS.slice(0, 1))
    assert rows_of(events) == {("a", 1): 3, ("b", 2): 1}
    assert Counter(events.to_arrow(as_of=first.completion)["x"].to_pylist()) == {1: 2, 2: 1}
    assert events.changes(first.completion).read_all()["x"].to_pylist() == [1]
    images = events.changes(first.completion, images=True).read_all().to_pylist()
    assert [(one["op"], one["after"]["x"]) for one in images] == [("i", 1)]
    assert events.to_arrow(where="x = 2")["day"].to_pylist() == ["b"]


def test_each_row_has_a_key_of_its_own_as_automatic_keys_of_hudi_s(events: ArrowTable) -> None:
    written = [events.insert(ROWS).instant, events.insert(ROWS).instant]
    rows = events.to_arrow(meta_columns=True)
    keys = rows["_hoodie_record_key"].to_pylist()
    assert sorted(keys) == sorted(f"{instant}_0_{number}" for instant in written for number in range(3))
    assert keys == rows["_hoodie_commit_seqno"].to_pylist()


def test_files_are_of_no_bucket_and_of_one_commit(events: ArrowTable, tmp_path: Path) -> None:
    for _ in range(3):
        events.insert(ROWS)
    files = [parse_data_file(path.name) for path in tmp_path.rglob("*.parquet")]
    ids = [file.file_id for file in files if file is not None]
    assert len(ids) == len(set(ids)) >= 3 and all(bucket_of_file_id(one) is None for one in ids)


def test_writers_are_never_in_each_other_s_way(events: ArrowTable) -> None:
    events.insert(ROWS)
    other = ArrowTable(events.path)
    with meanwhile(lambda: other.insert(ROWS), "write.before_rows"):
        assert events.insert(ROWS).conflicts_retried == 0
    assert rows_of(events) == {("a", 1): 6, ("b", 2): 3}


def test_an_overwrite_meanwhile_leaves_what_is_added_after_it(events: ArrowTable) -> None:
    events.insert(ROWS)
    other = ArrowTable(events.path)
    with meanwhile(lambda: other.overwrite(pa.table({"day": ["a"], "x": [7]})), "write.before_rows"):
        events.insert(ROWS)
    assert rows_of(events) == {("a", 7): 1, ("a", 1): 2, ("b", 2): 1}


def test_all_attempts_at_a_task_make_one_file(tmp_path: Path) -> None:
    table = BuiltTable(LocalStorage(str(tmp_path / "t")), ROWS.schema, NO_KEY)
    writing = table.begin("insert").put_table(ROWS, "3-1-7")
    first = list(writing.reports)
    again = writing.put_table(ROWS, "3-2-9").reports[len(first) :]
    assert [report.file_name for report in again] == [report.file_name for report in first]
    writing.reports = first
    writing.commit()
    assert rows_of(ArrowTable(str(table.root))) == {("a", 1): 2, ("b", 2): 1}


def test_a_partition_that_comes_twice_ends_the_task(tmp_path: Path) -> None:
    table = BuiltTable(LocalStorage(str(tmp_path / "t")), ROWS.schema, {**NO_KEY, PARTITION: "day"})
    with pytest.raises(InvariantBroken, match="partition 'a' came after"):
        table.begin("insert").put_table(ROWS)


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda table: table.upsert(ROWS), "operation=upsert"),
        (lambda table: table.delete(ROWS), "operation=delete"),
        (lambda table: table.delete("x = 1"), "a deletion of rows"),
        (lambda table: table.update("x = 1", {"x": "2"}), "an update"),
        (lambda table: table.merge(ROWS), "a merge"),
        (lambda table: table.overwrite(ROWS, "x > 0"), "the overwrite of a condition"),
        (lambda table: table.insert(ROWS, if_exists="skip"), "insert.dup.policy=drop"),
        (lambda table: table.insert(ROWS.append_column("_hoodie_is_deleted", [[True] * 3])), "_hoodie_is_deleted"),
        (
            lambda table: table.insert(ROWS, options={"hoodie.datasource.write.recordkey.field": "x"}),
            "recordkey.field=x",
        ),
    ],
)
def test_what_finds_rows_by_keys_is_refused(
    events: ArrowTable, change: Callable[[ArrowTable], object], what: str
) -> None:
    events.insert(ROWS)
    with pytest.raises(InvalidRequest, match=what):
        change(events)
    assert rows_of(events) == {("a", 1): 2, ("b", 2): 1}


@pytest.mark.parametrize(
    "more",
    [
        {"hoodie.datasource.write.precombine.field": "x"},
        {"hoodie.bucket.index.num.buckets": 4},
        {"hoodie.datasource.write.table.type": "MERGE_ON_READ"},
        {"hoodie.datasource.write.insert.drop.duplicates": "true"},
        {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
    ],
)
def test_a_key_that_was_forgotten_is_asked_for(tmp_path: Path, more: dict[str, object]) -> None:
    path = tmp_path / "events"
    with pytest.raises(InvalidRequest, match=r"needs hoodie\.datasource\.write\.recordkey\.field"):
        ArrowTable.create(str(path), ROWS.schema, key=None, options=more)
    assert not (path / ".hoodie/hoodie.properties").exists()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "CUSTOM"])
def test_folders_of_times_need_no_key(tmp_path: Path, kind: str) -> None:
    options = {
        PARTITION: "at" if kind == "TIMESTAMP" else "at:TIMESTAMP",
        "hoodie.datasource.write.keygenerator.type": kind,
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.timezone": "UTC",
    }
    table = ArrowTable(str(tmp_path / "events"), options)
    for _ in range(2):
        table.insert(pa.table({"at": [0, 86_400_000, 1], "x": [1, 2, 3]}))
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    assert {path.name for path in (tmp_path / "events").glob("19*")} == {"1970-01-01", "1970-01-02"}


def test_a_flag_that_deletes_has_nothing_to_delete(tmp_path: Path) -> None:
    flagged = ROWS.append_column("_hoodie_is_deleted", [[False, False, True]])
    with pytest.raises(InvalidRequest, match="deletes rows by their keys"):
        ArrowTable(str(tmp_path / "events")).insert(flagged)
    assert not (tmp_path / "events/.hoodie/hoodie.properties").exists()
