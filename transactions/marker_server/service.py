"""A write's marker server, for as long as its tasks are at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

from lakelatch.errors import InvalidRequest
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.settings import DIRECT_MARKERS, MARKER_TYPE_OPTION, SERVER_MARKERS
from lakelatch.transactions.early.detection import EarlyDetection
from lakelatch.transactions.early.server_client import ServerAddress
from lakelatch.transactions.marker_server.batches import MarkerBatches
from lakelatch.transactions.marker_server.checker import MarkerChecker

_ALL_ADDRESSES = ("0.0.0.0", "::")  # to listen on; a task would look for the server on its own machine


def ensure_server_installed() -> None:
    """Errors: `InvalidRequest` if what the marker server is made of is not installed. Executors do not need it."""
    if find_spec("aiohttp") is None:
        raise InvalidRequest(
            f"{MARKER_TYPE_OPTION}={SERVER_MARKERS} needs a marker server, which is not installed: run "
            f"pip install 'lakelatch[marker-server]', or set {MARKER_TYPE_OPTION}={DIRECT_MARKERS}",
            option=MARKER_TYPE_OPTION,
        )


@contextmanager
def serve_markers(
    context: TransactionContext,
    instant: str,
    early: EarlyDetection | None,
    host: str,
    bind_host: str | None = None,
    when_lost: Callable[[], None] | None = None,
) -> Iterator[ServerAddress | None]:
    """Serves a write's markers inside the block; None if its markers are direct.

    `host` is where tasks find this process, `bind_host` where it listens if that is another one; the options come
    first. `when_lost` is called, on another thread, as soon as the write has lost. Errors: `InvalidRequest` if it
    cannot listen there, or is not installed.
    """
    settings = context.settings.marker_server
    if settings is None:
        yield None
        return
    ensure_server_installed()
    from lakelatch.transactions.marker_server.server import MarkerSession, join_server, leave_server

    checker = None
    if early is not None:
        checker = MarkerChecker(early.detection(context.provider, context.system), when_lost)
    batches = MarkerBatches(context.storage, instant, settings.files_at_once, settings.interval_ms, context.system)
    session = MarkerSession(batches, checker)
    listen_at = settings.host or bind_host or host
    token = context.system.new_id() + context.system.new_id()
    try:
        server = join_server(listen_at, settings.port, token, session)
    except BaseException:
        session.close()
        raise
    thread = None
    if early is not None and checker is not None:
        watch = partial(checker.watch, early.settings.delay_ms, early.settings.period_ms)
        thread = context.system.start_thread(watch, f"marker-checker-{instant}")
    try:
        place = host if settings.host in (None, *_ALL_ADDRESSES) else settings.host
        yield ServerAddress(place, server.port, token)
    finally:
        leave_server(listen_at, settings.port, token)
        if thread is not None:
            thread.join()
