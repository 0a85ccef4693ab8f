"""Writers go on in a bucket's live file group, whoever named it; the tables in `tests/data/shared` are Java Hudi's."""

from __future__ import annotations

import logging
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable, Row
from table import Writing, meanwhile

from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import CorruptTable, InvalidRequest, WriteConflict
from lakelatch.format.bucket_index import bucket_file_id, bucket_of_file_id, successor_file_id
from lakelatch.format.file_groups import two_of_one_bucket
from lakelatch.format.names import is_placeholder, parse_data_file
from lakelatch.format.slices.live_groups import LiveGroups
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.checksums import strip_checksum
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.instant import completed
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

SHARED = Path(__file__).parents[2] / "data" / "shared"
DRAWN = "9f3c-4c59-8d8f-0a4f8b1d2c3e-0"
OVERWRITE = "insert_overwrite"
Open = Callable[..., LiveTable]


@pytest.fixture
def open_shared(tmp_path: Path) -> Open:
    def opened(name: str, mode: str = OPTIMISTIC) -> LiveTable:
        with zipfile.ZipFile(SHARED / f"{name}.zip") as archive:
            archive.extractall(tmp_path)
        properties = tmp_path / name / PROPERTIES_PATH
        if "num.buckets" not in properties.read_text():
            properties.write_text(properties.read_text() + "hoodie.bucket.index.num.buckets=2\n")
        return LiveTable(tmp_path / name, mode=mode)

    return opened


def drawn(bucket: int) -> str:
    """A file id such as a single Java writer gives."""
    return f"{bucket:08d}-{DRAWN}"


def group_ids(table: LiveTable, partition: str) -> list[str]:
    return sorted(found.file_id for found in TableView.load(table.storage, table.opened.config).slices([partition]))


def java_commits(table: LiveTable, writing: Writing, bucket: int, name: Callable[[int], str] = drawn) -> str:
    """What a Java writer leaves that puts the bucket's rows of `writing` into a file group that it names itself."""
    last = table.manager().context.log.tail().time
    start, end = to_instant(to_ms(writing.instant) + 1), to_instant(to_ms(max(last, writing.instant)) + 2)
    file = f".{name(bucket)}_{start}.log.1_0-5-7"
    (ours,) = (report for report in writing.reports if bucket_of_file_id(report.file_id) == bucket)
    rows = strip_checksum(table.storage.read(f"p/{ours.file_name}")).replace(writing.instant.encode(), start.encode())
    table.storage.put(f"p/{file}", rows)
    stat = WriteStat("p", name(bucket), f"p/{file}", log_version=1, base_file="", log_files=(file,))
    metadata = CommitMetadata((stat,), "UPSERT", {"schema": table.opened.avro_schema})
    table.storage.put(completed(start, "deltacommit", end).path, metadata.to_avro())
    return start


def java_has_written(table: LiveTable, *buckets: int, rows: tuple[Row, ...] = ((1, 1, "java"), (2, 1, "java"))) -> None:
    writing = table.begin().put("p", rows)
    for bucket in buckets:
        java_commits(table, writing, bucket)
    writing.abort()


# -- tables of Java --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
@pytest.mark.parametrize("version", ["8", "9"])
def test_rows_go_into_the_groups_that_java_named(open_shared: Open, version: str, mode: str) -> None:
    table = open_shared(f"java_single_v{version}", mode)
    before = table.agreed()
    assert [(row[1], row[3]) for row in before if row[0] == "q"] == [(1, "k1"), (3, "k3"), (5, "j5"), (7, "j7")]
    (theirs,) = group_ids(table, "q")
    table.write([(1, 5, "ours"), (11, 5, "ours"), (12, 5, "ours")], "q")
    assert group_ids(table, "q") == [theirs, bucket_file_id(1)]
    expected = [("q", 1, 5, "ours"), ("q", 3, 2, "k3"), ("q", 5, 1, "j5"), ("q", 7, 1, "j7"), ("q", 11, 5, "ours")]
    assert table.agreed() == sorted([row for row in before if row[0] != "q"] + [*expected, ("q", 12, 5, "ours")])


