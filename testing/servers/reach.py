"""How a lock provider or a table reaches a server of these: the write options that a user would set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lakelatch.errors import InvalidRequest
from lakelatch.locks.options import LEASE, PREFIX, PROVIDER
from lakelatch.storage.options import PREFIX as STORAGE_PREFIX
from lakelatch.testing.servers.seaweedfs import BUCKET, S3_ENVIRONMENT


class Listener(Protocol):
    """Where something listens: a server, or a proxy in front of it."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Named(Listener, Protocol):
    """A server, by its own name."""

    @property
    def name(self) -> str: ...


#: The server that each lock provider needs; the others need none.
SERVER_OF: Mapping[str, str] = {
    "redis": "redis",
    "zookeeper": "zookeeper",
    "etcd": "etcd",
    "dynamodb": "dynamodb",
    "storage": "seaweedfs",
}


#: What the usual AWS chain has to find for DynamoDB Local, which takes any.
AWS_ENVIRONMENT: Mapping[str, str] = S3_ENVIRONMENT


_VARIABLE_OF = {
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "allow_http": "AWS_ALLOW_HTTP",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
}


def place_options(server: Listener) -> dict[str, str]:
    """The options for a table in the bucket of SeaweedFS, or by a proxy in front of it."""
    return {STORAGE_PREFIX + key: value for key, value in _s3(f"{server.host}:{server.port}").items()}


def place_environment(server: Listener) -> dict[str, str]:
    """The same as environment variables, which the store's own tools read and processes inherit."""
    return {_VARIABLE_OF[key]: value for key, value in _s3(f"{server.host}:{server.port}").items()}


def lock_options(
    server: Named, host: str | None = None, port: int | None = None, lease_s: float | None = None
) -> dict[str, str]:
    """The options for the provider that uses this server, or, with host and port, a proxy in front of it."""
    place = f"{host or server.host}:{port or server.port}"
    found: dict[str, dict[str, str]] = {
        "redis": {"redis.url": f"redis://{place}/0"},
        "zookeeper": {"zookeeper.url": place},
        "etcd": {"etcd.url": f"http://{place}"},
        "dynamodb": {
            "dynamodb.endpoint_url": f"http://{place}",
            "dynamodb.region": "us-east-1",
            "dynamodb.table": "lakelatch_locks",
        },
        "seaweedfs": {
            "storage.url": f"s3://{BUCKET}/locks",
            **{f"storage.{key}": value for key, value in _s3(place).items()},
        },
    }
    if server.name not in found:
        raise InvalidRequest(f"no lock provider uses {server.name!r}: one of {', '.join(found)} does")
    provider = next(name for name, needed in SERVER_OF.items() if needed == server.name)
    options = {PROVIDER: provider, **{PREFIX + key: value for key, value in found[server.name].items()}}
    return options if lease_s is None else {**options, LEASE: str(lease_s)}


def _s3(place: str) -> dict[str, str]:
    return {
        "endpoint_url": f"http://{place}",
        "region": "us-east-1",
        "allow_http": "true",
        "access_key_id": S3_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        "secret_access_key": S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    }
