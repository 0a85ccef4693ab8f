"""A TCP proxy that stands in for a bad network."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.ports import free_port

_CHUNK = 65_536
_SWALLOW_S = 0.2  # some servers acknowledge a request's bytes before they have done what it asks for
_HARD = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Way:
    """One direction of one connection."""

    source: socket.socket
    sink: socket.socket
    to_server: bool
    waiting: bytearray = field(default_factory=bytearray)
    ended: bool = False  # the source sends nothing any more
    passed_on: bool = False  # and the sink knows
    deaf: bool = False  # the sink is gone, which the source must not learn while the way back is cut


@dataclass(eq=False)
class _Connection:
    """A client's connection and the one that was made to the server for it."""

    up: _Way
    down: _Way
    asked: bool = False  # a request passed since answers are to be lost
    reset_ns: int | None = None  # its answer is being lost; then it is reset

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        return self.up.source, self.down.source

    def other(self, way: _Way) -> _Way:
        return self.down if way is self.up else self.up


class TcpProxy:
    """Stands between clients and one server, and treats their connections as a bad network would.

    Every method returns when what it asks for is in force. Bytes that had left the proxy before are not called back.
    """

    def __init__(self, host: str, port: int, system: System = REAL_SYSTEM) -> None:
        self.host = "127.0.0.1"
        self.port = free_port(system)
        self.accepted = 0  # connections of clients, so far
        self._server = host, port
        self._system = system
        self._connections: list[_Connection] = []
        self._cut_to_server = self._cut_to_client = False
        self._answers_to_lose = 0
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._listen()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many connections of clients are open now."""
        return len(self._connections)

    def cut(self, to_server: bool = True, to_client: bool = True) -> None:
        """Withholds all bytes, and all news of closed connections, in these directions and only these.

        Connections stay open and new ones can be made, as with a firewall that drops packets.
        """

        def act() -> None:
            self._cut_to_server, self._cut_to_client = to_server, to_client

        self._order(act)

    def heal(self) -> None:
        """Bytes that were withheld go their way, in order."""
        self.cut(to_server=False, to_client=False)

    def reset(self) -> None:
        """Closes all connections hard, towards both sides; withheld bytes are lost. New connections work."""
        self._order(self._reset_all)

    def lose_answers(self, count: int = 1) -> None:
        """From now on, lets requests pass, and resets the connection when the answer comes; this many times.

        Whatever the server sends after a client has sent something counts as an answer. What a client sends when it
        connects is a request as well, so let it connect before.
        """

        def act() -> None:
            self._answers_to_lose = count
            for connection in self._connections:
                connection.asked = False

        self._order(act)

    def refuse(self, on: bool) -> None:
        """Whether new connections are refused, as if no server listened; those that are there stay."""
        self._order(self._shut if on else self._listen)

    def turn_to(self, host: str, port: int) -> None:
        """Closes all connections hard; new ones lead to another server."""

        def act() -> None:
            self._server = host, port
            self._reset_all()

        self._order(act)

    def close(self) -> None:
        """Resets all connections and ends the proxy."""
        if not self._closed:
            self._order(self._end)
            self._thread.join()
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _order(self, act: Callable[[], None]) -> None:
        """Has the proxy's thread do something, and waits for it."""
        if self._closed:
            raise InvalidRequest("this proxy is closed: make another one")
        done = Future[None]()
        self._orders.append((act, done))
        os.write(self._wake_write, b"!")
        done.result()

    def _run(self) -> None:
        while not self._closed:
            self._watch()
            for key, events in self._selector.select(self._patience_s()):
                if key.data is None:
                    self._obey() if key.fileobj == self._wake_read else self._accept()
                elif key.data in self._connections:
                    self._move(key.data, key.fileobj, events)
            for connection in list(self._connections):
                if connection.reset_ns is not None and connection.reset_ns <= self._system.monotonic_ns():
                    self._reset(connection)

    def _obey(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, _CHUNK)
        while self._orders:
            act, done = self._orders.popleft()
            try:
                act()
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _patience_s(self) -> float | None:
        ends = [connection.reset_ns for connection in self._connections if connection.reset_ns is not None]
        return max(0.0, (min(ends) - self._system.monotonic_ns()) / 1e9) if ends else None

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=128)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _shut(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _end(self) -> None:
        self._shut()
        self._reset_all()
        self._closed = True

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            self._reset(connection)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            client = self._listener.accept()[0]
        except OSError:
            return
        server = socket.socket()
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(_Way(client, server, True), _Way(server, client, False))
        self._connections.append(connection)
        self.accepted += 1
        server.connect_ex(self._server)  # a refusal is met when the socket is used

    def _cut_off(self, way: _Way) -> bool:
        return self._cut_to_server if way.to_server else self._cut_to_client

    def _watch(self) -> None:
        """Tells the selector what is of interest now. A socket of no interest is not watched, nor missed if it dies."""
        for connection in self._connections:
            for way in (connection.up, connection.down):
                back = connection.other(way)
                interest = 0
                if not (self._cut_off(way) or way.ended or len(way.waiting) >= _CHUNK):
                    interest |= selectors.EVENT_READ
                if (back.waiting or (back.ended and not back.passed_on)) and not self._cut_off(back):
                    interest |= selectors.EVENT_WRITE
                self._set_interest(way.source, interest, connection)

    def _set_interest(self, one: socket.socket, interest: int, connection: _Connection) -> None:
        known = self._selector.get_map().get(one)
        if known is None:
            if interest:
                self._selector.register(one, interest, connection)
        elif not interest:
            self._selector.unregister(one)
        elif known.events != interest:
            self._selector.modify(one, interest, connection)

    def _move(self, connection: _Connection, ready: object, events: int) -> None:
        way = connection.up if ready is connection.up.source else connection.down
        if events & selectors.EVENT_READ and not self._cut_off(way) and not way.ended:
            self._read(connection, way)
        back = connection.other(way)
        if connection in self._connections and events & selectors.EVENT_WRITE and not self._cut_off(back):
            self._write(connection, back)

    def _read(self, connection: _Connection, way: _Way) -> None:
        try:
            data = way.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._reset(connection)
            return
        if not data:
            way.ended = True
        elif not way.to_server and self._loses(connection):
            return
        elif not way.deaf:
            way.waiting += data

    def _loses(self, connection: _Connection) -> bool:
        if connection.reset_ns is None and self._answers_to_lose and connection.asked:
            self._answers_to_lose -= 1
            connection.reset_ns = self._system.monotonic_ns() + int(_SWALLOW_S * 1e9)
        return connection.reset_ns is not None

    def _write(self, connection: _Connection, way: _Way) -> None:
        try:
            if way.waiting:
                del way.waiting[: way.sink.send(way.waiting)]
                connection.asked = connection.asked or way.to_server
            if way.ended and not way.waiting and not way.passed_on:
                way.passed_on = True
                way.sink.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            if not self._cut_off(connection.other(way)):
                self._reset(connection)
                return
            way.deaf = True
            way.waiting.clear()
        if connection.up.passed_on and connection.down.passed_on:
            self._drop(connection)

    def _reset(self, connection: _Connection) -> None:
        for one in connection.sockets:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _HARD)
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        for one in connection.sockets:
            with suppress(KeyError):
                self._selector.unregister(one)
            one.close()
