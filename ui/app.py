"""The page over HTTP: its files, what its tables show as server-sent events, details on demand, actions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lakelatch.errors import LakelatchError
from lakelatch.ui.actions import Actions
from lakelatch.ui.board import Board
from lakelatch.ui.details import archived_entries, details_of

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PING_S = 15.0
_COALESCED_S = 0.1  # between two changes that are sent
_BODY_BYTES = 4096
_log = logging.getLogger("lakelatch.ui")


def make_app(board: Board, actions: Actions | None) -> Starlette:
    """The page's routes, without any check of who asks. Without `actions` there are none."""
    page = _Page(board, actions)
    routes = [
        Route("/", page.index),
        Route("/static/{name}", page.static),
        Route("/api/events", page.events),
        Route("/api/tables/{table:int}/instants/{key}", page.instant),
        Route("/api/tables/{table:int}/archived", page.archived),
        Route("/api/tables/{table:int}/actions", page.act, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={LakelatchError: _failed})


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakelatchError)
    return JSONResponse({"error": error.code, "message": error.message}, status_code=400)


class _Page:
    def __init__(self, board: Board, actions: Actions | None) -> None:
        self._board = board
        self._actions = actions
        folder = files("lakelatch.ui") / "static"
        self._files = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}

    async def index(self, request: Request) -> Response:
        return self._file("page.html")

    async def static(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def instant(self, request: Request) -> Response:
        """What one instant did."""
        return JSONResponse(details_of(self._table(request).storage, request.path_params["key"]))

    def archived(self, request: Request) -> Response:
        """Archived instants, the last ones before a time."""
        return JSONResponse(archived_entries(self._table(request).storage, request.query_params.get("before", "")))

    async def act(self, request: Request) -> Response:
        """Begins an action, whose target was typed or confirmed by the user."""
        table = self._number(request)
        if self._actions is None:
            raise HTTPException(403, "this page only shows: start it with lakelatch ui --allow-actions")
        if request.headers.get("content-type") != "application/json":
            raise HTTPException(415, "an action is asked for in JSON")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_BYTES:
                raise HTTPException(413, "an action is a short text")
        try:
            asked = json.loads(body)
            what, target, confirmed = (str(asked[name]) for name in ("what", "target", "confirmed"))
        except (ValueError, KeyError, TypeError) as error:
            raise HTTPException(400, "an action has what, target and confirmed") from error
        if confirmed != target:
            raise HTTPException(400, f"{what} {target} was not confirmed")
        action = await asyncio.to_thread(self._actions.begin, table, what, target)
        return JSONResponse({"number": action.number}, status_code=202)

    async def events(self, request: Request) -> Response:
        """What a table shows, all of it first and then what changes; and each time all tables in a line each."""
        table = self._number(request, request.query_params.get("table", "0"))
        run, _, version = request.headers.get("last-event-id", "").partition(":")
        known = int(version) if run == f"{self._board.run}.{table}" and version.isdigit() else 0
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(table, known), media_type="text/event-stream", headers=headers)

    async def _stream(self, table: int, version: int) -> AsyncIterator[str]:
        woken, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        board, told = self._board, ""
        with board.looking(table, tell):
            yield "retry: 1000\n\n"
            while not board.closed:
                woken.clear()
                summaries = json.dumps({"tables": board.summaries(), "actions": self._actions is not None})
                if summaries != told:
                    told = summaries
                    yield f"event: tables\ndata: {told}\n\n"
                version, changes = board.since(table, version)
                if changes:
                    yield f"id: {board.run}.{table}:{version}\ndata: {changes}\n\n"
                try:
                    pause = asyncio.create_task(asyncio.sleep(_COALESCED_S))
                    await asyncio.wait_for(woken.wait(), _PING_S)
                    await pause
                except asyncio.TimeoutError:
                    yield ": still here\n\n"

    def _table(self, request: Request) -> Any:
        return self._board.tables[self._number(request)]

    def _number(self, request: Request, said: str = "") -> int:
        number = request.path_params.get("table", said)
        if not str(number).isdigit() or int(number) >= len(self._board.tables):
            raise HTTPException(404, f"there is no table {number}")
        return int(number)

    def _file(self, name: str) -> Response:
        content = self._files.get(name)
        if content is None:
            raise HTTPException(404, "there is no such file")
        return Response(content, media_type=_TYPES.get(PurePosixPath(name).suffix, "application/octet-stream"))
