"""Requests that arrive after a restore or a rollback: what they bring back of the timeline counts for nobody."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import one_of_each, rows

from lakelatch.console.timelines.entries import timeline_entries
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import CommitUnknown, CorruptTable, LakelatchError, TransactionEnded, Unavailable
from lakelatch.failpoints import FailpointHit, active, calling
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import LocalStorage
from lakelatch.storage.checksums import add_checksum
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import COMPACTION, DELTA_COMMIT, RESTORE, ROLLBACK
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, parse_file_name, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.rollbacks import Rollbacks
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.metadata import SCHEMA_KEY, CommitMetadata, RollbackMetadata, RollbackPlan
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.timeline.snapshot import Snapshot

BACK_TO = 3  # what comes later has a compaction, an overwrite and a dropped partition
STATES = [
    ("completed",),
    ("completed", "inflight"),
    ("completed", "inflight", "requested"),
    ("requested",),
    ("inflight",),
]
SHOWN = ("commit.after_projection", "undo.after_completed_file")
UNDER_WAY = [  # where a rollback or a restore has stopped, with its slot, and has not completed
    *(("restore", step) for step in (*SHOWN, "restore.after_slot", "restore.after_claim", "restore.after_instant")),
    *(("rollback", step) for step in (*SHOWN, "rollback.after_slot", "rollback.after_plan", "rollback.after_files")),
]


def timeline_files(table: LiveTable) -> dict[str, bytes]:
    found = map(parse_file_name, table.timeline())
    return {one.file_name: table.storage.read(one.path) for one in found if one is not None}


def bring_back(table: LiveTable, files: dict[str, bytes], instants: tuple[str, ...], states: tuple[str, ...]) -> None:
    for name, data in files.items():
        file = parse_file_name(name)
        if file is not None and file.requested in instants and file.state in states:
            table.storage.put(f"{TIMELINE_FOLDER}/{name}", data)


@pytest.mark.parametrize("states", STATES, ids="+".join)
def test_files_of_what_was_restored_away_come_back(table: LiveTable, states: tuple[str, ...]) -> None:
    history = one_of_each(table)
    files = timeline_files(table)
    _, to, then = history[BACK_TO]
    undone = table.restore(to).undone
    bring_back(table, files, undone, states)
    assert table.read() == then
    table.write([(7, 20, "n")])  # a process of its own that does not tidy up
    rows_now = [row for row in then if row[1] != 7] + [("p", 7, 20, "n")]
    assert table.read() == sorted(rows_now)
    table.manager().recover()
    assert not any(name.startswith(undone) for name in table.timeline())
    assert table.agreed() == sorted(rows_now)


@pytest.mark.parametrize("states", STATES, ids="+".join)
def test_files_of_what_was_rolled_back_come_back(table: LiveTable, states: tuple[str, ...]) -> None:
    """An overwrite, whose rows hid those of the compaction before."""
    history = one_of_each(table)
    while history[-1][0] != "overwrite":
        table.roll_back(history.pop()[1])
    files = timeline_files(table)
    (_, instant, _), (_, _, then) = history.pop(), history[-1]
    table.roll_back(instant)
    bring_back(table, files, (instant,), states)
    assert table.read() == then
    table.manager().recover()
    assert not any(name.startswith(instant) for name in table.timeline())
    assert table.agreed() == then


def test_a_plan_that_was_restored_away_is_not_carried_out(table: LiveTable) -> None:
    to = table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    plan = table.plan()
    assert plan is not None
    files = timeline_files(table)
    table.restore(to.instant)
    bring_back(table, files, (plan,), ("requested",))
    with pytest.raises(TransactionEnded, match=plan):
        table.execute(plan)
    assert table.read() == [("p", key, 1, f"a{key}") for key in range(4)]


def test_the_plan_of_a_service_outlives_a_rollback_of_its_run(tmp_path: Path) -> None:
    """It is the next executor's, as in Hudi, and what that one completes counts."""
    rollbacks = Rollbacks(LocalStorage(str(tmp_path)))
    plan, rollback, later = "20260101000000001", "20260101000000005", "20260101000000009"
    done = completed(rollback, ROLLBACK, "20260101000000006")
    data = RollbackMetadata(rollback, plan, COMPACTION, ()).to_avro()
    LocalStorage(str(tmp_path)).put(done.path, data)
    lives = [requested(plan, COMPACTION), inflight(plan, COMPACTION), completed(plan, COMPACTION, later)]
    over = completed(plan, COMPACTION, "20260101000000004")
    assert rollbacks.late(Snapshot.of_names(one.file_name for one in (*lives, over, done))) == {over.file_name}


