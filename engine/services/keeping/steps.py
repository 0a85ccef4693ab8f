"""The services of a table as steps, each due on its own, and the lists of steps for each occasion.

Waiting plans come before new ones, and steps that remove files and instants come last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.inline import Mode
from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.run.report import CANCELLED, DONE, LEFT, SCHEDULED, ServiceRun
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.cleaning import Clean, cancel_overdue
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.rewrites.paying import LARGE_BYTES, PayingCompaction, PayingJoin
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.errors import LakelatchError, LockTimeout, TransactionEnded, WriteConflict
from lakelatch.format.slices.index_making import make_index
from lakelatch.locks.contract import service_key
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.transactions.base.outcome import PlanCancelled
from lakelatch.transactions.manager import PlanBusy

T = TypeVar("T")
Due: TypeAlias = Callable[[ServiceContext, Counters], bool]
#: A part of a step that may fail on its own: the plan's instant, "" if there is none yet, and the function to call.
Job: TypeAlias = tuple[str, Callable[[], ServiceRun | None]]
_PLANNING = "planning"  # prefix of the lease under which a service is planned
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class Step:
    """A step of maintenance. `due` reads nothing but counters; `jobs` may find that there is nothing to do.

    A step that runs `alone` is skipped while another writer runs it: it has a lease of its own, for which no process
    waits and which no commit needs. One that is `never_put_off` is due again after it had no effect.
    """

    service: str
    due: Due
    jobs: Callable[[ServiceContext, Counters], Iterable[Job]]
    alone: bool = False
    never_put_off: bool = False

    def run(self, context: ServiceContext, counters: Counters) -> Iterator[Job]:
        """The jobs, under the step's own lease if it runs `alone`."""
        for instant, act in self.jobs(context, counters):
            yield instant, partial(_alone, context, self.service, act) if self.alone else act


