"""An HTTP proxy that stands in for an object store in trouble: busy, forgetful, or without rights."""

from __future__ import annotations

import socket
import sys
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
    """The fate of a request.

    With a `status` the client gets that answer, before the server learns of the request, or after it has done it
    (`done`). `sent` is how often the request goes to the server; the last answer counts. `lost`: no answer comes, and
    the connection ends, as it does if the request is never `sent`. With `late_s` one more copy of the request gets
    there so much later, whether the client waits or not. `half_sent` and `half_answered`: the connections end in the
    middle of the request's body, or of the answer's.
    """

    status: int = 0
    body: bytes = b""
    done: bool = False
    sent: int = 1
    lost: bool = False
    late_s: float = 0.0
    half_sent: bool = False
    half_answered: bool = False
    delay_s: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def unanswered(self) -> bool:
        return self.lost or self.half_sent or not self.sent


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
        if fault.late_s:
            self._send_late(handler, server, body, fault.late_s)
        if not fault.status or fault.done:
            for _ in range(fault.sent):
                asked = _ask(handler, server, body, len(body) // 2 if fault.half_sent else len(body))
            if not fault.status and not fault.unanswered:
                status, headers, answer = asked
        if fault.unanswered:
            handler.close_connection = True
            return
        self.answered.append((request, status))
        _answer(handler, status, headers, answer, fault.half_answered)

    def _send_late(self, handler: BaseHTTPRequestHandler, server: tuple[str, int], body: bytes, after_s: float) -> None:
        def send() -> None:
            self._system.sleep(after_s)
            _ask(handler, server, body, len(body))

        threading.Thread(target=send, name=f"http-proxy-{self.port}-late", daemon=True).start()


class _Server(ThreadingHTTPServer):
    """Knows its connections, which clients keep open, so that they end with it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections = set[Any]()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that has ended its connection, as one does that is killed."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _ask(
    handler: BaseHTTPRequestHandler, server: tuple[str, int], body: bytes, sent_bytes: int
) -> tuple[int, dict[str, str], bytes]:
    """The server's answer; 502 if there is none, as to a request of which only the first bytes are sent."""
    headers = {name: value for name, value in handler.headers.items() if name.lower() not in _NOT_PASSED_ON}
    connection = HTTPConnection(*server, timeout=_SERVER_TIMEOUT_S)
    try:
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body[:sent_bytes] or None)
        if sent_bytes < len(body):
            return 502, {}, b""
        found = connection.getresponse()
        data = found.read()
        return found.status, {k: v for k, v in found.getheaders() if k.lower() not in _NOT_PASSED_ON}, data
    except (OSError, HTTPException):
        return 502, {}, b""
    finally:
        connection.close()


def _answer(
    handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes, half: bool = False
) -> None:
    try:
        handler.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or handler.command == "HEAD":
                handler.send_header(name, value)
        if handler.command != "HEAD":
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data[: len(data) // 2] if half else data)
        handler.close_connection = half or handler.close_connection
    except OSError:  # the client has given up
        handler.close_connection = True
