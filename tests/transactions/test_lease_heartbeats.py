from __future__ import annotations

import pytest
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch.heartbeat.contract import LEASE, heartbeat_key
from lakelatch.locks.contract import LockProvider
from lakelatch.transactions.manager import TransactionManager


@pytest.fixture
def provider(table: Table) -> LockProvider:
    return table.provider()


def manager(table: Table, provider: LockProvider) -> TransactionManager:
    return table.manager(provider=provider, heartbeat_type=LEASE)


def test_a_transaction_holds_its_lease_until_it_ends(table: Table, provider: LockProvider) -> None:
    transaction = manager(table, provider).begin()
    held = [heartbeat_key(transaction.instant)]
    assert [holder.key for holder in provider.holders()] == held
    table.expire(transaction.instant)
    assert manager(table, provider).recover() == []
    commit(transaction, add_file(transaction, "a"))
    assert provider.holders() == [] and table.leftovers() == []


def test_a_writer_whose_lease_is_gone_is_rolled_back_at_once(table: Table, provider: LockProvider) -> None:
    dead = manager(table, provider).begin()
    add_file(dead, "a")
    provider.break_(heartbeat_key(dead.instant))
    assert manager(table, provider).recover() == [dead.instant]
    assert table.data_files() == []
    write(manager(table, provider), "b")
    assert provider.holders() == []


def test_a_conflict_and_an_abort_leave_no_lease(table: Table, provider: LockProvider) -> None:
    early = manager(table, provider).begin()
    early.abort()
    assert provider.holders() == [] and table.leftovers() == []