class Steps:
    """The steps of a table's services under some options."""

    def __init__(self, options: ServiceOptions) -> None:
        inline = options.inline
        self.options = options
        # Takes every file group with a log, as Hudi's inline compaction does: the table as a whole is due.
        every_log = replace(options.compaction, least_logs=1)
        self.compaction = Compaction(every_log, options.cancellation, inline.trigger)
        # Not more seldom than commits are archived, or no count of those on the timeline might ever be the right one.
        span = options.archiving.max_commits - options.archiving.min_commits
        paying = replace(inline.paying, commits=min(inline.paying.commits, span))
        self.paying_compaction = PayingCompaction(options.compaction, options.cancellation, inline.trigger, paying)
        self.compaction_at_once = replace(self.paying_compaction, at_once=True)
        gives_way = replace(options.cancellation, cancellable=True)  # whatever they say: nobody asked for the plan
        self.paying_join = PayingJoin(options.clustering, gives_way, inline.clustering_commits, inline.paying)
        self.log_compaction = LogCompaction(options.compaction)
        at_once = replace(options.clustering, least_commits=0)  # `due` has checked that
        self.clustering = Clustering(at_once, options.cancellation, inline.clustering_commits)
        self.background_clustering = replace(self.clustering, commits=inline.clustering_commits_in_background)
        self.clean = Clean(options.cleaning)

    def of_maintenance(self) -> list[Step]:
        """The steps of maintenance: all services, each if it is due."""
        options = self.options
        planned: tuple[PlannedService[Any], ...]
        planned = (self.log_compaction, self.compaction, self.clustering, self.clean)
        return [
            _once("recover", _always, _recover),
            replace(self._cancellations(), due=_always),
            *(_waiting(service) for service in planned),
            *map(_anew, self.planned_anew()),
            *([] if self.clustering in self.planned_anew() else [_only_where(_has_no_key, _anew(self.clustering))]),
            *([self._archive(archiving.is_due)] if options.archiving.automatic else []),
            self._file_index(_is_indexed, options.inline.index_commits),
        ]

    def planned_anew(self) -> list[PlannedService[Any]]:
        """The services of which maintenance makes plans when they are due."""
        options, mode = self.options, self.options.inline.clustering
        clusters = bool(options.clustering.columns) or mode.run or mode.schedule or mode.background
        return [
            self.compaction,
            *([self.log_compaction] if options.compaction.log_compaction else []),
            *([self.clustering] if clusters else []),
            *([self.clean] if options.cleaning.automatic else []),
        ]

    def after_commit(self, bytes_written: int) -> list[Step]:
        """The steps after a commit of so many bytes, which the options of the write turn on."""
        options, inline = self.options, self.options.inline
        compacts = inline.compacts_what_pays
        return [
            *self._by_writers(self.log_compaction, Mode(run=inline.log_compaction)),
            *self._by_writers(self.compaction, inline.compaction),
            *_paying(self._by_writers(self.paying_compaction, Mode(run=compacts)), _has_logs),
            *(_paying([self._at_once()], _has_logs) if compacts and bytes_written >= LARGE_BYTES else []),
            *_paying(self._by_writers(self.paying_join, Mode(run=inline.joins_what_pays)), _has_no_key),
            *self._by_writers(self.clustering, inline.clustering),
            *(self._clean_by_writers() if options.cleaning.automatic else []),
            *([self._archive(archiving.is_worth_a_try, alone=True)] if options.archiving.automatic else []),
            self._file_index(_is_drawn, 1),
        ]

    def in_background(self) -> list[Step]:
        """The steps in the background of a streaming query."""
        options, inline = self.options, self.options.inline
        if not inline.enabled:
            return []
        steps: list[Step] = []
        if inline.compaction.background:
            steps += [_waiting(self.log_compaction), _waiting(self.compaction), _anew(self.compaction, alone=True)]
            steps += [_anew(self.log_compaction, alone=True)] if options.compaction.log_compaction else []
            joins = self._by_writers(self.paying_join, Mode(run=inline.joins_what_pays))
            steps += _paying(joins, _has_no_key)  # its batches leave it to this
        if inline.clustering.background:
            steps += self._by_writers(self.background_clustering, Mode(run=True))
        if options.cleaning.automatic and options.cleaning.asynchronous:
            steps += self._clean_by_writers()
        if options.archiving.automatic and inline.archive_in_background:
            steps.append(self._archive(archiving.is_worth_a_try, alone=True))
        return steps

    def _by_writers(self, service: PlannedService[Any], mode: Mode) -> list[Step]:
        steps = [_waiting(service), _anew(service, alone=True)] if mode.run else []
        return [*steps, _anew(service, alone=True, execute=False)] if mode.schedule else steps

    def _at_once(self) -> Step:
        """Each commit that is large enough for this can afford it."""
        return replace(_anew(self.compaction_at_once, alone=True), never_put_off=True)

    def _clean_by_writers(self) -> list[Step]:
        clean = (_waiting(self.clean), _anew(self.clean))
        return [self._cancellations(), *(replace(step, alone=True) for step in clean)]

    def _cancellations(self) -> Step:
        """Cancels plans that are past their policy, and carries out requested cancellations."""

        def cancel(context: ServiceContext) -> str:
            ended = cancel_overdue(context.manager, self.options.cleaning)
            return f"{', '.join(ended)} ended" if ended else ""

        return _once("cancel", _plans_wait, cancel)

    def _archive(self, due: Callable[[Counters, ArchivingOptions], bool], alone: bool = False) -> Step:
        options = self.options.archiving

        def archive(context: ServiceContext) -> str:
            done = archiving.archive(context.manager, context.table.config, options)
            held = f"; held at {done.held_at}: {done.held_by}" if done.held_by else ""
            if done.instants or done.removed:
                return f"{len(done.instants):,} instants, {len(done.removed):,} orphans{held}"
            _log.info("%s: nothing can be archived%s", context.table.storage.uri, held)
            return ""

        return replace(_once("archive", lambda _, counters: due(counters, options), archive), alone=alone)

    def _file_index(self, due: Callable[[ServiceContext, Counters, int], bool], least: int) -> Step:
        """Makes a file index for a partitioned table, after about every `index_commits` writes."""

        def index(context: ServiceContext) -> str:
            made = make_index(context.table.storage, context.table.config, least)
            if made is None:
                return ""
            count, known = sum(map(len, made.files.values())), sum(map(len, made.statistics.files.values()))
            return f"{count:,} files in {len(made.files):,} partitions, statistics of {known:,}"

        every = self.options.inline.index_commits
        return _once("index", lambda context, counters: due(context, counters, every), index)