def test_services_and_deletes_work_in_groups_that_java_named(open_shared: Open) -> None:
    table = open_shared("java_single_v9", NON_BLOCKING)
    (theirs,) = group_ids(table, "q")
    table.write([(1, 5, "ours")], "q")
    table.delete([(3, 6, "")], "q")
    plan = table.plan_logs()
    assert plan is not None
    table.execute_logs(plan)
    expected = [("q", 1, 5, "ours"), ("q", 5, 1, "j5"), ("q", 7, 1, "j7")]
    assert [row for row in table.agreed() if row[0] == "q"] == expected
    done = table.compact()
    assert done is not None and any(theirs in name for name in done.files)
    table.write([(5, 6, "ours")], "q")
    assert group_ids(table, "q") == [theirs]
    expected[1] = ("q", 5, 6, "ours")
    assert [row for row in table.agreed() if row[0] == "q"] == expected


def test_overwrites_take_away_groups_that_java_named(open_shared: Open) -> None:
    table = open_shared("java_single_v9", NON_BLOCKING)
    over = table.write([(2, 1, "over")], "q", OVERWRITE)
    assert over.file_groups_replaced == 1
    table.write([(1, 2, "ours")], "q")
    assert group_ids(table, "q") == [successor_file_id(bucket, over.instant) for bucket in (0, 1)]
    assert [row for row in table.agreed() if row[0] == "q"] == [("q", 1, 2, "ours"), ("q", 2, 1, "over")]


def test_a_writer_with_retries_takes_its_files_to_the_group_that_java_made(tmp_path: Path) -> None:
    """Its next try is a try like any other: it goes where the bucket's rows are now."""
    table = LiveTable(tmp_path / "t", mode=OPTIMISTIC)
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    java_commits(table, writer, 0)
    again = writer.loses_to_itself(table.begin())
    assert sorted(report.file_id for report in again.reports) == [drawn(0), bucket_file_id(1)]
    again.commit()
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b")]


# -- two engines make a bucket's first group -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
def test_a_first_group_that_another_engine_made_meanwhile_is_a_conflict(tmp_path: Path, mode: str) -> None:
    table = LiveTable(tmp_path / "t", mode=mode)
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    theirs = java_commits(table, writer, 0)
    conflict = writer.loses()
    assert conflict.winner == theirs and conflict.file_groups == [("p", bucket_file_id(0))]
    table.write([(1, 6, "A"), (2, 6, "B")])
    assert group_ids(table, "p") == [drawn(0), bucket_file_id(1)]
    assert [row[1:] for row in table.agreed() if row[1] != 2] == [(1, 6, "A")]


@pytest.mark.parametrize(("mode", "loses"), [(OPTIMISTIC, True), (NON_BLOCKING, False)])
def test_a_commit_into_the_group_that_both_write_is_as_any_other(tmp_path: Path, mode: str, loses: bool) -> None:
    table = LiveTable(tmp_path / "t", mode=mode)
    java_has_written(table, 0)
    writer = table.begin().put("p", [(1, 5, "a")])
    java_commits(table, writer, 0)
    if loses:
        with pytest.raises(WriteConflict):
            writer.commit()
        return
    writer.commit()
    assert group_ids(table, "p") == [drawn(0)] and (1, 5, "a") in [row[1:] for row in table.agreed()]


def test_a_failed_attempt_leaves_no_second_group(tmp_path: Path) -> None:
    """It wrote before Java made the bucket's group, and the attempt that counts after that."""
    table = LiveTable(tmp_path / "t", mode=NON_BLOCKING)
    writer = table.begin().put("p", [(1, 5, "a")])
    java_commits(table, writer, 0)
    writer.reports.clear()
    writer.put("p", [(1, 5, "a")], "0-0-1")
    assert [report.file_id for report in writer.reports] == [drawn(0)]
    writer.loses()
    assert group_ids(table, "p") == [drawn(0)]


