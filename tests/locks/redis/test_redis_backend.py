"""What is special about Redis: what it stores, who may use it, TLS, Sentinel, many leases at once."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis
from backend_checks import (
    check_lost_answer_to_acquire,
    check_lost_answer_to_last_try,
    check_lost_answer_to_release,
    check_unreachable_is_told,
    for_s,
)

from lakelatch.errors import InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope, file_group_key
from lakelatch.locks.redis.client import RedisClient
from lakelatch.locks.redis.provider import RedisLockProvider
from lakelatch.locks.session.options import BackendOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import lock_options
from lakelatch.testing.servers.redis import LocalRedis

SECRET = "swordfish-of-the-deep"
ECHO = "return ARGV[1]"
URL = "hoodie.write.lock.redis.url"


def provider_at(url: str, tmp_path: Path, lease_s: str = "2", **more: str) -> RedisLockProvider:
    own = {f"hoodie.write.lock.redis.{key}": value for key, value in more.items()}
    return RedisLockProvider(LockScope(f"file://{tmp_path}", {URL: url, "lakelatch.lock.lease_s": lease_s, **own}))


@pytest.fixture
def opened(redis_server: Server, tmp_path: Path) -> Iterator[RedisLockProvider]:
    """A provider with keys of its own."""
    url = lock_options(redis_server)[URL]
    with closing(provider_at(url, tmp_path, prefix=tmp_path.name)) as provider:
        yield provider


@pytest.fixture
def client(redis_server: Server) -> Iterator[redis.Redis]:
    with closing(redis.Redis(redis_server.host, redis_server.port)) as client:
        yield client


def keys_of(client: redis.Redis, tmp_path: Path) -> list[str]:
    """The kinds of keys that are there, but for tokens and registers, which stay."""
    found = sorted(str(key).partition("}:")[2][:2] for key in client.keys(f"{{{tmp_path.name}}}:*"))
    return [kind for kind in found if kind not in ("to", "r:")]


def test_nothing_is_left_behind(opened: RedisLockProvider, client: redis.Redis, tmp_path: Path) -> None:
    with opened.acquire(TABLE_KEY, 1), ThreadPoolExecutor(8) as pool:
        work = [pool.submit(opened.acquire, TABLE_KEY, 0.05 * turn) for turn in range(8)]
        assert all(isinstance(each.exception(), LockTimeout) for each in work)
        assert keys_of(client, tmp_path) == ["lo", "s:"]
    assert keys_of(client, tmp_path) == ["s:"]
    opened.close()
    assert wait_until(lambda: keys_of(client, tmp_path) == [], 10)


def test_a_thousand_leases_cost_one_connection_and_one_thread(
    redis_server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    lease_s = 8  # a busy machine may not come to renew them within a shorter one
    with closing(
        provider_at(lock_options(redis_server)[URL], tmp_path, str(lease_s), prefix=tmp_path.name)
    ) as provider:
        provider.acquire(TABLE_KEY, 1)
        connections, threads = len(client.client_list()), threading.active_count()
        leases = [provider.acquire(file_group_key("p", str(number)), 5) for number in range(1000)]
        assert threading.active_count() <= threads
        assert len(client.client_list()) <= connections + 1  # a second one if a renewal meets an acquire
        REAL_SYSTEM.sleep(lease_s + 0.5)
        assert all(lease.valid() for lease in leases) and len(provider.holders("file_group/")) == 1000
        assert all(lease.release() for lease in leases)


def connections_of(client: redis.Redis, name: str) -> list[str]:
    return [one["id"] for one in client.client_list() if one["name"] == name]


def test_a_connection_that_the_server_closed_is_replaced_unnoticed(
    redis_server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    url = f"{lock_options(redis_server)[URL]}?client_name=kept"
    with closing(provider_at(url, tmp_path, lease_s="30", prefix=tmp_path.name).make_backend()) as backend:
        assert backend.holders("") == []
        closed = connections_of(client, "kept")
        assert client.client_kill_filter(_id=closed[0]) == 1
        assert backend.holders("") == []
        assert len(connections_of(client, "kept")) == len(closed) == 1
        client.script_flush()
        session = backend.open_session("me")
        for turn in range(20):
            assert backend.take(session, str(turn), "table/=k", for_s(0)) is not None
            assert backend.take(session, "second", "table/=k", for_s(0.01)) is None
            assert backend.give_back(session, str(turn), "table/=k")
        backend.close_session(session)
        assert len(connections_of(client, "kept")) == 1
    assert wait_until(lambda: connections_of(client, "kept") == [], 10)


def client_of(redis_server: Server) -> RedisClient:
    return RedisClient(BackendOptions("redis", {"url": lock_options(redis_server)[URL]}, 30.0))


def test_an_answer_that_nobody_has_read_is_no_later_question_s(redis_server: Server) -> None:
    """As after an interrupt between a question and its answer."""
    with closing(client_of(redis_server)) as asked:
        assert asked.run(ECHO, "first") == b"first"
        left = asked._kept[0]
        left.send_command("ECHO", "of before")
        assert wait_until(left.can_read, 10)
        assert [asked.run(ECHO, f"{number}") for number in range(3)] == [b"0", b"1", b"2"]


def test_a_forked_child_reads_no_answers_of_its_parent(redis_server: Server) -> None:
    with closing(client_of(redis_server)) as asked:
        asked.run(ECHO, "warm")
        read, write = os.pipe()
        child = os.fork()
        if not child:
            told = {asked.run(ECHO, f"child-{number}") == b"child-%d" % number for number in range(50)}
            os.write(write, b"right" if told == {True} else b"wrong")
            os._exit(0)
        answers = [asked.run(ECHO, f"parent-{number}") for number in range(50)]
        os.waitpid(child, 0)
        assert answers == [b"parent-%d" % number for number in range(50)] and os.read(read, 10) == b"right"
        os.close(read)
        os.close(write)


def test_an_answer_that_got_lost_after_a_grant_is_given_back(
    redis_server: Server, proxy_to: object, tmp_path: Path
) -> None:
    assert callable(proxy_to)
    proxy = proxy_to(redis_server)
    url = f"redis://{proxy.host}:{proxy.port}/0"
    direct = lock_options(redis_server)[URL]
    with closing(provider_at(url, tmp_path)) as provider, closing(provider_at(direct, tmp_path)) as other:
        provider.acquire(TABLE_KEY, 1).release()
        check_lost_answer_to_acquire(proxy, provider, other)
        check_lost_answer_to_last_try(proxy, provider, other)
        check_lost_answer_to_release(proxy, provider, other)


def test_a_request_that_arrives_after_it_was_given_back_gets_nothing(
    opened: RedisLockProvider, client: redis.Redis, tmp_path: Path
) -> None:
    backend = opened.make_backend()
    session = backend.open_session("me")
    assert not backend.give_back(session, "late", "table/=k")
    assert backend.take(session, "late", "table/=k", for_s(0)) is None
    assert backend.holders("table/=") == []
    assert backend.take(session, "fresh", "table/=k", for_s(1)) is not None
    backend.close_session(session)
    backend.close()


def test_users_with_passwords(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = {"default": "~* &* +@all", "latch": "~{lakelatch}:* +@all", "reader": "~* +@read"}
    users = tmp_path / "users.acl"
    users.write_text("".join(f"user {name} on >{SECRET} {rule}\n" for name, rule in rules.items()))
    server = LocalRedis(tmp_path / "server", ["--aclfile", str(users)])
    place = f"{server.host}:{server.port}"
    server.start()
    try:
        (tmp_path / "password").write_text(SECRET + "\n")
        os.environ["LATCH_PASSWORD"] = SECRET
        for url, more in (
            (f"redis://:{SECRET}@{place}/0", {}),
            (f"redis://latch:{SECRET}@{place}/0", {}),
            (f"redis://{place}/0", {"username": "latch", "password": f"file:{tmp_path / 'password'}"}),
            (f"redis://{place}/0", {"username": "latch", "password": "env:LATCH_PASSWORD"}),
        ):
            with closing(provider_at(url, tmp_path, **more)) as provider, provider.acquire(TABLE_KEY, 5) as lease:
                assert lease.valid()
                assert SECRET not in repr(provider.scope) + repr(provider.__dict__)
        with caplog.at_level(logging.DEBUG):
            for url, more in (
                (f"redis://{place}/0", {}),
                (f"redis://latch:{SECRET}x@{place}/0", {}),
                (f"redis://{place}/0", {"username": "reader", "password": SECRET}),
            ):
                with closing(provider_at(url, tmp_path, **more)) as provider:
                    with pytest.raises(InvalidRequest, match="credentials or this user's rights") as caught:
                        provider.acquire(TABLE_KEY, 5)
                    assert SECRET not in str(caught.value) and URL in str(caught.value)
        assert SECRET not in caplog.text
    finally:
        del os.environ["LATCH_PASSWORD"]
        server.close()


def test_tls(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    port, files = free_port(), [tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "cert.pem"]
    names = ("--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file")
    pairs = [word for name, file in zip(names, files, strict=True) for word in (name, str(file))]
    server = LocalRedis(tmp_path / "server", ["--tls-port", str(port), "--tls-auth-clients", "no", *pairs])
    server.start()
    try:
        url = f"rediss://localhost:{port}/0"
        with closing(provider_at(url, tmp_path, ssl_ca_certs=str(files[0]))) as provider:
            assert provider.acquire(TABLE_KEY, 5).release()
        with closing(provider_at(url, tmp_path)) as provider, pytest.raises(Unavailable, match="certificate"):
            provider.acquire(TABLE_KEY, 1)
    finally:
        server.close()


def make_certificate(folder: Path) -> None:
    """One for localhost, signed by itself."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def test_sentinel_leads_to_the_new_master_after_a_failover(tmp_path: Path) -> None:
    """The replica had not received all, which may cost leases; who comes next gets greater tokens and times."""
    master, sentinel_port = LocalRedis(tmp_path / "master"), free_port()
    replica = LocalRedis(tmp_path / "replica", ["--replicaof", master.host, str(master.port)])
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port {sentinel_port}\nsentinel monitor mymaster {master.host} {master.port} 1\n"
        "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n"
    )
    master.start()
    replica.start()
    sentinel = subprocess.Popen(
        ["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"redis+sentinel://127.0.0.1:{sentinel_port}/mymaster/0"
        with closing(redis.Redis("127.0.0.1", sentinel_port)) as watch:
            assert wait_until(lambda: sees_a_replica(watch), 30)
        with closing(provider_at(url, tmp_path)) as provider:
            lease = provider.acquire(TABLE_KEY, 10)
            time = provider.register("time").advance(5_000_000_000_000)
            master.kill()
            assert lease.lost.wait(30) or lease.valid()  # with an unsynced replica lost, else still held
            lease.release()
            later = provider.acquire(TABLE_KEY, 30)
            assert later.token > lease.token
            assert provider.register("time").advance(time + 1) > time
            assert later.release()
    finally:
        sentinel.kill()
        sentinel.wait()
        replica.close()
        master.close()


def test_what_a_promoted_replica_believes_to_be_held_is_given_back(tmp_path: Path) -> None:
    """It took over before it heard of a release: nobody has that lease, and its session goes on living."""
    with ExitStack() as things:
        master = things.enter_context(closing(LocalRedis(tmp_path / "master")))
        master.start()
        replica = things.enter_context(closing(LocalRedis(tmp_path / "replica")))
        replica.start()
        link = things.enter_context(closing(TcpProxy(master.host, master.port)))
        way = things.enter_context(closing(TcpProxy(master.host, master.port)))
        admin = things.enter_context(closing(redis.Redis(replica.host, replica.port)))
        admin.replicaof(link.host, link.port)
        provider = things.enter_context(closing(provider_at(f"redis://{way.host}:{way.port}/0", tmp_path)))
        lease = provider.acquire(TABLE_KEY, 10)
        assert wait_until(lambda: bool(admin.hlen("{lakelatch}:locks")), 30)
        link.cut()
        assert lease.release()
        admin.replicaof("no", "one")
        way.turn_to(replica.host, replica.port)
        later = provider.acquire(TABLE_KEY, 30)
        assert later.token > lease.token and later.release()


def sees_a_replica(sentinel: redis.Redis) -> bool:
    try:
        state: Any = sentinel.sentinel_master("mymaster")
        return int(state["num-slaves"]) == 1
    except redis.RedisError:
        return False


@pytest.mark.parametrize("url", ["http://h:1", "redis+sentinel://h:1", "", "redis://h:port"])
def test_a_wrong_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"hoodie\.write\.lock\.redis\.url"):
        provider_at(url, tmp_path).acquire(TABLE_KEY, 0)


def test_an_unreachable_server_is_reported_within_the_timeout(tmp_path: Path) -> None:
    with closing(provider_at(f"redis://u:{SECRET}@127.0.0.1:1/0", tmp_path)) as provider:
        check_unreachable_is_told(provider, URL, SECRET)


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"redis\.passwort is no option.*password"):
        provider_at("redis://h", tmp_path, passwort="x")