def _paying(steps: list[Step], suits: Callable[[ServiceContext], bool]) -> list[Step]:
    """What runs without being asked, in tables that it suits.

    Never under Hudi's locks: who rewrites is then agreed with other engines' writers.
    """

    def suited(context: ServiceContext) -> bool:
        return suits(context) and not context.manager.context.provider.taken_by_hudi

    return [_only_where(suited, step) for step in steps]


def _waiting(service: PlannedService[Any]) -> Step:
    """Executes the waiting plans."""

    def due(context: ServiceContext, counters: Counters) -> bool:
        return _can_run(service, context) and bool(counters.waiting(service.action))

    def jobs(context: ServiceContext, counters: Counters) -> Iterator[Job]:
        for instant in counters.waiting(service.action):
            if service.may_execute(context, instant):
                yield instant, partial(_carry_out, service, context, instant)

    return Step(service.action, due, jobs)


def _anew(service: PlannedService[Any], alone: bool = False, execute: bool = True) -> Step:
    """Makes a plan that is due, and executes it, or leaves that to others. `alone`: only one of many writers plans."""

    def due(context: ServiceContext, counters: Counters) -> bool:
        return (_can_run(service, context) or not execute) and service.due(counters)

    def act(context: ServiceContext) -> ServiceRun | None:
        service.prepare(context)  # before the lease, since it may take long
        plan = partial(service.schedule, context)
        instant = _alone(context, f"{_PLANNING}.{service.action}", plan) if alone else plan()
        if instant is None:
            return None
        return _carry_out(service, context, instant) if execute else ServiceRun(service.action, SCHEDULED, instant)

    return Step(service.action, due, lambda context, _: [("", partial(act, context))])


def _once(service: str, due: Due, work: Callable[[ServiceContext], str]) -> Step:
    """A step of one job, which describes what it did; "" if there was nothing to do."""

    def act(context: ServiceContext) -> ServiceRun | None:
        detail = work(context)
        return ServiceRun(service, DONE, "", detail) if detail else None

    return Step(service, due, lambda context, _: [("", partial(act, context))])


def _can_run(service: PlannedService[Any], context: ServiceContext) -> bool:
    return context.executor.tasks or not service.needs_tasks


def _carry_out(service: PlannedService[Any], context: ServiceContext, instant: str) -> ServiceRun:
    try:
        return ServiceRun(service.action, DONE, instant, service.describe(service.execute(context, instant)))
    except (PlanCancelled, WriteConflict) as error:
        return ServiceRun(service.action, CANCELLED, instant, error.message)
    except (TransactionEnded, PlanBusy) as error:
        return ServiceRun(service.action, LEFT, instant, error.message)


def _alone(context: ServiceContext, service: str, act: Callable[[], T | None]) -> T | None:
    """Calls `act` under the service's lease; None if another writer holds it."""
    uri = context.table.storage.uri
    try:
        lease = context.manager.context.provider.acquire(service_key(service), 0)
    except LockTimeout:
        _log.debug("%s: another writer runs the service %r", uri, service)
        return None
    try:
        return act()
    finally:
        try:
            lease.release()
        except LakelatchError as error:
            _log.warning("the lease of the service %r was not released, and ends by itself: %s", service, error)


def _only_where(suited: Callable[[ServiceContext], bool], step: Step) -> Step:
    def due(context: ServiceContext, counters: Counters) -> bool:
        return suited(context) and step.due(context, counters)

    return replace(step, due=due)


def _has_logs(context: ServiceContext) -> bool:
    return not context.table.config.copies_on_write


def _has_no_key(context: ServiceContext) -> bool:
    return context.table.config.appends_only


def _always(context: ServiceContext, counters: Counters) -> bool:
    return True


def _recover(context: ServiceContext) -> str:
    recovered = context.manager.recover()
    return f"rolled back {', '.join(recovered)}" if recovered else ""


def _plans_wait(context: ServiceContext, counters: Counters) -> bool:
    return any(one.action in REWRITING_SERVICES for one in counters.snapshot.pending)


def _is_indexed(context: ServiceContext, counters: Counters, every: int) -> bool:
    """Whether an index is made; not under Hudi's locks, as commits of other engines could not be checked against it."""
    by_foreign = context.manager.context.provider.taken_by_hudi
    return bool(every and context.table.config.partition_fields and not by_foreign and len(counters.writes) >= every)


def _is_drawn(context: ServiceContext, counters: Counters, every: int) -> bool:
    return _is_indexed(context, counters, every) and counters.is_drawn(every)
