"""Keeping a table: its services as steps that are due or not, each on its own, so that none keeps another from running.

`maintenance`, `inline` and `beside_query` choose steps and carry them out; what a step does is its service's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.report import CANCELLED, DONE, FAILED, LEFT, SCHEDULED, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import archiving, cleaning, clustering, compaction, log_compaction
from lakelatch.engine.services.due import Standing
from lakelatch.engine.services.foreign_compactions import finish_foreign_compactions
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import LakelatchError, LockTimeout, TransactionEnded, WriteConflict
from lakelatch.locks.contract import service_key
from lakelatch.timeline.actions import CLEAN, CLUSTERING, COMPACTION, LOG_COMPACTION
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.manager import PlanBusy, TransactionManager

_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class Work:
    """What every step works with."""

    table: OpenedTable
    manager: TransactionManager
    options: ServiceOptions
    executor: Executor

    def look(self) -> Standing:
        """How the table stands now: one look at the tail of the log, and one listing."""
        self.manager.context.look()
        return self.standing()

    def standing(self, since: Iterable[Instant] = ()) -> Standing:
        """How the table stood when this process looked last, and what it has completed `since`; costs nothing."""
        return Standing.of(self.manager.snapshot, self.manager.context.system.realtime_ms(), since)


#: What a step does, in pieces that fail one by one: an instant, if there is one by then, and what makes of it a run.
Piece: TypeAlias = tuple[str, Callable[[], ServiceRun | None]]


@dataclass(frozen=True)
class Step:
    """One service's turn. `is_due` reads nothing but the standing; `pieces` may find that there is nothing to do."""

    service: str
    is_due: Callable[[Work, Standing], bool]
    pieces: Callable[[Work, Standing], Iterator[Piece]]


@dataclass(frozen=True)
class Planned:
    """A service whose plans are put on the timeline and carried out apart."""

    action: str
    needs_tasks: bool
    is_due: Callable[[Work, Standing], bool]
    schedule: Callable[[Work], str | None]
    execute: Callable[[Work, str], str]
    ours: Callable[[Work, str], bool] = lambda work, instant: True

    def waiting(self) -> Step:
        """Carries out the plans that wait."""

        def pieces(work: Work, standing: Standing) -> Iterator[Piece]:
            for instant in standing.waiting(self.action):
                if self.ours(work, instant):
                    yield instant, partial(self._carry_out, work, instant)

        return self._step(lambda work, standing: bool(standing.waiting(self.action)), pieces)

    def fresh(self) -> Step:
        """Plans what is due, and carries that out."""

        def act(work: Work) -> ServiceRun | None:
            instant = self.schedule(work)
            return None if instant is None else self._carry_out(work, instant)

        return self._step(self.is_due, lambda work, standing: iter([("", lambda: act(work))]))

    def plan_only(self) -> Step:
        """Plans what is due, for others to carry out; not while a plan waits."""

        def act(work: Work) -> ServiceRun | None:
            instant = self.schedule(work)
            return None if instant is None else ServiceRun(self.action, SCHEDULED, instant)

        return Step(self.action, self.is_due, lambda work, standing: iter([("", lambda: act(work))]))

    def _carry_out(self, work: Work, instant: str) -> ServiceRun:
        try:
            return ServiceRun(self.action, DONE, instant, self.execute(work, instant))
        except (PlanCancelled, WriteConflict) as error:
            return ServiceRun(self.action, CANCELLED, instant, error.message)
        except (TransactionEnded, PlanBusy) as error:
            return ServiceRun(self.action, LEFT, instant, error.message)

    def _step(
        self, is_due: Callable[[Work, Standing], bool], pieces: Callable[[Work, Standing], Iterator[Piece]]
    ) -> Step:
        def can_run(work: Work, standing: Standing) -> bool:
            return (work.executor.tasks or not self.needs_tasks) and is_due(work, standing)

        return Step(self.action, can_run, pieces)


