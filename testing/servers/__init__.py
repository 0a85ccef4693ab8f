"""Real servers for tests, as processes or in containers, and proxies that stand in for what is bad before them."""

from __future__ import annotations

from lakelatch.testing.ports import free_port
from lakelatch.testing.servers.choice import NAMES, chosen, open_server
from lakelatch.testing.servers.contract import Server
from lakelatch.testing.servers.http_proxy import HttpFault, HttpProxy, HttpRequest
from lakelatch.testing.servers.proxy import TcpProxy

__all__ = ["NAMES", "HttpFault", "HttpProxy", "HttpRequest", "Server", "TcpProxy", "chosen", "free_port", "open_server"]