@pytest.mark.parametrize("services", [False, True])
def test_two_live_groups_of_one_bucket_are_refused(tmp_path: Path, services: bool) -> None:
    table = LiveTable(tmp_path / "t")
    writing = table.begin().put("p", [(1, 5, "a")])
    java_commits(table, writing, 0)
    java_commits(table, writing, 0, lambda bucket: f"{bucket:08d}-1111-4c59-8d8f-0a4f8b1d2c3e-0")
    writing.abort()
    before = sorted(table.storage.walk("p"))
    message = r"bucket 0 of the partition 'p' .* two live file groups, 00000000-1111-.* and 00000000-9f3c-.*rollback"
    with pytest.raises(CorruptTable, match=message):
        table.plan() if services else table.read()
    with pytest.raises(CorruptTable, match=message):
        table.begin().put("p", [(1, 6, "b")])
    assert sorted(table.storage.walk("p")) == before and len(table.by_hudi_rs()) == 2
    table.write([(1, 6, "other")], "q")  # the rest of the table is well


def test_a_group_of_tombstones_is_no_second_one(tmp_path: Path) -> None:
    """What a relocated write leaves in a bucket that had no file when its partition was replaced."""
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "old")])
    writer = table.begin().put("p", [(2, 5, "b")])
    over = table.drop("p")
    writer.commit()
    assert set(group_ids(table, "p")) == {successor_file_id(bucket, over.instant) for bucket in (0, 1)}


def test_a_relocated_write_joins_what_came_before_it(tmp_path: Path) -> None:
    """Its bucket had no file when its partition was replaced, and another write has made the first one since."""
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "old")])
    writer = table.begin().put("p", [(2, 5, "b"), (4, 5, "b")])
    over = table.drop("p")
    table.write([(2, 6, "B")])
    writer.commit()
    assert table.agreed() == [("p", 2, 6, "B"), ("p", 4, 5, "b")]
    assert successor_file_id(1, over.instant) in group_ids(table, "p")


@pytest.mark.parametrize("stranger", ["0000000a-9f3c-4c59-8d8f-0a4f8b1d2c3e-0", drawn(2)])
def test_groups_of_another_index_are_not_written_beside(tmp_path: Path, stranger: str) -> None:
    table = LiveTable(tmp_path / "t")
    writing = table.begin().put("p", [(1, 5, "a")])
    java_commits(table, writing, 0, lambda _: stranger)
    writing.abort()
    with pytest.raises(InvalidRequest, match=f"2 buckets, and the file group {stranger} .* another index"):
        table.write([(1, 6, "b")])
    assert table.agreed() == [("p", 1, 5, "a")]


