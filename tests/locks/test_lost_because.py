"""That a lease which was lost says why: expired, broken, deleted, or held by a session that is gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import redis

from lakelatch.errors import LeaseLost
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import IN_PROCESS_LEASE
from lakelatch.locks.redis.provider import RedisLockProvider
from lakelatch.locks.renewal import renewals
from lakelatch.system import process_name
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.reach import lock_options


def redis_provider(server: Server, tmp_path: Path, at: TcpProxy | None = None) -> RedisLockProvider:
    options = {**lock_options(server, lease_s=2), "hoodie.write.lock.redis.prefix": tmp_path.name}
    if at is not None:
        options["hoodie.write.lock.redis.url"] = f"redis://{at.host}:{at.port}/0"
    return RedisLockProvider(LockScope(f"file://{tmp_path}", options))


def assert_lost(lease: Lease, *words: str) -> None:
    error = assert_raises(LeaseLost, lease.ensure)
    assert all(word in str(error) for word in words), str(error)
    assert error.details["reason"] == lease.lost_because and lease.lost_because in str(error)


def test_a_lease_that_expired_says_so(tmp_path: Path) -> None:
    provider = InProcessLockProvider(LockScope(f"memory://{tmp_path}", {IN_PROCESS_LEASE: "0.1"}))
    lease = provider.acquire(TABLE_KEY, 0)
    renewals().remove(lease)
    with provider.acquire(TABLE_KEY, SOON_S):
        assert_lost(lease, TABLE_KEY, f"token {lease.token}", "without a renewal")


def test_a_lease_that_was_broken_in_the_process_says_so(tmp_path: Path) -> None:
    provider = InProcessLockProvider(LockScope(f"memory://{tmp_path}", {}))
    lease = provider.acquire(TABLE_KEY, 0)
    provider.break_(TABLE_KEY)
    assert_lost(lease, "an operator broke the lock")
    assert not lease.release()
    assert_lost(lease, "an operator broke the lock")


def test_a_lease_that_was_released_is_not_called_lost(tmp_path: Path) -> None:
    lease = InProcessLockProvider(LockScope(f"memory://{tmp_path}", {})).acquire(TABLE_KEY, 0)
    lease.release()
    assert "it was released" in str(assert_raises(LeaseLost, lease.ensure)) and lease.lost_because == ""


def broken(provider: FilesystemLockProvider, folder: Path) -> None:
    provider.break_(TABLE_KEY)


def broken_and_taken(provider: FilesystemLockProvider, folder: Path) -> None:
    provider.break_(TABLE_KEY)
    provider.acquire(TABLE_KEY, 0)


def deleted(provider: FilesystemLockProvider, folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (broken, ["was replaced", "operator"]),
        (broken_and_taken, ["operator", f"{process_name()} has taken the lock since"]),
        (deleted, ["was deleted"]),
    ],
)
def test_a_kernel_lock_that_is_gone_says_what_became_of_its_file(
    tmp_path: Path, act: Callable[[FilesystemLockProvider, Path], None], words: list[str]
) -> None:
    folder = tmp_path / "locks"
    options = {"hoodie.write.lock.filesystem.path": str(folder)}
    with closing(FilesystemLockProvider(LockScope(f"file://{tmp_path}", options))) as provider:
        lease = provider.acquire(TABLE_KEY, 0)
        act(provider, folder)
        assert_lost(lease, str(folder), *words)


def test_a_lease_at_a_service_that_was_broken_says_so(redis_server: Server, tmp_path: Path) -> None:
    with closing(redis_provider(redis_server, tmp_path)) as provider:
        lease = provider.acquire(TABLE_KEY, 1)
        assert provider.break_(TABLE_KEY)
        assert lease.lost.wait(SOON_S)
        assert_lost(lease, "its release was asked for", "operator")


def test_a_lease_whose_session_the_service_has_forgotten_says_so(redis_server: Server, tmp_path: Path) -> None:
    with (
        closing(redis_provider(redis_server, tmp_path)) as provider,
        closing(redis.Redis(redis_server.host, redis_server.port)) as client,
    ):
        lease = provider.acquire(TABLE_KEY, 1)
        for key in client.keys(f"*{tmp_path.name}*"):
            client.delete(key)
        assert lease.lost.wait(SOON_S)
        assert_lost(lease, "the session that held it has ended", "does not know this session any more")


def test_a_lease_of_a_service_that_cannot_be_reached_says_why(redis_server: Server, tmp_path: Path) -> None:
    with (
        closing(TcpProxy(redis_server.host, redis_server.port)) as proxy,
        closing(redis_provider(redis_server, tmp_path, proxy)) as provider,
    ):
        lease = provider.acquire(TABLE_KEY, 1)
        proxy.refuse(True)
        proxy.reset()
        assert lease.lost.wait(SOON_S)
        assert_lost(lease, "without a renewal", "the last try to renew it failed", f"{proxy.port}")
        proxy.refuse(False)
