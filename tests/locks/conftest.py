"""The servers that lock providers are tested against: each starts when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from lock_records import MemoryRecordStore

from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.servers import Server, TcpProxy, open_server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT


def _opened(name: str, folders: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server(name, folders.mktemp(name))) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _opened("redis", tmp_path_factory)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _opened("zookeeper", tmp_path_factory)


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _opened("etcd", tmp_path_factory)


@pytest.fixture
def etcd_url(etcd_server: Server) -> str:
    return f"http://{etcd_server.host}:{etcd_server.port}"


@pytest.fixture
def etcd_prefix(tmp_path: Path) -> str:
    """Of keys that only this test uses."""
    return f"/{tmp_path.name}"


@pytest.fixture(scope="session")
def dynamodb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _opened("dynamodb", tmp_path_factory)


@pytest.fixture(autouse=True)
def _aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any will do for the servers here; child processes inherit them."""
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy_to() -> Iterator[Callable[[Server], TcpProxy]]:
    """Puts a proxy in front of a server, for this test only."""
    with ExitStack() as proxies:
        yield lambda server: proxies.enter_context(closing(TcpProxy(server.host, server.port)))


@pytest.fixture
def system() -> ManualSystem:
    return ManualSystem()


@pytest.fixture
def store(system: ManualSystem) -> MemoryRecordStore:
    """Of records, for backends that stand on one."""
    return MemoryRecordStore(system)
