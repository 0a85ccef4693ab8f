"""An HTTP proxy that stands in for an object store in trouble: busy, forgetful, or without rights."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lakelatch.system import REAL_SYSTEM, System

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "expect"}
_SERVER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class HttpRequest:
    """One request that came; `path` is without its query, and `at_ns` is of the proxy's monotonic clock."""

    method: str
    path: str
    query: str
    conditional: bool
    at_ns: int


@dataclass(frozen=True)
class HttpFault:
    """What becomes of a request.

    With a `status` the client gets that answer, before the server learns of the request, or after it has done it
    (`done`). `sent` is how often the request goes to the server; the last answer counts. `lost`: no answer comes, and
    the connection ends.
    """

    status: int = 0
    body: bytes = b""
    done: bool = False
    sent: int = 1
    lost: bool = False
    delay_s: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()


Faults = Callable[[HttpRequest], HttpFault | None]


class HttpProxy:
    """Passes requests on to one server, and does to them what `faults` says; None does nothing.

    `requests` has all that came, `answered` the status of those that got an answer.
    """

    def __init__(self, host: str, port: int, system: System = REAL_SYSTEM) -> None:
        self.host = "127.0.0.1"
        self.requests: list[HttpRequest] = []
        self.answered: list[tuple[HttpRequest, int]] = []
        self.faults: Faults | None = None
        self._system = system
        proxy, server = self, (host, port)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:  # one method for each verb is what the base class looks for
                if name.startswith("do_"):
                    return lambda: proxy._handle(self, server)
                raise AttributeError(name)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: tests look at `requests`."""

        self._server = _Server((self.host, 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"http-proxy-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the proxy; requests under way may be cut off."""
        self._server.end()
        self._thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler, server: tuple[str, int]) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path, _, query = handler.path.partition("?")
        conditional = any(handler.headers.get(name) for name in ("If-None-Match", "If-Match"))
        request = HttpRequest(handler.command, path, query, conditional, self._system.monotonic_ns())
        self.requests.append(request)
        fault = (self.faults(request) if self.faults is not None else None) or HttpFault()
        if fault.delay_s:
            self._system.sleep(fault.delay_s)
        status, headers, answer = fault.status, {"Content-Type": "application/xml", **dict(fault.headers)}, fault.body
        if not fault.status or fault.done:
            for _ in range(fault.sent):
                asked = _ask(handler, server, body)
            if not fault.status:
                status, headers, answer = asked
        if fault.lost:
            handler.close_connection = True
            return
        self.answered.append((request, status))
        _answer(handler, status, headers, answer)


class _Server(ThreadingHTTPServer):
    """Knows its connections, which clients keep open, so that they end with it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections = set[Any]()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _ask(handler: BaseHTTPRequestHandler, server: tuple[str, int], body: bytes) -> tuple[int, dict[str, str], bytes]:
    headers = {name: value for name, value in handler.headers.items() if name.lower() not in _NOT_PASSED_ON}
    connection = HTTPConnection(*server, timeout=_SERVER_TIMEOUT_S)
    try:
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        found = connection.getresponse()
        data = found.read()
        return found.status, {k: v for k, v in found.getheaders() if k.lower() not in _NOT_PASSED_ON}, data
    except (OSError, HTTPException):
        return 502, {}, b""
    finally:
        connection.close()


def _answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes) -> None:
    try:
        handler.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or handler.command == "HEAD":
                handler.send_header(name, value)
        if handler.command != "HEAD":
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
    except OSError:  # the client has given up
        handler.close_connection = True
