"""What is special about locks by ZooKeeper: nodes, sessions that end, lost answers, rights, and other clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backend_checks import for_s
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lakelatch.errors import InvalidRequest, LeaseLost, LockTimeout, Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.session.backend import SessionGone
from lakelatch.locks.zookeeper.backend import ZookeeperBackend
from lakelatch.locks.zookeeper.provider import ZookeeperLockProvider
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.in_processes import in_fork
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises, until, waiting_for
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.zookeeper import LocalZooKeeper

PREFIX = "hoodie.write.lock.zookeeper."
NAME = "table/=key"

OpenProvider = Callable[..., ZookeeperLockProvider]
OpenBackend = Callable[..., ZookeeperBackend]


@pytest.fixture
def open_provider(zookeeper_server: Server, tmp_path: Path) -> Iterator[OpenProvider]:
    """Providers of one table, closed at the end; keyword arguments are options of theirs."""
    opened = []

    def make(port: int = 0, lease_s: float = 3, **more: str) -> ZookeeperLockProvider:
        options = {"url": f"{zookeeper_server.host}:{port or zookeeper_server.port}", **more}
        settings = {PREFIX + name: value for name, value in options.items()}
        settings["lakelatch.lock.lease_s"] = str(lease_s)
        opened.append(ZookeeperLockProvider(LockScope(f"file://{tmp_path}/table", settings)))
        return opened[-1]

    yield make
    for provider in opened:
        provider.close()


@pytest.fixture
def open_backend(open_provider: OpenProvider, tmp_path: Path) -> Iterator[OpenBackend]:
    """Services that share a root of this test's own."""
    opened = []

    def make(**more: Any) -> ZookeeperBackend:
        backend = open_provider(base_path=root_of(tmp_path), **more).make_backend()
        assert isinstance(backend, ZookeeperBackend)
        opened.append(backend)
        return backend

    yield make
    for backend in opened:
        backend.close()


@pytest.fixture
def nodes(zookeeper_server: Server) -> Iterator[Any]:
    with nodes_of(zookeeper_server) as client:
        yield client


@contextmanager
def nodes_of(server: Server, **more: Any) -> Iterator[Any]:
    """A client of kazoo's own."""
    with closing(KazooClient(f"{server.host}:{server.port}", **more)) as client:
        client.start(SOON_S)
        yield client
        client.stop()


def root_of(folder: Path) -> str:
    return f"/{folder.name}"


def tree(nodes: Any, path: str) -> list[str]:
    """All nodes from this one down; the server may remove some meanwhile."""
    try:
        children = nodes.get_children(path)
    except NoNodeError:
        return []
    return [path, *(each for child in children for each in tree(nodes, f"{path}/{child}"))]


def insisting(action: Callable[[], Any]) -> Any:
    """The result of something that may meet a connection that is being made anew."""
    for _ in range(400):
        try:
            return action()
        except Unavailable:
            REAL_SYSTEM.sleep(0.05)
    return action()


# Nodes


@pytest.fixture
def tidy_server(tmp_path: Path) -> Iterator[Server]:
    """One that removes empty containers soon, which takes a minute else."""
    with closing(LocalZooKeeper(tmp_path, ["-Dznode.container.checkIntervalMs=100"])) as server:
        server.start()
        yield server


def test_waiters_and_sessions_leave_nothing_behind(
    tidy_server: Server, open_backend: OpenBackend, tmp_path: Path
) -> None:
    backend, root, threads = open_backend(port=tidy_server.port), root_of(tmp_path), set(threading.enumerate())
    session, request = backend.open_session("me"), REAL_SYSTEM.new_id()
    assert backend.take(session, request, NAME, for_s(0))
    with waiting_for() as start:
        take = [partial(backend.take, session, REAL_SYSTEM.new_id(), NAME, for_s(each)) for each in (0, 0.1, 0.3)]
        assert [waiter.result(SOON_S) for waiter in [start(each) for each in take]] == [None] * 3
    (holder,) = backend.holders("table/=")
    assert (holder.key, holder.owner, holder.waiting) == (NAME, "me", 0)
    assert backend.give_back(session, request, NAME) and not backend.give_back(session, request, NAME)
    assert backend.take(session, REAL_SYSTEM.new_id(), NAME, for_s(0))
    backend.close_session("of somebody else")
    assert len(backend.holders("")) == 1
    backend.close_session(session)
    until(lambda: not set(threading.enumerate()) - threads)
    with nodes_of(tidy_server) as nodes:
        until(lambda: set(tree(nodes, root)) == {root, f"{root}/locks"})


