"""Cleaning: planned at one point of the log, carried out later, by anybody, any number of times to the same end.

A plan names every file that it takes away, and nothing that it names becomes live again (`clean_planning`). So a clean
that is carried out twice, or by an executor that was paused while another one finished it, removes what is dead.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lakelatch.engine.options.cleaning import KEEP_LATEST_BY_HOURS, KEEP_LATEST_FILE_VERSIONS, CleaningOptions
from lakelatch.engine.services.cancelling import aborted_plans, execute_open, past_policy, request_cancel, sweep_aborted
from lakelatch.engine.services.clean_planning import CleanPlanner
from lakelatch.engine.services.counters import Counters, by_completion, count_until, earlier, last_requested
from lakelatch.engine.services.savepoints import forget_begun
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLEAN, COMMIT, REPLACE_COMMIT, RESTORE, ROLLBACK
from lakelatch.timeline.instant import inflight, requested
from lakelatch.timeline.metadata import WRITER_KEY
from lakelatch.timeline.plans.clean_plan import CleanMetadata, CleanPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import TransactionManager

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_log = logging.getLogger("lakelatch.services")


@dataclass(frozen=True)
class CleanResult:
    """A completed clean: the paths of the files that are gone, and the bytes that they had.

    Files that an executor before this one has removed are among them, and their bytes are not.
    """

    instant: str
    completion: str
    files: tuple[str, ...]
    bytes_removed: int


@dataclass(frozen=True)
class Clean(PlannedService[CleanResult]):
    """Files that nobody needs any more go: by threads of this process, or in tasks if one has too many of them.

    `if_due`: a plan is made only if enough has been committed since the last one.
    """

    options: CleaningOptions = field(default_factory=CleaningOptions)
    if_due: bool = False
    files_of_task: int = 1000

    action, needs_tasks = CLEAN, False

    def due(self, counters: Counters) -> bool:
        """Whether something may have become old since the last clean looked, or a clean waits.

        A write adds log files to the latest slices, and takes nothing away. Only compactions, clusterings and
        overwrites leave anything behind, and rollbacks, restores and cancelled plans their tombstones. Where only some
        partitions are cleaned, names do not say whether the last clean has looked at them.
        """
        options = self.options
        if counters.waiting(CLEAN):
            return True
        last = last_requested(counters.completed(CLEAN))
        if len(counters.writes) - count_until(counters.writes, last) < options.trigger_commits:
            return False
        left = [one.completion or "" for one in counters.completed(COMMIT, REPLACE_COMMIT)]
        undone = (one.completion or "" for one in counters.completed(ROLLBACK, RESTORE))
        bars = [*undone, *(one.requested for one in counters.snapshot.aborted)]
        day_ms = int(options.tombstone_hours * _HOUR_MS)
        looked = last and not options.is_filtered
        seen, bars_seen = (self._moment(counters, last), earlier(to_ms(last), day_ms)) if looked else ("", "")
        superseded = any(seen < time <= self._moment(counters, "") for time in left)
        return superseded or any(bars_seen < time <= counters.earlier(day_ms) for time in bars)

    def _moment(self, counters: Counters, before: str) -> str:
        """What was superseded until then may go: as of now, or as a clean at the time `before` saw it."""
        options, writes = self.options, counters.writes
        if options.policy == KEEP_LATEST_BY_HOURS:
            return earlier(to_ms(before) if before else counters.now_ms, options.hours * _HOUR_MS)
        kept = options.versions if options.policy == KEEP_LATEST_FILE_VERSIONS else options.commits
        count = bisect_left(writes, before, key=by_completion) if before else len(writes)
        return (writes[count - kept - 1].completion or "") if count > kept else ""

    def plan(self, context: ServiceContext, snapshot: Snapshot) -> bytes | None:
        """See `PlannedService`; None also if a clean waits already."""
        storage = context.manager.storage
        planner = CleanPlanner.load(storage, context.table.config, self.options, context.manager.writer)
        plan = planner.plan() if planner.is_due() or not self.if_due else None
        return None if plan is None else plan.to_avro(storage.uri)

    def schedule(self, context: ServiceContext) -> str | None:
        instant = super().schedule(context)
        failpoint("clean.after_plan")
        return instant

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether the clean is ours, or is left: one of another engine, which does not beat, is that engine's until its
        last file is older than a heartbeat may be."""
        return _is_ours(context.manager.storage, instant) or _is_left(context.manager, instant)

    def execute(self, context: ServiceContext, instant: str) -> CleanResult:
        """Removes exactly the plan's files, and completes it. Errors: also `CorruptTable` for a plan that nobody can
        read."""
        manager = context.manager
        transaction = manager.execute(instant, CLEAN)
        try:
            plan = read_plan(manager.storage, instant)
            began_ns = manager.context.system.monotonic_ns()
            failpoint("clean.before_files")
            size = self.remove(context, plan.paths)
            failpoint("clean.before_commit")
            took_ms = (manager.context.system.monotonic_ns() - began_ns) // 1_000_000
            event = transaction.complete(CleanMetadata(instant, plan, took_ms).to_avro())
        except BaseException:
            transaction.release()
            raise
        return CleanResult(instant, event.time, plan.paths, size)

    def remove(self, context: ServiceContext, paths: Sequence[str]) -> int:
        """Removes files, and says how many bytes they had. A file that is not there has none."""
        most, work = self.files_of_task, _RemoveFiles(context.table.storage, self.options.parallelism)
        parts = [tuple(paths[start : start + most]) for start in range(0, len(paths), most)]
        what, small = "lakelatch: files that nobody needs are removed", len(parts) < 2
        removed = context.executor.map(work, parts, _Removed, what, small)
        return sum(part.size_bytes for part in removed)

    def run(self, context: ServiceContext) -> list[CleanResult]:
        """See `PlannedService`. Before that it cancels plans of services that have waited for too long."""
        cancel_overdue(context.manager, self.options)
        return super().run(context)

    def describe(self, result: CleanResult) -> str:
        return f"{len(result.files):,} files, {result.bytes_removed:,} bytes removed"


