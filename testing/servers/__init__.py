"""Real servers for tests, as processes or in containers, and a proxy that stands in for a bad network."""

from __future__ import annotations

from lakelatch.testing.servers.choice import NAMES, chosen, open_server
from lakelatch.testing.servers.contract import Server, free_port
from lakelatch.testing.servers.proxy import TcpProxy

__all__ = ["NAMES", "Server", "TcpProxy", "chosen", "free_port", "open_server"]
