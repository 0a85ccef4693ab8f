"""Requests that arrive after a restore or a rollback: what they bring back of the timeline counts for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from taken_back_table import KeptTable, new_table, one_of_each, rows

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import FailpointHit, active
from lakelatch.storage import LocalStorage
from lakelatch.timeline.actions import COMPACTION, RESTORE, ROLLBACK
from lakelatch.timeline.metadata import RollbackMetadata
from lakelatch.timeline.rollbacks import Rollbacks
from lakelatch.timeline.timeline import TIMELINE_FOLDER, completed, inflight, parse_file_name, requested

BACK_TO = 3  # what comes later has a compaction, an overwrite and a dropped partition
STATES = [
    ("completed",),
    ("completed", "inflight"),
    ("completed", "inflight", "requested"),
    ("requested",),
    ("inflight",),
]


@pytest.fixture
def table(tmp_path: Path) -> KeptTable:
    return new_table(tmp_path)


def timeline_files(table: KeptTable) -> dict[str, bytes]:
    found = map(parse_file_name, table.timeline())
    return {one.file_name: table.storage.read(one.path) for one in found if one is not None}


def bring_back(table: KeptTable, files: dict[str, bytes], instants: tuple[str, ...], states: tuple[str, ...]) -> None:
    for name, data in files.items():
        file = parse_file_name(name)
        if file is not None and file.requested in instants and file.state in states:
            table.storage.put(f"{TIMELINE_FOLDER}/{name}", data)


@pytest.mark.parametrize("states", STATES, ids="+".join)
def test_files_of_what_was_restored_away_come_back(table: KeptTable, states: tuple[str, ...]) -> None:
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
def test_files_of_what_was_rolled_back_come_back(table: KeptTable, states: tuple[str, ...]) -> None:
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


def test_a_plan_that_was_restored_away_is_not_carried_out(table: KeptTable) -> None:
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
    assert rollbacks.late([one.file_name for one in (*lives, over, done)]) == {over.file_name}


def test_what_a_restore_has_not_come_to_is_left_to_it(table: KeptTable) -> None:
    """The files with which an instant begins go after its data: without them other readers would count that."""
    first = table.write(rows(4, 1, "a"))
    victim = table.write(rows(4, 2, "b"))
    with active("restore.after_claim=raise"), pytest.raises(FailpointHit):
        table.restore(first.instant)
    (restore,) = [one.requested for one in map(parse_file_name, table.timeline()) if one and one.action == RESTORE]
    table.storage.put(inflight(restore, RESTORE).path, b"")
    log = table.manager().context.log.projections
    assert [one for one in log.undone(table.timeline()) if one.requested == victim.instant] == []
    table.all_died()
    assert table.manager().recover() == [victim.instant]
    assert not any(name.startswith(victim.instant) for name in table.timeline())
