"""A write's marker server, for as long as its tasks are at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lakelatch.transactions.early_detection import Detection, early_detection
from lakelatch.transactions.marker_batches import MarkerBatches
from lakelatch.transactions.marker_checker import MarkerChecker
from lakelatch.transactions.marker_client import ServerAddress
from lakelatch.transactions.marker_strategies import find_marker_strategy

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager
    from lakelatch.transactions.transaction import TransactionState


_ALL_ADDRESSES = ("0.0.0.0", "::")  # to listen on; a task would look for the server on its own machine


@contextmanager
def serve_markers(
    manager: TransactionManager,
    state: TransactionState,
    host: str,
    bind_host: str | None = None,
    when_lost: Callable[[], None] | None = None,
) -> Iterator[ServerAddress | None]:
    """Serves a write's markers inside the block; None if its markers are direct.

    `host` is where tasks find this process, `bind_host` where it listens if that is another one; the options come
    first. `when_lost` is called, on another thread, as soon as the write has lost. Errors: `InvalidRequest` if it
    cannot listen there.
    """
    settings = manager.settings.marker_server
    if settings is None:
        yield None
        return
    from lakelatch.transactions.marker_server import MarkerSession, join_server, leave_server

    early = early_detection(manager, state)
    blooms = early is not None and find_marker_strategy(early.settings.strategy, early.settings.marker_type).blooms
    checker = None
    if early is not None:
        checker = MarkerChecker(Detection(early, manager.provider, manager.system), blooms, when_lost)
    batches = MarkerBatches(
        manager.storage, state.instant, settings.files_at_once, settings.interval_ms, blooms, manager.system
    )
    session = MarkerSession(batches, checker)
    listen_at = settings.host or bind_host or host
    token = manager.system.new_id() + manager.system.new_id()
    try:
        server = join_server(listen_at, settings.port, token, session)
    except BaseException:
        session.close()
        raise
    thread = None
    if early is not None and checker is not None:
        watch = partial(checker.watch, early.settings.delay_ms, early.settings.period_ms)
        thread = manager.system.start_thread(watch, f"marker-checker-{state.instant}")
    try:
        place = host if settings.host in (None, *_ALL_ADDRESSES) else settings.host
        yield ServerAddress(place, server.port, token)
    finally:
        leave_server(listen_at, settings.port, token)
        if thread is not None:
            thread.join()
