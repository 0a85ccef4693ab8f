"""What a page is told of a table, without a browser: by polls that write nothing, and by actions."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from bare_table import add_file, bare_table, commit, expire, manager_of, write
from live_table import LiveTable

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cancellation import CANCELLABLE
from lakelatch.engine.run.executor import HERE, Executor, Task
from lakelatch.errors import InvalidRequest, Unavailable, WriteConflict
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import FILESYSTEM_PATH, PROVIDER
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.system import REAL_SYSTEM, process_name
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.plan import UNAVAILABLE, FaultPlan
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.conflicts.report import Work
from lakelatch.ui.actions import BREAK, CALL_OFF, RUN, RUNNING, Actions, PageTable
from lakelatch.ui.board import Board
from lakelatch.ui.changes import Changes
from lakelatch.ui.details import archived_entries, details_of
from lakelatch.ui.table_watch import TableWatch

T = TypeVar("T")
R = TypeVar("R")
SOON = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)


class OnlyReads(FaultPlan):
    """Counts calls; those that would change something fail, and all do if it is told so."""

    def __init__(self) -> None:
        self.calls = 0
        self.polls = 0  # of which each lists the heartbeats once
        self.fails = False
        self.changed: list[str] = []

    def decide(self, operation: str, path: str, changes: bool) -> str:
        self.calls += 1
        self.polls += (operation, path) == ("list", HEARTBEAT_FOLDER)
        if changes:
            self.changed.append(f"{operation} {path}")
        return UNAVAILABLE if changes or self.fails else ""


class Told:
    """What a browser knows that has heard all changes."""

    def __init__(self, watch: TableWatch) -> None:
        self.watch = watch
        self.version = 0
        self.entries: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, Any] = {}

    def poll(self) -> Told:
        self.watch.poll()
        while self.watch.read_some():
            pass
        self.version, text = self.watch.changes.since(self.version, dict)
        if text:
            change = json.loads(text)
            self.entries = {} if change["reset"] else self.entries
            for key in change["gone"]:
                del self.entries[key]
            self.entries.update({one["key"]: one for one in change["entries"]})
            self.parts.update(change["parts"])
        return self


def told(storage: Storage, system: Any = REAL_SYSTEM, **options: str) -> Told:
    return Told(TableWatch(storage, options, system))


def test_polls_write_nothing_and_cost_little_where_nothing_happens(storage: LocalStorage) -> None:
    plan = OnlyReads()
    manager = manager_of(storage, writer="w")
    done = write(manager, "a", "b")
    begun = manager.begin()
    page = told(FaultyStorage(storage, plan)).poll().poll()
    assert page.entries[done.instant]["state"] == "completed" and page.entries[done.instant]["files"] == 2
    assert page.entries[begun.instant]["state"] == "inflight" and page.entries[begun.instant]["writer"] == "w"
    before = plan.calls
    page.poll()
    assert plan.calls - before == 3  # two listings, and the heartbeat's stamp
    assert not plan.changed
    begun.abort()


def test_what_was_undone_stays_with_who_did_it(storage: LocalStorage) -> None:
    first, second = manager_of(storage, writer="first"), manager_of(storage, writer="second")
    loser, winner = first.begin(), second.begin()
    mine, theirs = add_file(loser, "a"), add_file(winner, "a", attempt=1)
    commit(winner, theirs)
    with pytest.raises(WriteConflict):
        loser.commit(CommitMetadata((mine,), "UPSERT"), work=Work(7, 8, 9000))
    dead = first.begin()
    page = told(storage).poll()
    assert page.entries[loser.instant]["state"] == "lost"
    assert page.entries[loser.instant]["winner"] == winner.instant
    assert (page.entries[loser.instant]["rows"], page.entries[loser.instant]["size_bytes"]) == (7, 8)
    dead._heartbeat.stop()
    expire(storage, dead.instant)
    manager_of(storage, writer="third").recover()
    undone = page.poll().entries[dead.instant]
    assert undone["state"] == "rolled back" and undone["writer"] == "first"
    assert page.entries[undone["undone_by"]]["action"] == "rollback"
    assert page.entries[undone["undone_by"]]["undone"] == [dead.instant]


def test_a_writer_is_silent_by_our_own_clock(storage: LocalStorage) -> None:
    clock = ManualSystem()
    begun = manager_of(storage, writer="w").begin()
    page = told(storage, clock).poll()
    assert [one["state"] for one in page.parts["writers"]] == ["watched"]
    clock.advance(179)
    assert [one["state"] for one in page.poll().parts["writers"]] == ["watched"]
    clock.advance(2)
    assert [one["state"] for one in page.poll().parts["writers"]] == ["silent"]
    begun._heartbeat.beat()
    assert [one["state"] for one in page.poll().parts["writers"]] == ["alive"]
    begun.abort()
    assert page.poll().parts["writers"] == []


def test_a_store_that_fails_is_said_and_what_was_known_stays(storage: LocalStorage) -> None:
    plan = OnlyReads()
    done = write(manager_of(storage), "a")
    page = told(FaultyStorage(storage, plan)).poll()
    plan.fails = True
    assert not page.watch.poll()
    assert page.watch.summary["state"] == "failed" and "injected" in page.watch.summary["problem"]
    assert done.instant in page.entries
    plan.fails = False
    later = write(manager_of(storage), "b")
    assert later.instant in page.poll().entries and page.watch.summary["problem"] == ""


def test_a_table_that_goes_away_and_another_one_in_its_place(storage: LocalStorage) -> None:
    write(manager_of(storage), "a")
    page = told(storage).poll()
    shutil.rmtree(storage.root)
    assert page.poll().entries == {} and page.watch.summary["state"] == "gone"
    bare_table(storage)
    done = write(manager_of(storage), "a")
    assert [*page.poll().entries] == [done.instant] and page.watch.summary["state"] == "ok"


def test_archived_instants_are_found_and_told_in_full(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    written = [table.write([(number, 1, "x")]).instant for number in range(3)]
    table.compact()
    written += [table.write([(number, 2, "x")]).instant for number in range(3)]
    page = told(table.storage).poll()
    assert set(written) < set(page.entries)
    gone = table.archive(SOON).instants
    assert gone and set(gone).isdisjoint(page.poll().entries)
    found = archived_entries(table.storage, "")
    assert sorted(one["key"] for one in found["entries"]) == sorted(gone) and found["left"] == 0
    assert all(one["archived"] and one["operation"] and one["rows"] for one in found["entries"])
    assert archived_entries(table.storage, found["entries"][-1]["completion"])["entries"] == []
    details = details_of(table.storage, written[0])
    assert details["columns"] == ["id", "ts", "v", "part"] and details["files"][0]["rows"] == 1
    for key in ("20260101000000000", "../../etc/passwd"):
        with pytest.raises(InvalidRequest):
            details_of(table.storage, key)


def test_no_secret_is_told(storage: LocalStorage) -> None:
    options = {
        "hoodie.write.lock.provider": "redis",
        "hoodie.write.lock.redis.url": "redis://someone:hunter2@127.0.0.1:9/0",
        "hoodie.write.lock.redis.password": "hunter2",
    }
    transaction = manager_of(storage).begin()
    commit(transaction, add_file(transaction, "a"), extra={"checkpoint.token": "hunter2", "from": "s3://u:hunter2@b/x"})
    page = told(storage, **options).poll()
    assert page.parts["locks"]["problem"]
    everything = json.dumps([page.parts, page.entries, page.watch.summary, details_of(storage, transaction.instant)])
    assert "hunter2" not in everything and "checkpoint.token" in everything
    page.watch.close()


def test_locks_are_told_with_who_waits_and_whose_they_are(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "trips"))
    locks = {PROVIDER: "filesystem", FILESYSTEM_PATH: str(tmp_path / "locks")}
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1, **locks}
    ArrowTable(storage.root, options).upsert(pa.table({"id": ["a"]}))
    page = told(storage, **locks).poll()
    assert (page.parts["locks"]["others"], page.parts["locks"]["problem"], page.parts["locks"]["held"]) == ("", "", [])
    elsewhere = told(storage, **{**locks, FILESYSTEM_PATH: str(tmp_path / "others")}).poll()
    assert elsewhere.parts["locks"]["others"].startswith("filesystem #")
    with closing(open_lock_provider(LockScope(storage.uri, locks))) as provider:
        lease = provider.acquire(TABLE_KEY, 5)
        waiter = threading.Thread(target=lambda: provider.acquire(TABLE_KEY, 60).release(), daemon=True)
        waiter.start()
        while not provider.holders()[0].waiting:
            REAL_SYSTEM.sleep(0.01)
        (held,) = page.poll().parts["locks"]["held"]
        assert (held["owner"], held["waiting"], held["waiters"]) == (lease.owner, 1, [process_name()])
        lease.release()
        waiter.join()
    for one in (page, elsewhere):
        one.watch.close()


def test_changes_of_long_ago_are_told_as_a_whole() -> None:
    changes = Changes(REAL_SYSTEM)
    changes.set_entry("stays", {"n": 1})
    version, _ = changes.since(0, dict)
    for number in range(6000):
        changes.set_entry(str(number), {"n": number})
        changes.set_entry(str(number), None)
    late = json.loads(changes.since(version, dict)[1])
    assert late["reset"] and late["entries"] == [{"n": 1}] and late["gone"] == []
    version = late["version"]
    changes.set_entry("stays", {"n": 1})
    assert changes.since(version, dict) == (version, "")
    changes.set_entry("stays", None)
    assert json.loads(changes.since(version, dict)[1])["gone"] == ["stays"]


@contextmanager
def acting(*roots: str, executor: Executor = HERE) -> Iterator[tuple[Board, Actions]]:
    """Actions on tables at which nobody looks."""
    board = Board([TableWatch(LocalStorage(root), {}, REAL_SYSTEM) for root in roots], 0.05, REAL_SYSTEM)
    try:
        yield board, Actions(board, [*map(PageTable, roots)], executor, REAL_SYSTEM)
    finally:
        board.close()


def ended(board: Board, number: int) -> dict[str, Any]:
    """An action once it has ended."""
    heard = threading.Event()
    with board.looking(0, heard.set):
        while True:
            heard.clear()
            _, text = board.since(0, 0)
            parts = json.loads(text)["parts"] if text else {}
            found = next((one for one in parts.get("actions", []) if one["number"] == number), None)
            if found is not None and found["state"] != RUNNING:
                return dict(found)
            assert heard.wait(30)


def test_actions_do_what_their_commands_do(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    for number in range(5):
        table.write([(number, number, "x")])
    assert told(table.storage).poll().parts["plans"] == {"waiting": [], "due": ["compaction"]}
    off = str(table.plan({CANCELLABLE: "true"}))
    (waiting,) = told(table.storage).poll().parts["plans"]["waiting"]
    assert (waiting["instant"], waiting["cancellable"], waiting["cancelled"]) == (off, True, "")
    with acting(str(table.root)) as (board, actions):
        done = ended(board, actions.begin(0, CALL_OFF, off).number)
        assert done["state"] == "done" and "never commit" in done["outcome"]
        later = str(table.plan())  # which cannot be called off
        done = ended(board, actions.begin(0, RUN, "compaction").number)
        assert done["state"] == "done" and later in done["outcome"]
        assert ended(board, actions.begin(0, CALL_OFF, later).number)["state"] == "failed"
        assert "no holder" in ended(board, actions.begin(0, BREAK, TABLE_KEY).number)["outcome"]
        for what, target in (("drop", "table"), (BREAK, "")):
            with pytest.raises(InvalidRequest):
                actions.begin(0, what, target)
    assert table.nothing_pending() and len(table.read()) == 5


class Waits:
    """Begins no task before it is told to."""

    tasks = True

    def __init__(self) -> None:
        self.told = threading.Event()

    def map(self, work: Task[T, R], things: Sequence[T], kind: type[R], what: str, small: bool = False) -> list[R]:
        assert self.told.wait(30)
        return HERE.map(work, things, kind, what, small)


def test_the_same_action_is_not_begun_twice_at_once(tmp_path: Path) -> None:
    table, executor = LiveTable(tmp_path / "t"), Waits()
    table.write([(1, 1, "x")])
    table.plan()
    with acting(str(table.root), executor=executor) as (board, actions):
        first = actions.begin(0, RUN, "compaction")
        with pytest.raises(Unavailable, match="is running already"):
            actions.begin(0, RUN, "compaction")
        executor.told.set()
        assert ended(board, first.number)["state"] == "done"


def test_one_polls_for_all_and_only_while_somebody_looks() -> None:
    plan = OnlyReads()
    behind = MemoryStorage("looked-at")
    bare_table(behind)
    watch = TableWatch(FaultyStorage(behind, plan), {}, REAL_SYSTEM)
    board = Board([watch], 0.02, REAL_SYSTEM)
    wait_for(lambda: plan.polls > 0)
    board.hurry(0)
    REAL_SYSTEM.sleep(0.3)
    assert plan.polls == 1  # at the start, and no more
    with board.looking(0, lambda: None), board.looking(0, lambda: None):
        began_ns, hurried = REAL_SYSTEM.monotonic_ns(), 3
        wait_for(lambda: plan.polls > 10)
        took_s = (REAL_SYSTEM.monotonic_ns() - began_ns) / 1e9
        assert plan.polls <= 2 + hurried + took_s / 0.02  # as many as for one alone
    board.close()
    assert board.closed


def test_nothing_is_told_of_a_table_before_all_of_it_was_looked_at() -> None:
    """Or who opens a page would look at the last minute of a table of which nothing was shown yet, and stay there."""
    plan = StopsAt("list", TIMELINE_FOLDER)
    behind = MemoryStorage("looked-at")
    bare_table(behind)
    write(manager_of(behind), "a")
    board = Board([TableWatch(FaultyStorage(behind, plan), {}, REAL_SYSTEM)], 0.02, REAL_SYSTEM)
    assert plan.reached.wait(30)
    assert board.tables[0].changes.version > 0 and board.since(0, 0) == (0, "")
    plan.goes_on.set()
    heard = threading.Event()
    with board.looking(0, heard.set):
        wait_for(lambda: bool(board.since(0, 0)[1]))
        assert len(json.loads(board.since(0, 0)[1])["entries"]) == 1
    board.close()


class StopsAt(FaultPlan):
    """Stands still at the first call of a kind, until it is told to go on."""

    def __init__(self, operation: str, path: str) -> None:
        self._call = (operation, path)
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def decide(self, operation: str, path: str, changes: bool) -> str:
        if (operation, path) == self._call:
            self.reached.set()
            assert self.goes_on.wait(30)
        return ""


def wait_for(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        REAL_SYSTEM.sleep(0.01)
    raise AssertionError("it never came true")
