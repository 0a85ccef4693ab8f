"""Rollback of a completed commit and restore: what is left afterwards, what is refused, and both readers agree."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from archiver import Archiver
from clean_files import clean_metadata, clean_plan
from live_table import LiveTable
from taken_back_table import new_table, one_of_each, rows

from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.snapshot import Snapshot

LAST = 9


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return new_table(tmp_path)


def test_each_kind_of_commit_is_rolled_back_as_the_latest_one(table: LiveTable) -> None:
    """Newest first, down to the first one: the table is each time as it was."""
    history = one_of_each(table)
    for (_, _, before), (what, instant, _) in reversed(list(pairwise(history))):
        undone = table.roll_back(instant)
        assert table.agreed() == before, what
        assert undone.undone == (instant,) and undone.instant > instant
        assert not any(name.startswith(instant) for name in table.timeline())
        assert table.data_files(instant) == [] and table.nothing_pending(), what
    table.write(rows(3, 9, "z"))
    assert len(table.agreed()) == 8


@pytest.mark.parametrize("back_to", range(LAST + 1))
def test_a_restore_goes_back_to_each_commit_and_the_table_is_written_on(table: LiveTable, back_to: int) -> None:
    history = one_of_each(table)
    _, to, then = history[back_to]
    undone = table.restore(to)
    assert table.agreed() == then
    assert undone.undone == tuple(instant for _, instant, _ in reversed(history[back_to + 1 :]))
    for instant in undone.undone:
        assert not any(name.startswith(instant) for name in table.timeline()) and table.data_files(instant) == []
    assert table.nothing_pending()
    later = table.write(rows(9, 20, "n"))
    assert later.instant > undone.instant > history[-1][1]
    assert len(table.agreed()) == 9
    table.compact()
    table.write(rows(2, 21, "o"), operation="insert_overwrite")
    assert [row[3] for row in table.agreed()] == ["o0", "o1"]


def test_a_restore_to_a_savepoint_keeps_it(table: LiveTable) -> None:
    kept = table.write(rows(4, 1, "a"))
    then = table.agreed()
    made = table.savepoint(kept.instant)
    table.write(rows(4, 2, "b"))
    table.restore(kept.instant)
    assert table.agreed() == then and table.savepoints() == [made]
    table.write(rows(4, 3, "c"))
    table.restore(kept.instant)
    assert table.agreed() == then


def test_plans_that_were_made_later_go_and_older_ones_stay(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    older = table.plan()
    to = table.write(rows(4, 2, "b"))
    table.write(rows(2, 3, "c"), partition="q")
    later = table.plan()
    assert older is not None and later is not None
    undone = table.restore(to.instant)
    assert undone.undone[0] == later
    assert {name for name in table.timeline() if "compaction" in name} == {f"{older}.compaction.requested"}
    table.execute(older)
    assert [row[3] for row in table.agreed()] == ["b0", "b1", "b2", "b3"]


def test_a_log_compaction_that_is_undone_takes_its_file_with_it(table: LiveTable) -> None:
    """The file has the name of a run that is still there: hudi-rs would read rows of undone writes in it."""
    to = table.write(rows(4, 1, "a"))
    waiting = table.begin()  # requested before, and completed after
    waiting.put("p", rows(4, 5, "x"))
    table.write(rows(4, 2, "b"))
    waiting.commit()
    made = table.compact_logs()
    assert made is not None
    table.restore(to.instant)
    assert not any("2147483646" in path for path in table.storage.walk("p"))
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"] and made.instant
    table.write(rows(4, 3, "c"))
    table.compact_logs()
    assert [row[3] for row in table.agreed()] == ["c0", "c1", "c2", "c3"]


def test_a_rollback_leaves_later_commits_of_other_file_groups(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    table.write(rows(4, 1, "a"), partition="q")
    bad = table.write(rows(4, 2, "b"))
    table.write(rows(4, 2, "c"), partition="q")
    table.roll_back(bad.instant)
    assert {row[3][0] for row in table.agreed() if row[0] == "p"} == {"a"}
    assert {row[3][0] for row in table.read() if row[0] == "q"} == {"c"}


def test_a_rollback_of_what_others_build_on_is_refused_by_name(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    later = table.write(rows(4, 2, "b"))
    with pytest.raises(InvalidRequest, match=f"{later.instant} completed after .* builds on"):
        table.roll_back(first.instant)
    plan = table.plan()
    with pytest.raises(InvalidRequest, match=f"compaction {plan} is planned"):
        table.roll_back(later.instant)
    assert plan is not None
    table.execute(plan)
    with pytest.raises(InvalidRequest, match=f"commit {plan} completed after"):
        table.roll_back(later.instant)
    assert [row[3] for row in table.agreed()] == ["b0", "b1", "b2", "b3"]


def test_an_overwrite_moves_all_buckets_of_its_partition_so_later_writes_build_on_it(table: LiveTable) -> None:
    """Also a write to a bucket in which the overwrite has no file: without it, its file id is no other's successor."""
    in_first = bucket_of(table, 1, "probe1")
    other = next(key for key in range(2, 99) if bucket_of(table, key, f"probe{key}") != in_first)
    overwrite = table.write([(1, 1, "a")], operation="insert_overwrite")
    later = table.write([(other, 2, "b")])
    with pytest.raises(InvalidRequest, match=later.instant):
        table.roll_back(overwrite.instant)