def test_a_folder_that_the_server_removed_is_made_again(
    open_provider: OpenProvider, nodes: Any, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    provider = open_provider(base_path=root)
    first = provider.acquire("key", 0)
    assert first.release()
    nodes.delete(f"{root}/locks", recursive=True)
    second = provider.acquire("key", 0)
    assert second.token > first.token and second.release()


def test_sessions_that_are_not_known_are_refused(open_backend: OpenBackend) -> None:
    backend = open_backend()
    session = backend.open_session("me")
    calls: list[Callable[[], object]] = [
        partial(backend.renew_session, "unknown"),
        partial(backend.take, "unknown", REAL_SYSTEM.new_id(), NAME, for_s(0)),
        partial(backend.give_back, "unknown", REAL_SYSTEM.new_id(), NAME),
    ]
    for call in calls:
        assert_raises(SessionGone, call)
    assert backend.renew_session(session) == []
    assert backend.open_session("me again") != session
    assert_raises(SessionGone, partial(backend.renew_session, session))


def test_many_holders_are_shown(open_backend: OpenBackend) -> None:
    backend = open_backend()
    session = backend.open_session("me")
    names = sorted(f"table/={number}" for number in range(600))
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda name: backend.take(session, REAL_SYSTEM.new_id(), name, for_s(0)), names))
    assert [holder.key for holder in backend.holders("table/=")] == names
    assert {holder.token for holder in backend.holders("")} == set(tokens)
    assert [holder.token for holder in backend.holders("table/=7")] == [tokens[names.index("table/=7")]]


def test_a_release_request_is_told_once_and_survives_a_lost_answer(
    open_backend: OpenBackend, zookeeper_server: Server, proxy_to: Callable[[Server], TcpProxy]
) -> None:
    proxy = proxy_to(zookeeper_server)
    backend, operator = open_backend(port=proxy.port), open_backend()
    session, request = backend.open_session("me"), REAL_SYSTEM.new_id()
    assert backend.take(session, request, NAME, for_s(0))
    held = operator.find_holder(NAME)
    assert held is not None and (held.session, held.request, held.lease_s) == (session, request, backend.lease_s)
    operator.ask_to_give_up(held, NAME)
    operator.ask_to_give_up(held, NAME)
    proxy.lose_answers()
    assert_raises(Unavailable, partial(backend.renew_session, session))
    assert insisting(partial(backend.renew_session, session)) == [request, request]
    assert backend.renew_session(session) == []
    assert operator.force(held, NAME) and not operator.force(held, NAME)
    assert not backend.give_back(session, request, NAME)


# Connections and sessions


def test_a_request_whose_answer_was_lost_is_given_back(
    open_backend: OpenBackend, zookeeper_server: Server, proxy_to: Callable[[Server], TcpProxy]
) -> None:
    proxy = proxy_to(zookeeper_server)
    backend, other = open_backend(port=proxy.port), open_backend()
    session, request = backend.open_session("me"), REAL_SYSTEM.new_id()
    assert backend.take(session, request, NAME, for_s(0)) and backend.give_back(session, request, NAME)
    proxy.lose_answers()
    assert_raises(Unavailable, partial(backend.take, session, request, NAME, for_s(1)))
    held = other.find_holder(NAME)
    assert held is not None and held.request == request
    assert insisting(partial(backend.give_back, session, request, NAME)) is False
    assert other.find_holder(NAME) is None
    assert backend.take(session, REAL_SYSTEM.new_id(), NAME, for_s(0))


def test_a_waiter_keeps_its_place_over_a_new_connection(
    open_backend: OpenBackend,
    zookeeper_server: Server,
    proxy_to: Callable[[Server], TcpProxy],
    nodes: Any,
    tmp_path: Path,
) -> None:
    proxy = proxy_to(zookeeper_server)
    holding, waiting = open_backend(), open_backend(port=proxy.port, lease_s=6)
    folder = f"{root_of(tmp_path)}/locks/{NAME}"
    first, request = holding.open_session("first"), REAL_SYSTEM.new_id()
    second = waiting.open_session("second")
    assert holding.take(first, request, NAME, for_s(0))
    with waiting_for() as start:
        waiter = start(partial(waiting.take, second, REAL_SYSTEM.new_id(), NAME, for_s(SOON_S)))
        until(lambda: len(nodes.get_children(folder)) == 2)
        queue = nodes.get_children(folder)
        for _ in range(3):
            proxy.reset()
            assert insisting(partial(waiting.renew_session, second)) == []
        assert nodes.get_children(folder) == queue and not waiter.done()
        assert holding.give_back(first, request, NAME)
        assert waiter.result(SOON_S) and len(nodes.get_children(folder)) == 1


