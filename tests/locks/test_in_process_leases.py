"""Lease times of the in-process provider: renewal, expiry, and the order of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.errors import LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import IN_PROCESS_LEASE
from lakelatch.locks.renewal import renewals
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.in_processes import in_fork
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises, until, waiting_for


def open_provider(name: Path, lease_s: float, system: System = REAL_SYSTEM) -> InProcessLockProvider:
    return InProcessLockProvider(LockScope(f"memory://{name}", {IN_PROCESS_LEASE: str(lease_s)}, system))


def stop_renewing(lease: Lease) -> None:
    renewals().remove(lease)


def test_without_a_lease_time_there_is_no_deadline(tmp_path: Path) -> None:
    provider = InProcessLockProvider(LockScope(f"memory://{tmp_path}", {}))
    assert provider.acquire(TABLE_KEY, 0).deadline_ns is None


def test_a_lease_is_renewed_past_its_first_deadline(tmp_path: Path) -> None:
    provider = open_provider(tmp_path, 0.3)
    lease = provider.acquire(TABLE_KEY, 0)
    first_ns = lease.deadline_ns
    assert first_ns is not None
    until(lambda: REAL_SYSTEM.monotonic_ns() > first_ns + 300_000_000)
    assert lease.valid() and lease.release()


def test_a_waiter_gets_the_key_of_a_holder_that_stopped_renewing(tmp_path: Path) -> None:
    provider = open_provider(tmp_path, 0.2)
    with waiting_for() as start:
        lease = provider.acquire(TABLE_KEY, 0)
        waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
        stop_renewing(lease)
        assert waiter.result(SOON_S).token > lease.token
    assert lease.lost.is_set() and not lease.valid() and not lease.release()


def test_a_second_waiter_watches_the_lease_of_the_first(tmp_path: Path) -> None:
    provider = open_provider(tmp_path, 0.2)
    with waiting_for() as start:
        lease = provider.acquire(TABLE_KEY, 0)
        waiters = [start(lambda: provider.acquire(TABLE_KEY, SOON_S))]
        until(lambda: provider.holders()[0].waiting == 1)
        waiters.append(start(lambda: provider.acquire(TABLE_KEY, SOON_S)))
        until(lambda: provider.holders()[0].waiting == 2)
        lease.release()
        stop_renewing(waiters[0].result(SOON_S))
        assert waiters[1].result(SOON_S / 4).release()


def test_a_holder_gives_up_before_the_key_is_free(tmp_path: Path) -> None:
    system = ManualSystem()
    provider = open_provider(tmp_path, 10, system)
    lease = provider.acquire(TABLE_KEY, 0)
    stop_renewing(lease)
    system.advance(8.9)
    assert lease.valid()
    system.advance(0.2)
    assert not lease.valid() and lease.lost.is_set()
    assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0))
    system.advance(1.0)
    assert provider.holders() == [] and not provider.break_(TABLE_KEY)
    assert provider.acquire(TABLE_KEY, 0).token > lease.token


def test_a_lost_lease_is_not_renewed_again(tmp_path: Path) -> None:
    system = ManualSystem()
    provider = open_provider(tmp_path, 0.1, system)
    lease = provider.acquire(TABLE_KEY, 0)
    system.advance(0.095)
    assert not lease.valid()
    until(lambda: lease not in renewals()._entries)
    system.advance(0.01)
    assert provider.acquire(TABLE_KEY, 0).valid()


def test_a_wait_ends_though_the_clock_stands_still(tmp_path: Path) -> None:
    provider = open_provider(tmp_path, 10, ManualSystem())
    with provider.acquire(TABLE_KEY, 0), pytest.raises(LockTimeout):
        provider.acquire(TABLE_KEY, 0.05)


def test_a_forked_child_begins_with_nothing(tmp_path: Path) -> None:
    provider = open_provider(tmp_path, 10)
    lease = provider.acquire(TABLE_KEY, 0)

    def check() -> None:
        assert provider.holders() == []
        assert provider.acquire(TABLE_KEY, 0).release()

    assert in_fork(check)
    assert lease.valid() and [holder.token for holder in provider.holders()] == [lease.token]
