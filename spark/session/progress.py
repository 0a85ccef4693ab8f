"""The progress of the Spark jobs of a write or a table service, for the user who waits for them.

Spark draws its own bar in terminals, and Spark Connect in notebooks, too, but neither says what for. Here the jobs have
a description in Spark's UI, or a tag under Spark Connect, and a handler gets their progress, twice a second and in
a thread of its own; in a notebook that runs Spark itself there is one from the start. A handler never makes a job fail.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakelatch.progress import Handler, Progress, handler_of, notebook_line
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelatch.spark")
_PERIOD_S = 0.5
_DESCRIPTION = "spark.job.description"


@contextmanager
def with_progress(spark: SparkSession, what: str, system: System = REAL_SYSTEM) -> Iterator[None]:
    """Describes the Spark jobs that this block starts as `what`, and tells the handler how far they are."""
    context = getattr(spark, "sparkContext", None)  # there is none under Spark Connect
    handler = handler_of(notebook_line if context is not None else lambda: None)
    with _tagged(spark, what) if context is None else _described(context, what):
        if handler is None:
            yield
            return
        jobs = _ConnectJobs(spark) if context is None else _Jobs(context, f"lakelatch-progress-{system.new_id()}")
        with _Teller(handler, jobs, what, system), jobs:
            yield


class _Teller:
    """Calls a handler until its block ends. What a handler raises ends the telling, and is logged."""

    def __init__(self, handler: Handler, jobs: _Jobs | _ConnectJobs, what: str, system: System) -> None:
        self._handler = handler
        self._jobs = jobs
        self._now = Progress(what, 0, 0, 0.0)
        self._system = system
        self._began_ns = system.monotonic_ns()
        self._ended = system.new_event()
        self._works = True

    def __enter__(self) -> None:
        self._thread = self._system.start_thread(self._run, "progress")

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._tell(done=True)

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            self._tell(done=False)

    def _tell(self, done: bool) -> None:
        if not self._works:
            return
        try:
            tasks_done, tasks = self._jobs.tasks() or (self._now.tasks_done, self._now.tasks)
            elapsed_s = (self._system.monotonic_ns() - self._began_ns) / 1e9
            self._now = replace(self._now, tasks_done=tasks_done, tasks=tasks, elapsed_s=elapsed_s, done=done)
            self._handler(self._now)
        except Exception as failure:  # what ends the process, such as Ctrl-C, is no failure of it
            self._works = False
            _log.warning("the progress of %s is not shown any more: %r", self._now.what, failure)


class _Jobs:
    """The jobs that this thread starts within the block. They have a tag, so that a user's job group stays his."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context = context
        self._tag = tag

    def __enter__(self) -> None:
        self._context.addJobTag(self._tag)

    def __exit__(self, *error: object) -> None:
        self._context.removeJobTag(self._tag)

    def tasks(self) -> tuple[int, int] | None:
        """How many are done, of how many; None if Spark has forgotten by now."""
        status = self._context.statusTracker()
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag)  # Python's has no such method
        found = [info for job in jobs if (info := status.getJobInfo(job)) is not None]
        stages = [info for job in found for stage in job.stageIds if (info := status.getStageInfo(stage)) is not None]
        begun = [stage for stage in stages if stage.numCompletedTasks or stage.numActiveTasks]  # else it may be skipped
        if not begun:
            return None
        return sum(stage.numCompletedTasks for stage in begun), sum(stage.numTasks for stage in begun)


class _ConnectJobs:
    """The same under Spark Connect, which tells the thread that waits for a job how far it is."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._thread = threading.get_ident()
        self._found: tuple[int, int] | None = None

    def __enter__(self) -> None:
        self._spark.registerProgressHandler(self._see)

    def __exit__(self, *error: object) -> None:
        with suppress(ValueError):  # another thread has cleared the session's handlers
            self._spark.removeProgressHandler(self._see)

    def tasks(self) -> tuple[int, int] | None:
        return self._found

    def _see(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = list(stages or ())
        if found and threading.get_ident() == self._thread:
            self._found = sum(one.num_completed_tasks for one in found), sum(one.num_tasks for one in found)


@contextmanager
def _described(context: Any, what: str) -> Iterator[None]:
    """A description of the user's own stays."""
    if context.getLocalProperty(_DESCRIPTION):
        yield
        return
    context.setJobDescription(what)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, None)


@contextmanager
def _tagged(spark: Any, what: str) -> Iterator[None]:
    """The same under Spark Connect, which has tags and no descriptions; those of the user's own stay."""
    tag = what.replace(",", " ")  # which no tag may have
    if tag in spark.getTags():
        yield
        return
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)
