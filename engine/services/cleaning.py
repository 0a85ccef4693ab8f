"""Cleaning: planned at one point of the log, carried out later, by anybody, any number of times to the same end.

A plan names every file that it takes away, and nothing that it names becomes live again (`clean_planning`). So a clean
that is carried out twice, or by an executor that was paused while another one finished it, removes what is dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakelatch.engine.options.cleaning import CleaningOptions
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.services.cancelling import aborted_plans, execute_open, past_policy, request_cancel, sweep_aborted
from lakelatch.engine.services.clean_planning import CleanPlanner
from lakelatch.engine.services.savepoints import forget_begun
from lakelatch.errors import InvalidRequest, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.contract import least_age_ms
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import CLEAN
from lakelatch.timeline.instant import Instant, inflight, requested
from lakelatch.timeline.metadata import WRITER_KEY
from lakelatch.timeline.plans.clean_plan import CleanMetadata, CleanPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import PlanBusy, TransactionManager

_MINUTE_MS = 60_000
_FILES_OF_TASK = 1000
_log = logging.getLogger("lakelatch.services")

#: Removes files, wherever that is done, and says how many bytes they had. A file that is not there has none.
Remover = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class CleanResult:
    """A completed clean: the paths of the files that are gone, and the bytes that they had.

    Files that an executor before this one has removed are among them, and their bytes are not.
    """

    instant: str
    completion: str
    files: tuple[str, ...]
    bytes_removed: int


def clean(
    config: TableConfig,
    manager: TransactionManager,
    options: CleaningOptions,
    remove: Remover | None = None,
    if_due: bool = False,
) -> list[CleanResult]:
    """Carries out the clean that waits, schedules another one, carries that out; returns what this call completed.

    Before that it cancels plans of services that have waited for too long (`cancel_overdue`).

    `if_due`: only if enough has been committed since the last one. A clean that another process is working on is left
    to it, and as long as it waits no other one is scheduled.
    """
    cancel_overdue(manager, options)
    waiting = waiting_cleans(manager)
    results = [execute_or_leave(manager, options, instant, remove) for instant in waiting]
    instant = schedule(config, manager, options, if_due)
    if instant is not None:
        results.append(execute_or_leave(manager, options, instant, remove))
    return [result for result in results if result is not None]


def cancel_overdue(manager: TransactionManager, options: CleaningOptions) -> list[str]:
    """Calls off plans that are past their policy, and carries out all that were called off; those that ended here.

    A plan that a live process works on is left to it, and one that is younger than the delay to whoever is about to.
    Files that came late for a plan that has ended so go as well, and savepoints that nobody has finished.
    """
    manager.context.look()
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


def schedule(
    config: TableConfig, manager: TransactionManager, options: CleaningOptions, if_due: bool = False
) -> str | None:
    """Puts a clean's plan on the timeline; None if there is nothing to clean, or a clean waits already."""
    storage = manager.storage

    def build(_: Snapshot) -> bytes | None:
        planner = CleanPlanner.load(storage, config, options, manager.writer)
        plan = planner.plan() if planner.is_due() or not if_due else None
        return None if plan is None else plan.to_avro(storage.uri)

    instant = manager.schedule(build, CLEAN)
    failpoint("clean.after_plan")
    return instant


def preview(storage: Storage, config: TableConfig, options: CleaningOptions, writer: str = "") -> CleanPlan | None:
    """What a clean would take away now; nothing is changed. None if there is nothing, or a clean waits."""
    return CleanPlanner.load(storage, config, options, writer).plan()


def waiting_cleans(manager: TransactionManager) -> list[str]:
    """Requested times of cleans that have not completed and that may be carried out here, oldest first.

    One of another engine, which does not beat, is left to it until its last file is older than a heartbeat may be.
    """
    waiting = [one for one in Snapshot.load(manager.storage).pending if one.action == CLEAN]
    return [one.requested for one in waiting if _is_ours(manager.storage, one.requested) or _is_left(manager, one)]


