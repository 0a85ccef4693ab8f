"""What the tests of several lock backends do alike."""

from __future__ import annotations

import pytest

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockProvider
from lakelatch.locks.session.backend import Wait
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.lock_provider import SOON_S
from lakelatch.testing.servers import TcpProxy
from lakelatch.testing.servers.contract import wait_until


def for_s(timeout_s: float) -> Wait:
    """A wait that nobody ends early."""
    return Wait(timeout_s, REAL_SYSTEM, lambda: False)


def check_lost_answer_to_acquire(proxy: TcpProxy, provider: LockProvider, other: LockProvider) -> None:
    """A grant whose answer is lost is found, and used. `other` has a way of its own to the server."""
    proxy.lose_answers()
    with provider.acquire(TABLE_KEY, SOON_S) as lease:
        assert lease.valid() and [holder.token for holder in other.holders()] == [lease.token]


def check_lost_answer_to_last_try(proxy: TcpProxy, provider: LockProvider, other: LockProvider) -> None:
    """A grant whose answer is lost is given back if there is no time to look for it."""
    proxy.lose_answers()
    with pytest.raises(Unavailable):
        provider.acquire(TABLE_KEY, 0)
    assert wait_until(lambda: other.holders() == [], SOON_S)


def check_lost_answer_to_release(proxy: TcpProxy, provider: LockProvider, other: LockProvider) -> None:
    """A release whose answer is lost has happened, or happens soon."""
    lease = provider.acquire(TABLE_KEY, SOON_S)
    proxy.lose_answers()
    assert lease.release()
    assert wait_until(lambda: other.holders() == [], SOON_S)


def check_unreachable_is_told(provider: LockProvider, url_option: str, secret: str) -> None:
    """Who asks a server that is not there is told so within the timeout, by the option's name and without secrets."""
    started_ns = REAL_SYSTEM.monotonic_ns()
    with pytest.raises(Unavailable, match="could not be used") as caught:
        provider.acquire(TABLE_KEY, 0.3)
    with pytest.raises(Unavailable):
        provider.acquire(TABLE_KEY, 0)
    assert secret not in str(caught.value) and url_option in str(caught.value)
    assert REAL_SYSTEM.monotonic_ns() - started_ns < 30e9
