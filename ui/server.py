"""The page's server: it listens on this machine alone, and ends with its process."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import FrameType

import uvicorn

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.errors import InvalidRequest
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.ui.actions import Actions, PageTable
from lakelatch.ui.app import make_app
from lakelatch.ui.board import Board
from lakelatch.ui.guard import LOOPBACK, Guard
from lakelatch.ui.table_watch import TableWatch

_STOP_S = 2


@dataclass(frozen=True)
class PageSettings:
    """Which tables a page shows, where it listens, how often it looks, and whether it may do more than look.

    Port 0 is any that is free.
    """

    tables: Sequence[PageTable]
    host: str = "127.0.0.1"
    port: int = 0
    every_s: float = 1.0
    allow_actions: bool = False
    executor: Executor = HERE

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidRequest(
                f"--port {self.port}: use one from 1 to 65535, or 0 for any that is free", option="--port"
            )
        if self.host in ("", "0.0.0.0", "::"):
            raise InvalidRequest(
                f"--host {self.host}: name the one address or host by which the page is opened; from elsewhere it is "
                "safer to reach 127.0.0.1 through ssh -L",
                option="--host",
            )
        if not 0.05 <= self.every_s <= 3600:
            raise InvalidRequest(f"--every {self.every_s:g} s: use 0.05 s to 1 h", option="--every")


def serve(
    settings: PageSettings,
    started: Callable[[str, Callable[[], None]], None],
    system: System = REAL_SYSTEM,
) -> None:
    """Serves the page until the process is told to end; `started` gets its URL, and what ends it from any thread.

    Errors: `InvalidRequest` for a path that is no table, and for an address that cannot be listened on.
    """
    tables = [_watch(table, system) for table in settings.tables]
    for table in tables:
        table.check()
    with closing(_listen(settings.host, settings.port)) as listening:
        port = listening.getsockname()[1]
        token, cookie = system.new_id(), system.new_id()
        with closing(Board(tables, settings.every_s, system)) as board:
            actions = None
            if settings.allow_actions:
                actions = Actions(board, settings.tables, settings.executor, system)
            guarded = Guard(make_app(board, actions), token, cookie, {*LOOPBACK, settings.host.lower()}, port)
            config = uvicorn.Config(
                guarded,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_STOP_S,
                ws="none",
            )
            server = _Server(config, board)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            started(f"http://{host}:{port}/?token={token}", server.end)
            asyncio.run(server.serve(sockets=[listening]))


def _watch(table: PageTable, system: System) -> TableWatch:
    call = Call(table.options)
    return TableWatch(open_storage(table.path, StorageOptions.from_options(call)), call, system)


class _Server(uvicorn.Server):
    """Ends the streams of those who look first, or it would wait for them."""

    def __init__(self, config: uvicorn.Config, board: Board) -> None:
        super().__init__(config)
        self._board = board

    def end(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends it as its user wanted, and raises nothing afterwards."""
        self.end()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._board.closed = True
        self._board.tell()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        if taken:
            raise InvalidRequest(f"--port {port} is in use: choose another one, or 0 for any that is free") from error
        raise InvalidRequest(
            f"--host {host} --port {port}: this address cannot be listened on ({error}): use one of this machine's",
            option="--host",
        ) from error
    return listening