def execute_or_leave(
    manager: TransactionManager, options: CleaningOptions, instant: str, remove: Remover | None = None
) -> CleanResult | None:
    """As `execute`; None if another process has done it, or is at it."""
    try:
        return execute(manager, options, instant, remove)
    except (TransactionEnded, PlanBusy) as error:
        _log.warning("clean %s is left to others: %s", instant, error.message)
        return None


def execute(
    manager: TransactionManager, options: CleaningOptions, instant: str, remove: Remover | None = None
) -> CleanResult:
    """Carries out one plan: removes exactly its files, and completes it.

    Errors: `TransactionEnded` if it has completed, `PlanBusy` while another one works on it, `CorruptTable` for a plan
    that nobody can read. After any other error the next executor goes on.
    """
    context = manager.context
    transaction = manager.execute(instant, CLEAN)
    try:
        plan = read_plan(manager.storage, instant)
        began_ns = context.system.monotonic_ns()
        failpoint("clean.before_files")
        size = (remove or remover(manager.storage, options.parallelism))(plan.paths)
        failpoint("clean.before_commit")
        took_ms = (context.system.monotonic_ns() - began_ns) // 1_000_000
        event = transaction.complete(CleanMetadata(instant, plan, took_ms).to_avro())
    except BaseException:
        transaction.release()
        raise
    return CleanResult(instant, event.time, plan.paths, size)


def read_plan(storage: Storage, instant: str) -> CleanPlan:
    """The plan of a clean that is on the timeline. Errors: `NotFound`, `CorruptTable`."""
    path = requested(instant, CLEAN).path
    return CleanPlan.from_avro(storage.read(path), path)


def remove_file(storage: Storage, path: str) -> int:
    """Removes one file, and says how many bytes it had."""
    try:
        size = storage.stat(path).size_bytes
    except NotFound:
        return 0
    storage.delete(path)
    failpoint("clean.after_file")
    return size


@dataclass(frozen=True)
class Removed:
    """What a task of a clean reports."""

    size_bytes: int


@dataclass(frozen=True)
class RemoveFiles:
    """Removes files with so many threads. A task that is run again finds what is left, and counts no other bytes."""

    storage: Storage
    parallelism: int

    def __call__(self, paths: Sequence[str], token: str) -> Removed:
        if len(paths) < 2 or self.parallelism == 1:
            return Removed(sum(remove_file(self.storage, path) for path in paths))
        with ThreadPoolExecutor(min(self.parallelism, len(paths))) as pool:
            return Removed(sum(pool.map(lambda path: remove_file(self.storage, path), paths)))


def remover(
    storage: Storage, parallelism: int, executor: Executor = HERE, files_of_task: int = _FILES_OF_TASK
) -> Remover:
    """Removes files with threads of this process, or in tasks of the executor if they are more than one task takes."""
    work = RemoveFiles(storage, parallelism)

    def remove(paths: Sequence[str]) -> int:
        parts = [tuple(paths[start : start + files_of_task]) for start in range(0, len(paths), files_of_task)]
        removed = executor.map(work, parts, Removed, "lakelatch: files that nobody needs are removed", len(parts) < 2)
        return sum(part.size_bytes for part in removed)

    return remove


def _is_ours(storage: Storage, instant: str) -> bool:
    try:
        return WRITER_KEY in read_plan(storage, instant).extra
    except NotFound:
        return False


def _is_left(manager: TransactionManager, clean: Instant) -> bool:
    """Whether the executor of another engine's clean is gone, as far as its last file tells."""
    observer, storage = manager.context.observer, manager.storage
    try:
        modified_ms = max(
            storage.stat(one.path).modified_ms
            for one in (requested(clean.requested, CLEAN), inflight(clean.requested, CLEAN))
            if storage.exists(one.path)
        )
    except (NotFound, ValueError):
        return False
    return least_age_ms(observer.storage_time_ms(), modified_ms) > manager.settings.heartbeat.expiry_ms
