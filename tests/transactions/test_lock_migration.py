from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch.errors import InvalidRequest, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.hybrid import REGISTER
from lakelatch.timeline.log.events import LOCK_CHANGES_FOLDER
from lakelatch.timeline.log.lock_names import WrongLocks
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.lock_migration import change_locks, lock_domain
from lakelatch.transactions.manager import TransactionManager


def manager_with(table: Table, provider: LockProvider) -> TransactionManager:
    return table.manager(NON_BLOCKING, provider=provider)


@pytest.fixture
def old(table: Table) -> LockProvider:
    return table.provider()


@pytest.fixture
def new(table: Table, tmp_path: Path) -> LockProvider:
    """Locks of the other kind."""
    scope = LockScope(table.storage.uri, {"hoodie.write.lock.filesystem.path": str(tmp_path / "new-locks")})
    kind = InProcessLockProvider if isinstance(table.storage, LocalStorage) else FilesystemLockProvider
    return kind(scope)


def test_the_first_writer_says_which_locks_a_table_has(table: Table, old: LockProvider, new: LockProvider) -> None:
    assert lock_domain(table.storage) == ""
    write(table.manager(), "a")
    assert lock_domain(table.storage) == old.domain != new.domain
    with pytest.raises(WrongLocks, match=r"hoodie\.write\.lock\.provider"):
        manager_with(table, new).begin()
    assert table.leftovers() == []


def test_a_change_refuses_writers_under_way_and_lets_new_ones_in(
    table: Table, old: LockProvider, new: LockProvider
) -> None:
    write(table.manager(), "a")
    late = table.manager(NON_BLOCKING).begin()
    stat = add_file(late, "b")
    event = change_locks(table.storage, old, new, "operator", 5)
    assert event is not None and event.lock_domain == new.domain == lock_domain(table.storage)
    with pytest.raises(WrongLocks, match="migrate"):
        commit(late, stat)
    with pytest.raises(WrongLocks):
        table.manager().begin()
    fresh = manager_with(table, new)
    assert fresh.recover() == [late.instant]
    done = write(fresh, "c")
    assert done.instant > event.time and lock_domain(table.storage) == new.domain
    assert Snapshot.load(table.storage).completed[-1].requested == done.instant
    assert table.leftovers() == []
    assert all(late.instant not in path for path in table.data_files())


def test_a_change_waits_for_who_is_committing(table: Table, old: LockProvider, new: LockProvider) -> None:
    write(table.manager(), "a")
    with old.acquire(TABLE_KEY, 5), pytest.raises(LockTimeout):
        change_locks(table.storage, table.provider(), new, "operator", 0.1)
    assert lock_domain(table.storage) == old.domain


def test_a_service_that_is_gone_is_not_asked(table: Table, old: LockProvider, new: LockProvider) -> None:
    write(table.manager(), "a")
    with old.acquire(TABLE_KEY, 5):
        event = change_locks(table.storage, table.provider(), new, "operator", 0.1, old_is_gone=True)
    assert event is not None and event.token == 0


def test_times_go_on_above_the_old_ones(table: Table, old: LockProvider, new: LockProvider) -> None:
    ahead_ms = old.register(REGISTER).advance(table.system.realtime_ms() + 10_000_000)
    event = change_locks(table.storage, old, new, "operator", 5)
    assert event is not None
    assert new.register(REGISTER).advance(0) > ahead_ms
    assert write(manager_with(table, new), "a").instant > event.time


def test_a_change_that_is_repeated_changes_nothing(table: Table, old: LockProvider, new: LockProvider) -> None:
    first = change_locks(table.storage, old, new, "operator", 5)
    assert first is not None and table.storage.exists(f"{LOCK_CHANGES_FOLDER}/{first.file}")
    assert change_locks(table.storage, old, new, "operator", 5) is None
    assert len(table.events()) == 1
    assert change_locks(table.storage, new, new, "operator", 5) is None
    with pytest.raises(InvalidRequest, match="the same"):
        change_locks(table.storage, old, old, "operator", 5)
    assert change_locks(table.storage, new, old, "operator", 5) is not None


def test_a_change_from_locks_that_the_table_does_not_have_is_refused(
    table: Table, old: LockProvider, new: LockProvider
) -> None:
    write(table.manager(), "a")

    class ThirdLockProvider(InProcessLockProvider):
        pass

    third = ThirdLockProvider(LockScope(table.storage.uri, {}))
    with pytest.raises(InvalidRequest, match="--from"):
        change_locks(table.storage, new, third, "operator", 5)
    assert lock_domain(table.storage) == old.domain


def test_nobody_is_let_in_beside_the_new_ones(table: Table, old: LockProvider, new: LockProvider) -> None:
    """Old and new writers commit as fast as they can while the change happens: no old commit after the first new."""
    write(table.manager(), "a")

    at_work, changed = Event(), Event()

    def keep_writing(manager: TransactionManager, name: str) -> int:
        """Until ten turns after the change."""
        done, left = 0, 10
        while left:
            left -= changed.is_set()
            try:
                write(manager, f"{name}-{done}")
                done += 1
            except WrongLocks:
                REAL_SYSTEM.sleep(0.001)
            if done == 3:
                at_work.set()
        return done

    with ThreadPoolExecutor(3) as pool:
        old_one = pool.submit(keep_writing, table.manager(NON_BLOCKING), "old")
        new_one = pool.submit(keep_writing, manager_with(table, new), "new")
        try:
            assert at_work.wait(60)
            change_locks(table.storage, table.provider(), new, "operator", 60)
        finally:
            changed.set()
        assert old_one.result() >= 3 and new_one.result() >= 9
    domains = [event.lock_domain for event in table.events()]
    assert domains == sorted(domains, key=lambda domain: domain == new.domain)
    assert new.domain in domains
