"""The marker server of a Spark job: where it listens, and how its tasks reach it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import Unavailable
from lakelatch.transactions.early.notes import aborted_by
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger("lakelatch.spark")
_HOST = "spark.driver.host"
_BIND_HOST = "spark.driver.bindAddress"


@contextmanager
def served(
    session: SparkSession, transaction: Transaction, task: WriteTask, when_lost: Callable[[], None]
) -> Iterator[WriteTask]:
    """The task, which announces through a marker server in this process as long as the block runs, if that is asked.

    It listens where Spark's driver does. Under Spark Connect this process is not the driver, and executors would look
    for it in vain: markers are direct there.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:
        if transaction.asks_for_marker_server:
            _log.warning("there is no marker server under Spark Connect: the markers of this write are direct")
        yield task
        return
    settings = context.getConf()
    host = settings.get(_HOST, "localhost")
    with transaction.serve_markers(host, settings.get(_BIND_HOST, host), when_lost) as address:
        yield replace(task, server=address)


@contextmanager
def ended_when_lost(session: SparkSession, task: WriteTask, wake: threading.Event | None) -> Iterator[None]:
    """Cancels the Spark jobs that this block starts within a period of early detection after the write has lost.

    Its tasks check by themselves whenever they get rows; this is for those that wait for rows. A caller that knows
    before the period is over sets `wake`.
    """
    if task.early is None:
        yield
        return
    tag = f"lakelatch-{task.instant}"
    stopped = threading.Event()
    woken = wake or threading.Event()
    period_s = task.early.settings.period_ms / 1000
    context = getattr(session, "sparkContext", None)  # there is none under Spark Connect, whose session does it itself
    add, remove, cancel = (
        (session.addTag, session.removeTag, session.interruptTag)
        if context is None
        else (context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)
    )

    def watch() -> None:
        while not stopped.is_set():
            woken.wait(period_s)
            woken.clear()
            with suppress(Unavailable):
                if aborted_by(task.storage, task.instant) is not None:
                    cancel(tag)
                    return

    thread = threading.Thread(target=watch, name=f"early-conflicts-{task.instant}", daemon=True)
    add(tag)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        woken.set()
        thread.join()
        remove(tag)
