from __future__ import annotations

import pytest
from one_table import Table, add_file, commit

from lakelatch.errors import TransactionEnded
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.testing.faulty_storage import FaultyStorage
from lakelatch.transactions.markers import MARKERS_FOLDER, SEALS_FOLDER, Markers


def test_a_data_file_is_announced_under_its_full_name(table: Table) -> None:
    transaction = table.manager().begin()
    stats = add_file(transaction, "a"), add_file(transaction, "b", partition="day=1/hour=2")
    assert sorted(transaction.markers.announced()) == sorted(stat.path for stat in stats)
    names = list(table.storage.walk(f"{MARKERS_FOLDER}/{transaction.instant}"))
    assert f"{MARKERS_FOLDER}/{transaction.instant}/{stats[1].path}.marker.CREATE" in names


def test_files_of_failed_attempts_are_removed_before_the_commit(table: Table) -> None:
    transaction = table.manager().begin()
    failed, kept = add_file(transaction, "a", attempt=0), add_file(transaction, "a", attempt=1)
    done = commit(transaction, kept)
    assert table.data_files() == [kept.path] and failed.path != kept.path
    assert table.completed() == [done.instant]


def test_announced_names_without_a_file_are_barred(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    transaction.markers.announce("", "late.log")  # and its task is paused before it creates the file
    commit(transaction, kept)
    assert not table.storage.put_if_absent("late.log", b"rows")
    assert table.data_files() == [kept.path]


def test_a_late_task_is_refused_after_the_seal(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    transaction.markers.seal()
    with pytest.raises(TransactionEnded, match="too late"):
        add_file(transaction, "b")
    commit(transaction, kept)
    with pytest.raises(TransactionEnded, match="heartbeat"):
        add_file(transaction, "c")
    table.manager().heal()
    assert table.data_files() == [kept.path] and table.leftovers() == []


@pytest.mark.parametrize("ending", ["commit", "abort"])
@pytest.mark.parametrize("step", ["marker", "first look", "second look", "data file"])
def test_a_task_that_is_paused_at_any_step_adds_no_file(table: Table, ending: str, step: str) -> None:
    """The whole ending runs while the task stands before one of its steps."""
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    looks: list[str] = []
    ended: list[str] = []

    def before(operation: str, path: str) -> None:
        at = ""
        if operation == "put_if_absent":
            at = "marker" if path.startswith(MARKERS_FOLDER) else "data file"
        elif operation == "stat" and path in (
            heartbeat_path(transaction.instant),
            f"{SEALS_FOLDER}/{transaction.instant}",
        ):
            looks.append(path)
            at = "first look" if len(looks) == 1 else "second look"
        if at == step and not ended:
            ended.append(at)
            if ending == "commit":
                commit(transaction, kept)
            else:
                transaction.abort()

    markers = Markers(FaultyStorage(table.storage, before=before), transaction.instant)
    with pytest.raises(TransactionEnded):
        markers.create_data_file("", "late.log", b"rows")
    assert ended == [step]
    assert table.data_files() == ([kept.path] if ending == "commit" else [])
    table.manager().heal()
    assert table.leftovers() == []


def test_sweeping_again_removes_nothing_more(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    other = add_file(transaction, "b")
    for _ in range(3):
        assert transaction.markers.seal_and_sweep([kept.path]) == [other.path]
    assert table.data_files() == [kept.path]


def test_two_attempts_cannot_make_one_file(table: Table) -> None:
    transaction = table.manager().begin()
    add_file(transaction, "a")
    with pytest.raises(TransactionEnded, match="given up"):
        add_file(transaction, "a")
