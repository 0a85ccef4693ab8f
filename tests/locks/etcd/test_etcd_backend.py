"""What is special about etcd: what it stores, who may use it, endpoints, watches."""

from __future__ import annotations

import json
import logging
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pyetcd
import pytest
from backend_checks import (
    check_lost_answer_to_acquire,
    check_lost_answer_to_last_try,
    check_lost_answer_to_release,
    check_unreachable_is_told,
    for_s,
)

from lakelatch.errors import CorruptTable, InvalidRequest, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockScope, file_group_key
from lakelatch.locks.etcd.backend import EtcdBackend
from lakelatch.locks.etcd.client import EtcdClient, open_client_of
from lakelatch.locks.etcd.messages import Delete, Put
from lakelatch.locks.etcd.options import Target
from lakelatch.locks.etcd.provider import EtcdLockProvider
from lakelatch.locks.session.options import BackendOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.lock_provider import SOON_S, waiting_for
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.etcd import LocalEtcd

SECRET = "swordfish-of-the-deep"
URL = "hoodie.write.lock.etcd.url"
ProxyTo = Callable[[Server], TcpProxy]


class Gateway:
    """The server as etcd's own HTTP interface shows it, below one prefix."""

    def __init__(self, server: Server, prefix: str = "") -> None:
        self._url = f"http://{server.host}:{server.port}"
        self._prefix = prefix
        self._open = build_opener(ProxyHandler({})).open

    def ask(self, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode()
        with self._open(Request(f"{self._url}/v3/{path}", data), timeout=SOON_S) as answer:
            return json.load(answer)

    def stored(self) -> list[str]:
        start = self._prefix.encode()
        found = self.ask("kv/range", key=coded(start), range_end=coded(start + b"\xff"), keys_only=True)
        return sorted(b64decode(each["key"]).decode()[len(self._prefix) :] for each in found.get("kvs", []))

    def leases(self) -> set[str]:
        return {f"{int(each['ID']):016x}" for each in self.ask("lease/leases").get("leases", [])}

    def watchers(self) -> int:
        with self._open(f"{self._url}/metrics", timeout=SOON_S) as answer:
            return int(re.findall(rb"(?m)^etcd_debugging_mvcc_watcher_total (\d+)", answer.read())[0])


def coded(key: bytes) -> str:
    return b64encode(key).decode()


def options_of(url: str, **more: str) -> dict[str, str]:
    return {
        URL: url,
        "lakelatch.lock.lease_s": more.pop("lease_s", "2"),
        **{f"hoodie.write.lock.etcd.{key}": value for key, value in more.items()},
    }


def provider_at(url: str, tmp_path: Path, **more: str) -> EtcdLockProvider:
    return EtcdLockProvider(LockScope(f"file://{tmp_path}", options_of(url, **more)))


def backend_at(url: str, **more: str) -> EtcdBackend:
    known = frozenset({"url", "prefix", "client"})
    scope = LockScope("file:///t", options_of(url, **more))
    options = BackendOptions.of("etcd", scope, known)
    return EtcdBackend(Target.of(options, open_client_of(options)), REAL_SYSTEM)


@pytest.fixture
def opened(etcd_url: str, etcd_prefix: str, tmp_path: Path) -> Iterator[EtcdLockProvider]:
    """A provider with keys of its own."""
    with closing(provider_at(etcd_url, tmp_path, prefix=etcd_prefix)) as provider:
        yield provider


@pytest.fixture
def gateway(etcd_server: Server, etcd_prefix: str) -> Gateway:
    return Gateway(etcd_server, etcd_prefix)


def test_nothing_is_left_behind(opened: EtcdLockProvider, gateway: Gateway) -> None:
    before, watchers = gateway.leases(), gateway.watchers()
    with opened.acquire(TABLE_KEY, 1), ThreadPoolExecutor(8) as pool:
        work = [pool.submit(opened.acquire, TABLE_KEY, 0.1 * turn) for turn in range(8)]
        assert wait_until(lambda: gateway.watchers() > watchers, SOON_S)
        assert all(isinstance(each.exception(), LockTimeout) for each in work)
        [locked, session] = gateway.stored()
        assert locked.startswith("/locks/") and session.startswith("/sessions/")
        assert session.rpartition("/")[2] in gateway.leases() - before
    assert gateway.stored() == [session]
    assert wait_until(lambda: gateway.watchers() == watchers, SOON_S)
    opened.close()
    assert wait_until(lambda: gateway.stored() == [], SOON_S)
    assert session.rpartition("/")[2] not in gateway.leases()


def test_keys_are_used_again(opened: EtcdLockProvider, gateway: Gateway) -> None:
    """etcd's index holds every key that there ever was until its history is compacted, which slows listings."""
    seen = set()
    for _ in range(20):
        with opened.acquire(TABLE_KEY, 1):
            seen.update(gateway.stored())
    assert len([key for key in seen if key.startswith("/locks/")]) == 1


def test_a_thousand_leases_cost_one_lease_and_one_thread(
    etcd_url: str, etcd_prefix: str, tmp_path: Path, gateway: Gateway
) -> None:
    with closing(provider_at(etcd_url, tmp_path, prefix=etcd_prefix, lease_s="9")) as opened:
        opened.acquire(TABLE_KEY, 1)
        leases, threads = gateway.leases(), threading.active_count()
        held = [opened.acquire(file_group_key("p", str(number)), 1) for number in range(1000)]
        assert threading.active_count() <= threads + 2  # gRPC's own come and go with each renewal
        REAL_SYSTEM.sleep(9.5)
        assert all(lease.valid() for lease in held) and len(opened.holders("file_group/")) == 1000
        assert gateway.leases() <= leases
        assert all(lease.release() for lease in held)


def test_what_the_server_grants_is_the_lease_time(etcd_url: str, etcd_prefix: str) -> None:
    with closing(backend_at(etcd_url, prefix=etcd_prefix, lease_s="1")) as backend:  # the server's least is 2 s
        session = backend.open_session("somebody")
        assert backend.take(session, "r1", "t/=a", for_s(0)) is not None
        found = backend.find_holder("t/=a")
        assert backend.lease_s == 2 and found is not None and found.lease_s == 2
        backend.close_session(session)


def test_since_when_a_waiter_holds(opened: EtcdLockProvider) -> None:
    with waiting_for() as start:
        first = opened.acquire(TABLE_KEY, 1)
        waiter = start(lambda: opened.acquire(TABLE_KEY, SOON_S))
        assert wait_until(lambda: opened.holders()[0].waiting == 1, SOON_S)
        REAL_SYSTEM.sleep(1.1)
        released_ms = REAL_SYSTEM.realtime_ms()
        first.release()
        with waiter.result(SOON_S):
            assert opened.holders()[0].since_ms >= released_ms


@pytest.mark.parametrize("found_by", ["renewal", "acquire"])
def test_a_session_whose_lease_was_revoked_is_gone(opened: EtcdLockProvider, gateway: Gateway, found_by: str) -> None:
    lease = opened.acquire(TABLE_KEY, 1)
    [session] = [key.rpartition("/")[2] for key in gateway.stored() if key.startswith("/sessions/")]
    gateway.ask("lease/revoke", ID=str(int(session, 16)))
    if found_by == "renewal":
        assert lease.lost.wait(SOON_S)
    with opened.acquire(TABLE_KEY, SOON_S) as successor:
        assert successor.token > lease.token
        assert lease.lost.is_set() and not lease.release()
        assert successor.valid()


def test_a_watch_sees_what_was_deleted_before_it_began(etcd_url: str, etcd_prefix: str) -> None:
    client = EtcdClient(Target.of(BackendOptions("etcd", {"url": etcd_url}), pyetcd.client), REAL_SYSTEM)
    with closing(client):
        created = client.transact([Put(f"{etcd_prefix}/a", "")]).revision
        client.transact([Delete(f"{etcd_prefix}/a")])
        watches, watch = client.watch(f"{etcd_prefix}/a".encode(), created + 1)
        assert watch.ended.wait(SOON_S) and not watch.lost
        watches.remove(watch)


def test_a_register_that_holds_no_number_is_reported(
    opened: EtcdLockProvider, gateway: Gateway, etcd_prefix: str
) -> None:
    opened.register("time").advance(7)
    [key] = [key for key in gateway.stored() if key.startswith("/registers/")]
    gateway.ask("kv/put", key=coded((etcd_prefix + key).encode()), value=coded(b"12x"))
    with pytest.raises(CorruptTable, match=r"12x.*no number"):
        opened.register("time").advance(0)


def test_an_answer_that_got_lost_after_a_grant_is_given_back(
    etcd_server: Server, etcd_url: str, proxy_to: ProxyTo, tmp_path: Path
) -> None:
    proxy = proxy_to(etcd_server)
    through = f"http://{proxy.host}:{proxy.port}"
    with closing(provider_at(through, tmp_path)) as provider, closing(provider_at(etcd_url, tmp_path)) as other:
        provider.acquire(TABLE_KEY, 1).release()
        check_lost_answer_to_acquire(proxy, provider, other)
        check_lost_answer_to_last_try(proxy, provider, other)
        check_lost_answer_to_release(proxy, provider, other)


def test_a_waiter_keeps_its_place_when_its_connection_breaks(
    etcd_server: Server, etcd_url: str, proxy_to: ProxyTo, tmp_path: Path
) -> None:
    proxy = proxy_to(etcd_server)
    through = f"http://{proxy.host}:{proxy.port}"
    slow = {"lease_s": "60"}  # so that who lost its watch would not look again before the test ends
    with (
        closing(provider_at(through, tmp_path, **slow)) as provider,
        closing(provider_at(etcd_url, tmp_path, **slow)) as other,
        waiting_for() as start,
    ):
        lease = other.acquire(TABLE_KEY, 1)
        first = start(lambda: provider.acquire(TABLE_KEY, 2 * SOON_S))
        assert wait_until(lambda: other.holders()[0].waiting == 1, SOON_S)
        proxy.reset()
        second = start(lambda: other.acquire(TABLE_KEY, 2 * SOON_S))
        assert wait_until(lambda: other.holders()[0].waiting == 2, SOON_S)
        REAL_SYSTEM.sleep(0.5)
        lease.release()
        granted = first.result(SOON_S)
        assert not second.done() and granted.release()
        assert second.result(SOON_S).release()


def test_other_endpoints_stand_in(etcd_server: Server, proxy_to: ProxyTo, tmp_path: Path) -> None:
    first, second = proxy_to(etcd_server), proxy_to(etcd_server)
    places = f"http://127.0.0.1:1,{first.host}:{first.port},http://{second.host}:{second.port}/"
    with closing(provider_at(places, tmp_path, lease_s="6")) as provider:
        lease = provider.acquire(TABLE_KEY, 0)
        first.refuse(True)
        first.reset()
        assert lease.release()
        lease = provider.acquire(TABLE_KEY, 5)
        first.refuse(False)
        second.cut()
        REAL_SYSTEM.sleep(6)
        assert lease.valid() and lease.release()
    first.cut()
    second.heal()
    places = f"http://{first.host}:{first.port},{second.host}:{second.port}"
    with closing(provider_at(places, tmp_path)) as provider:
        assert provider.acquire(TABLE_KEY, 0).release()  # the first one accepts the connection and says nothing


def test_an_unreachable_server_is_reported_within_the_timeout(tmp_path: Path) -> None:
    more = {"username": "u", "password": SECRET}
    with closing(provider_at("http://127.0.0.1:1", tmp_path, **more)) as provider:
        check_unreachable_is_told(provider, URL, SECRET)


def test_users_with_roles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = LocalEtcd(tmp_path / "server", ["--bcrypt-cost=4"])
    server.start()
    try:
        place, ask = f"http://{server.host}:{server.port}", Gateway(server).ask
        with closing(provider_at(place, tmp_path, username="latch", password=SECRET)) as provider:
            assert provider.acquire(TABLE_KEY, 5).release()  # users are not asked for yet
        for user, kind, start in (
            ("root", "READWRITE", b"/"),
            ("latch", "READWRITE", b"/lakelatch/"),
            ("reader", "READ", b"/lakelatch/"),
        ):
            ask("auth/user/add", name=user, password=SECRET)
            ask("auth/role/add", name=user)
            permission = {"permType": kind, "key": coded(start), "range_end": coded(start[:-1] + b"0")}
            ask("auth/role/grant", name=user, perm=permission)
            ask("auth/user/grant", user=user, role=user)
        ask("auth/enable")
        (tmp_path / "password").write_text(SECRET + "\n")
        latch = {"username": "latch", "password": f"file:{tmp_path / 'password'}"}
        with closing(provider_at(place, tmp_path, lease_s="60", **latch)) as good:
            lease = good.acquire(TABLE_KEY, 5)
            server.stop()  # which forgets the tokens of its users
            server.start()
            with pytest.raises(LockTimeout):
                good.acquire(TABLE_KEY, 0.3)  # one round with the old token, which is replaced
            assert good.register("time").advance(0) == 1
            assert lease.valid() and lease.release()
            assert SECRET not in repr(good.scope) + repr(good.__dict__)
        with caplog.at_level(logging.DEBUG):
            for user, password in (("latch", SECRET + "x"), ("nobody", SECRET), ("reader", SECRET), ("", "")):
                with closing(provider_at(place, tmp_path, username=user, password=password)) as provider:
                    with pytest.raises(InvalidRequest, match="credentials or this user's rights") as caught:
                        provider.acquire(TABLE_KEY, 5)
                    assert SECRET not in str(caught.value)
        assert SECRET not in caplog.text
    finally:
        server.close()
