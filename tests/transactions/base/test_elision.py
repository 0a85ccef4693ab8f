"""Commits that ask no lock, and when they do."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch.errors import LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.skew_adjusting import SkewAdjustingTimeGenerator
from lakelatch.timeline.log.events import LOG_FOLDER, slot_path
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.base.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.manager import TransactionManager


class Provider(InProcessLockProvider):
    """Notes who asks for the table's lock."""

    by_hudi = False

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self.asked = 0

    @property
    def domain(self) -> str:
        return "inprocess"

    @property
    def taken_by_hudi(self) -> bool:
        return self.by_hudi

    def acquire(self, key: str, timeout_s: float) -> Lease:
        self.asked += key == TABLE_KEY
        return super().acquire(key, timeout_s)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


@pytest.fixture
def provider(table: Table) -> Provider:
    return Provider(LockScope(table.storage.uri, {}))


def manager_with(table: Table, provider: Provider, elision: str = "auto", **more: Any) -> TransactionManager:
    return table.manager(NON_BLOCKING, provider=provider, lock_elision=elision, lock_timeout_s=0, **more)


def test_a_commit_without_others_asks_no_lock(table: Table, provider: Provider) -> None:
    manager = manager_with(table, provider)
    with provider.acquire(TABLE_KEY, 0):  # it would not get it
        first, second = write(manager, "a"), write(manager, "a")
    assert provider.asked == 1
    assert first.instant < first.completion < second.instant < second.completion


def test_alternating_writers_ask_no_lock_either(table: Table, provider: Provider) -> None:
    managers = manager_with(table, provider), manager_with(table, provider)
    for number in range(6):
        write(managers[number % 2], "a")
    assert provider.asked == 0


def test_who_has_lost_twice_queues_and_goes_on_queueing_for_a_while(table: Table, provider: Provider) -> None:
    others = manager_with(table, provider)
    left = [1, 2]

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and left and path == slot_path(left[0]):
            del left[0]
            write(others, "b")

    manager = manager_with(table, provider, storage=FaultyStorage(table.storage, before=before))
    write(manager, "a")
    assert not left and provider.asked == 1 and len(table.completed()) == 3
    for _ in range(10):
        write(manager, "a")
    assert 1 < provider.asked < 10


def test_a_holder_that_loses_its_slots_makes_the_others_queue(table: Table, provider: Provider) -> None:
    """They would win for ever: each is faster than the holder."""
    others = manager_with(table, provider)
    refused: list[LockTimeout] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(LOG_FOLDER) and not refused:
            try:
                write(others, "b")
            except LockTimeout as error:
                refused.append(error)

    manager = manager_with(table, provider, OFF, storage=FaultyStorage(table.storage, before=before))
    write(manager, "a")
    assert refused and 3 <= len(table.completed()) < 10
    assert [name for name in table.storage.list(LOG_FOLDER).files if not name.endswith(".json")] == []
    provider.asked = 0
    write(manager_with(table, provider), "a")
    assert provider.asked == 0


@pytest.mark.parametrize("why", ["off", "hudi", "generator"])
def test_the_lock_is_always_asked_where_something_else_hangs_on_it(table: Table, provider: Provider, why: str) -> None:
    provider.by_hudi = why == "hudi"
    manager = manager_with(table, provider, OFF if why == "off" else "auto")
    if why == "generator":
        generator = SkewAdjustingTimeGenerator(provider, table.system)
        manager = TransactionManager(table.storage, provider, generator, TransactionSettings(), table.system)
    write(manager, "a")
    assert provider.asked >= 1


def test_a_foreign_commit_sends_the_writer_to_the_lock(table: Table, provider: Provider) -> None:
    """Who takes no slots may take the lock, and nothing else keeps it away."""
    manager = manager_with(table, provider)
    transaction = manager.begin()
    file = add_file(transaction, "a")
    table.place_foreign("20200101000000000", "20200101000001000", "b")
    commit(transaction, file)
    assert provider.asked == 1


def test_sixteen_writers_all_get_their_turn(table: Table, provider: Provider) -> None:
    def run(number: int) -> None:
        manager = table.manager(NON_BLOCKING, provider=provider, lock_timeout_s=60)
        for _ in range(5):
            write(manager, f"g{number}")

    threads = [Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table.completed()) == 80
    times = [event.time for event in table.events()]
    assert times == sorted(set(times))