def keep(
    work: Work,
    steps: Iterable[Step],
    standing: Standing | None = None,
    tell: Callable[[ServiceRun], None] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[ServiceRun, ...]:
    """Takes each step that is due, one after the other; what fails is in the result, and keeps nothing else back.

    `standing` is where the table stands, if the caller knows: then nothing is read while nothing is due. `go_on` is
    asked before each piece. Errors: none but what ends the process.
    """
    runs: list[ServiceRun] = []
    for step in steps:
        try:
            standing = standing or work.look()
            pieces = list(step.pieces(work, standing)) if step.is_due(work, standing) else []
        except Exception as error:
            pieces = [("", partial(_failed, step.service, "", error))]
        for instant, act in pieces:
            if not go_on():
                return tuple(runs)
            run = _timed(work, step.service, instant, act)
            standing = None  # somebody may have done something meanwhile
            if run is not None:
                runs.append(run)
                level = logging.WARNING if run.outcome == FAILED else logging.INFO
                _log.log(level, "%s: %s", work.table.storage.uri, run)
                if tell is not None:
                    tell(run)
    return tuple(runs)


def _timed(work: Work, service: str, instant: str, act: Callable[[], ServiceRun | None]) -> ServiceRun | None:
    system = work.manager.context.system
    started_ns = system.monotonic_ns()
    try:
        run = act()
    except Exception as error:  # Spark's own as well
        run = _failed(service, instant, error)
    return None if run is None else replace(run, seconds=(system.monotonic_ns() - started_ns) / 1e9)


def _failed(service: str, instant: str, error: Exception) -> ServiceRun:
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = str(error) if isinstance(error, LakelatchError) else f"{type(error).__name__}: {lines[0] if lines else ''}"
    return ServiceRun(service, FAILED, instant, text)


def one_at_a_time(step: Step) -> Step:
    """The step for writers that meet it at the same time: where another one is at it, it is passed over.

    By a lease of the step's own, which nobody waits for and no commit needs.
    """

    def pieces(work: Work, standing: Standing) -> Iterator[Piece]:
        for instant, act in step.pieces(work, standing):
            yield instant, partial(_alone, work, step.service, act)

    return replace(step, pieces=pieces)


def _alone(work: Work, service: str, act: Callable[[], ServiceRun | None]) -> ServiceRun | None:
    try:
        lease = work.manager.context.provider.acquire(service_key(service), 0)
    except LockTimeout:
        _log.debug("%s: another writer is at the service %r", work.table.storage.uri, service)
        return None
    try:
        return act()
    finally:
        try:
            lease.release()
        except LakelatchError as error:
            _log.warning("the lease of the service %r was not released, and ends by itself: %s", service, error)


def said(result: CommitResult, kind: str) -> str:
    """What a service that wrote files has to say of it."""
    return f"{len(result.files):,} {kind} files, {result.rows_written:,} rows, {result.bytes_written:,} bytes"


def _schedule_compaction(work: Work) -> str | None:
    """Of every file group with a log, as Hudi's inline compaction does: the table as a whole is due."""
    if work.executor.tasks:
        finish_foreign_compactions(work.executor, work.table)
    return compaction.schedule(work.table, work.manager, replace(work.options.compaction, least_logs=1))


COMPACTIONS = Planned(
    COMPACTION,
    True,
    lambda work, standing: standing.compaction_due(work.options.inline.trigger),
    _schedule_compaction,
    lambda work, instant: said(compaction.execute(work.executor, work.table, work.manager, instant), "base"),
)
LOG_COMPACTIONS = Planned(
    LOG_COMPACTION,
    True,
    lambda work, standing: standing.log_compaction_due(work.options.compaction.least_logs_of_run),
    lambda work: log_compaction.schedule(work.table, work.manager, work.options.compaction),
    lambda work, instant: said(log_compaction.execute(work.executor, work.table, work.manager, instant), "log"),
    lambda work, instant: log_compaction.is_ours(work.table.storage, instant),
)


def clusterings(commits: int) -> Planned:
    """Clusterings, due after so many writes."""

    def schedule(work: Work) -> str | None:
        options = replace(work.options.clustering, least_commits=0)  # which was looked at already
        return clustering.schedule(work.table, work.manager, options, work.options.cancellation)

    return Planned(
        CLUSTERING,
        True,
        lambda work, standing: standing.clustering_due(commits),
        schedule,
        lambda work, instant: said(clustering.execute(work.executor, work.table, work.manager, instant), "base"),
        lambda work, instant: instant in clustering.plans_of_ours(work.table, work.manager),
    )


CLEANS = Planned(
    CLEAN,
    False,
    lambda work, standing: standing.clean_due(work.options.cleaning),
    lambda work: cleaning.schedule(work.table.config, work.manager, work.options.cleaning),
    lambda work, instant: _clean(work, instant),
    lambda work, instant: instant in cleaning.waiting_cleans(work.manager),
)


def _clean(work: Work, instant: str) -> str:
    options = work.options.cleaning
    remove = cleaning.remover(work.table.storage, options.parallelism, work.executor)
    result = cleaning.execute(work.manager, options, instant, remove)
    return f"{len(result.files):,} files, {result.bytes_removed:,} bytes removed"


def _cancellations(work: Work, standing: Standing) -> Iterator[Piece]:
    """Plans that are past their policy, and whatever anybody has asked to cancel."""

    def act() -> ServiceRun | None:
        ended = cleaning.cancel_overdue(work.manager, work.options.cleaning)
        return ServiceRun("cancel", DONE, "", f"{', '.join(ended)} ended") if ended else None

    yield "", act


def _plans_wait(work: Work, standing: Standing) -> bool:
    return any(one.action in REWRITING_SERVICES for one in standing.pending)


def _archive(work: Work, standing: Standing) -> Iterator[Piece]:
    def act() -> ServiceRun | None:
        done = archiving.archive(work.manager, work.table.config, work.options.archiving)
        held = f"; held at {done.held_at}: {done.held_by}" if done.held_by else ""
        if not done.instants and not done.removed:
            _log.info("%s: nothing can be archived%s", work.table.storage.uri, held)
            return None
        return ServiceRun("archive", DONE, "", f"{len(done.instants):,} instants, {len(done.removed):,} orphans{held}")

    yield "", act


CANCELLATIONS = Step("cancel", _plans_wait, _cancellations)
ARCHIVE = Step("archive", lambda work, standing: standing.archive_due(work.options.archiving.max_commits), _archive)
#: For writers, who meet it after each commit.
AUTOMATIC_ARCHIVE = replace(ARCHIVE, is_due=lambda work, standing: standing.archive_promises(work.options.archiving))
