"""The base of table services whose plans are put on the timeline and executed separately."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.run.report import DONE, LEFT
from lakelatch.engine.services.counters import Counters, pending_plans
from lakelatch.engine.table.opening import open_existing_storage
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.telemetry import INSTANT, SERVICE, operation
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import PlanBusy, TransactionManager

Result = TypeVar("Result")
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class ServiceContext:
    """The table and the transactions of a service, and the executor of its tasks."""

    table: OpenedTable
    manager: TransactionManager
    executor: Executor = HERE

    def look(self) -> Counters:
        """The current counters, for one read of the log's tail and one listing."""
        self.manager.context.look()
        return self.counters()

    def counters(self, since: Iterable[Instant] = ()) -> Counters:
        """Counters of the last listing, with the instants that the caller has completed `since`; makes no request."""
        return Counters.of(self.manager.snapshot, self.manager.context.system.realtime_ms(), since)


class PlannedService(ABC, Generic[Result]):
    """One kind of plan: when it is due, its content, and how it is executed. Subclasses have the options.

    A plan is made at one slot of the log, under the table's lock, and names all that its executors need. So any process
    can execute it later, any number of times, with the same result.
    """

    action: ClassVar[str]
    #: Whether its tasks rewrite data files: then it is left to others if the executor takes no tasks.
    needs_tasks: ClassVar[bool] = True
    #: Errors after which a plan is left to others: it has ended, or another process executes it.
    leaves_after: ClassVar[tuple[type[LakelatchError], ...]] = (TransactionEnded, PlanBusy)

    @abstractmethod
    def due(self, counters: Counters) -> bool:
        """Whether to make a plan; reads nothing but the counters."""

    @abstractmethod
    def planner(self, context: ServiceContext) -> Callable[[Snapshot], bytes | None]:
        """What makes the plan's content, as of its slot in the log: None if there is nothing to do.

        It is called for each slot that is tried, with the timeline as it is before that.
        """

    @abstractmethod
    def execute(self, context: ServiceContext, instant: str) -> Result:
        """Executes one plan. Errors: those of `TransactionManager.execute`; another executor may continue then."""

    @abstractmethod
    def describe(self, result: Result) -> str:
        """The text of a report on an executed plan."""

    def check(self, table: OpenedTable) -> None:
        """Raises `InvalidRequest` for a table or options with which no plan could ever be made."""

    def prepare(self, context: ServiceContext) -> None:
        """Does work that has to precede a plan and needs the executor."""

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether this process may execute a waiting plan."""
        return True

    def schedule(self, context: ServiceContext) -> str | None:
        """Puts a plan on the timeline and returns its requested time; None if there is nothing to do."""
        self.check(context.table)
        return context.manager.schedule(self.planner(context), self.action)

    def execute_or_leave(self, context: ServiceContext, instant: str) -> Result | None:
        """As `execute`, but None if other processes have executed the plan, or are executing it."""
        with operation("service", context.manager.context.labels, {SERVICE: self.action}) as measured:
            measured.note({INSTANT: instant})
            try:
                result = self.execute(context, instant)
            except self.leaves_after as error:
                _log.warning("%s %s is left to others: %s", self.action, instant, error.message)
                measured.end_as(LEFT)
                return None
            measured.end_as(DONE)
            return result

    def waiting(self, context: ServiceContext) -> list[str]:
        """Waiting plans that this process may execute, oldest first, as of the last listing of the timeline."""
        found = pending_plans(context.manager.snapshot, self.action)
        return [instant for instant in found if self.may_execute(context, instant)]

    def execute_waiting(self, context: ServiceContext) -> list[Result]:
        """Executes the waiting plans; returns what this call completed, as do the two methods below."""
        results = [self.execute_or_leave(context, instant) for instant in self.waiting(context)]
        return [result for result in results if result is not None]

    def run_anew(self, context: ServiceContext) -> list[Result]:
        """Makes a plan and executes it."""
        self.prepare(context)
        instant = self.schedule(context)
        result = None if instant is None else self.execute_or_leave(context, instant)
        return [] if result is None else [result]

    def run(self, context: ServiceContext) -> list[Result]:
        """Executes the waiting plans, makes another one, and executes that."""
        return [*self.execute_waiting(context), *self.run_anew(context)]


def waiting(path: str, actions: Collection[str], options: Mapping[str, object] | None = None) -> list[str]:
    """Requested times of pending plans of these actions, including Java's, oldest first.

    They may be running already. Errors: `InvalidRequest` where there is no table.
    """
    snapshot = Snapshot.look(open_existing_storage(path, options))
    return sorted(instant for action in actions for instant in pending_plans(snapshot, action))
