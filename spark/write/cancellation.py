"""Cancellation: what the driver does when its write has lost or failed: end its Spark jobs, roll back, say why."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakelatch.errors import LakelatchError, Unavailable, WriteConflict, from_text
from lakelatch.spark.write.task import FileReport, WriteTask
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.early.notes import aborted_by
from lakelatch.transactions.transaction import OPEN, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelatch.spark")


def abort_after(transaction: Transaction, error: BaseException) -> BaseException:
    """Rolls a write back after an error, and returns the one that says what was wrong: itself, or what is behind it.

    Spark hands over no more than a text of what a task has raised. Of a conflict that a task has found the storage
    knows all.
    """
    typed = error if isinstance(error, LakelatchError) else from_text(str(error))
    conflict: WriteConflict | None = None
    if transaction.status == OPEN and isinstance(error, Exception) and isinstance(typed, WriteConflict | None):
        with suppress(LakelatchError):
            conflict = transaction.found_early()
    transaction.abort_quietly(conflict)
    return conflict or typed or error


def work_of(reports: list[FileReport]) -> Work:
    """What the tasks have done that made these files."""
    return sum((Work(report.records + report.deletes, report.size_bytes, report.task_ms) for report in reports), Work())


@contextmanager
def ended_when_lost(session: SparkSession, task: WriteTask, wake: threading.Event | None) -> Iterator[None]:
    """Cancels the Spark jobs that this block starts within a period of early detection after the write has lost.

    Its tasks look by themselves whenever rows come their way; this is for those that wait for rows. Whoever knows
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