def test_what_has_not_committed_is_no_live_group(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a")], "q")
    (written,) = table.storage.list("q").files[:1] or [""]
    file = next(name for name in table.storage.list("q").files if parse_data_file(name) is not None)
    table.storage.put(f"p/.{drawn(0)}_20990101000000000.log.1_0-0-0", table.storage.read(f"q/{file}"))
    table.write([(1, 5, "b")])
    assert written and group_ids(table, "p") == [bucket_file_id(0)]


def watched_groups(table: LiveTable) -> tuple[LiveGroups, list[str]]:
    """As a task of a write that begins now has them, and what they will ask the storage for."""
    calls: list[str] = []
    watched = FaultyStorage(table.storage, before=lambda operation, path: calls.append(f"{operation} {path}"))
    task = pickle.loads(pickle.dumps(table.begin().task()))
    return LiveGroups(watched, table.opened.config, task.file_ids), calls


def test_a_table_that_only_we_write_pays_one_listing_of_each_partition(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a"), (2, 1, "b")])
    groups, calls = watched_groups(table)
    assert [groups.of("p", bucket) for bucket in (0, 1, 0)] == [bucket_file_id(bucket) for bucket in (0, 1, 0)]
    assert groups.of("new", 1) == bucket_file_id(1) and calls == ["list p", "list new"]


def test_a_partition_that_we_overwrote_costs_no_more(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")  # replaced file groups stay until a clean takes them
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(1, 2, "over")], operation=OVERWRITE)
    over = table.write([(1, 3, "over")], operation=OVERWRITE)
    table.write([(2, 3, "more")])
    groups, calls = watched_groups(table)
    assert [groups.of("p", bucket) for bucket in (0, 1)] == [successor_file_id(n, over.instant) for n in (0, 1)]
    assert calls == ["list p"]


def test_a_partition_with_tombstones_of_a_cancelled_clustering_costs_no_more(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", mode=NON_BLOCKING)
    table.write([(1, 1, "a"), (2, 1, "b")])
    plan = table.plan_clustering("v", {}) or ""
    assert table.cancel(plan) and any(plan in name for name in table.storage.list("p").files)
    groups, calls = watched_groups(table)
    assert [groups.of("p", bucket) for bucket in (0, 1)] == [bucket_file_id(0), bucket_file_id(1)]
    assert calls == ["list p"]


def test_log_compactions_are_looked_up_only_where_there_are_files_of_them(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", mode=NON_BLOCKING)
    for partition in ("p", "p", "q"):
        table.write([(1, 1, "a")], partition)
    plan = table.plan_logs()
    assert plan is not None
    table.execute_logs(plan)
    calls: list[str] = []
    watched = FaultyStorage(table.storage, before=lambda operation, path: calls.append(f"{operation} {path}"))
    view = TableView.load(watched, table.opened.config)
    assert len(view.slices(["q"])) == 1 and not [one for one in calls if one.startswith("read") and plan in one]
    assert len(view.slices(["p"])) == 1 and [one for one in calls if one.startswith("read") and plan in one]


@pytest.mark.parametrize(
    ("count", "ids", "expected"),
    [
        (2, [bucket_file_id(0), bucket_file_id(1)], None),
        (2, [bucket_file_id(0), drawn(1), drawn(0)], (bucket_file_id(0), drawn(0))),
        (None, [drawn(0), bucket_file_id(0)], (drawn(0), bucket_file_id(0))),
        (None, [drawn(0), drawn(0)[:-1] + "1"], None),  # what one Java task draws under another index
        (None, [drawn(0), bucket_file_id(0), "6e1d5cc4-c487-487d-abbe-fe9b30b1c0cc-0"], None),
    ],
)
def test_twins(count: int | None, ids: list[str], expected: tuple[str, str] | None) -> None:
    assert two_of_one_bucket(ids, count) == expected


# -- after a replace commit ------------------------------------------------------------------------------------------


def test_rows_that_java_wrote_to_a_replaced_group_are_hidden_from_all(
    open_shared: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """A deletion of partitions of an older version left nothing behind, and a non-blocking Java writer came after."""
    table = open_shared("rows_in_a_replaced_group")
    with caplog.at_level(logging.WARNING, "lakelatch.format"):
        assert table.agreed() == [("q", 7, 1, "o7"), ("q", 8, 1, "o8")]
    assert f"wrote to the file group {bucket_file_id(0)}" in caplog.text and "after it was replaced" in caplog.text


def test_after_a_deletion_java_goes_on_in_the_groups_that_it_left(open_shared: Open) -> None:
    """A non-blocking Java writer, which gives a bucket without a live file group the fixed file id."""
    table = open_shared("deleted_then_java", NON_BLOCKING)
    written = [(part, key, 6, f"m{key}") for part in "pq" for key in (1, 2, 3)]
    rest = [("r", key, 1, f"o{key}") for key in range(1, 7)]
    assert table.agreed() == [*written, *rest]
    groups = group_ids(table, "p")
    assert len(groups) == 2 and not set(groups) & {bucket_file_id(0), bucket_file_id(1)}
    table.write([(1, 9, "ours")])
    assert group_ids(table, "p") == groups
    assert table.agreed() == sorted([("p", 1, 9, "ours"), *written[1:], *rest])


def placeholders(table: LiveTable, *partitions: str) -> int:
    return sum(is_placeholder(name) for partition in partitions for name in table.storage.list(partition).files)


def test_each_replaced_bucket_has_a_successor(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(1, 1, "a"), (2, 1, "b")], "q")
    dropped = table.drop("p")
    over = table.write([(1, 2, "over")], "q", OVERWRITE)
    assert group_ids(table, "p") == [successor_file_id(bucket, dropped.instant) for bucket in (0, 1)]
    assert group_ids(table, "q") == [successor_file_id(bucket, over.instant) for bucket in (0, 1)]
    assert placeholders(table, "p", "q") == 3 and dropped.files == () and len(over.files) == 1
    assert [found.partition for found in plan_read(str(table.root)).slices] == ["q"]  # nobody has to read them,
    assert table.agreed() == [("q", 1, 2, "over")]
    done = table.compact()
    assert done is not None and len(done.files) == 1  # nor to compact them


def test_partitions_that_hold_nothing_are_not_replaced_again(tmp_path: Path) -> None:
    """A table whose rows move on to a new partition each day: what it pays for the old ones does not add up."""
    table = LiveTable(tmp_path / "t")
    for day in range(4):
        both = [(1, day, "a"), (2, day, "b")]
        over = table.write(both, f"day{day}", "insert_overwrite_table")
        assert over.file_groups_replaced == placeholders(table, f"day{day - 1}") == (2 if day else 0)
        assert len(plan_read(str(table.root)).slices) == 2
    assert table.drop("*").file_groups_replaced == 2
    again = table.drop("*")
    assert again.file_groups_replaced == 0 and not again.files
    table.write([(1, 9, "late")], "day1")
    assert table.agreed() == [("day1", 1, 9, "late")]
    assert table.drop("day*").file_groups_replaced == 2 and table.agreed() == []
    assert table.write([(1, 0, "over")], "day1", OVERWRITE).file_groups_replaced == 2
    assert table.agreed() == [("day1", 1, 0, "over")]


def test_rows_that_come_into_an_empty_partition_in_the_last_moment_are_taken_away(
    tmp_path: Path,
) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a"), (2, 1, "b")])
    dropped = table.drop("p")
    late = table.begin().put("p", [(2, 9, "late")])
    over_all = table.begin("insert_overwrite_table").put("q", [(1, 5, "over")])
    with meanwhile(lambda: table.write([(1, 9, "meanwhile")]), "close.after"):  # it has looked what there is
        over = over_all.commit()
    assert over.file_groups_replaced == 2 and table.agreed() == [("q", 1, 5, "over")]
    late.commit()
    assert table.agreed() == [("p", 2, 9, "late"), ("q", 1, 5, "over")]
    assert successor_file_id(1, dropped.instant) not in group_ids(table, "p")


def test_a_bucket_that_came_while_an_overwrite_was_under_way_has_a_successor(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    over = table.begin(OVERWRITE).put("p", [(1, 5, "over")])
    table.write([(2, 9, "meanwhile")])
    done = over.commit()
    assert done.file_groups_replaced == 1 and placeholders(table, "p") == 1
    assert group_ids(table, "p") == [successor_file_id(bucket, done.instant) for bucket in (0, 1)]
    table.write([(2, 1, "later")])
    assert table.agreed() == [("p", 1, 5, "over"), ("p", 2, 1, "later")]


def test_an_overwrite_that_loses_leaves_no_successors(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", mode=OPTIMISTIC)
    table.write([(1, 1, "a"), (2, 1, "b")])
    over = table.begin("delete_partition")
    table.write([(1, 2, "first")])
    over.loses(["p"])
    assert group_ids(table, "p") == [bucket_file_id(0), bucket_file_id(1)]
    for name in table.storage.list("p").files:
        assert not is_placeholder(name) or table.storage.stat(f"p/{name}").size_bytes == 0
    assert table.agreed() == [("p", 1, 2, "first"), ("p", 2, 1, "b")]
