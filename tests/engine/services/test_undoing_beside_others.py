"""Rollbacks and restores that break, meet each other, or come back from the dead; and who is at work meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live_table import LiveTable, TableRows
from random_tables.index_checks import IndexChecks
from taken_back_table import new_table, one_of_each, rows

from lakelatch import failpoints
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.services import cancelling
from lakelatch.errors import (
    CommitUnknown,
    InvalidRequest,
    LakelatchError,
    TransactionEnded,
    Unavailable,
    WriteConflict,
)
from lakelatch.format.slices.table_view import TableView
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.undo.restore import finish_restore

RESTORE_STEPS = (
    "commit.before_slot",
    "commit.after_slot",
    "commit.after_projection",
    "undo.after_completed_file",
    "undo.after_completed_file@2",
    "restore.after_slot",
    "restore.after_claim",
    "restore.after_instant",
    "restore.after_instant@3",
    "commit.after_check",
    "commit.after_slot@2",
    "restore.after_completed",
)
ROLLBACK_STEPS = (
    "commit.before_slot",
    "commit.after_slot",
    "commit.after_projection",
    "undo.after_completed_file",
    "rollback.after_slot",
    "rollback.after_plan",
    "rollback.after_files",
    "commit.after_slot@2",
    "rollback.after_completed",
)
NOTHING_DONE = ("commit.before_slot",)


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return new_table(tmp_path)


def breaking(step: str) -> str:
    name, at, visit = step.partition("@")
    return f"{name}=raise{at}{visit}"


@pytest.mark.parametrize("step", RESTORE_STEPS)
def test_a_restore_that_broke_is_finished_by_the_next_writer(table: LiveTable, step: str) -> None:
    history = one_of_each(table)
    _, to, then = history[2]
    before = table.read()
    files = {instant: table.data_files(instant) for _, instant, _ in history[3:]}
    assert any(files.values())
    with failpoints.active(breaking(step)), pytest.raises(LakelatchError):
        table.restore(to)
    begun = step not in NOTHING_DONE
    table.all_died()
    table.manager().recover()  # which every writer calls before it begins
    assert table.agreed() == (then if begun else before)
    assert table.nothing_pending()
    for instant, there in files.items():
        assert table.data_files(instant) == ([] if begun else there)
    table.write(rows(9, 20, "n"))
    assert len(table.agreed()) == 9
    assert sum(name.endswith(".restore") for name in table.timeline()) == begun


@pytest.mark.parametrize("step", ROLLBACK_STEPS)
def test_a_rollback_that_broke_is_finished_by_the_next_writer(table: LiveTable, step: str) -> None:
    table.write(rows(4, 1, "a"))
    then = table.agreed()
    bad = table.write(rows(4, 2, "b"))
    with failpoints.active(breaking(step)), pytest.raises(LakelatchError):
        table.roll_back(bad.instant)
    begun = step not in NOTHING_DONE
    table.all_died()
    table.manager().recover()
    assert (table.agreed() == then) == begun and table.nothing_pending()
    assert (table.data_files(bad.instant) == []) == begun
    table.write(rows(4, 3, "c"))
    assert [row[3] for row in table.agreed()] == ["c0", "c1", "c2", "c3"]


def test_a_restore_counts_from_its_slot_on(table: LiveTable) -> None:
    """Its process died before it did anything: whoever commits next stands on the restored table."""
    history = one_of_each(table)
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        table.restore(history[1][1])
    table.write([(99, 1, "next")])
    assert {row[1] for row in table.agreed()} == {row[1] for row in history[1][2]} | {99}


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
def test_a_write_that_began_before_a_restore_ends(tmp_path: Path, mode: str, operation: str) -> None:
    table = new_table(tmp_path, mode)
    to = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    writing = table.begin(operation).put("q", rows(4, 3, "w"))  # of other file groups, even
    table.restore(to.instant)
    with pytest.raises(TransactionEnded, match="has taken the table back"):
        writing.commit()
    table.all_died()
    table.manager().recover()
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"] and table.nothing_pending()


def test_a_compaction_at_work_ends_and_its_older_plan_waits_for_the_next(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    older = table.plan()
    to = table.write(rows(4, 2, "b"))
    assert older is not None
    compacting = table.manager().execute(older)
    table.restore(to.instant)
    with pytest.raises(TransactionEnded, match="has taken the table back"):
        compacting.commit(_nothing_written())
    table.all_died()
    table.manager().recover()
    table.execute(older)
    assert [row[3] for row in table.agreed()] == ["b0", "b1", "b2", "b3"]


def test_an_optimistic_write_loses_to_a_rollback_of_its_file_groups(tmp_path: Path) -> None:
    table = new_table(tmp_path, OPTIMISTIC)
    table.write(rows(4, 1, "a"))
    bad = table.write(rows(4, 2, "b"))
    based_on_it = table.begin().put("p", rows(4, 3, "w"))
    elsewhere = table.begin().put("q", rows(4, 3, "w"))
    undone = table.roll_back(bad.instant)
    with pytest.raises(WriteConflict) as lost:
        based_on_it.commit()
    assert lost.value.winner == undone.instant
    elsewhere.commit()
    assert [row[3] for row in table.agreed() if row[0] == "p"] == ["a0", "a1", "a2", "a3"]


def test_a_non_blocking_write_stands_without_what_was_rolled_back(table: LiveTable) -> None:
    table.write(rows(4, 1, "a"))
    bad = table.write(rows(4, 2, "b"))
    writing = table.begin().put("p", [(1, 3, "w1")])
    table.roll_back(bad.instant)
    writing.commit()
    assert [row[3] for row in table.agreed()] == ["a0", "w1", "a2", "a3"]


def test_a_non_blocking_write_to_a_successor_is_in_the_way_of_nothing_after_a_rollback(table: LiveTable) -> None:
    """It wrote under the file ids of an overwrite that is gone: lost with a conflict, or found again, never twice."""
    table.write(rows(4, 1, "a"))
    bad = table.write(rows(2, 2, "b"), operation="insert_overwrite")
    writing = table.begin().put("p", [(1, 3, "w1")])
    table.roll_back(bad.instant)
    try:
        writing.commit()
        expected = ["a0", "w1", "a2", "a3"]
    except WriteConflict:
        expected = ["a0", "a1", "a2", "a3"]
    assert [row[3] for row in table.agreed()] == expected


def test_two_restores_at_once_are_one_and_a_refusal(table: LiveTable) -> None:
    history = one_of_each(table)
    together = threading.Barrier(2)

    def go(to: str) -> str:
        together.wait()
        try:
            table.restore(to)
            return "done"
        except (Unavailable, InvalidRequest) as error:
            return type(error).__name__

    with ThreadPoolExecutor(2) as pool:
        ended = sorted(pool.map(go, [history[2][1], history[5][1]]))
    assert "done" in ended
    rows_now = table.agreed()
    assert rows_now in (history[2][2], history[5][2]) and table.nothing_pending()


def test_a_second_restore_is_refused_while_one_is_under_way(table: LiveTable) -> None:
    history = one_of_each(table)
    refused: list[str] = []

    def second(_: str) -> None:
        with pytest.raises(Unavailable, match="is under way") as error:
            table.restore(history[1][1])
        with pytest.raises(Unavailable, match="is under way"):
            table.roll_back(history[1][1])
        refused.append(error.value.message)
        assert table.manager().recover() == []  # it beats

    with failpoints.calling(second, ["restore.after_claim"]):
        table.restore(history[3][1])
    assert len(refused) == 1 and table.agreed() == history[3][2]


@pytest.mark.parametrize("step", ["restore.after_slot", "restore.after_claim", "restore.after_instant"])
def test_a_zombie_of_a_restore_takes_nothing_that_was_written_since(table: LiveTable, step: str) -> None:
    """It pauses; others finish its work, write, compact and restore again; then it goes on, twice over."""
    history = one_of_each(table)
    generations: list[str] = []
    later: list[object] = []

    def meanwhile(_: str) -> None:
        if generations:
            return
        generations.append(step)
        table.all_died()
        table.manager().recover()
        assert table.agreed() == history[4][2]
        to = table.write(rows(9, 20, "n")).instant
        table.write(rows(9, 21, "o"))
        table.compact()
        second_generation(to)
        table.write(rows(3, 30, "p"))
        later.append(table.agreed())

    def second_generation(to: str) -> None:
        def again(_: str) -> None:
            if len(generations) == 1:
                generations.append(step)
                table.all_died()
                table.manager().recover()

        with failpoints.calling(again, ["restore.after_instant"]), pytest.raises(TransactionEnded):
            table.restore(to)

    with failpoints.calling(meanwhile, [step]), pytest.raises(TransactionEnded):
        table.restore(history[4][1])
    assert len(generations) == 2
    assert table.agreed() == later[0] and table.nothing_pending()


def test_a_restore_that_has_completed_is_not_claimed_again(table: LiveTable) -> None:
    """By one that had listed it as pending: the next recovery would take it for a dead write, and roll it back."""
    first = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    done = table.restore(first.instant)
    with pytest.raises(TransactionEnded, match="completed"):
        finish_restore(table.manager().context, done.instant)
    table.all_died()
    assert table.manager().recover() == [] and table.nothing_pending()


def test_a_completed_file_that_comes_back_late_goes_again(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    bad = table.write(rows(4, 2, "b"))
    path = f"{TIMELINE_FOLDER}/{bad.instant}_{bad.completion}.deltacommit"
    late = table.storage.read(path)
    table.restore(first.instant)
    table.storage.put(path, late)
    table.manager().recover()
    assert not table.storage.exists(path)
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"]


def test_a_writer_that_projects_an_undone_slot_late_makes_nothing(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    log = table.manager().context.log
    seen = log.tail()
    table.restore(first.instant)
    log.project(seen)
    assert len(Snapshot.load(table.storage).completion_times()) == 1


def test_a_plan_that_a_restore_took_away_is_not_projected_again(table: LiveTable) -> None:
    first = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    plan = table.plan()
    log = table.manager().context.log
    seen = log.tail()
    table.restore(first.instant)
    table.storage.put(f".hoodie/.heartbeat/{plan}", b"")  # a beat that was under way
    log.project(seen)
    assert not any("compaction" in name for name in table.timeline())


@pytest.mark.parametrize("step", ["cancel.after_claim", "cancel.after_files", "cancel.after_plan_gone"])
def test_a_cancellation_that_a_restore_overtakes_ends_quietly(table: LiveTable, step: str) -> None:
    """And so does the next one, whose plan was there when the requests were listed."""
    first = table.write(rows(4, 1, "a"))
    plans = []
    for partition in ("p", "q"):
        table.write(rows(4, 2, "b"), partition=partition)
        plans.append(table.plan_clustering("v"))
        assert plans[-1] is not None
        cancelling.request_cancel(table.manager(), plans[-1])
    restored: list[object] = []

    def restore(_: str) -> None:
        if not restored:
            restored.append(table.restore(first.instant))

    with failpoints.calling(restore, [step]):
        assert plans[1] not in cancelling.execute_open(table.manager())
    assert restored and plans[0] not in table.storage.names(CANCEL_FOLDER) and table.nothing_pending()
    assert cancelling.open_requests(table.manager()) == [] and not table.storage.names(CANCEL_FOLDER)
    table.write(rows(4, 3, "c"))
    table.cluster()
    assert [row[3] for row in table.agreed()] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("undo", ["restore", "roll_back"])
def test_a_reader_at_work_gets_an_error_and_no_other_rows(table: LiveTable, undo: str) -> None:
    first = table.write(rows(4, 1, "a"))
    bad = table.write(rows(4, 2, "b"))
    planned = plan_read(str(table.root), None)
    looked = TableView.load(table.storage, table.opened.config)
    table.restore(first.instant) if undo == "restore" else table.roll_back(bad.instant)
    with pytest.raises(Unavailable, match="read again"):
        [batch for found in planned.slices for batch in planned.read(found)]
    with pytest.raises(Unavailable, match="read again"):
        looked.groups()


def test_a_reader_that_begins_during_a_restore_sees_one_moment_of_the_past(table: LiveTable) -> None:
    history = one_of_each(table)
    moments = [then for _, _, then in history]
    seen: list[bool] = []

    def look(_: str) -> None:
        seen.append(table.read() in moments and table.by_hudi_rs() in moments)

    with failpoints.calling(look, ["undo.after_completed_file", "restore.after_instant"]):
        table.restore(history[0][1])
    assert len(seen) == 2 * (len(history) - 1) and all(seen)


def test_a_reader_during_a_restore_misses_nothing_that_a_clean_has_removed(table: LiveTable) -> None:
    """Without the overwrite the clustering's files would be live, and they are gone: no reader of ours sees that."""
    checks = IndexChecks(table.storage, table.opened.config, kept_most=30)
    first = table.write(rows(4, 1, "a"))
    then = table.read()
    table.savepoint(first.instant)  # so that the clean leaves what the restore needs
    clustered = table.cluster()
    assert clustered is not None and checks.look() == [] and checks.kept
    table.write(rows(3, 2, "b"), operation="insert_overwrite")
    table.write(rows(3, 3, "c"))
    list(table.clean(CleaningOptions(commits=1, parallelism=1)))
    assert not table.data_files(clustered.instant) and checks.look() == []
    seen: list[tuple[TableRows, list[str]]] = []

    def look(_: str) -> None:
        seen.append((table.read(), checks.look()))

    with failpoints.calling(look, ["undo.after_completed_file", "restore.after_instant"]):
        table.restore(first.instant)
    assert len(seen) == 6 and all(one == (then, []) for one in seen)
    assert table.agreed() == then


def test_an_undone_commit_is_not_committed_for_who_asks(table: LiveTable) -> None:
    """Its answer was lost, and before it looked the table was restored: what any reader sees is what it is told."""
    first = table.write(rows(4, 1, "a"))
    writing = table.begin().put("p", rows(4, 2, "b"))
    with failpoints.active("commit.after_projection=raise"), pytest.raises((CommitUnknown, LakelatchError)):
        writing.commit()
    table.restore(first.instant)
    assert [row[3] for row in table.agreed()] == ["a0", "a1", "a2", "a3"]
    assert writing.instant not in Snapshot.load(table.storage).completion_times()


def _nothing_written() -> CommitMetadata:
    return CommitMetadata((), "COMPACT", compacted=True)
