from __future__ import annotations

import threading

import pytest
from bare_table import add_file, commit
from one_table import Table

from lakelatch.errors import TransactionEnded
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import inflight
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.transactions.markers.direct import OPEN_FOLDER, Markers
from lakelatch.transactions.markers.files import MARKERS_FOLDER


def test_a_data_file_is_announced_under_its_full_name(table: Table) -> None:
    transaction = table.manager().begin()
    stats = add_file(transaction, "a"), add_file(transaction, "b", partition="day=1/hour=2")
    assert sorted(transaction.markers.announced()) == sorted(stat.path for stat in stats)
    names = list(table.storage.walk(f"{MARKERS_FOLDER}/{transaction.instant}"))
    assert f"{MARKERS_FOLDER}/{transaction.instant}/{stats[1].path}.marker.CREATE" in names


def test_tombstones_take_the_place_of_failed_attempts_files_before_the_commit(table: Table) -> None:
    transaction = table.manager().begin()
    failed, kept = add_file(transaction, "a", attempt=0), add_file(transaction, "a", attempt=1)
    done = commit(transaction, kept)
    assert table.data_files() == [kept.path] and failed.path != kept.path
    assert table.completed() == [done.instant]
    assert not table.storage.put_if_absent(failed.path, b"rows")  # the request that made it arrives once more


def test_announced_names_without_a_file_get_tombstones(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    transaction.markers.announce("", "late.log")  # and its task is paused before it creates the file
    commit(transaction, kept)
    assert not table.storage.put_if_absent("late.log", b"rows")
    assert table.data_files() == [kept.path]


def test_a_late_task_is_refused_after_the_closing(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    transaction.markers.close()
    with pytest.raises(TransactionEnded, match="too late"):
        add_file(transaction, "b")
    commit(transaction, kept)
    with pytest.raises(TransactionEnded, match="too late"):
        add_file(transaction, "c")
    table.manager().recover()
    assert table.data_files() == [kept.path] and table.leftovers() == []


def test_a_beat_that_comes_back_after_the_commit_lets_no_late_task_in(table: Table) -> None:
    """It was under way when the instant's heartbeat was removed, by its driver or by somebody who took it for dead."""
    transaction = table.manager().begin()
    kept, beat = add_file(transaction, "a"), table.storage.read(heartbeat_path(transaction.instant))
    commit(transaction, kept)
    table.storage.put(heartbeat_path(transaction.instant), beat)
    with pytest.raises(TransactionEnded):
        add_file(transaction, "b")
    table.expire(transaction.instant)
    table.manager().recover()
    assert table.data_files() == [kept.path] and table.leftovers() == []


STEPS = ["marker", "first look", "second look", "data file"]


class Ending:
    """A commit or an abort in a thread of its own, which waits after it has swept the files until it may go on."""

    def __init__(self, table: Table, ending: str) -> None:
        self._started = False
        self._swept, self._may_go_on = threading.Event(), threading.Event()
        self._ending = ending
        self.transaction = table.manager(storage=FaultyStorage(table.storage, before=self._before)).begin()
        self.kept = add_file(self.transaction, "a")
        self._thread = threading.Thread(target=self._run)

    def sweep(self) -> None:
        self._started = True
        self._thread.start()
        assert self._swept.wait(30)

    def finish(self) -> None:
        if not self._started:
            self.sweep()
        self._may_go_on.set()
        self._thread.join(30)
        assert self.transaction.status == ("committed" if self._ending == "commit" else "aborted")

    def _run(self) -> None:
        if self._ending == "commit":
            commit(self.transaction, self.kept)
        else:
            self.transaction.abort()

    def _before(self, operation: str, path: str) -> None:
        if not self._started or self._swept.is_set():
            return
        inflight_path = inflight(self.transaction.instant, "deltacommit").path
        if (operation, path) == (("list", LOG_FOLDER) if self._ending == "commit" else ("delete", inflight_path)):
            self._swept.set()
            assert self._may_go_on.wait(30)


@pytest.mark.parametrize("ending", ["commit", "abort"])
@pytest.mark.parametrize(
    ("swept_at", "ended_at"), [(one, other) for one in STEPS for other in STEPS[STEPS.index(one) :]]
)
def test_a_task_that_is_paused_at_any_steps_adds_no_file(
    table: Table, ending: str, swept_at: str, ended_at: str
) -> None:
    """The files are swept while the task stands before one step, and all is over before it takes another."""
    others = Ending(table, ending)
    instant = others.transaction.instant
    looks: list[str] = []
    passed: list[str] = []

    def before(operation: str, path: str) -> None:
        at = _step(operation, path, instant, looks)
        passed.append(at)
        if at == swept_at:
            others.sweep()
        if at == ended_at:
            others.finish()

    markers = Markers(FaultyStorage(table.storage, before=before), instant)
    with pytest.raises(TransactionEnded):
        markers.create_data_file("", "late.log", b"rows")
    if ended_at not in passed:  # what it saw by then was enough
        others.finish()
    assert table.data_files() == ([others.kept.path] if ending == "commit" else [])
    table.manager().recover()
    assert table.leftovers() == []


def _step(operation: str, path: str, instant: str, looks: list[str]) -> str:
    """Which of a task's steps a call to the storage is."""
    if operation == "put_if_absent":
        return "marker" if path.startswith(MARKERS_FOLDER) else "data file"
    if path in (heartbeat_path(instant), f"{OPEN_FOLDER}/{instant}"):
        looks.append(path)
        return STEPS[len(looks)]
    return ""


def test_sweeping_again_removes_nothing_more(table: Table) -> None:
    transaction = table.manager().begin()
    kept = add_file(transaction, "a")
    other = add_file(transaction, "b")
    for _ in range(3):
        assert transaction.markers.close_and_sweep([kept.path]) == [other.path]
    assert table.data_files() == [kept.path]


def test_a_rollback_leaves_tombstones_of_all_files(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    transaction.markers.announce("", "late.log")
    transaction.abort()
    assert table.data_files() == [] and table.leftovers() == []
    assert not any(table.storage.put_if_absent(path, b"rows") for path in (stat.path, "late.log"))


def test_two_attempts_cannot_make_one_file(table: Table) -> None:
    transaction = table.manager().begin()
    add_file(transaction, "a")
    with pytest.raises(TransactionEnded, match="given up"):
        add_file(transaction, "a")
