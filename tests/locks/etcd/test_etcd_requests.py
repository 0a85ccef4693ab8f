"""Requests to etcd whose answers are lost: that are repeated, that come late, that nobody waits for any more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import grpc
import pyetcd
import pytest
from backend_checks import for_s

from lakelatch.errors import Unavailable
from lakelatch.locks.etcd.backend import EtcdBackend
from lakelatch.locks.etcd.options import Target
from lakelatch.locks.session.options import BackendOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.lock_provider import SOON_S, waiting_for
from lakelatch.testing.servers.contract import wait_until


class Network:
    """Between a backend and etcd: does something else than to pass a transaction on, once, when told to."""

    def __init__(self, url: str, prefix: str) -> None:
        self.instead: Callable[[Callable[[], Any], Any], None] | None = None
        self.kept: list[Any] = []
        options = BackendOptions("etcd", {"url": url, "prefix": prefix})
        self.backend = EtcdBackend(Target.of(options, self._open), REAL_SYSTEM)
        self._prefix = prefix
        self.direct = pyetcd.client(*url.partition("://")[2].partition(",")[0].split(":"))

    def close(self) -> None:
        self.backend.close()
        self.direct.close()

    def lose(self, _: Callable[[], Any], request: Any) -> None:
        """The request does not arrive; it is kept, to be sent `late`."""
        self.kept.append(request)
        raise NoAnswer

    def stored(self) -> list[str]:
        found = self.direct.get_prefix(self._prefix, keys_only=True)
        return [about.key.decode()[len(self._prefix) :] for _, about in found]

    def late(self) -> bool:
        return bool(self.direct.kvstub.Txn(self.kept.pop()).succeeded)

    def _open(self, **settings: Any) -> Any:
        client = pyetcd.client(**settings)
        interceptor = type("Interceptor", (grpc.UnaryUnaryClientInterceptor,), {"intercept_unary_unary": self._pass})()
        client.endpoint_in_use.channel = grpc.intercept_channel(client.endpoint_in_use.channel, interceptor)
        return client

    def _pass(self, proceed: Callable[..., Any], details: Any, request: Any) -> Any:
        instead = self.instead
        if instead is not None and details.method.endswith("/Txn"):
            self.instead = None
            instead(lambda: proceed(details, request).result(), request)
        return proceed(details, request)


def code_of(_: Any) -> Any:
    return grpc.StatusCode.DEADLINE_EXCEEDED


NoAnswer = type("NoAnswer", (grpc.RpcError,), {"code": code_of, "details": lambda _: "no answer in time"})


def test_a_request_that_comes_late_does_nothing(etcd_url: str, etcd_prefix: str) -> None:
    """Requests that hang in the network, or in a server that stands still, until nobody knows of them any more."""
    with closing(Network(etcd_url, etcd_prefix)) as network:
        backend = network.backend
        session = backend.open_session("somebody")
        for timeout_s in (0.0, 1.0):
            network.instead = network.lose
            with pytest.raises(Unavailable):
                backend.take(session, "lost", "t/=a", for_s(timeout_s))
            assert not backend.give_back(session, "lost", "t/=a")
            assert not network.late()
            assert network.stored() == [f"/sessions/{session}"]

        assert backend.take(session, "first", "t/=a", for_s(0)) is not None
        network.instead = network.lose
        with pytest.raises(Unavailable):
            backend.give_back(session, "first", "t/=a")
        assert backend.give_back(session, "first", "t/=a")
        assert backend.take(session, "second", "t/=a", for_s(0)) is not None
        network.late()
        held = backend.find_holder("t/=a")
        assert held is not None and held.request == "second"
        backend.close_session(session)
        assert network.stored() == [] and network.direct.get_lease_info(int(session, 16)).TTL == -1


def test_an_attempt_that_is_repeated_keeps_its_place(etcd_url: str, etcd_prefix: str) -> None:
    """The first one had joined the queue, and somebody else after it, before the second one came."""
    twice = etcd_url + "," + etcd_url.partition("://")[2]
    with closing(Network(twice, etcd_prefix)) as network, closing(Network(etcd_url, etcd_prefix)) as others:
        other = others.backend
        mine, theirs = network.backend.open_session("a"), others.backend.open_session("b")

        def join(proceed: Callable[[], Any], _: Any) -> None:
            proceed()
            waiter.append(start(lambda: other.take(theirs, "later", "t/=a", for_s(SOON_S))))
            assert wait_until(lambda: other.holders("t/=a")[0].waiting == 1, SOON_S)
            raise NoAnswer

        waiter: list[Any] = []
        with waiting_for() as start:
            network.instead = join
            token = network.backend.take(mine, "earlier", "t/=a", for_s(SOON_S))
            assert token is not None and other.holders("t/=a")[0].token == token
            assert not waiter[0].done() and network.backend.give_back(mine, "earlier", "t/=a")
            assert waiter[0].result(SOON_S) > token
        for backend, session in ((network.backend, mine), (other, theirs)):
            backend.close_session(session)


def test_an_interrupted_thread_leaves_nothing(etcd_url: str, etcd_prefix: str) -> None:
    with closing(Network(etcd_url, etcd_prefix)) as network:
        session = network.backend.open_session("somebody")

        def interrupt(proceed: Callable[[], Any], _: Any) -> None:
            proceed()
            raise KeyboardInterrupt

        network.instead = interrupt
        with pytest.raises(KeyboardInterrupt):
            network.backend.take(session, "r", "t/=a", for_s(1))
        assert not network.backend.give_back(session, "r", "t/=a")
        assert network.stored() == [f"/sessions/{session}"]
        network.backend.close_session(session)
