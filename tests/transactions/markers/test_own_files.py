"""Data files that the transaction's own process makes, beside others that take it for dead at any step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from bare_table import add_file, commit, write
from one_table import Table, own_file
from table import meanwhile

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.checksums import verify_checksum
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import LOST_AFTER, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.actions import DELTA_COMMIT, ROLLBACK
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.timeline.metadata import CommitMetadata, RollbackMetadata, RollbackPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import EarlySettings
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.direct import OPEN_FOLDER, Markers
from lakelatch.transactions.markers.files import MARKERS_FOLDER
from lakelatch.transactions.transaction import Transaction


def begin(manager: TransactionManager) -> Transaction:
    transaction = manager.begin(for_tasks=False)
    assert transaction.own_files is not None
    return transaction


def roll_back(table: Table, transaction: Transaction) -> None:
    table.expire(transaction.instant)
    assert table.manager().recover() == [transaction.instant]


def java_rolls_back(table: Table, victim: str) -> None:
    """As Java Hudi does: without a slot, and with the files that have markers by then."""
    storage, rollback, done = table.storage, str(int(victim) + 1), str(int(victim) + 2)
    files = tuple(Markers(storage, victim).announced())
    storage.put(requested(rollback, ROLLBACK).path, RollbackPlan(victim, DELTA_COMMIT, files).to_avro())
    storage.put(inflight(rollback, ROLLBACK).path, b"")
    for path in (*files, inflight(victim, DELTA_COMMIT).path, requested(victim, DELTA_COMMIT).path):
        storage.delete(path)
    metadata = RollbackMetadata(rollback, victim, DELTA_COMMIT, files)
    storage.put(completed(rollback, ROLLBACK, done).path, metadata.to_avro())
    storage.delete_folder(f"{MARKERS_FOLDER}/{victim}")
    storage.delete(heartbeat_path(victim))


def is_tombstone(table: Table, path: str) -> bool:
    return table.storage.exists(path) and table.storage.stat(path).size_bytes == 0


def test_own_files_are_there_with_the_commit_and_leave_nothing_else(table: Table) -> None:
    transaction = begin(table.manager())
    files = own_file(transaction, "a"), own_file(transaction, "b", "day=1")
    assert table.data_files() == [] and not table.storage.list(OPEN_FOLDER).files
    done = commit(transaction, *files)
    assert table.data_files() == sorted(file.path for file in files)
    verify_checksum(table.storage.read(files[0].path), files[0].path)
    assert table.completed() == [done.instant] and table.leftovers() == []


def test_what_was_announced_and_is_not_committed_gets_a_tombstone(table: Table) -> None:
    transaction = begin(table.manager())
    assert transaction.own_files is not None
    transaction.own_files.announce_all([("", "late.log")])
    kept, left_out = own_file(transaction, "a"), own_file(transaction, "b")
    commit(transaction, kept)
    assert table.data_files() == [kept.path] and table.leftovers() == []
    assert is_tombstone(table, "late.log") and is_tombstone(table, left_out.path)


def test_many_bytes_go_before_the_commit(table: Table) -> None:
    transaction = begin(table.manager())
    assert transaction.own_files is not None
    transaction.own_files.create("", "small.log", b"rows")
    assert not table.storage.exists("small.log")
    transaction.own_files.create("", "large.log", bytes(17 * 1024 * 1024))
    assert table.data_files() == ["large.log", "small.log"]
    transaction.abort()
    assert table.data_files() == []


def ended_before(table: Table, operation: str, prefix: str) -> Transaction:
    """A commit whose writer was taken for dead, and rolled back, right before its next such call."""
    ended: list[str] = []

    def before(called: str, path: str) -> None:
        if begun and not ended and called == operation and path.startswith(prefix):
            ended.append(path)
            roll_back(table, begun[0])

    begun: list[Transaction] = []
    manager = table.manager(storage=FaultyStorage(table.storage, before=before))
    write(manager, "z")
    transaction = begin(manager)
    file = own_file(transaction, "a")
    begun.append(transaction)
    with pytest.raises(TransactionEnded):
        commit(transaction, file)
    assert ended
    return transaction


@pytest.mark.parametrize(
    ("operation", "path"), [("put_if_absent", MARKERS_FOLDER), ("list", LOG_FOLDER)], ids=["marker", "look at the log"]
)
def test_who_was_rolled_back_before_it_has_asked_the_log_makes_no_file(operation: str, path: str, table: Table) -> None:
    transaction = ended_before(table, operation, path)
    assert not [one for one in table.data_files() if transaction.instant in one]
    table.manager().recover()
    assert table.leftovers() == []


def test_the_log_is_asked_once_the_marker_is_there_and_not_before(table: Table) -> None:
    """A rollback in between has not listed the marker. So no request may make the file, though its writer sweeps it:
    it may die before it comes to that."""
    asked: list[str] = []

    def before(called: str, path: str) -> None:
        if not begun:
            return
        if called == "put_if_absent" and path.startswith(MARKERS_FOLDER):
            roll_back(table, begun[0])
            asked.append("marker")
        elif called == "list" and path == LOG_FOLDER:
            asked.append("log")
        elif called == "put_if_absent" and path.startswith("a_0_"):
            asked.append("file")

    begun: list[Transaction] = []
    manager = table.manager(storage=FaultyStorage(table.storage, before=before))
    write(manager, "z")
    transaction = begin(manager)
    file = own_file(transaction, "a")
    assert transaction.own_files is not None
    begun.append(transaction)
    with pytest.raises(TransactionEnded):
        transaction.own_files.place()
    assert asked[:2] == ["marker", "log"] and "file" not in asked
    assert not table.storage.exists(file.path)


def test_who_was_rolled_back_after_it_has_asked_the_log_finds_a_tombstone(table: Table) -> None:
    transaction = ended_before(table, "put_if_absent", "a_0_")
    assert is_tombstone(table, f"a_0_{transaction.instant}.log")
    table.manager().recover()
    assert table.leftovers() == [] and len(table.data_files()) == 1


def test_a_beat_that_brings_the_claim_back_lets_no_file_in(table: Table) -> None:
    """The claim is no opening: it is there again, and the log says that the instant has ended."""
    transaction = begin(table.manager())
    file, beat = own_file(transaction, "a"), table.storage.read(heartbeat_path(transaction.instant))
    roll_back(table, transaction)
    table.storage.put(heartbeat_path(transaction.instant), beat)
    with pytest.raises(TransactionEnded, match="ended elsewhere"):
        commit(transaction, file)
    assert table.data_files() == []


def test_what_came_meanwhile_cannot_be_known_once_its_slots_are_gone(table: Table) -> None:
    transaction = begin(table.manager(slots_kept=2))
    file = own_file(transaction, "a")
    table.storage.delete(heartbeat_path(transaction.instant))  # which kept them
    other = table.manager(slots_kept=2)
    for number in range(8):
        write(other, f"g{number}")
    with pytest.raises(TransactionEnded, match="ended elsewhere"):
        commit(transaction, file)


def test_others_that_commit_meanwhile_are_in_nobodys_way(table: Table) -> None:
    transaction = begin(table.manager())
    file = own_file(transaction, "a")
    write(table.manager(), "b")
    assert commit(transaction, file).slot == 2


@pytest.mark.parametrize("kind", [LOST_AFTER, UNAVAILABLE])
def test_a_data_file_whose_put_fails_is_there_once_in_the_end(kind: str, table: Table) -> None:
    faults = [Fault(kind, "put_if_absent", "a_0_", times=1)]
    transaction = begin(table.manager(storage=FaultyStorage(table.storage, faults)))
    file = own_file(transaction, "a")
    if kind == UNAVAILABLE:
        with pytest.raises(Unavailable):
            commit(transaction, file)
    done = commit(transaction, file)
    assert table.completed() == [done.instant] and table.data_files() == [file.path]
    assert table.leftovers() == []


def test_tasks_are_refused_until_the_transaction_is_open_for_them(table: Table) -> None:
    transaction = begin(table.manager())
    with pytest.raises(TransactionEnded, match="takes no more files"):
        add_file(transaction, "b")
    own, own_files = own_file(transaction, "a"), transaction.own_files
    assert own_files is not None
    own_files.place()
    transaction.reopen()
    assert transaction.own_files is None
    given_up, kept = add_file(transaction, "a", attempt=1), add_file(transaction, "a", attempt=2)
    commit(transaction, kept)
    assert table.data_files() == [kept.path] and table.leftovers() == []
    assert all(is_tombstone(table, path) for path in (own.path, given_up.path, f"b_0_{transaction.instant}.log"))


def with_early(manager: TransactionManager) -> None:
    early = EarlySettings()
    manager.context = replace(manager.context, settings=replace(manager.settings, early=early))


@pytest.mark.parametrize(("change", "own"), [(with_early, False), (lambda manager: None, True)])
def test_early_detection_asks_for_files_that_tasks_announce(
    change: Callable[[TransactionManager], None], own: bool, table: Table
) -> None:
    manager = table.manager()
    change(manager)
    assert (manager.begin(for_tasks=False).own_files is not None) == own


def test_an_empty_commit_asks_nobody(table: Table) -> None:
    transaction = begin(table.manager())
    done = transaction.commit(CommitMetadata((), "UPSERT"))
    assert table.completed() == [done.instant] and table.leftovers() == []


def test_files_that_come_after_a_rollback_by_java_get_tombstones(table: Table) -> None:
    """It is in no log, so the writer hears of it at its commit only: a reader must not find the rows meanwhile."""
    transaction = begin(table.manager())
    file = own_file(transaction, "a")
    assert transaction.own_files is not None
    transaction.own_files.announce_held()
    java_rolls_back(table, transaction.instant)
    with pytest.raises(TransactionEnded, match="inflight file is gone"):
        commit(transaction, file)
    assert is_tombstone(table, file.path) and transaction.status == "aborted"


def test_and_by_a_recovery_if_their_writer_dies(table: Table) -> None:
    transaction = begin(table.manager())
    file = own_file(transaction, "a")
    assert transaction.own_files is not None
    with meanwhile(lambda: java_rolls_back(table, transaction.instant), "begin.after_inflight"):  # before its marker
        transaction.own_files.place()
    assert table.manager().recover() == []
    assert is_tombstone(table, file.path) and table.leftovers() == []


def test_a_recovery_leaves_the_files_of_what_has_completed(table: Table) -> None:
    """Whose claim and markers a crash has left behind."""
    transaction = begin(table.manager())
    file = own_file(transaction, "a")
    assert transaction.own_files is not None
    transaction.own_files.place()
    beat = table.storage.read(heartbeat_path(transaction.instant))
    commit(transaction, file)
    table.storage.put(Markers(table.storage, transaction.instant).path_of("", file.path), b"")
    table.storage.put(heartbeat_path(transaction.instant), beat)
    table.expire(transaction.instant)
    assert table.manager().recover() == []
    assert table.data_files() == [file.path] and table.leftovers() == []


def test_folders_are_looked_at_when_it_begins_unless_others_commit_meanwhile(table: Table) -> None:
    """A file of theirs may be missing in such a listing, and the mark of the transaction says that it knows them."""
    ahead = ManualSystem(REAL_SYSTEM.realtime_ms() + 60_000)  # or it would claim once more
    manager = replace(table, times=ahead).manager()
    write(table.manager(), "a")
    seen = manager.begin(for_tasks=False, folders=("", "p")).own_files
    assert seen is not None and {name: set(names) for name, names in seen.listed.items()} == {
        "": set(table.storage.names("")),
        "p": set(),
    }
    with meanwhile(lambda: write(table.manager(), "b"), "begin.after_claim"):
        missed = manager.begin(for_tasks=False, folders=("",)).own_files
    assert missed is not None and not missed.listed


def test_the_instant_is_on_the_timeline_beside_the_first_marker(table: Table) -> None:
    transaction = begin(table.manager())
    assert transaction.own_files is not None and not Snapshot.load(table.storage).pending
    own_file(transaction, "a")
    transaction.own_files.announce_held()
    assert [one.requested for one in Snapshot.load(table.storage).pending] == [transaction.instant]
    assert table.data_files() == []
    transaction.abort()
    assert table.leftovers() == []


def test_a_commit_without_a_file_is_on_the_timeline_before(table: Table) -> None:
    transaction = begin(table.manager())
    done = commit(transaction)
    assert table.completed() == [done.instant] and table.storage.exists(inflight(done.instant, DELTA_COMMIT).path)


def test_beside_java_writers_there_are_none(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(table.provider()), "taken_by_hudi", True)
    assert table.manager().begin(for_tasks=False).own_files is None


def test_an_instant_that_has_ended_is_not_opened_for_tasks(table: Table) -> None:
    """Also if a beat that was under way has brought its claim back."""
    transaction = begin(table.manager())
    beat = table.storage.read(heartbeat_path(transaction.instant))
    roll_back(table, transaction)
    table.storage.put(heartbeat_path(transaction.instant), beat)
    with pytest.raises(TransactionEnded):
        transaction.reopen()
    assert not table.storage.list(OPEN_FOLDER).files
