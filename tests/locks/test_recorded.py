"""What a table says of its locks to writers who do not say it, and what they take of that."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.open import open_lock_provider, open_recorded_locks, record_of
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.locks.redis.provider import RedisLockProvider
from lakelatch.locks.session.backend import Wait
from lakelatch.storage.uris import without_password, without_secrets
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.reach import lock_options

HUDI = "org.apache.hudi.client.transaction.lock."
TABLE = "memory://recorded"


def keys(**values: str) -> dict[str, str]:
    """`redis__url` is `hoodie.write.lock.redis.url`."""
    return {PREFIX + name.replace("__", "."): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ({}, {}),
        (keys(provider="in_process"), keys(provider="in_process")),
        (keys(filesystem__path="/locks"), keys(provider="filesystem", filesystem__path="/locks")),
        (
            keys(provider="redis", redis__url="redis://h/1", redis__prefix="p", redis__password="secret"),
            keys(provider="redis", redis__url="redis://h/1", redis__prefix="p"),
        ),
        (
            keys(provider="redis", redis__url="redis://h", redis__prefix="team:me@lake?x"),
            keys(provider="redis", redis__url="redis://h", redis__prefix="team:me@lake?x"),
        ),
        (
            keys(provider="redis", redis__url="redis://me:secret@h:1/0?password=secret&db=3"),
            keys(provider="redis", redis__url="redis://me@h:1/0?db=3"),
        ),
        (
            keys(provider="zookeeper", zookeeper__url="h", zookeeper__port="2182", zookeeper__auth="digest:a:secret"),
            keys(provider="zookeeper", zookeeper__url="h", zookeeper__port="2182"),
        ),
        (
            keys(provider="etcd", etcd__url="http://h:1,h:2", etcd__username="u", etcd__password="secret"),
            keys(provider="etcd", etcd__url="http://h:1,h:2"),
        ),
        (
            keys(provider="dynamodb", dynamodb__table="t", dynamodb__region="r", dynamodb__endpoint_url="http://h"),
            keys(provider="dynamodb", dynamodb__table="t", dynamodb__region="r", dynamodb__endpoint_url="http://h"),
        ),
        (
            keys(
                provider="storage",
                storage__url="s3://b/l",
                storage__region="r",
                storage__access_key_id="secret",
                storage__secret_access_key="secret",
            ),
            keys(provider="storage", storage__url="s3://b/l", storage__region="r"),
        ),
        (
            {
                **keys(provider=HUDI + "ZookeeperBasedLockProvider", zookeeper__url="h:1", zookeeper__base_path="/b"),
                "hoodie.table.name": "flights",
            },
            keys(provider=HUDI + "ZookeeperBasedLockProvider", zookeeper__url="h:1", zookeeper__base_path="/b"),
        ),
        (
            {
                **keys(provider=HUDI + "ZookeeperBasedImplicitBasePathLockProvider", zookeeper__url="h:1"),
                "hoodie.base.path": "/flights",
            },
            {
                **keys(provider=HUDI + "ZookeeperBasedImplicitBasePathLockProvider", zookeeper__url="h:1"),
                "hoodie.base.path": "/flights",
            },
        ),
    ],
)
def test_a_table_records_what_leads_to_its_locks_and_no_secret(
    options: dict[str, str], recorded: dict[str, str]
) -> None:
    assert record_of("file:///data/flights", options) == recorded


def test_locks_in_the_table_itself_are_reached_as_the_table_is() -> None:
    options = {"lakelatch.storage.endpoint_url": "http://h", "lakelatch.storage.allow_http": "true"}
    assert record_of("s3://bucket/flights", options) == {}
    assert record_of("s3://bucket/flights", {**options, **keys(provider="storage")}) == keys(provider="storage")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("redis://:p@ss@h:1/0", "redis://h:1/0"),
        ("rediss+cluster://u:p@h:1,h2:2/", "rediss+cluster://u@h:1,h2:2/"),
        ("redis+sentinel://h:1,h:2/master/0", "redis+sentinel://h:1,h:2/master/0"),
        ("unix:///run/redis.sock?db=2&username=u&password=p", "unix:///run/redis.sock?db=2"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("host:2181,host:2182/below", "host:2181,host:2182/below"),
        ("http://h:1,h:2", "http://h:1,h:2"),
        ("http://h:1/,http://h:2", "http://h:1,h:2"),
        ("s3://bucket/a#b;c", "s3://bucket/a#b;c"),
        ("rediss://u:p@[::1]:1/0", "rediss://u@[::1]:1/0"),
        ("/locks/of:me@here", "/locks/of:me@here"),
    ],
)
def test_a_place_without_its_password(given: str, left: str) -> None:
    assert without_password(given) == left


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("redis://:s3/cr@3t@h/0", "redis://…"),
        ("redis://:12/cr@h/0", "redis://…"),
        ("s3://key:s3/cr3t@bucket/x", "s3://…"),
        ("redis://u:a@s3cr3t@h/0", "redis://h/0"),
        ("redis://u:s3#cr3t@h/0", "redis://…"),
        ("redis://u:12?cr3t@h/0", "redis://…"),
        ("redis://h?password=s3@cr3t", "redis://h"),
        ("REDIS://u:s3cr3t@h/0", "REDIS://h/0"),
        ("u:s3cr3t@h:1", "…"),
        ("redis:/u:s3cr3t@h", "redis:…"),
        ("redis+sentinel://u:s3cr3t@h1:1,x:cr3t@h2:2/m/0", "redis+sentinel://h2:2/m/0"),
        ("redis+sentinel://h1:1,x:cr3t@h2:2/m/0", "redis+sentinel://h2:2/m/0"),
        ("redis://h/0#s3cr3t", "redis://h/0"),
        ("redis://h/0;password=s3cr3t", "redis://h/0"),
        ("redis://h/0?db=0;password=s3cr3t", "redis://h/0"),
    ],
)
def test_a_malformed_url_shows_and_records_no_secret(given: str, shown: str) -> None:
    assert without_secrets(given) == shown
    assert "s3" not in without_password(given).removeprefix("s3:") and "cr" not in without_password(given)


RECORDED = {"hoodie.table.name": "flights", **keys(provider="redis", redis__url="redis://recorded", redis__prefix="p")}


def test_what_is_not_said_is_taken_from_the_table() -> None:
    provider = open_recorded_locks(TABLE, {}, RECORDED)
    assert isinstance(provider, RedisLockProvider)
    assert provider.record() == keys(provider="redis", redis__url="redis://recorded", redis__prefix="p")


def test_what_is_said_goes_before_and_the_rest_of_that_provider_is_taken() -> None:
    said = keys(provider=" Redis ", redis__url="redis://said")
    assert open_recorded_locks(TABLE, said, RECORDED).record() == keys(
        provider="Redis", redis__url="redis://said", redis__prefix="p"
    )
    with_password = open_recorded_locks(TABLE, keys(redis__password="env:P"), RECORDED)
    assert with_password.scope.options[PREFIX + "redis.password"] == "env:P"


def test_another_provider_takes_nothing_of_what_is_recorded() -> None:
    provider = open_recorded_locks(TABLE, keys(provider="in_process"), RECORDED)
    assert isinstance(provider, InProcessLockProvider)
    assert not [key for key in provider.scope.options if "redis" in key]


@pytest.mark.parametrize("recorded", [None, {}, {"hoodie.table.name": "flights"}])
def test_a_table_that_records_nothing_has_the_locks_of_its_place(recorded: dict[str, str] | None) -> None:
    assert isinstance(open_recorded_locks("file:///data/flights", {}, recorded), FilesystemLockProvider)


def test_the_name_that_the_table_has_leads_to_the_lock_of_java_writers() -> None:
    hudi = keys(provider=HUDI + "ZookeeperBasedLockProvider", zookeeper__url="h:1", zookeeper__base_path="/b")
    provider = open_recorded_locks("file:///data/flights", hudi, {"hoodie.table.name": "flights"})
    assert getattr(provider, "table_lock", "") == "/b/flights"
    with pytest.raises(InvalidRequest, match=r"nor hoodie\.table\.name"):
        open_recorded_locks("file:///data/flights", hudi, None)


@pytest.mark.parametrize(
    "more",
    [
        keys(etcd__client="os:system"),
        keys(etcd__username="u", etcd__password="file:/etc/passwd"),
        keys(etcd__no_such_option="1"),
    ],
)
def test_whoever_can_write_properties_has_nobody_run_code_or_read_files(more: dict[str, str]) -> None:
    recorded = {**keys(provider="etcd", etcd__url="http://h:1"), **more}
    provider = open_recorded_locks(TABLE, {}, recorded)
    assert not more.keys() & provider.scope.options.keys()


def test_a_recorded_provider_that_cannot_be_opened_is_said_to_be_recorded() -> None:
    with pytest.raises(InvalidRequest, match=r"'acme'.*recorded in the properties of the table at memory://recorded"):
        open_recorded_locks(TABLE, {}, keys(provider="acme"))
    with pytest.raises(InvalidRequest) as caught:
        open_recorded_locks(TABLE, keys(provider="acme"), keys(provider="acme"))
    assert "recorded" not in str(caught.value)


@pytest.fixture(params=["redis", "zookeeper", "etcd", "dynamodb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


def test_one_question_is_asked_over_a_connection_that_is_closed(
    server: Server, proxy_to: Callable[[Server], TcpProxy]
) -> None:
    proxy = proxy_to(server)
    provider = open_lock_provider(LockScope(TABLE, lock_options(server, proxy.host, proxy.port)))
    provider.ask()
    assert proxy.accepted == 1
    wait = Wait(10, REAL_SYSTEM, lambda: False)
    while proxy.connections and wait.back_off():
        pass
    assert proxy.connections == 0
    provider.close()


@pytest.mark.parametrize("name", ["redis", "zookeeper", "etcd", "dynamodb", "storage"])
def test_a_service_that_is_not_there_is_heard_of_by_its_option(name: str) -> None:
    with socket.socket() as closed:  # bound and not listening: whoever connects is refused
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        options = {
            "redis": keys(redis__url=f"redis://{place}/0"),
            "zookeeper": keys(zookeeper__url=place),
            "etcd": keys(etcd__url=f"http://{place}"),
            "dynamodb": keys(dynamodb__endpoint_url=f"http://{place}", dynamodb__region="us-east-1"),
            "storage": keys(
                storage__url="s3://b/l",
                storage__endpoint_url=f"http://{place}",
                storage__region="us-east-1",
                storage__allow_http="true",
            ),
        }[name]
        provider = open_lock_provider(LockScope(TABLE, {PROVIDER: name, "lakelatch.lock.lease_s": "2", **options}))
        with pytest.raises(Unavailable) as caught:
            provider.ask()
        assert PREFIX + name in str(caught.value)


def test_a_folder_of_locks_that_cannot_be_made_is_heard_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "locks", tmp_path / "file"):
        provider = open_lock_provider(LockScope("file:///t", keys(filesystem__path=str(path))))
        with pytest.raises(Unavailable, match=r"hoodie\.write\.lock\.filesystem\.path"):
            provider.ask()
    provider = open_lock_provider(LockScope("file:///t", keys(filesystem__path=str(tmp_path / "new" / "locks"))))
    provider.ask()
    with provider.acquire("table", 1):
        provider.close()