def bucket_of(table: LiveTable, key: int, partition: str) -> str:
    table.write([(key, 1, "x")], partition=partition)
    (path,) = (path for path in table.storage.walk(partition) if ".log." in path)
    return path.rpartition("/")[2][1:9]


def test_a_log_compaction_is_not_planned_over_a_name_that_is_taken(table: LiveTable) -> None:
    """One that was undone, or called off, may come too late with its file, or have left a tombstone there."""
    table.write([(1, 1, "a")])
    table.write([(1, 2, "b")])
    made = table.compact_logs()
    assert made is not None
    (path,) = (path for path in table.storage.walk("p") if "2147483646" in path)
    late = table.storage.read(path)
    table.roll_back(made.instant)
    assert not table.storage.exists(path)
    table.storage.put(path, late)
    assert table.plan_logs() is None
    table.write([(1, 3, "c")])
    table.compact_logs()
    assert [row[3] for row in table.agreed()] == ["c"]


def test_what_a_savepoint_keeps_is_neither_rolled_back_nor_restored_away(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    kept = table.write(rows(4, 2, "b"))
    table.savepoint(kept.instant)
    with pytest.raises(InvalidRequest, match=f"a savepoint keeps deltacommit {kept.instant}"):
        table.roll_back(kept.instant)
    with pytest.raises(InvalidRequest, match=f"a savepoint keeps deltacommit {kept.instant}"):
        table.restore(first.instant)
    table.delete_savepoint(kept.instant)
    table.restore(first.instant)
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"]


def test_a_commit_that_a_later_savepoint_includes_is_not_rolled_back(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    included = table.write(rows(4, 2, "b"))
    kept = table.write(rows(4, 3, "c"), partition="q")
    table.savepoint(kept.instant)
    with pytest.raises(InvalidRequest, match=f"a savepoint keeps deltacommit {kept.instant}"):
        table.roll_back(included.instant)
    later = table.write(rows(4, 4, "d"), partition="r")
    table.roll_back(later.instant)
    table.delete_savepoint(kept.instant)
    table.roll_back(included.instant)
    assert {row[3][0] for row in table.agreed() if row[0] == "p"} == {"a"}


def test_a_restore_to_what_is_no_completed_commit_is_refused_by_name(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    pending = table.begin().instant
    for to, why in ((pending, "has not completed"), ("20200101000000000", "no completed commit")):
        with pytest.raises(InvalidRequest, match=why):
            table.restore(to)
        with pytest.raises(InvalidRequest, match=why):
            table.roll_back(to)


def test_what_an_archiver_that_died_has_archived_is_not_undone(table: LiveTable) -> None:
    """It is in the history, where every reader counts it, and its files are on the timeline still."""
    first, second = table.write(rows(4, 1, "a")), table.write(rows(4, 2, "b"))
    archiver, timeline = Archiver(table.storage), Snapshot.load(table.storage)
    archiver.add_version([archiver.put_level_file([archiver._row(one, timeline) for one in timeline.completed])])
    before = table.agreed()
    with pytest.raises(InvalidRequest, match=f"{second.instant} was archived"):
        table.roll_back(second.instant)
    with pytest.raises(InvalidRequest, match=f"{second.instant} was archived"):
        table.restore(first.instant)
    assert table.agreed() == before and table.nothing_pending()


def test_a_restore_to_or_past_what_was_archived_is_refused_by_name(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    early = table.begin()  # completes late, and is the oldest of all that an archiver sees after the first
    second = table.write(rows(4, 2, "b"))
    early.put("p", rows(4, 3, "c")).commit()
    table.write(rows(4, 4, "d"))
    Archiver(table.storage).archive([first.instant, early.instant])
    with pytest.raises(InvalidRequest, match=f"{first.instant} was archived"):
        table.restore(first.instant)
    with pytest.raises(InvalidRequest, match=f"{early.instant} was archived"):
        table.restore(second.instant)


def test_a_restore_to_what_was_cleaned_is_refused_by_name(table: LiveTable) -> None:
    to = table.write(rows(4, 1, "a"))
    table.compact()
    table.write(rows(4, 2, "b"))
    table.compact()
    gone = table.data_files(to.instant)
    for path in gone:
        table.storage.delete(path)
    clean = table.begin().instant
    table.storage.put(inflight(clean, "clean").path, b"")
    table.storage.put(completed(clean, "clean", to_instant(to_ms(clean) + 1)).path, clean_metadata(clean, gone))
    with pytest.raises(InvalidRequest, match=f"which the clean {clean} has removed"):
        table.restore(to.instant)


def test_a_clean_that_has_been_planned_is_waited_for(table: LiveTable) -> None:
    to = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    clean = table.begin().instant
    table.storage.put(requested(clean, "clean").path, clean_plan(table.data_files(to.instant)).to_avro(str(table.root)))
    with pytest.raises(InvalidRequest, match=f"the clean {clean} has been planned"):
        table.restore(to.instant)
    with pytest.raises(InvalidRequest, match=f"the clean {clean} is about to remove"):
        table.savepoint(to.instant)