def test_a_lease_ends_before_somebody_else_has_the_key(
    open_provider: OpenProvider, zookeeper_server: Server, proxy_to: Callable[[Server], TcpProxy], nodes: Any
) -> None:
    proxy = proxy_to(zookeeper_server)
    provider, other = open_provider(port=proxy.port, lease_s=2), open_provider()
    lease = provider.acquire("key", SOON_S)
    former = session_of(provider)
    proxy.cut()
    successor = other.acquire("key", SOON_S)
    assert not lease.valid() and successor.token > lease.token
    proxy.heal()
    assert not lease.release() and successor.valid()
    assert provider.acquire("other key", SOON_S).valid() and session_of(provider) != former
    assert former not in nodes.get_children("/lakelatch/sessions")


def session_of(provider: ZookeeperLockProvider) -> str:
    return provider._session().open()


def test_the_end_of_a_session_is_noticed_at_once(open_provider: OpenProvider, zookeeper_server: Server) -> None:
    provider = open_provider(lease_s=30)  # renewed every 10 s
    lease = provider.acquire("key", SOON_S)
    backend = provider._session().backend
    assert isinstance(backend, ZookeeperBackend)
    identity = backend._link()._client.client_id
    with nodes_of(zookeeper_server, client_id=identity):
        pass  # which ends the session
    assert lease.lost.wait(8)
    assert provider.acquire("key", SOON_S).token > lease.token and not lease.release()


def test_a_session_whose_node_was_removed_holds_nothing(
    open_provider: OpenProvider, nodes: Any, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    provider = open_provider(base_path=root)
    lease = provider.acquire("key", SOON_S)
    nodes.delete(f"{root}/sessions/{session_of(provider)}")
    assert lease.lost.wait(SOON_S)
    until(lambda: not nodes.get_children(f"{root}/locks/{provider.name_of('key')}"))
    assert provider.acquire("key", SOON_S).token > lease.token


def test_the_server_decides_how_long_a_session_is(open_provider: OpenProvider, tmp_path: Path) -> None:
    long = open_provider(session_timeout_ms="600000")
    assert long.acquire("key", SOON_S).valid() and long._session().backend.lease_s == 30  # 40 s are its most
    mine = open_provider(session_timeout_ms="4000", lease_s=20)
    assert mine.acquire("other key", SOON_S).valid() and mine._session().backend.lease_s == 3
    with closing(LocalZooKeeper(tmp_path, session_max_ms=1100)) as hasty:
        hasty.start()
        error = assert_raises(InvalidRequest, partial(open_provider(port=hasty.port).acquire, "key", SOON_S))
        assert "sessions of 1.1 s" in str(error) and "maxSessionTimeout" in str(error)


def test_registers_survive_the_server_and_clients_its_loss(
    open_provider: OpenProvider, zookeeper_server: Server
) -> None:
    provider = open_provider(lease_s=1)
    try:
        assert provider.register("time").advance(1_800_000_000_000) == 1_800_000_000_000
        zookeeper_server.stop()
        zookeeper_server.start()
        after = provider.register("time").advance(0)  # a try whose answer was lost costs a value
        assert 1_800_000_000_000 < after < 1_800_000_000_010
        zookeeper_server.stop()
        zookeeper_server.wipe()
        zookeeper_server.start()
        assert 0 < provider.register("time").advance(0) < 10
        assert provider.acquire("key", SOON_S).release()
    finally:
        zookeeper_server.start()


def test_a_register_that_holds_no_number_is_left_alone(open_provider: OpenProvider, nodes: Any, tmp_path: Path) -> None:
    provider = open_provider(base_path=root_of(tmp_path))
    assert provider.register("time").advance(0) == 1
    path = f"{root_of(tmp_path)}/registers/{provider.name_of('time')}"
    nodes.set(path, b"not a number")
    error = assert_raises(InvalidRequest, partial(provider.register("time").advance, 0))
    assert path in str(error) and nodes.get(path)[0] == b"not a number"
    nodes.set(path, b"41")
    assert provider.register("time").advance(0) == 42


def test_a_forked_child_has_a_session_of_its_own(open_provider: OpenProvider, nodes: Any, tmp_path: Path) -> None:
    provider = open_provider(base_path=root_of(tmp_path))
    lease = provider.acquire("key", SOON_S)

    def check() -> None:
        with provider.acquire("other key", SOON_S) as mine:
            assert mine.valid() and not lease.valid()
            assert_raises(LockTimeout, lambda: provider.acquire("key", 0))
            assert len(provider.holders()) == 2 and provider.register("time").advance(0) == 1
            assert len(nodes_of_child(provider, root_of(tmp_path))) == 2
        assert_raises(LeaseLost, lease.release)
        provider.close()

    assert in_fork(check)
    assert lease.valid() and provider.register("time").advance(0) == 2
    assert lease.release() and provider.acquire("other key", SOON_S).release()


def nodes_of_child(provider: ZookeeperLockProvider, root: str) -> list[str]:
    backend = provider._session().backend
    assert isinstance(backend, ZookeeperBackend)
    link = backend._link()
    found: list[str] = link.answer(link.ask.get_children_async(f"{root}/sessions"))
    return found
