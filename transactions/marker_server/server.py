"""The marker server: a small HTTP server in the driver, to which the tasks of its writes announce their files.

One process has one server for each address, and it serves any number of writes: each request is signed with the token
of one, which is never sent, and each answer is signed with it as well.
The loop of the server does no more than parse and answer; the storage is worked on by other threads. Nothing that is
needed for safety lives in its memory: it may stop, be paused or be gone at any moment.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from aiohttp import web

from lakelatch.errors import InvalidRequest, TransactionEnded, Unavailable
from lakelatch.transactions.base.settings import MARKER_HOST_OPTION, MARKER_PORT_OPTION
from lakelatch.transactions.early.server_client import (
    MARKERS_PATH,
    SCHEME,
    SIGNATURE,
    Answer,
    session_name,
    signed_answer,
    signed_request,
)
from lakelatch.transactions.marker_server.batches import MarkerBatches, group_of
from lakelatch.transactions.marker_server.checker import MarkerChecker
from lakelatch.transactions.markers.files import INFIX, is_data_path

_BODY_BYTES = 64 * 1024 * 1024
_ANSWERS_KEPT = 10_000
_START_S = 30.0


class MarkerSession:
    """One write's part of a server. Threads may share it."""

    def __init__(self, batches: MarkerBatches, checker: MarkerChecker | None = None) -> None:
        self._batches = batches
        self._checker = checker
        self._guard = threading.Lock()
        self._answers: OrderedDict[str, Future[Answer]] = OrderedDict()

    def ask(self, request: str, markers: Sequence[str]) -> Future[Answer]:
        """The answer to a request; the same one, and no more markers, if it is repeated. Errors: `Unavailable`."""
        answer: Future[Answer] = Future()
        lost = self._checker.conflict if self._checker is not None else None
        if not markers:
            answer.set_result(Answer(lost))
            return answer
        with self._guard:
            known = self._answers.setdefault(request, answer)
            if known is not answer:
                return known
            while len(self._answers) > _ANSWERS_KEPT:
                self._answers.popitem(last=False)
        if lost is not None:
            answer.set_result(Answer(lost))
        else:
            self._batches.submit(markers).add_done_callback(lambda done: self._resolve(request, markers, done, answer))
        return answer

    def close(self) -> None:
        if self._checker is not None:
            self._checker.stop()
        self._batches.close()

    def _resolve(self, request: str, markers: Sequence[str], done: Future[None], answer: Future[Answer]) -> None:
        try:
            done.result()
            lost = self._checker.add(map(group_of, markers)) if self._checker is not None else None
            answer.set_result(Answer(lost))
        except TransactionEnded as ended:
            answer.set_result(Answer(ended=ended))
        except BaseException as error:
            with self._guard:  # so that it is tried again when it comes again
                self._answers.pop(request, None)
            answer.set_exception(error)


class MarkerServer:
    """An HTTP server in a thread of its own. `sessions` are those of the writes that it serves, by token."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._sessions: dict[str, tuple[str, MarkerSession]] = {}  # with their tokens, by name
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"marker-server-{self.port}", daemon=True)
        self._thread.start()
        self._ready.result(_START_S)

    def open_session(self, token: str, session: MarkerSession) -> None:
        self._sessions[session_name(token)] = token, session

    def end_session(self, token: str) -> MarkerSession:
        """The session of this token, whose requests are refused from now on; it is still to be closed."""
        return self._sessions.pop(session_name(token))[1]

    @property
    def idle(self) -> bool:
        """Whether it serves no write."""
        return not self._sessions

    def close(self) -> None:
        """Stops listening, and waits until it has."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._socket.close()
            self._loop.close()

    async def _serve(self) -> None:
        application = web.Application(client_max_size=_BODY_BYTES)
        application.router.add_post(MARKERS_PATH, self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket).start()
            self._ready.set_result(None)
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        scheme, _, said = request.headers.get("Authorization", "").partition(" ")
        name, _, signature = said.partition(":")
        opened = self._sessions.get(name) if scheme == SCHEME else None
        body = await request.read() if opened is not None else b""
        if opened is None or not hmac.compare_digest(signature.encode(), signed_request(opened[0], body).encode()):
            return web.Response(status=401, text="this token opens no write here")
        token, session = opened
        try:
            name, markers = _parse(body.decode())
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        try:
            answer = await asyncio.wrap_future(session.ask(name, markers))
        except Unavailable as error:
            return web.Response(status=503, text=str(error))
        text = answer.to_json().encode()
        headers = {SIGNATURE: signed_answer(token, body, text)}
        return web.Response(body=text, content_type="application/json", headers=headers)


def _parse(body: str) -> tuple[str, list[str]]:
    """A request's id and markers; `ValueError` if it has none, or if a marker is of no data file."""
    values: Any = json.loads(body)
    if not isinstance(values, dict) or not isinstance(values.get("id"), str):
        raise ValueError("a request is a JSON object with an id and a list of markers")
    markers = values.get("markers")
    if not isinstance(markers, list) or not all(isinstance(marker, str) and _is_marker(marker) for marker in markers):
        raise ValueError("each marker is the path of a data file in the table with .marker.<TYPE> added")
    return values["id"], markers


def _is_marker(marker: str) -> bool:
    path, infix, kind = marker.rpartition(INFIX)
    return bool(infix) and kind.isalpha() and is_data_path(path)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((str(place[0]), port), family=family, backlog=1024)
    except OSError as error:
        option, value = (MARKER_HOST_OPTION, host) if _is_no_address(error) else (MARKER_PORT_OPTION, str(port))
        raise InvalidRequest(
            f"the marker server cannot listen on {host}:{port} ({error.strerror or error}): choose another {option} "
            f"than {value!r}, or remove it, or set hoodie.write.markers.type=DIRECT",
            option=option,
        ) from None


def _is_no_address(error: OSError) -> bool:
    return isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL


_servers: dict[tuple[str, int], MarkerServer] = {}
_servers_guard = threading.Lock()


def join_server(host: str, port: int, token: str, session: MarkerSession) -> MarkerServer:
    """This process's server of this address, made if there is none, with the session open. Leave it by `leave_server`.

    Errors: `InvalidRequest` if another process has the port, or if the address is not this machine's.
    """
    with _servers_guard:
        server = _servers.get((host, port))
        if server is None:
            server = _servers[host, port] = MarkerServer(host, port)
        server.open_session(token, session)
        return server


def leave_server(host: str, port: int, token: str) -> None:
    """Closes a session, and the server when it was the last one."""
    with _servers_guard:
        session = _servers[host, port].end_session(token)
    try:
        session.close()  # this may have to wait for the storage, and other writes come and go meanwhile
    finally:
        with _servers_guard:
            if (host, port) in _servers and _servers[host, port].idle:
                _servers.pop((host, port)).close()
