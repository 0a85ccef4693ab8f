"""Savepoints: what they keep, what they refuse, and that there is one or none after a crash at any step."""

from __future__ import annotations

from pathlib import Path

import pytest
from clean_files import clean_metadata
from live_table import LiveTable
from taken_back_table import new_table, rows

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, InvalidRequest, LakelatchError
from lakelatch.failpoints import FailpointHit
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.plans.savepoint import SavepointMetadata

STEPS = ("savepoint.after_inflight", "commit.before_slot", "commit.after_slot", "commit.after_projection")


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return new_table(tmp_path)


def test_it_keeps_the_files_of_the_table_as_it_was(table: LiveTable) -> None:
    table.write(rows(8, 1, "a"))
    kept = table.write(rows(4, 2, "b"))
    there = {path for path in table.storage.walk("p") if not path.endswith(".hoodie_partition_metadata")}
    table.write(rows(2, 3, "c"))
    made = table.savepoint(kept.instant, "before the migration")
    assert table.savepoints() == [made]
    assert (made.instant, made.comment, made.files) == (kept.instant, "before the migration", len(there))
    assert made.completion > kept.completion
    path = f"{TIMELINE_FOLDER}/{kept.instant}_{made.completion}.savepoint"
    metadata = SavepointMetadata.read(table.storage, path)
    assert {f"{partition}/{name}" for partition, names in metadata.files.items() for name in names} == there


def test_the_commit_that_it_keeps_is_found_as_before(table: LiveTable) -> None:
    kept = table.write(rows(8, 1, "a"))
    table.savepoint(kept.instant)
    table.write(rows(4, 2, "b"))
    table.compact()
    table.write(rows(2, 3, "c"), operation="insert_overwrite")
    assert [row[1] for row in table.agreed()] == [0, 1]
    assert len(table.as_of(kept.completion)) == 8
    assert table.manager().recover() == []


def test_whoever_asks_for_a_commit_by_its_time_finds_the_commit(table: LiveTable) -> None:
    made = [table.write(rows(1, ts, "a")).instant for ts in range(8)]
    for instant in made:
        table.savepoint(instant)
    whole = WholeTimeline.load(table.storage)
    found = [whole.find(instant) for instant in made]
    assert [one.action for one in found if one is not None] == ["deltacommit"] * len(made)


def test_a_second_one_of_the_same_commit_changes_nothing(table: LiveTable) -> None:
    kept = table.write(rows(2, 1, "a"))
    made = table.savepoint(kept.instant, "first")
    assert table.savepoint(kept.instant, "second") == made and table.savepoints() == [made]


def test_it_can_be_given_up(table: LiveTable) -> None:
    kept = table.write(rows(2, 1, "a"))
    table.savepoint(kept.instant)
    table.delete_savepoint(kept.instant)
    assert table.savepoints() == [] and not any("savepoint" in name for name in table.timeline())
    with pytest.raises(InvalidRequest, match=r"no savepoint .* has none"):
        table.delete_savepoint(kept.instant)


def test_one_that_was_given_up_stays_so_while_it_is_the_last_event_of_the_log(table: LiveTable) -> None:
    kept = table.write(rows(2, 1, "a"))
    table.savepoint(kept.instant)
    table.delete_savepoint(kept.instant)
    manager = table.manager()
    manager.context.log.project(manager.context.log.tail())
    table.write(rows(2, 2, "b"))
    assert table.savepoints() == []


@pytest.mark.parametrize("step", ["savepoint.after_witness"])
def test_a_deletion_that_broke_is_done_by_the_next_one(table: LiveTable, step: str) -> None:
    kept = table.write(rows(2, 1, "a"))
    table.savepoint(kept.instant)
    with failpoints.active(f"{step}=raise"), pytest.raises(FailpointHit):
        table.delete_savepoint(kept.instant)
    assert len(table.savepoints()) == 1
    table.write(rows(2, 2, "b"))
    table.delete_savepoint(kept.instant)
    assert table.savepoints() == []


@pytest.mark.parametrize("step", STEPS)
def test_there_is_one_or_none_after_a_crash_and_one_after_the_next_try(table: LiveTable, step: str) -> None:
    kept = table.write(rows(2, 1, "a"))
    with failpoints.active(f"{step}=raise"), pytest.raises(LakelatchError):
        table.savepoint(kept.instant)
    table.write(rows(2, 2, "b"))  # which completes what is in the log
    shown = STEPS.index(step) >= 2
    assert len(table.savepoints()) == shown
    table.savepoint(kept.instant)
    assert len(table.savepoints()) == 1 and len(table.agreed()) == 2
    assert table.manager().recover() == []


def test_what_is_no_completed_commit_is_refused_by_name(table: LiveTable) -> None:
    table.write(rows(2, 1, "a"))
    pending = table.begin().instant
    with pytest.raises(InvalidRequest, match="has not completed"):
        table.savepoint(pending)
    with pytest.raises(InvalidRequest, match="no completed commit 20200101000000000"):
        table.savepoint("20200101000000000")
    assert not any("savepoint" in name for name in table.timeline())


def test_a_commit_of_which_a_clean_has_removed_files_is_refused_by_name(table: LiveTable) -> None:
    old = table.write(rows(2, 1, "a"))
    table.compact()
    table.write(rows(2, 2, "b"))
    later = table.compact()
    assert later is not None
    clean_up_before(table, old.instant)
    with pytest.raises(InvalidRequest, match=r"which the clean \d+ has removed"):
        table.savepoint(old.instant)
    table.savepoint(later.instant)


def clean_up_before(table: LiveTable, instant: str) -> None:
    """What a cleaner leaves that has removed the files of one instant."""
    gone = table.data_files(instant)
    for path in gone:
        table.storage.delete(path)
    time = table.manager().begin().instant
    table.storage.put(inflight(time, "clean").path, b"")
    table.storage.put(completed(time, "clean", to_instant(to_ms(time) + 1)).path, clean_metadata(time, gone))


def test_who_is_late_in_showing_one_that_was_given_up_brings_nothing_back(table: LiveTable) -> None:
    """It would hold up cleaners, archivers and restores, and its owner was told that it is gone."""
    kept = table.write(rows(4, 1, "a"))
    with failpoints.active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
        table.savepoint(kept.instant)
    given_up: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.endswith(".savepoint") and not given_up:
            given_up.append(path)
            table.delete_savepoint(kept.instant)  # which shows it first

    log = CommitLog(FaultyStorage(table.storage, before=before))
    log.project(log.tail())
    assert given_up and table.savepoints() == [] and not table.storage.exists(given_up[0])
