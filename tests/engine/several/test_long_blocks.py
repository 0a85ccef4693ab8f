"""Blocks that stay open while others commit more than a log keeps: they commit, or end for a reason of rows."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, rows, values

import lakelatch
from lakelatch.errors import WriteConflict
from lakelatch.timeline.log.commit_log import SLOTS_KEPT

NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
IN_PARTITIONS = {"hoodie.datasource.write.partitionpath.field": "at"}  # rows of another partition are in nobody's way
ARCHIVING = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "lakelatch.archive.minimum.age.seconds": "0",
}
CLEANING = {"hoodie.cleaner.commits.retained": "1"}
COMMITS = 2 * SLOTS_KEPT + 8
THEIRS, OURS = 9, 1  # partitions
MODES = {"optimistic": OPTIMISTIC, "non-blocking": NON_BLOCKING}


def others_commit(tables: Tables, clashing: int | None = None, archives: bool = False, cleans: bool = False) -> None:
    """More commits to the first table than its log keeps, of which one may be to our partition.

    If it `archives`, it is also compacted in between.
    """

    def commit() -> None:
        table = lakelatch.open(tables.paths[0], OPTIMISTIC)
        for number in range(COMMITS):
            tables.write(0, {100: number}, OURS if number == clashing else THEIRS)
            if archives and number % (COMMITS // 3) == COMMITS // 4:
                table.compact()
                lakelatch.archive(table.path, ARCHIVING)
        if cleans:
            table.compact()
            lakelatch.open(table.path, {**OPTIMISTIC, **CLEANING}).clean()

    others = Thread(target=commit)
    others.start()
    others.join()
    assert tables.log(0).tail().watermark >= SLOTS_KEPT, "the log still has all of it"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path, options=IN_PARTITIONS)


@pytest.mark.parametrize("mode", MODES)
def test_a_block_commits_other_rows_than_so_many_commits_since_its_read(tables: Tables, mode: str) -> None:
    with lakelatch.transaction(tables.paths, MODES[mode]) as tx:
        assert values(tx.to_arrow(tables.paths[0])) == FIRST
        others_commit(tables)
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, OURS))
    assert tables.now() == [{1: 11, 2: 20, 100: COMMITS - 1}, {1: 11, 2: 20}]


def test_what_was_archived_since_is_not_in_its_way_either(tables: Tables) -> None:
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        assert values(tx.to_arrow(tables.paths[0])) == FIRST
        others_commit(tables, archives=True)
        tx.upsert(tables.paths[0], rows({1: 11}, OURS))
    assert tables.now()[0] == {1: 11, 2: 20, 100: COMMITS - 1}


@pytest.mark.parametrize("archives", [False, True], ids=["on the timeline", "archived"])
def test_a_commit_to_its_file_group_that_no_slot_has_any_more_is_in_its_way(tables: Tables, archives: bool) -> None:
    """One of the first after the read, of which the log says nothing any more."""
    block = lakelatch.transaction(tables.paths, OPTIMISTIC)
    with pytest.raises(WriteConflict, match="lost to deltacommit"), block as tx:
        tx.to_arrow(tables.paths[1])
        others_commit(tables, clashing=3, archives=archives)
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, OURS))
    assert tables.now()[1] == FIRST


def test_so_is_one_that_was_archived_while_its_slot_is_left_where_nothing_was_there_before(tmp_path: Path) -> None:
    """No name that the block has seen has left the timeline, since it has seen none."""
    path = str(tmp_path / "empty")
    lakelatch.ArrowTable.create(
        path, "id long, v long, at long", key="id", ordering="at", partition_by="at", options=OPTIMISTIC
    )

    def commit() -> None:
        table = lakelatch.open(path, OPTIMISTIC)
        for number, partition in enumerate((OURS, THEIRS, THEIRS, THEIRS)):
            table.upsert(rows({1: 7 + number}, partition))
        table.compact()
        for number in range(3):
            table.upsert(rows({1: number}, THEIRS))
        assert len(lakelatch.archive(path, ARCHIVING).instants) > 1

    others = Thread(target=commit)
    with pytest.raises(WriteConflict, match="lost to deltacommit"), lakelatch.transaction([path], OPTIMISTIC) as tx:
        assert values(tx.to_arrow(path)) == {}
        others.start()
        others.join()
        tx.upsert(path, rows({1: 11}, OURS))


@pytest.mark.parametrize(
    ("mode", "written"), [("optimistic", False), ("non-blocking", True)], ids=["only read", "written"]
)
def test_what_a_serializable_block_has_read_and_others_have_written_is_a_conflict(
    tables: Tables, mode: str, written: bool
) -> None:
    block = lakelatch.transaction(tables.paths, MODES[mode], isolation="serializable")
    with pytest.raises(WriteConflict, match="lost to deltacommit"), block as tx:
        tx.to_arrow(tables.paths[0])
        others_commit(tables)
        for path in tables.paths[0 if written else 1 :]:
            tx.upsert(path, rows({1: 11}, OURS))
    assert tables.now()[1] == FIRST


def test_a_moment_of_which_a_clean_has_removed_files_is_not_readable_and_says_what_to_set(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 1)
    (path,) = tables.paths
    block = lakelatch.transaction([path], NON_BLOCKING)
    told = r"no longer readable.*hoodie\.cleaner\.commits\.retained"
    with pytest.raises(WriteConflict, match=told) as raised, block as tx:
        assert values(tx.to_arrow(path)) == FIRST
        others_commit(tables, cleans=True)
        tx.to_arrow(path)
    assert path in str(raised.value) and tables.now() == [{**FIRST, 100: COMMITS - 1}]
