"""The lock service of one round, with a proxy of its own for each client."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.options import PROVIDER
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy, open_server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, SERVER_OF, lock_options
from lakelatch.torture.settings import LYING, Place
from lakelatch.torture.traffic.desk import open_locks


class LockServer:
    """A server, if the provider needs one, that is started once for all rounds of its provider."""

    def __init__(self, provider: str, folder: Path, lease_s: float) -> None:
        self.provider, self.lease_s = provider, lease_s
        self.folder = folder
        self.server: Server | None = None
        for name, value in AWS_ENVIRONMENT.items():  # what the usual chain finds, here and in the clients
            os.environ.setdefault(name, value)
        if provider in SERVER_OF:
            self.server = open_server(SERVER_OF[provider], folder, "local")
        self.ways: dict[str, TcpProxy] = {}

    def options(self, client: str, lease_s: float | None = None) -> dict[str, str]:
        """The lock options of one client, whose connection can be cut without touching the others'."""
        if self.provider == LYING:
            return {}
        if self.server is None:
            return {PROVIDER: self.provider}
        if client not in self.ways:
            self.ways[client] = TcpProxy(self.server.host, self.server.port)
        way = self.ways[client]
        return lock_options(self.server, way.host, way.port, lease_s or self.lease_s)

    def take_away(self, place: Place) -> bool:
        """Breaks the table's lease without its holder knowing."""
        options = lock_options(self.server, lease_s=self.lease_s) if self.server else {PROVIDER: self.provider}
        with suppress(LakelatchError):
            provider = open_locks(place, options, REAL_SYSTEM)
            try:
                return provider.break_(TABLE_KEY)
            finally:
                provider.close()
        return False

    def replace_server(self, server: Server) -> None:
        """Replaces the server by another one; the old one ends as in a crash."""
        if self.server is not None:
            self.server.close()
        self.server = server
        for way in self.ways.values():
            way.turn_to(server.host, server.port)

    def heal_ways(self) -> None:
        """Restores all connections to the server."""
        for way in self.ways.values():
            way.heal()

    def put_right(self) -> None:
        """Ends all faults of the server and the connections to it."""
        if self.server is not None:
            self.server.resume()
            self.server.start()
        self.heal_ways()

    def forget_ways(self) -> None:
        """Closes all proxies; the next round's clients get new ones."""
        for way in self.ways.values():
            way.close()
        self.ways.clear()

    def close(self) -> None:
        self.forget_ways()
        if self.server is not None:
            self.server.close()
