"""Which server a name opens, as a process or in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lakelatch.errors import InvalidRequest
from lakelatch.testing.servers.containers import ContainerServer, engine_answers
from lakelatch.testing.servers.contract import Server
from lakelatch.testing.servers.dynamodb import LocalDynamoDb
from lakelatch.testing.servers.etcd import LocalEtcd
from lakelatch.testing.servers.local import LocalServer
from lakelatch.testing.servers.redis import LocalRedis
from lakelatch.testing.servers.seaweedfs import LocalSeaweedFs
from lakelatch.testing.servers.zookeeper import LocalZooKeeper

ENVIRONMENT_VARIABLE = "LAKELATCH_TEST_SERVERS"
KINDS = ("local", "containers")

_LOCAL: dict[str, Callable[[Path], LocalServer]] = {
    "redis": LocalRedis,
    "zookeeper": LocalZooKeeper,
    "etcd": LocalEtcd,
    "dynamodb": LocalDynamoDb,
    "seaweedfs": LocalSeaweedFs,
}
NAMES = tuple(_LOCAL)


def chosen() -> str:
    """The kind of servers that LAKELATCH_TEST_SERVERS asks for; if unset, containers where a Docker engine answers."""
    kind = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if kind:
        return _checked(kind)
    return "containers" if engine_answers() else "local"


def open_server(name: str, folder: Path, kind: str | None = None) -> Server:
    """A server that answers, with its data and its log in a folder; the caller closes it. No kind means `chosen()`."""
    kind = chosen() if kind is None else _checked(kind)
    if name not in NAMES:
        raise InvalidRequest(f"there is no test server {name!r}: take one of {', '.join(NAMES)}")
    folder.mkdir(parents=True, exist_ok=True)
    server = _LOCAL[name](folder) if kind == "local" else ContainerServer(name)
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


def _checked(kind: str) -> str:
    if kind not in KINDS:
        raise InvalidRequest(f"{ENVIRONMENT_VARIABLE}={kind} is not known: set it to {' or '.join(KINDS)}")
    return kind