def test_what_a_restore_has_not_come_to_is_left_to_it(table: LiveTable) -> None:
    """The files with which an instant begins go after its data: without them other readers would count that."""
    first = table.write(rows(4, 1, "a"))
    victim = table.write(rows(4, 2, "b"))
    with active("restore.after_claim=raise"), pytest.raises(FailpointHit):
        table.restore(first.instant)
    (restore,) = [one.requested for one in map(parse_file_name, table.timeline()) if one and one.action == RESTORE]
    table.storage.put(inflight(restore, RESTORE).path, b"")
    log = table.manager().context.log.projections
    assert [one for one in log.undone(Snapshot.of_names(table.timeline())) if one.requested == victim.instant] == []
    table.all_died()
    assert table.manager().recover() == [victim.instant]
    assert not any(name.startswith(victim.instant) for name in table.timeline())


@pytest.mark.parametrize(("undo", "step"), UNDER_WAY, ids=": ".join)
def test_what_comes_back_counts_for_nobody_however_far_the_restore_is(table: LiveTable, undo: str, step: str) -> None:
    """Its process is slow, or has died. An overwrite that is back would hide the rows before it."""
    first = table.write(rows(4, 1, "a"))
    then = table.read()
    victim = table.write(rows(3, 2, "b"), operation="insert_overwrite")
    files = timeline_files(table)
    with active(f"{step}=raise"), pytest.raises(LakelatchError):
        table.restore(first.instant) if undo == "restore" else table.roll_back(victim.instant)
    bring_back(table, files, (victim.instant,), ("completed",))
    assert table.read() == then
    table.write([(7, 20, "n")])  # a process of its own
    rows_now = sorted([*then, ("p", 7, 20, "n")])
    assert table.read() == rows_now
    bring_back(table, files, (victim.instant,), ("completed",))
    assert table.read() == rows_now
    table.manager().recover()  # whoever carries it out may be alive: the file goes, and the rest is left to it
    assert not any(name.startswith(f"{victim.instant}_") for name in table.timeline())
    table.all_died()
    table.manager().recover()
    assert table.agreed() == rows_now and table.nothing_pending()


@pytest.mark.parametrize("undo", ["restore", "rollback"])
def test_who_is_late_in_showing_a_slot_brings_nothing_back(table: LiveTable, undo: str) -> None:
    """It has looked before the slot that takes the commit back, and puts the file after it has gone."""
    first = table.write(rows(4, 1, "a"))
    then = table.read()
    writing = table.begin().put("p", rows(4, 2, "b"))
    with active("commit.after_slot=raise"), pytest.raises(CommitUnknown):
        writing.commit()
    late: list[str] = []
    read: list[object] = []

    def before(operation: str, path: str) -> None:
        if operation != "put_if_absent" or f"/{writing.instant}_" not in path or late:
            return
        late.append(path)
        with active(f"{undo}.after_slot=raise"), pytest.raises(LakelatchError):
            table.restore(first.instant) if undo == "restore" else table.roll_back(writing.instant)
        assert not table.storage.exists(path)

    def after(_: str) -> None:
        if late and table.storage.exists(late[0]):
            read.append(table.read())

    log = CommitLog(FaultyStorage(table.storage, before=before))
    with calling(after, ["commit.after_projection"]):
        log.project(log.tail())
    assert read[-1] == then and not table.storage.exists(late[0]) and table.read() == then


