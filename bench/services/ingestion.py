"""Commits beside a clustering of the same file groups: one that waits, one at work, one that fails again and again.

Four tables, written to in turns by one writer each. Every ten commits a new clustering of all file groups is planned on
three of them: on one nobody carries it out; on one an executor has it in hand until the ten commits are done; on one an
executor begins before each commit, and fails. So each plan is met by ten commits, of which the first ones have to call
it off where it can be cancelled. Executors are idle while a commit is timed: this is what a plan costs a writer, not
what sorting costs its machine. INGESTION_FOLDER says where: `/dev/shm` leaves the disk out.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Result
from bench.services.stream import Stream

from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.services.counters import pending_plans
from lakelatch.engine.services.removals import cleaning
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.service import ServiceContext
from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.timeline.actions import CLUSTERING
from lakelatch.timeline.log.events import CANCEL_FOLDER

_FOLDER = os.environ.get("INGESTION_FOLDER", "")
_ROUNDS = 31  # the first one warms up
_COMMITS = 10  # that meet one plan
_GOAL = 1.1
_STATES = ("none", "pending", "running", "failing")
_OPTIONS = {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.clustering.plan.strategy.sort.columns": "v",
}


class Clustered:
    """A table, and what is done to its clusterings."""

    def __init__(self, folder: str, state: str, cancellable: bool) -> None:
        self.state = state
        self.cancellable = cancellable
        self.stream = Stream(folder, {**_OPTIONS, "lakelatch.service.cancellable": str(cancellable).lower()})
        self.manager = self.stream.new_manager()
        self.go = threading.Event()
        self.executor: threading.Thread | None = None
        self.first: list[float] = []
        self.times: list[float] = []

    def plan(self) -> None:
        """A plan is there afterwards, and in hand where it is to be."""
        if self.state == "none":
            return
        services = self.stream.services
        context = ServiceContext(self.stream.table, self.manager)
        if Clustering(services.clustering, services.cancellation).schedule(context) is None:
            self.manager.context.snapshots.take()
            if not pending_plans(self.manager.snapshot, CLUSTERING):
                raise AssertionError("nothing was planned")
        if self.state == "running":
            began = threading.Event()
            self.go.clear()
            self.executor = threading.Thread(target=self._execute, args=(self._held(began),))
            self.executor.start()
            if not began.wait(60):
                raise AssertionError("the executor did not begin")

    def commit(self, first: bool, counts: bool) -> None:
        if self.state == "failing":
            self._execute(_After(_fail))
        took_ms = self.stream.commit()
        if counts:
            self.times.append(took_ms)
            if first:
                self.first.append(took_ms)

    def end(self) -> None:
        """The executor goes on, and what was called off is carried out."""
        if self.executor is not None:
            self.go.set()
            self.executor.join()
        if self.state != "none" and self.cancellable and not self._called_off():
            raise AssertionError(f"ten commits have left a {self.state} clustering of their file groups alone")
        cleaning.cancel_overdue(self.manager, self.stream.services.cleaning)

    def _called_off(self) -> bool:
        """Whether the writer has asked for all that it wrote to, or an executor has ended the plan for that."""
        self.manager.context.snapshots.take()
        waiting = pending_plans(self.manager.snapshot, CLUSTERING)
        return all(any(name.startswith(plan) for name in self.stream.storage.names(CANCEL_FOLDER)) for plan in waiting)

    def _held(self, began: threading.Event) -> Executor:
        def hold() -> None:
            began.set()
            self.go.wait()

        return _After(hold)

    def _execute(self, executor: Executor) -> None:
        self.manager.context.snapshots.take()
        for plan in pending_plans(self.manager.snapshot, CLUSTERING):
            with suppress(LakelatchError):
                Clustering().execute(ServiceContext(self.stream.table, self.manager, executor), plan)


@dataclass(frozen=True)
class _After:
    """Does the work in this process, after something else."""

    first: Callable[[], None]
    tasks: bool = True

    def map(self, work: Any, things: Sequence[Any], kind: type[Any], what: str, small: bool = False) -> list[Any]:
        self.first()
        return HERE.map(work, things, kind, what)


def _fail() -> None:
    raise Unavailable("each attempt fails")


def run() -> list[Result]:
    return [*_measure(True), *_measure(False)]


def _measure(cancellable: bool) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        tables = [Clustered(f"{folder}/{state}", state, cancellable) for state in _STATES]
        for table in tables:
            table.commit(first=False, counts=False)
        for turn in range(_ROUNDS):
            _round(tables, counts=turn > 0)
    none = tables[0]
    for table in tables[1:]:
        ratio = _ratio(lambda one: one.times, table, none)
        first = _ratio(lambda one: one.first, table, none)
        low, _, high = statistics.quantiles((a / b for a, b in zip(table.times, none.times, strict=True)), n=4)
        yield Result(
            f"ingestion_beside_{table.state}_{'cancellable' if cancellable else 'immutable'}",
            round(statistics.median(table.times), 2),
            "ms",
            None,
            round(statistics.median(none.times), 2),
            round(ratio, 3),
            f"median at most {_GOAL:g} times that without clustering" if cancellable else "none",
            ratio <= _GOAL or not cancellable,
            f"{len(table.times)} commits in turns; middle half of the turns' ratios {low:.2f} to {high:.2f}; the first "
            f"commit after each plan: {first:.2f} times",
        )


def _round(tables: list[Clustered], counts: bool) -> None:
    for table in tables:
        table.plan()
    for number in range(_COMMITS):
        for table in tables if number % 2 else tables[::-1]:
            table.commit(number == 0, counts)
    for table in tables:
        table.end()


def _ratio(chosen: Callable[[Clustered], list[float]], table: Clustered, none: Clustered) -> float:
    return statistics.median(chosen(table)) / statistics.median(chosen(none))
