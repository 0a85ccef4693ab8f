"""A network that is 30 ms longer: what a client sends reaches the server that much later. A process of its own, so that
its work is not that of the writers, and one thread, which passes bytes on without looking at them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import cast

from lakelatch.testing.conformance.in_processes import Child

_START_S = 30.0


@contextmanager
def distant(host: str, port: int, delay_s: float) -> Iterator[int]:
    """The port of loopback at which the server seems to be that far away."""
    child = Child(_serve, host, port, delay_s)
    try:
        if not child.connection.poll(_START_S):
            raise TimeoutError("the proxy did not start")
        yield child.connection.recv()
    finally:
        child.kill()


def _serve(connection: Connection, host: str, port: int, delay_s: float) -> None:
    asyncio.run(_run(connection, host, port, delay_s))


async def _run(connection: Connection, host: str, port: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(host, port, delay_s), "127.0.0.1", 0, backlog=512)
    connection.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Client(asyncio.Protocol):
    """One connection of a client: opens one to the server, and passes on late what comes."""

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self._host, self._port, self._delay_s = host, port, delay_s
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Task[asyncio.WriteTransport] | None = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server = self._loop.create_task(self._connect(cast(asyncio.WriteTransport, transport)))

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._delay_s, self._pass_on, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_later(self._delay_s, self._end)

    async def _connect(self, client: asyncio.WriteTransport) -> asyncio.WriteTransport:
        made, _ = await self._loop.create_connection(lambda: _Server(client), self._host, self._port)
        for data in self._waiting:
            made.write(data)
        self._waiting.clear()
        return made

    def _pass_on(self, data: bytes) -> None:
        if self._server is not None and self._server.done():
            self._server.result().write(data)
        else:
            self._waiting.append(data)

    def _end(self) -> None:
        if self._server is not None and self._server.done():
            self._server.result().close()


class _Server(asyncio.Protocol):
    """The connection to the server, whose answers go back as they come."""

    def __init__(self, client: asyncio.WriteTransport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()
