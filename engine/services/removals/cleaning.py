"""Cleaning: planned at one slot of the log and executed later, by any process, as often as it likes.

A plan names every file that it removes, and none of them becomes live again (`clean_planning`). So a clean that is
executed twice, or by an executor that was paused while another one finished it, removes dead files only.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lakelatch.engine.options.table_services.cleaning import (
    KEEP_LATEST_BY_HOURS,
    KEEP_LATEST_FILE_VERSIONS,
    CleaningOptions,
)
from lakelatch.engine.read.overlays import remove_overlays
from lakelatch.engine.services.cancelling import aborted_plans, execute_open, past_policy, request_cancel, sweep_aborted
from lakelatch.engine.services.counters import Counters, by_completion, count_until, earlier, last_requested
from lakelatch.engine.services.removals.clean_planning import CleanPlanner
from lakelatch.engine.services.removals.commits_of_clean import KnownCommits
from lakelatch.engine.services.savepoints import forget_begun
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.notebook import Shown
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLEAN, COMMIT, REPLACE_COMMIT, RESTORE, ROLLBACK
from lakelatch.timeline.instant import inflight, requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import WRITER_KEY
from lakelatch.timeline.plans.clean_plan import CleanMetadata, CleanPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import TransactionManager

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_log = logging.getLogger("lakelatch.services")


@dataclass(frozen=True)
class CleanResult(Shown):
    """A completed clean: the paths of the removed files, and the bytes that they had.

    The bytes of files that an earlier executor removed are not counted.
    """

    instant: str
    completion: str
    files: tuple[str, ...]
    bytes_removed: int


@dataclass(frozen=True)
class Clean(PlannedService[CleanResult]):
    """Removes files that are no longer needed: by threads of this process, or in tasks if there are many.

    `if_due`: a plan is made only if enough has been committed since the last one.
    """

    options: CleaningOptions = field(default_factory=CleaningOptions)
    if_due: bool = False
    files_of_task: int = 1000

    action, needs_tasks = CLEAN, False

    def due(self, counters: Counters) -> bool:
        """Whether files may have become superfluous since the last clean, or a clean waits.

        A write adds log files to the latest slices, and supersedes nothing. Only compactions, clusterings and
        overwrites leave old files, and rollbacks, restores and cancelled plans leave tombstones. Where only some
        partitions are cleaned, names do not say whether the last clean included them.
        """
        options = self.options
        if counters.waiting(CLEAN):
            return True
        last = last_requested(counters.completed(CLEAN))
        if len(counters.writes) - count_until(counters.writes, last) < options.trigger_commits:
            return False
        left = [one.completion or "" for one in counters.completed(COMMIT, REPLACE_COMMIT)]
        undone = (one.completion or "" for one in counters.completed(ROLLBACK, RESTORE))
        tombstones = [*undone, *(one.requested for one in counters.snapshot.aborted)]
        day_ms = int(options.tombstone_hours * _HOUR_MS)
        looked = last and not options.is_filtered
        seen, tombstones_seen = (self._moment(counters, last), earlier(to_ms(last), day_ms)) if looked else ("", "")
        superseded = any(seen < time <= self._moment(counters, "") for time in left)
        return superseded or any(tombstones_seen < time <= counters.earlier(day_ms) for time in tombstones)

    def _moment(self, counters: Counters, before: str) -> str:
        """The time until which superseded files may be removed: as of now, or for a clean at the time `before`."""
        options, writes = self.options, counters.writes
        if options.policy == KEEP_LATEST_BY_HOURS:
            return earlier(to_ms(before) if before else counters.now_ms, options.hours * _HOUR_MS)
        kept = options.versions if options.policy == KEEP_LATEST_FILE_VERSIONS else options.commits
        count = bisect_left(writes, before, key=by_completion) if before else len(writes)
        return (writes[count - kept - 1].completion or "") if count > kept else ""

    def planner(self, context: ServiceContext) -> Callable[[Snapshot], bytes | None]:
        """See `PlannedService`; None also if a clean waits already. What commits say is read once for all tries."""
        storage, writer = context.manager.storage, context.manager.writer
        known = KnownCommits.since_now(storage)

        def plan(snapshot: Snapshot) -> bytes | None:
            whole = WholeTimeline.load(storage, snapshot)
            planner = CleanPlanner(storage, context.table.config, self.options, writer, known, whole)
            found = planner.plan() if planner.is_due() or not self.if_due else None
            return None if found is None else found.to_avro(storage.uri)

        return plan

    def schedule(self, context: ServiceContext) -> str | None:
        instant = super().schedule(context)
        failpoint("clean.after_plan")
        return instant

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether the clean is ours or was abandoned. Another engine's has no heartbeat, and counts as abandoned once
        its last file is older than a heartbeat may be."""
        return _is_ours(context.manager.storage, instant) or _is_left(context.manager, instant)

    def execute(self, context: ServiceContext, instant: str) -> CleanResult:
        """Removes exactly the plan's files, and completes it. Errors: also `CorruptTable` for an unreadable plan."""
        manager = context.manager
        transaction = manager.execute(instant, CLEAN)
        try:
            plan = read_plan(manager.storage, instant)
            began_ns = manager.context.system.monotonic_ns()
            failpoint("clean.before_files")
            size = self.remove(context, plan.paths, instant)
            remove_overlays(manager.storage, plan.paths)
            failpoint("clean.before_commit")
            took_ms = (manager.context.system.monotonic_ns() - began_ns) // 1_000_000
            event = transaction.complete(CleanMetadata(instant, plan, took_ms).to_avro())
        except BaseException:
            transaction.release()
            raise
        return CleanResult(instant, event.time, plan.paths, size)

    def remove(self, context: ServiceContext, paths: Sequence[str], instant: str = "") -> int:
        """Removes files, and returns how many bytes they had; missing files have none."""
        most, work = self.files_of_task, _RemoveFiles(context.table.storage, self.options.parallelism)
        parts = [tuple(paths[start : start + most]) for start in range(0, len(paths), most)]
        what, small = f"lakelatch: files that are not needed are removed ({instant})", len(parts) < 2
        removed = context.executor.map(work, parts, _Removed, what, small)
        return sum(part.size_bytes for part in removed)

    def run(self, context: ServiceContext) -> list[CleanResult]:
        """See `PlannedService`. First cancels plans of services that have waited for too long."""
        cancel_overdue(context.manager, self.options)
        return super().run(context)

    def describe(self, result: CleanResult) -> str:
        return f"{len(result.files):,} files, {result.bytes_removed:,} bytes removed"


