"""The table services whose plans are put on the timeline and carried out apart: what all of them share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, TypeVar

from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.services.counters import Counters, pending_plans
from lakelatch.engine.table.opening import open_existing_storage
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import PlanBusy, TransactionManager

Result = TypeVar("Result")
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class ServiceContext:
    """What a service works on, and where its tasks run."""

    table: OpenedTable
    manager: TransactionManager
    executor: Executor = HERE

    def look(self) -> Counters:
        """The counters as they are now: one look at the tail of the log, and one listing."""
        self.manager.context.look()
        return self.counters()

    def counters(self, since: Iterable[Instant] = ()) -> Counters:
        """Those of the last listing, and with what the caller has completed `since`; costs nothing."""
        return Counters.of(self.manager.snapshot, self.manager.context.system.realtime_ms(), since)


class PlannedService(ABC, Generic[Result]):
    """One kind of plan: when it is due, what it says, and how it is carried out. Subclasses have the options of both.

    A plan is made at one place in the log, under the table's lock, and names all that its executors need. So it can be
    carried out later, by anybody, and any number of times to the same end.
    """

    action: ClassVar[str]
    #: Whether its tasks rewrite data files: then it is left to others where the executor takes no tasks.
    needs_tasks: ClassVar[bool] = True
    #: Errors after which a plan is left to others: it has ended, or another process works on it.
    leaves_after: ClassVar[tuple[type[LakelatchError], ...]] = (TransactionEnded, PlanBusy)

    @abstractmethod
    def due(self, counters: Counters) -> bool:
        """Whether to make a plan; reads nothing but the counters."""

    @abstractmethod
    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        """The plan's content, at its place in the log; None if there is nothing to do."""

    @abstractmethod
    def execute(self, context: ServiceContext, instant: str) -> Result:
        """Carries out one plan. Errors: those of `TransactionManager.execute`; afterwards the next executor goes on."""

    @abstractmethod
    def describe(self, result: Result) -> str:
        """What a report says of a plan that was carried out."""

    def check(self, table: OpenedTable) -> None:
        """Errors: `InvalidRequest` for a table or options with which no plan could ever be made."""

    def prepare(self, context: ServiceContext) -> None:
        """What is to be done before a plan is made, by whoever has an executor."""

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether a plan that waits may be carried out here."""
        return True

    def schedule(self, context: ServiceContext) -> str | None:
        """Puts a plan on the timeline and returns its requested time; None if there is nothing to do."""
        self.check(context.table)
        return context.manager.schedule(partial(self.plan, context), self.action)

    def execute_or_leave(self, context: ServiceContext, instant: str) -> Result | None:
        """The same as `execute`, but None if others have done it, or are at it."""
        try:
            return self.execute(context, instant)
        except self.leaves_after as error:
            _log.warning("%s %s is left to others: %s", self.action, instant, error.message)
            return None

    def waiting(self, context: ServiceContext) -> list[str]:
        """Plans that wait and may be carried out here, oldest first, as of the last listing of the timeline."""
        found = pending_plans(context.manager.snapshot, self.action)
        return [instant for instant in found if self.may_execute(context, instant)]

    def execute_waiting(self, context: ServiceContext) -> list[Result]:
        """Carries out the plans that wait; returns what this call completed, as the two below do."""
        results = [self.execute_or_leave(context, instant) for instant in self.waiting(context)]
        return [result for result in results if result is not None]

    def run_anew(self, context: ServiceContext) -> list[Result]:
        """Makes a plan and carries it out."""
        self.prepare(context)
        instant = self.schedule(context)
        result = None if instant is None else self.execute_or_leave(context, instant)
        return [] if result is None else [result]

    def run(self, context: ServiceContext) -> list[Result]:
        """Carries out the plans that wait, makes another one, and carries that out."""
        return [*self.execute_waiting(context), *self.run_anew(context)]


def waiting(path: str, actions: Collection[str], options: Mapping[str, object] | None = None) -> list[str]:
    """Requested times of the plans of these actions that have not completed, oldest first, those of Java among them.

    One that is there may be at work right now. Errors: `InvalidRequest` where there is no table.
    """
    snapshot = Snapshot.look(open_existing_storage(path, options))
    return sorted(instant for action in actions for instant in pending_plans(snapshot, action))