def test_a_recovery_takes_the_last_completed_file_first(table: LiveTable) -> None:
    """Other readers see the table as it once was, also if somebody tidies up while a restore goes through its files."""
    history = one_of_each(table)
    with active("commit.after_projection=raise"), pytest.raises(LakelatchError):
        table.restore(history[BACK_TO][1])
    undone = table.manager().context.log.projections.undone(Snapshot.of_names(table.timeline()))
    assert [one.requested for one in undone] == [instant for _, instant, _ in history[:BACK_TO:-1]]


def test_a_reader_that_looks_again_knows_what_has_gone_and_come_back(table: LiveTable) -> None:
    """It may have listed data files in between."""
    first = table.write(rows(4, 1, "a"))
    victim = table.write(rows(3, 2, "b"), operation="insert_overwrite")
    files = timeline_files(table)
    looked = TableView.load(table.storage, table.opened.config)
    table.restore(first.instant)
    bring_back(table, files, (victim.instant,), ("completed", "inflight", "requested"))
    with pytest.raises(Unavailable, match="read again"):
        looked.groups()


def test_a_file_counts_again_when_the_rollback_that_named_it_has_gone(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    snapshots = Snapshots(storage)
    done = completed("20260101000000001", DELTA_COMMIT, "20260101000000002")
    rollback = requested("20260101000000003", ROLLBACK)
    storage.put(done.path, b"")
    assert snapshots.take().has(done)
    storage.put(rollback.path, RollbackPlan(done.requested, DELTA_COMMIT, ()).to_avro())
    snapshot = snapshots.take()
    assert not snapshot.has(done) and done.file_name in snapshot.listed - snapshot.names
    storage.delete(rollback.path)
    assert snapshots.take().has(done) and done.file_name in snapshots.current.names


def plan_of(action: str, victim: str, of: str = DELTA_COMMIT) -> bytes:
    return RollbackPlan(victim, of, ()).to_avro() if action == ROLLBACK else RestorePlan(((victim, of),), "").to_avro()


def after(done: CommitResult) -> str:
    return to_instant(to_ms(done.completion) + 1)


def grown_old(table: LiveTable, path: str) -> None:
    """As if whoever made the file had died a while ago; and nobody else lives, either."""
    os.utime(table.root / path, (1, 1))
    table.all_died()


@pytest.mark.parametrize("share", [0, 0.5, 0.95])
@pytest.mark.parametrize("action", [ROLLBACK, RESTORE])
def test_a_plan_that_another_engine_is_writing_names_nothing(table: LiveTable, action: str, share: float) -> None:
    """Java's is visible before it is whole, and stays so if its process dies; it removes nothing before it begins."""
    victim = table.write(rows(4, 1, "a"))
    plan = requested(after(victim), action)
    data = plan_of(action, victim.instant)
    table.storage.put(plan.path, data[: int(len(data) * share)])
    then = table.read()
    assert len(then) == 4
    if action == RESTORE:  # of another engine, and whatever it takes back: writers wait for its end
        with pytest.raises(TransactionEnded, match=plan.requested):
            table.write([(7, 20, "n")])
        assert table.read() == then
        return
    table.write([(7, 20, "n")])
    rows_now = sorted([*then, ("p", 7, 20, "n")])
    assert table.read() == rows_now
    table.manager().recover()
    assert plan.file_name in table.timeline()  # who writes it may be alive
    grown_old(table, plan.path)
    assert table.manager().recover() == []
    assert plan.file_name not in table.timeline() and table.agreed() == rows_now


@pytest.mark.parametrize("begun", [False, True])
def test_what_another_engine_plans_counts_as_soon_as_it_can_be_read(tmp_path: Path, begun: bool) -> None:
    storage = LocalStorage(str(tmp_path))
    snapshots = Snapshots(storage)
    done = completed("20260101000000001", DELTA_COMMIT, "20260101000000002")
    plan = requested("20260101000000003", ROLLBACK)
    storage.put(done.path, b"")
    storage.put(plan.path, b"")
    assert snapshots.take().has(done)
    storage.put(plan.path, plan_of(ROLLBACK, done.requested))
    more = inflight(plan.requested, ROLLBACK) if begun else requested("20260101000000004", DELTA_COMMIT)
    storage.put(more.path, b"")
    assert not snapshots.take().has(done)


@pytest.mark.parametrize("damage", ["empty", "cut", "flip"])
@pytest.mark.parametrize("undo", ["restore", "rollback"])
def test_a_damaged_plan_of_ours_is_an_error(table: LiveTable, undo: str, damage: str) -> None:
    """What it names has gone, and has come back."""
    first = table.write(rows(4, 1, "a"))
    victim = table.write(rows(3, 2, "b"), operation="insert_overwrite")
    files = timeline_files(table)
    with active(f"{undo}.after_slot=raise"), pytest.raises(LakelatchError):
        table.restore(first.instant) if undo == "restore" else table.roll_back(victim.instant)
    bring_back(table, files, (victim.instant,), ("completed",))
    (path,) = [f"{TIMELINE_FOLDER}/{name}" for name in table.timeline() if name.endswith(f".{undo}.requested")]
    data = table.storage.read(path)
    at = data.index(victim.instant.encode())
    flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    table.storage.put(path, {"empty": b"", "cut": data[:40], "flip": flipped}[damage])
    with pytest.raises(CorruptTable, match=path.rpartition("/")[2]):
        table.read()


def test_a_damaged_plan_of_another_engine_that_has_begun_is_an_error(table: LiveTable) -> None:
    victim = table.write(rows(4, 1, "a"))
    plan = requested(after(victim), ROLLBACK)
    table.storage.put(plan.path, plan_of(ROLLBACK, victim.instant)[:40])
    table.storage.put(inflight(plan.requested, ROLLBACK).path, b"")
    with pytest.raises(CorruptTable, match=plan.file_name):
        table.read()


def test_a_run_that_completed_before_its_rollback_began_counts(table: LiveTable) -> None:
    """Java plans it from what it has loaded earlier, and dies; Java and its cleaners count the run from then on."""
    table.write(rows(4, 1, "a"))
    table.write(rows(4, 2, "b"))
    run = table.compact()
    assert run is not None
    plan = requested(after(run), ROLLBACK)
    table.storage.put(plan.path, plan_of(ROLLBACK, run.instant, COMPACTION))
    late = Rollbacks(table.storage).late
    assert late(Snapshot.of_names(table.timeline())) == frozenset()
    begun = inflight(plan.requested, ROLLBACK).file_name
    assert late(Snapshot.of_names([*table.timeline(), begun])) == {
        completed(run.instant, COMPACTION, run.completion).file_name
    }
    then, files = table.read(), table.data_files(run.instant)
    table.manager().recover()
    assert plan.file_name in table.timeline()
    grown_old(table, plan.path)
    assert table.manager().recover() == [] and plan.file_name not in table.timeline()
    assert table.data_files(run.instant) == files != [] and table.agreed() == then


@pytest.mark.parametrize("undo", ["restore", "restore.after_slot", "rollback.after_slot"])
def test_the_columns_of_what_comes_back_are_not_the_table_s(table: LiveTable, undo: str) -> None:
    first = table.write(rows(4, 1, "a"))
    victim = table.write(rows(4, 2, "b"))
    path = completed(victim.instant, DELTA_COMMIT, victim.completion).path
    metadata = CommitMetadata.read(table.storage, path)
    schema = json.loads(metadata.extra[SCHEMA_KEY])
    schema["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
    late = replace(metadata, extra={**metadata.extra, SCHEMA_KEY: json.dumps(schema)}).to_avro()
    with suppress(LakelatchError), active(f"{undo}=raise") if "." in undo else nullcontext():
        table.roll_back(victim.instant) if undo.startswith("rollback") else table.restore(first.instant)
    table.storage.put(path, add_checksum(late, path))
    copy = shutil.copytree(table.root, table.root.with_name("copy"))  # this process knows what its own commits say
    assert "more" not in open_table(LocalStorage(str(copy))).schema.names
    assert all(entry.requested != victim.instant for entry in timeline_entries(table.storage) if entry.completion)
