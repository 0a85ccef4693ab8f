"""The contract of a real server, for tests of lock providers and storages."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException

from lakelatch.system import REAL_SYSTEM, System

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_LOOK_S = 0.05


class Server(ABC):
    """One real server that a test may start, stop, kill, pause and wipe at will.

    Starting what runs, and stopping what does not, does nothing, so that a test can put things right in a `finally`.
    """

    name: str
    host: str
    port: int  # stays the same over restarts

    @abstractmethod
    def start(self) -> None:
        """Returns when the server answers; fails with the end of its log if it does not within a minute."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it in an orderly way; its data stays. Ends a paused one as well."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it as a crash does; its data stays as it is on disk."""

    @abstractmethod
    def pause(self) -> None:
        """Returns when it does nothing any more; the machine still accepts connections in its name."""

    @abstractmethod
    def resume(self) -> None:
        """Lets a paused server go on. Its clock did not stand still meanwhile."""

    @abstractmethod
    def wipe(self) -> None:
        """Forgets all data; the server must be stopped."""

    @abstractmethod
    def close(self) -> None:
        """Ends it at once and removes what it left behind, but for its log."""


def wait_until(condition: Callable[[], bool], timeout_s: float, system: System = REAL_SYSTEM) -> bool:
    """Whether a condition came true in time; it is checked at least once."""
    deadline_ns = system.monotonic_ns() + int(timeout_s * 1e9)
    while not condition():
        if system.monotonic_ns() >= deadline_ns:
            return False
        system.sleep(_LOOK_S)
    return True


def exchange(host: str, port: int, request: bytes, timeout_s: float = 2.0) -> bytes:
    """The first bytes of a server's answer to a request; empty if there is none."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(request)
            return connection.recv(4096)
    except OSError:
        return b""


def http_status(
    host: str,
    port: int,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_s: float = 5.0,
) -> int:
    """The status of the answer to one HTTP request; 0 if there is none."""
    connection = HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path, body, dict(headers or {}))
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
