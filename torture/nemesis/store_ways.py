"""The object store of a round's table, with a proxy of its own for each client, which injects faults into requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251  (seeded by the run)

from lakelatch.testing.faults.plan import DONE, LATE, LOST_AFTER, LOST_BEFORE, REPEATED, UNAVAILABLE, FaultRates
from lakelatch.testing.servers import HttpFault, HttpProxy, HttpRequest, Server, open_server
from lakelatch.testing.servers.reach import place_options

_TURNED_AWAY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_PUTS = ("PUT", "POST")


@dataclass
class RequestRates(FaultRates):
    """How likely each request is to go wrong: the store is too busy for it (`unavailable`), it is lost, and so on.

    `half_done`: the store has done it, and answers 500. `torn`: the connection ends in the middle of the request or of
    its answer. `cut`: nothing reaches the store.
    """

    half_done: float = 0.0
    torn: float = 0.0
    cut: bool = False


class StoreWay:
    """One client's proxy to the store."""

    def __init__(self, server: Server, draw: Random, late_s: float) -> None:
        self.rates = RequestRates()
        self._draw, self._late_s = draw, late_s
        self._proxy = HttpProxy(server.host, server.port)
        self._proxy.faults = self._fault_of

    @property
    def options(self) -> dict[str, str]:
        return place_options(self._proxy)

    def heal(self) -> None:
        """Ends all faults of requests."""
        self.rates = RequestRates()

    def _fault_of(self, request: HttpRequest) -> HttpFault | None:
        self._proxy.requests.clear()  # they are not used, and a round has some hundred thousand
        self._proxy.answered.clear()
        rates, number = self.rates, self._draw.random()
        if rates.cut:
            return HttpFault(sent=0)
        if number < rates.torn:
            return HttpFault(half_sent=True) if self._draw.random() < 0.5 else HttpFault(half_answered=True)
        if number < rates.half_done:
            return HttpFault(500, done=True)
        return self._lost(rates.draw(self._draw.random(), request.method in _PUTS))

    def _lost(self, kind: str) -> HttpFault | None:
        late_s = self._late_s * (0.5 + self._draw.random() / 2)
        faults: Mapping[str, HttpFault | None] = {
            UNAVAILABLE: HttpFault(503, _TURNED_AWAY),
            LOST_BEFORE: HttpFault(sent=0),
            LOST_AFTER: HttpFault(lost=True),
            LATE: HttpFault(sent=0, late_s=late_s),
            REPEATED: HttpFault(late_s=late_s) if self._draw.random() < 0.5 else HttpFault(sent=2),
            DONE: None,
        }
        return faults[kind]

    def close(self) -> None:
        self._proxy.close()


class TableStore:
    """The server of all rounds' tables."""

    def __init__(self, folder: Path) -> None:
        self.server = open_server("seaweedfs", folder, "local")
        self.ways: dict[str, StoreWay] = {}

    @property
    def options(self) -> dict[str, str]:
        """The options that reach the store directly."""
        return place_options(self.server)

    def options_of(self, client: str, draw: Random, late_s: float) -> dict[str, str]:
        """The options that reach the store by the proxy of one client."""
        if client not in self.ways:
            self.ways[client] = StoreWay(self.server, draw, late_s)
        return self.ways[client].options

    def put_right(self) -> None:
        """Ensures that the server runs, and ends all faults of the proxies."""
        self.server.resume()
        self.server.start()
        for way in self.ways.values():
            way.heal()

    def forget_ways(self) -> None:
        """Closes all proxies; the next round's clients get new ones."""
        for way in self.ways.values():
            way.close()
        self.ways.clear()

    def close(self) -> None:
        self.forget_ways()
        self.server.close()