def cancel_overdue(manager: TransactionManager, options: CleaningOptions) -> list[str]:
    """Calls off plans that are past their policy, and carries out all that were called off; those that ended here.

    A plan that a live process works on is left to it, and one that is younger than the delay to whoever is about to.
    Files that came late for a plan that has ended so go as well, and savepoints that nobody has finished.
    """
    for plan in past_policy(manager, options.cancel_delay_minutes * _MINUTE_MS):
        try:
            request_cancel(manager, plan.instant)
        except InvalidRequest as error:  # it has completed, or is gone
            _log.info("%s", error.message)
    ended = execute_open(manager)
    for plan in aborted_plans(manager):
        sweep_aborted(manager, plan)
    forget_begun(manager, int(options.tombstone_hours * 60 * _MINUTE_MS))
    return ended


def preview(storage: Storage, config: TableConfig, options: CleaningOptions, writer: str = "") -> CleanPlan | None:
    """What a clean would take away now; nothing is changed. None if there is nothing, or a clean waits."""
    return CleanPlanner.load(storage, config, options, writer).plan()


def read_plan(storage: Storage, instant: str) -> CleanPlan:
    """The plan of a clean that is on the timeline. Errors: `NotFound`, `CorruptTable`."""
    path = requested(instant, CLEAN).path
    return CleanPlan.from_avro(storage.read(path), path)


@dataclass(frozen=True)
class _Removed:
    """What a task of a clean reports."""

    size_bytes: int


@dataclass(frozen=True)
class _RemoveFiles:
    """Removes files with so many threads. A task that is run again finds what is left, and counts no other bytes."""

    storage: Storage
    parallelism: int

    def __call__(self, paths: Sequence[str], token: str) -> _Removed:
        if len(paths) < 2 or self.parallelism == 1:
            return _Removed(sum(map(self._remove, paths)))
        with ThreadPoolExecutor(min(self.parallelism, len(paths))) as pool:
            return _Removed(sum(pool.map(self._remove, paths)))

    def _remove(self, path: str) -> int:
        try:
            size = self.storage.stat(path).size_bytes
        except NotFound:
            return 0
        self.storage.delete(path)
        failpoint("clean.after_file")
        return size


def _is_ours(storage: Storage, instant: str) -> bool:
    try:
        return WRITER_KEY in read_plan(storage, instant).extra
    except NotFound:
        return False


def _is_left(manager: TransactionManager, instant: str) -> bool:
    """Whether the executor of another engine's clean is gone, as far as its last file tells."""
    begun = requested(instant, CLEAN), inflight(instant, CLEAN)
    return manager.context.observer.is_silent(*(one.path for one in begun))