def cancel_overdue(manager: TransactionManager, options: CleaningOptions) -> list[str]:
    """Cancels plans that are past their policy, and carries out all open cancellations; returns the plans that ended.

    Plans that a live process executes are left to it, and those younger than the delay to executors to come. Late files
    of cancelled plans are removed as well, and unfinished savepoints.
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
    """The files that a clean would remove now; changes nothing. None if there are none, or a clean waits."""
    known = KnownCommits.since_now(storage)
    return CleanPlanner(storage, config, options, writer, known, WholeTimeline.load(storage)).plan()


def read_plan(storage: Storage, instant: str) -> CleanPlan:
    """The plan of a clean that is on the timeline. Errors: `NotFound`, `CorruptTable`."""
    path = requested(instant, CLEAN).path
    return CleanPlan.from_avro(storage.read(path), path)


@dataclass(frozen=True)
class _Removed:
    """The report of a clean's task."""

    size_bytes: int


@dataclass(frozen=True)
class _RemoveFiles:
    """Removes files with several threads. A task that runs again removes, and counts, only the files that are left."""

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
    """Whether the executor of another engine's clean seems gone, by the age of its last file."""
    begun = requested(instant, CLEAN), inflight(instant, CLEAN)
    return manager.context.observer.is_silent(*(one.path for one in begun))
