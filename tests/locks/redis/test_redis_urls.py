"""What the URL of Redis may say, and that what it cannot say is refused by the name of the option, without a secret."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.redis.client import RedisClient, connection_settings
from lakelatch.locks.redis.provider import RedisLockProvider
from lakelatch.locks.session.options import BackendOptions
from lakelatch.testing.servers.contract import wait_until

URL = "hoodie.write.lock.redis.url"
NOWHERE = "127.0.0.1:1"


def provider_at(url: str, **more: str) -> RedisLockProvider:
    own = {f"hoodie.write.lock.redis.{key}": value for key, value in more.items()}
    return RedisLockProvider(LockScope("memory://urls", {URL: url, "lakelatch.lock.lease_s": "2", **own}))


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3/cr3t@h/0",
        "redis://:12/cr3t@h/0",
        "redis://u:s3#cr3t@h/0",
        "redis://[s3cr3t@h/0",
        "u:s3cr3t@h:1",
        "redis:/u:s3cr3t@h",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidRequest, match=URL) as refused:
        provider_at(url)
    assert "cr3t" not in str(refused.value)


@pytest.fixture
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a server that has no port."""
    folder = tmp_path_factory.mktemp("r")
    path = folder / "s"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with closing(redis.Redis(unix_socket_path=str(path))) as client:
            assert wait_until(lambda: _answers(client), 30)
        yield path
    finally:
        server.terminate()
        server.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_a_unix_socket_leads_to_locks(socket_path: Path) -> None:
    with closing(provider_at(f"unix://{socket_path}?db=1")) as provider, provider.acquire(TABLE_KEY, 5) as lease:
        assert lease.valid()


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        (f"redis://{NOWHERE}/0?PASSWORD=s3cr3t", {}, URL),
        (f"redis://{NOWHERE}/0?ssl_keyfile_password=s3cr3t", {}, URL),
        (f"redis+sentinel://{NOWHERE}/m?PASSWORD=s3cr3t", {}, URL),
        (f"redis+cluster://{NOWHERE}?PASSWORD=s3cr3t", {}, URL),
        (f"redis+cluster://{NOWHERE}?db=1", {}, URL),
        (f"rediss://{NOWHERE}?ssl_cert_reqs=s3cr3t", {}, URL),
        (f"redis://{NOWHERE}", {"ssl_ca_certs": "/ca"}, "hoodie.write.lock.redis.ssl_ca_certs"),
        ("unix:///nowhere", {"ssl_certfile": "/c"}, "hoodie.write.lock.redis.ssl_certfile"),
    ],
)
def test_what_redis_cannot_be_opened_with_is_refused_by_name(url: str, more: dict[str, str], said: str) -> None:
    with closing(provider_at(url, **more)) as provider, pytest.raises(InvalidRequest, match=said) as refused:
        provider.ask()
    assert "s3cr3t" not in str(refused.value)


def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    provider = provider_at(f"redis+cluster://u:s3cr3t@{NOWHERE}")
    with closing(provider), pytest.raises(Unavailable, match=URL) as told:
        provider.ask()
    assert "s3cr3t" not in str(told.value)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("u:p%40ss%2Fw@h:1/m/3", ("u", "p@ss/w", 3)),
        ("h:1/m?username=u&password=p%40ss%2Fw&db=3", ("u", "p@ss/w", 3)),
        ("%75@h:1/m/2?password=w&db=3", ("u", "w", 3)),
    ],
)
def test_sentinel_takes_credentials_as_a_single_server_does(behind: str, expected: tuple[str, str, int]) -> None:
    options = BackendOptions("redis", {"url": "redis+sentinel://" + behind})
    settings = RedisClient(options)._client.connection_pool.connection_kwargs
    assert (settings["username"], settings["password"], settings["db"]) == expected


def test_a_cluster_takes_credentials_as_a_single_server_does_and_options_go_before() -> None:
    url = "redis+cluster://u:p%40ss%2Fw@h:1?client_name=c"
    assert connection_settings(url, {}) == {"username": "u", "password": "p@ss/w", "client_name": "c"}
    assert connection_settings(url, {"password": "q"}) == {"password": "q", "username": "u", "client_name": "c"}
    assert connection_settings("redis+cluster://h?password=w", {})["password"] == "w"
