"""A lock service that is not there: every provider says so while it waits, not only at the end."""

from __future__ import annotations

import socket

import pytest

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PREFIX, PROVIDER, WAIT_TIME

OPTIONS = {
    "redis": {"redis.url": "redis://127.0.0.1:{port}/0"},
    "zookeeper": {"zookeeper.url": "127.0.0.1:{port}", "zookeeper.base_path": "/locks"},
    "etcd": {"etcd.url": "http://127.0.0.1:{port}"},
    "dynamodb": {
        "dynamodb.endpoint_url": "http://127.0.0.1:{port}",
        "dynamodb.table": "locks",
        "dynamodb.region": "us-east-1",
    },
    "storage": {
        "storage.url": "s3://bucket/locks",
        "storage.endpoint_url": "http://127.0.0.1:{port}",
        "storage.region": "us-east-1",
        "storage.allow_http": "true",
    },
}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_who_waits_for_a_service_that_is_not_there_is_told(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "nobody")
    with socket.socket() as closed:  # bound and not listening: whoever connects is refused
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        own = {PREFIX + key: value.format(port=port) for key, value in OPTIONS[name].items()}
        options = {**own, PROVIDER: name, "lakelatch.lock.lease_s": "2"}
        provider = open_lock_provider(LockScope("memory://unreachable", options))
        try:
            with pytest.raises(Unavailable) as caught:
                provider.acquire(TABLE_KEY, 6)
        finally:
            provider.close()
    (told,) = (message for message in caplog.messages if WAIT_TIME in message)
    assert "in 2 tries" in told and caught.value.message in told
