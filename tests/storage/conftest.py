"""A bad network before the object store that is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from lakelatch.testing.servers import Server, TcpProxy


@pytest.fixture
def proxy_to() -> Iterator[Callable[[Server], TcpProxy]]:
    """Puts a proxy in front of a server, for this test only."""
    with ExitStack() as proxies:
        yield lambda server: proxies.enter_context(closing(TcpProxy(server.host, server.port)))
