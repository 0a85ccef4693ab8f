"""What each kind of call asks of the storage, exactly: on a warm process, beside nobody.

The numbers are those of docs/design/0022-requests.md. One that falls is changed here and there; one that rises needs a
reason.
"""

from __future__ import annotations

import pytest
from bare_table import add_file, commit, write
from one_table import Table, own_file
from storages.counting import CountingStorage

from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockScope
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.files import MARKERS_FOLDER


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> CountingStorage:
    return CountingStorage(request.node.name)


@pytest.fixture
def table(storage: CountingStorage) -> Table:
    system = ManualSystem(REAL_SYSTEM.realtime_ms())
    return Table(storage, system, times=system)


@pytest.fixture
def manager(table: Table, storage: CountingStorage) -> TransactionManager:
    """One that has recovered and written."""
    manager = table.manager()
    manager.recover()
    write(manager, "a")
    storage.forget()
    return manager


def expect(storage: CountingStorage, requests: int, steps: int) -> None:
    """And counts from here."""
    assert (len(storage.calls), storage.steps) == (requests, steps), storage.story()
    storage.forget()


def test_a_write_of_one_file(manager: TransactionManager, storage: CountingStorage) -> None:
    transaction = manager.begin()
    expect(storage, 5, 3)
    file = add_file(transaction, "a")
    expect(storage, 5, 3)
    commit(transaction, file)
    expect(storage, 9, 6)


def test_such_a_write_after_others_have_committed_since(
    table: Table, manager: TransactionManager, storage: CountingStorage
) -> None:
    """The look that comes before its file is at the tail that its slot goes after."""
    transaction = manager.begin(for_tasks=False)
    file = own_file(transaction, "a")
    write(table.manager(), "b")
    storage.forget()
    commit(transaction, file)
    expect(storage, 12, 8)


def test_a_write_whose_file_its_own_process_makes(manager: TransactionManager, storage: CountingStorage) -> None:
    transaction = manager.begin(for_tasks=False)
    expect(storage, 2, 2)
    file = own_file(transaction, "a")
    expect(storage, 0, 0)
    commit(transaction, file)
    expect(storage, 11, 7)


def test_a_write_of_many_own_files(manager: TransactionManager, storage: CountingStorage) -> None:
    transaction = manager.begin(for_tasks=False)
    files = [own_file(transaction, f"g{number}") for number in range(20)]
    storage.forget()
    commit(transaction, *files)
    expect(storage, 11 + 2 * 19, 7)


def test_a_write_after_another_process_has_written(
    manager: TransactionManager, storage: CountingStorage, table: Table
) -> None:
    write(table.manager(), "b")
    table.system.advance(1)
    storage.forget()
    transaction = manager.begin()
    expect(storage, 7, 5)
    file = add_file(transaction, "a")
    storage.forget()
    commit(transaction, file)
    expect(storage, 9, 6)


def test_a_commit_that_finds_another_one_before_it(
    manager: TransactionManager, storage: CountingStorage, table: Table
) -> None:
    transaction = manager.begin()
    file = add_file(transaction, "a")
    write(table.manager(), "b")
    storage.forget()
    commit(transaction, file)
    expect(storage, 13, 10)


def test_a_commit_that_loses_the_race_for_its_slot(
    manager: TransactionManager, storage: CountingStorage, table: Table
) -> None:
    provider = LyingLockProvider(LockScope(storage.uri, {}))  # so that it need not wait for the lock
    others = table.manager(provider=provider)
    transaction, other = manager.begin(), others.begin()
    files = add_file(transaction, "a"), add_file(other, "b")

    def race() -> None:
        commit(other, files[1])
        storage.forget()

    storage.forget()
    storage.before("put_if_absent", ".hoodie/.lakelatch/log/00000000000000000002.json", race)
    commit(transaction, files[0])  # counted from the slot that it loses
    expect(storage, 10, 9)


def test_a_batch_of_files(manager: TransactionManager, storage: CountingStorage) -> None:
    transaction = manager.begin()
    files = [add_file(transaction, f"g{number}") for number in range(20)]
    storage.forget()
    commit(transaction, *files)
    expect(storage, 9, 6)


def test_a_commit_that_leaves_a_file_out_looks_at_the_timeline_anew(
    manager: TransactionManager, storage: CountingStorage
) -> None:
    transaction = manager.begin()
    add_file(transaction, "a")
    file = add_file(transaction, "a", attempt=1)
    storage.forget()
    commit(transaction, file)
    expect(storage, 12, 9)


def test_a_plan_is_scheduled_and_carried_out(manager: TransactionManager, storage: CountingStorage) -> None:
    instant = manager.schedule(lambda folder: b"plan")
    assert instant is not None
    expect(storage, 10, 10)
    transaction = manager.execute(instant)
    expect(storage, 6, 6)
    transaction.commit(CommitMetadata((), "COMPACT"))
    expect(storage, 7, 6)


def test_a_recovery_with_nothing_to_do(manager: TransactionManager, storage: CountingStorage, table: Table) -> None:
    table.system.advance(100)
    assert manager.recover() == []
    expect(storage, 2, 1)
    table.system.advance(1000)  # now and then it looks for what has neither claim nor instant
    assert manager.recover() == []
    expect(storage, 6, 2)


def test_a_recovery_beside_a_live_writer(manager: TransactionManager, storage: CountingStorage, table: Table) -> None:
    table.manager().begin()
    table.system.advance(1000)
    table.storage.put(".hoodie/.lakelatch/now", b"")
    storage.forget()
    assert manager.recover() == []
    expect(storage, 10, 6)


def test_many_writers_are_looked_at_side_by_side(table: Table, storage: CountingStorage) -> None:
    """Two requests for each, and the storage's time."""
    begun = [table.manager().begin() for _ in range(20)]
    late = table.manager()
    storage.forget()
    assert late.context.observer.dead([one.instant for one in begun]) == []
    assert len(storage.calls) == 2 * len(begun) + 2 and storage.steps == 4, storage.story()


def test_a_recovery_leaves_to_their_owners_what_they_are_about_to_remove(
    table: Table, manager: TransactionManager, storage: CountingStorage
) -> None:
    """Of what has ended, claim and markers are there when it lists them, and gone when it knows who is dead."""
    owner = manager.begin()
    file = add_file(owner, "a")
    paths = [heartbeat_path(owner.instant), *storage.walk(f"{MARKERS_FOLDER}/{owner.instant}")]
    left = {path: storage.read(path) for path in paths}
    commit(owner, file)
    for path, data in left.items():
        storage.put(path, data)

    def remove() -> None:
        storage.delete_at_once(paths)
        storage.forget()

    storage.before("put", ".hoodie/.lakelatch/now", remove)
    assert len(paths) == 2 and table.manager().recover() == []
    assert not [call for call in storage.calls if call.operation.startswith("delete")], storage.story()
