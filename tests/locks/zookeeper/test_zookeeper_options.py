"""Options of locks by ZooKeeper, the places that Hudi's class names mean, rights, and clients that are none of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from lakelatch.errors import InvalidRequest, LakelatchError, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.zookeeper.provider import (
    HudiImplicitZookeeperLockProvider,
    HudiZookeeperLockProvider,
    ZookeeperLockProvider,
)
from lakelatch.locks.zookeeper.queue import in_order
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises, until, waiting_for
from lakelatch.testing.servers import Server, TcpProxy, free_port

PREFIX = "hoodie.write.lock.zookeeper."
HUDI = "org.apache.hudi.client.transaction.lock."
SECRET = "digest:writer:xyzzy-plugh"

Options = dict[str, str]


@pytest.fixture
def nodes(zookeeper_server: Server) -> Iterator[Any]:
    with closing(KazooClient(f"{zookeeper_server.host}:{zookeeper_server.port}")) as client:
        client.start(SOON_S)
        yield client
        client.stop()


@pytest.fixture
def options(zookeeper_server: Server) -> Options:
    return {PREFIX + "url": f"{zookeeper_server.host}:{zookeeper_server.port}", "lakelatch.lock.lease_s": "3"}


def with_more(options: Options, **more: str) -> LockScope:
    return LockScope("s3://bucket/table", options | {PREFIX + name: value for name, value in more.items()})


# Places


@pytest.mark.parametrize(
    "table, place",
    [
        ("s3://my-bucket/my_lake/my_table", "C0E15D0CE1AD11CC"),  # a constant of Hudi's own tests
        ("s3a://my-bucket/my_lake/my_table", "C0E15D0CE1AD11CC"),
        ("s3://bucket/t", "12F8D3B144D2825E"),
        ("gs://b/t", "26FFB891CCC31D45"),
        ("file:///tmp/t", "488FEFCCC7172A88"),
    ],
)
def test_implicit_places_are_those_of_hudi(options: Options, nodes: Any, table: str, place: str) -> None:
    scope = LockScope(table, options | {"hoodie.base.path": table})
    with closing(HudiImplicitZookeeperLockProvider(scope)) as provider:
        lease = provider.acquire(TABLE_KEY, SOON_S)
        assert len(nodes.get_children(f"/tmp/{place}/lock_key")) == 1
        assert lease.release() and nodes.get_children(f"/tmp/{place}/lock_key") == []


def test_the_base_path_of_other_writers_may_be_given(options: Options, nodes: Any) -> None:
    scope = LockScope("file:///tmp/t", options | {"hoodie.base.path": "gs://b/t"})
    with closing(HudiImplicitZookeeperLockProvider(scope)) as provider, provider.acquire(TABLE_KEY, SOON_S):
        assert len(nodes.get_children("/tmp/26FFB891CCC31D45/lock_key")) == 1


def test_the_table_has_hudis_place_and_the_rest_has_ours(options: Options, nodes: Any, tmp_path: Path) -> None:
    root, base = f"/{tmp_path.name}-ours", f"/{tmp_path.name}-hudi"
    named = options | {"hoodie.table.name": "trips", "hoodie.write.lock.provider": HUDI + "ZookeeperBasedLockProvider"}
    with closing(open_lock_provider(with_more(named, base_path=base, root=root))) as provider:
        assert isinstance(provider, HudiZookeeperLockProvider)
        table, group = provider.acquire(TABLE_KEY, SOON_S), provider.acquire("file_group/a/b", SOON_S)
        (node,) = nodes.get_children(f"{base}/trips")
        assert node.startswith("_c_") and node[-16:-10] == "-lock-" and node[-10:].isdigit()
        assert [(holder.key, holder.token) for holder in provider.holders()] == [
            ("file_group/a/b", group.token),
            ("table", table.token),
        ]
        assert [holder.key for holder in provider.holders("file")] == ["file_group/a/b"]
        assert provider.register(TABLE_KEY).advance(5) == 5
        assert nodes.get_children(base) == ["trips"]
        assert sorted(nodes.get_children(root)) == ["locks", "registers", "sessions"]


def test_a_path_behind_the_servers_is_above_everything(options: Options, nodes: Any, tmp_path: Path) -> None:
    below = {**options, PREFIX + "url": f"{options[PREFIX + 'url']}/{tmp_path.name}/deep"}
    named = HudiZookeeperLockProvider(with_more(below, base_path="/hudi/", lock_key="trips"))
    with closing(named), named.acquire(TABLE_KEY, SOON_S), named.acquire("key", SOON_S):
        assert nodes.get_children(f"/{tmp_path.name}/deep/hudi") == ["trips"]
        assert "locks" in nodes.get_children(f"/{tmp_path.name}/deep/lakelatch")


# Other clients


def test_the_order_is_that_of_the_sequence_whoever_came() -> None:
    ours, curator = "_c_" + "f" * 32 + "-lock-0000000003", "_c_0c5b-44-lock-0000000002"
    kazoo, reader, other = "ab__lock__0000000001", "cd__rlock__0000000004", "queue-0000000005"
    assert in_order([other, ours, "no place", kazoo, reader, curator]) == [kazoo, curator, ours, reader, other]
    newest, before, oldest = "a-lock--2147483647", "b-lock--2147483648", "c-lock-2147483647"
    assert in_order([newest, oldest, before]) == [oldest, before, newest]
    assert in_order(["a-lock--0000000001", "b-lock-0000000000"]) == ["a-lock--0000000001", "b-lock-0000000000"]
    assert in_order([]) == []


def test_kazoos_own_lock_is_respected_and_can_respect_ours(options: Options, nodes: Any, tmp_path: Path) -> None:
    base = f"/{tmp_path.name}"
    provider = HudiZookeeperLockProvider(with_more(options, base_path=base, lock_key="trips"))
    theirs = nodes.Lock(f"{base}/trips", "kazoo's owner", extra_lock_patterns=["-lock-"])
    with closing(provider), waiting_for() as start:
        assert theirs.acquire(timeout=SOON_S)
        error = assert_raises(LockTimeout, partial(provider.acquire, TABLE_KEY, 0.2))
        assert "kazoo's owner" in str(error)
        waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
        until(lambda: provider.holders()[0].waiting == 1)
        theirs.release()
        lease = waiter.result(SOON_S)
        other = start(lambda: theirs.acquire(timeout=SOON_S))
        until(lambda: provider.holders()[0].waiting == 1)
        assert not other.done() and lease.release() and other.result(SOON_S)
        theirs.release()


def test_a_client_that_cannot_be_told_is_broken_after_our_lease_time(
    options: Options, nodes: Any, tmp_path: Path
) -> None:
    base = f"/{tmp_path.name}"
    nodes.create(f"{base}/trips/_c_0c5b-44-lock-", b"\xff", ephemeral=True, sequence=True, makepath=True)
    provider = HudiZookeeperLockProvider(with_more(options, base_path=base, lock_key="trips"))
    with closing(provider):
        assert_raises(LockTimeout, partial(provider.acquire, TABLE_KEY, 0))
        assert provider.break_(TABLE_KEY) and not provider.break_(TABLE_KEY)
        assert provider.acquire(TABLE_KEY, 0).release()


# Rights and errors


def test_who_is_not_the_creator_is_refused(options: Options, nodes: Any, tmp_path: Path) -> None:
    root = f"/{tmp_path.name}"
    mine = ZookeeperLockProvider(with_more(options, auth=SECRET, acl="creator", base_path=root))
    stranger = ZookeeperLockProvider(with_more(options, base_path=root))
    other = ZookeeperLockProvider(with_more(options, auth="digest:writer:wrong-one", base_path=root))
    with closing(mine), closing(stranger), closing(other):
        lease = mine.acquire("key", SOON_S)
        assert mine.register("time").advance(0) == 1
        calls: list[Callable[[], Any]] = [
            partial(other.acquire, "key", SOON_S),
            partial(stranger.acquire, "another key", SOON_S),
            partial(stranger.register("time").advance, 0),
            stranger.holders,
            partial(stranger.break_, "key"),
        ]
        for call in calls:
            error = assert_raises(InvalidRequest, call)
            assert PREFIX + "url" in str(error) and "rights" in str(error)
            assert "xyzzy" not in str(error) and "wrong-one" not in str(error)
        assert lease.valid() and [holder.key for holder in mine.holders()] == ["key"]
        nodes.add_auth(*SECRET.split(":", 1))
        acls = {str(acl) for acl in nodes.get_acls(root)[0]}
        assert acls and not any("world" in acl for acl in acls)


def test_secrets_are_read_from_elsewhere_and_never_shown(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    scope = with_more(options, auth=f"file:{file}", acl="creator", base_path=f"/{tmp_path.name}")
    with caplog.at_level(logging.NOTSET), closing(ZookeeperLockProvider(scope)) as provider:
        caplog.set_level(1, "lakelatch.kazoo")
        assert provider.acquire("key", SOON_S).valid()
        backend = provider._session().backend
        shown = [caplog.text, repr(scope), repr(vars(provider)), repr(vars(backend))]
    assert "Connecting to" in caplog.text and not any("xyzzy" in text for text in shown)


@pytest.mark.parametrize(
    "more, expected",
    [
        ({"url": ""}, "url is missing"),
        ({"url": "zk://host:2181"}, "names no servers"),
        ({"url": "user:xyzzy@host:2181"}, "names no servers"),
        ({"url": "host:99999"}, "names no servers"),
        ({"url": "host:2181/a//b"}, "names no servers"),
        ({"url": "host,,host"}, "names no servers"),
        ({"port": "0"}, "port='0' is out of range"),
        ({"base_path": "lakelatch"}, "base_path: 'lakelatch' is no path"),
        ({"base_path": "/a/../b"}, "is no path"),
        ({"base_path": "/"}, "is no path"),
        ({"acl": "closed"}, "acl='closed'"),
        ({"acl": "creator"}, "auth"),
        ({"session_timeout_ms": "10"}, "session_timeout_ms='10' is out of range"),
        ({"sasl_mechanism": "PLAIN"}, "use DIGEST-MD5 or GSSAPI"),
        ({"verify_certs": "maybe"}, "use true or false"),
        ({"lock_key": "trips"}, "lock_key is no option"),
    ],
)
def test_a_misspelt_option_is_refused(options: Options, more: Options, expected: str) -> None:
    error = assert_raises(InvalidRequest, lambda: ZookeeperLockProvider(with_more(options, **more)))
    assert expected in str(error) and "xyzzy" not in str(error)


def test_hudis_class_needs_to_know_the_place(options: Options) -> None:
    for more, expected in (({}, "neither"), ({"lock_key": "trips"}, "base_path is missing")):
        error = assert_raises(InvalidRequest, partial(HudiZookeeperLockProvider, with_more(options, **more)))
        assert expected in str(error)


def test_hudis_class_reads_ports_from_the_url_as_java_writers_do(options: Options) -> None:
    place = {"lock_key": "trips", "base_path": "/hudi"}
    wrong = with_more(options, url="one,two:2182/below", port="2183", **place)
    error = assert_raises(InvalidRequest, partial(HudiZookeeperLockProvider, wrong))
    assert PREFIX + "port=2183" in str(error) and PREFIX + "url=one:2183,two:2182" in str(error)
    implicit = LockScope("s3://bucket/trips", with_more(options, url="one", port="2183").options)
    assert PREFIX + "port=2183" in str(
        assert_raises(InvalidRequest, partial(HudiImplicitZookeeperLockProvider, implicit))
    )
    for url, port in (("one:2183", "2184"), ("one", "2181")):
        assert HudiZookeeperLockProvider(with_more(options, url=url, port=port, **place)).table_lock == "/hudi/trips"


def test_the_implicit_place_of_a_local_table_needs_the_path_as_the_others_write_it(options: Options) -> None:
    scope = LockScope("file:///lake/trips", with_more(options).options)
    error = assert_raises(InvalidRequest, partial(HudiImplicitZookeeperLockProvider, scope))
    assert "hoodie.base.path" in str(error) and "/lake/trips" in str(error)
    given = LockScope("file:///lake/trips", {**scope.options, "hoodie.base.path": "/lake/trips"})
    assert HudiImplicitZookeeperLockProvider(given).table_lock.startswith("/tmp/")


@pytest.mark.parametrize("more", [{"auth": "xyzzy"}, {"auth": "env:NO_SUCH"}, {"use_ssl": "true", "ca": "/no/such"}])
def test_wrong_secrets_and_files_are_reported_when_they_are_needed(options: Options, more: Options) -> None:
    with closing(ZookeeperLockProvider(with_more(options, **more))) as provider:
        error = assert_raises(InvalidRequest, partial(provider.acquire, "key", SOON_S))
        assert PREFIX in str(error) and "xyzzy" not in str(error)


def test_unreachable_servers_are_reported(
    options: Options, zookeeper_server: Server, proxy_to: Callable[[Server], TcpProxy]
) -> None:
    silent = proxy_to(zookeeper_server)
    silent.cut()
    nobody = f"127.0.0.1:{free_port()}"
    for url, more in (
        (nobody, {}),
        (f"{silent.host}:{silent.port}", {"connection_timeout_ms": "300"}),
        (options[PREFIX + "url"], {"use_ssl": "true"}),
    ):
        with closing(ZookeeperLockProvider(with_more(options, **{"url": url, **more}))) as provider:
            started_ns = REAL_SYSTEM.monotonic_ns()
            error: LakelatchError = assert_raises(Unavailable, partial(provider.acquire, "key", 0.5))
            assert PREFIX + "url" in str(error) and url in str(error) and not isinstance(error, LockTimeout)
            assert REAL_SYSTEM.monotonic_ns() - started_ns < SOON_S * 1e9
    both = ZookeeperLockProvider(with_more(options, url=f"{nobody},{options[PREFIX + 'url']}"))
    with closing(both):
        assert both.acquire("key", SOON_S).release()
