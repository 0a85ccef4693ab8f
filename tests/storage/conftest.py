"""The object store that is tested against: it starts when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from lakelatch.testing.servers import Server, TcpProxy, open_server


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server("seaweedfs", tmp_path_factory.mktemp("seaweedfs"))) as server:
        yield server


@pytest.fixture
def proxy_to() -> Iterator[Callable[[Server], TcpProxy]]:
    """Puts a proxy in front of a server, for this test only."""
    with ExitStack() as proxies:
        yield lambda server: proxies.enter_context(closing(TcpProxy(server.host, server.port)))
