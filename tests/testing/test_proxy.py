"""That the proxy treats connections as a bad network does, and as it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.testing.servers import TcpProxy
from lakelatch.testing.servers.contract import wait_until

PATIENCE_S = 30.0
SILENCE_S = 0.3


class Shouter:
    """A server that answers every line in capitals, and remembers what it was sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.heard = bytearray()
        self.ends: list[str] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self._sockets.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65_536):
                self.heard += data
                connection.sendall(data.upper())
            self.ends.append("orderly")
        except OSError:
            self.ends.append("reset")

    def close(self) -> None:
        for one in self._sockets:
            with closing(one):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def shouter() -> Iterator[Shouter]:
    with closing(Shouter()) as one:
        yield one


@pytest.fixture
def proxy(shouter: Shouter) -> Iterator[TcpProxy]:
    with closing(TcpProxy(shouter.host, shouter.port)) as one:
        yield one


@pytest.fixture
def connect(proxy: TcpProxy) -> Iterator[Callable[[], socket.socket]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((proxy.host, proxy.port), PATIENCE_S))


Connect = Callable[[], socket.socket]


def ask(connection: socket.socket, line: bytes) -> bytes:
    connection.sendall(line)
    return receive(connection, len(line))


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


def assert_silent(connection: socket.socket) -> None:
    connection.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(PATIENCE_S)


def test_bytes_pass_in_both_directions_and_so_does_the_end(shouter: Shouter, connect: Connect) -> None:
    connection = connect()
    large = bytes(range(97, 123)) * 1_000_000
    sender = threading.Thread(target=connection.sendall, args=(large,))
    sender.start()
    sender.join(SILENCE_S)  # all buffers on the way are full now
    assert receive(connection, len(large)) == large.upper()
    sender.join()
    connection.shutdown(socket.SHUT_WR)
    assert wait_until(lambda: shouter.ends == ["orderly"], PATIENCE_S)


def test_a_cut_to_the_server_keeps_requests_until_it_is_healed(
    shouter: Shouter, proxy: TcpProxy, connect: Connect
) -> None:
    connection = connect()
    assert ask(connection, b"one") == b"ONE"
    proxy.cut(to_client=False)
    later = connect()
    connection.sendall(b"two")
    connection.sendall(b"three")
    assert_silent(connection)
    assert shouter.heard == b"one"
    proxy.heal()
    assert receive(connection, 8) == b"TWOTHREE"
    assert ask(later, b"four") == b"FOUR"


def test_a_cut_to_the_client_lets_requests_pass(shouter: Shouter, proxy: TcpProxy, connect: Connect) -> None:
    connection = connect()
    proxy.cut(to_server=False)
    connection.sendall(b"one")
    assert wait_until(lambda: shouter.heard == b"one", PATIENCE_S)
    assert_silent(connection)
    proxy.heal()
    assert receive(connection, 3) == b"ONE"


def test_a_cut_hides_that_a_side_has_gone(shouter: Shouter, proxy: TcpProxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"one") == b"ONE"
    proxy.cut()
    connection.sendall(b"two")
    connection.close()
    assert not wait_until(lambda: bool(shouter.ends), SILENCE_S)
    proxy.heal()
    assert wait_until(lambda: bool(shouter.ends), PATIENCE_S) and shouter.heard == b"onetwo"


def test_a_cut_to_the_server_hides_that_nobody_takes_the_answer(
    shouter: Shouter, proxy: TcpProxy, connect: Connect
) -> None:
    connection = connect()
    request = b"one" * 100_000
    proxy.cut(to_server=False)
    connection.sendall(request)
    assert wait_until(lambda: len(shouter.heard) == len(request), PATIENCE_S)
    proxy.cut()
    connection.close()
    proxy.cut(to_client=False)
    assert not wait_until(lambda: bool(shouter.ends), SILENCE_S)
    proxy.heal()
    assert wait_until(lambda: bool(shouter.ends), PATIENCE_S)


def test_a_reset_ends_connections_and_new_ones_work(shouter: Shouter, proxy: TcpProxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"one") == b"ONE"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    assert wait_until(lambda: shouter.ends == ["reset"], PATIENCE_S)
    assert ask(connect(), b"two") == b"TWO"


def test_a_lost_answer_is_that_of_a_request_which_was_heard(
    shouter: Shouter, proxy: TcpProxy, connect: Connect
) -> None:
    asking, idle = connect(), connect()
    assert (ask(asking, b"one"), ask(idle, b"two")) == (b"ONE", b"TWO")
    proxy.lose_answers()
    asking.sendall(b"three")
    with pytest.raises(ConnectionResetError):
        asking.recv(1)
    assert shouter.heard == b"onetwothree"
    assert (ask(idle, b"four"), ask(connect(), b"five")) == (b"FOUR", b"FIVE")


def test_the_answer_to_an_older_request_is_not_lost(shouter: Shouter, proxy: TcpProxy, connect: Connect) -> None:
    connection = connect()
    proxy.cut(to_server=False)
    connection.sendall(b"one")
    assert wait_until(lambda: shouter.heard == b"one", PATIENCE_S)
    proxy.lose_answers()
    proxy.heal()
    assert receive(connection, 3) == b"ONE"
    connection.sendall(b"two")
    with pytest.raises(ConnectionResetError):
        connection.recv(1)


def test_refused_connections_fail_and_others_stay(proxy: TcpProxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"one") == b"ONE"
    proxy.refuse(True)
    with pytest.raises(ConnectionRefusedError):
        connect()
    assert ask(connection, b"two") == b"TWO"
    proxy.refuse(False)
    assert ask(connect(), b"three") == b"THREE"


def test_a_server_that_is_down_resets_the_client(shouter: Shouter, connect: Connect) -> None:
    shouter.close()
    with pytest.raises(ConnectionResetError):
        connect().recv(1)


def test_a_closed_proxy_says_so(proxy: TcpProxy) -> None:
    proxy.close()
    proxy.close()
    with pytest.raises(InvalidRequest, match="closed"):
        proxy.reset()
