"""Table services in one call, from a table's path and options; none of them needs a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.listing import Listing
from lakelatch.engine.run.report import MaintenanceReport, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import cancelling, restoring, verifying
from lakelatch.engine.services import savepoints as kept
from lakelatch.engine.services.keeping.maintenance import maintain_with
from lakelatch.engine.services.removals import archiving, cleaning
from lakelatch.engine.services.removals.archiving import Archived
from lakelatch.engine.services.removals.cleaning import Clean, CleanResult
from lakelatch.engine.services.restoring import Undone
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.rewrites.rewriting import ensure_has_logs
from lakelatch.engine.services.savepoints import Savepoint
from lakelatch.engine.services.service import ServiceContext, waiting
from lakelatch.engine.services.verifying import Verification
from lakelatch.engine.table.history import plan_listing
from lakelatch.engine.table.manager import table_at_rest
from lakelatch.engine.table.opening import load_config, open_existing_storage, open_place
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import COMPACTION, LOG_COMPACTION
from lakelatch.transactions.base.cancel_requests import CancelRequest


def archive(path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Archived:
    """Moves completed instants from a table's active timeline into Hudi's history; needs no Spark session.

    Instants that a reader or writer may need stay; `held_by` names the first thing that keeps one. Writers, readers and
    other services go on meanwhile. Errors: those of `services.archiving.archive`, and `InvalidRequest` for options, and
    for a read-only table.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return archiving.archive(manager, table.config, parsed.archiving)


def request_cancel(
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    file_groups: Iterable[tuple[str, str]] | None = None,
    system: System = REAL_SYSTEM,
) -> CancelRequest | None:
    """Requests the cancellation of a plan, or of its part on these (partition, file id); None if it was aborted.

    Once this has returned, the plan (or that part) can never commit, and the request cannot be withdrawn. A process
    that executes the plan stops at its next check. `execute_cancel` removes its files, as each clean does.

    Errors: `InvalidRequest` if it has completed, is immutable, or is no plan; for file groups that are not in it, and
    for a part of a plan that is indivisible. `CommitUnknown`: the request may have been made, so call again.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.request_cancel(manager, instant, file_groups)


def execute_cancel(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> bool:
    """Ends a plan whose cancellation was requested, and removes its files; False if it had ended already.

    Errors: `Unavailable` while a live process executes it, `InvalidRequest` if the cancellation of the whole plan was
    not requested, and if another engine has completed it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.execute_cancel(manager, instant)


def open_cancellations(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CancelRequest]:
    """Requested cancellations that have not ended yet, by the plans' requested times."""
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.open_requests(manager)


def savepoint(
    path: str,
    instant: str | None = None,
    comment: str = "",
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> Savepoint:
    """Keeps the table as of a completed commit, by default the last one, until `delete_savepoint`.

    Errors: `InvalidRequest` if it is no completed commit of the active timeline, or a clean has removed some of its
    files.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        chosen = instant or kept.latest_commit(manager)
        return kept.create_savepoint(table.config, manager, chosen, comment)


def delete_savepoint(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> None:
    """Deletes a savepoint. Errors: `InvalidRequest` if this commit has none."""
    with table_at_rest(path, options, system) as (_, manager, _):
        kept.delete_savepoint(manager, instant)


def savepoints(path: str, options: Mapping[str, object] | None = None) -> list[Savepoint]:
    """The table's savepoints, of any engine, oldest commit first."""
    return kept.savepoints(open_existing_storage(path, options))


def roll_back(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> Undone:
    """Rolls back a completed commit on which no later one builds.

    Concurrent writers of its file groups conflict, unless they are under non-blocking control. Errors:
    `InvalidRequest`, with nothing changed, if a later commit or a plan builds on it, or a savepoint keeps it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return restoring.roll_back(manager, instant)


def restore(path: str, to: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Undone:
    """Restores the table to its state when this commit completed, a savepoint's or any other.

    Every write in progress ends with `TransactionEnded`. Errors: `InvalidRequest`, with nothing changed, if a later
    commit was archived or is kept by a savepoint, or if a clean has removed files that are needed; `Unavailable` during
    another restore.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        return restoring.restore(table.config, manager, to)


def verify(path: str, options: Mapping[str, object] | None = None, deep: bool = False) -> Verification:
    """Checks that every file named by slots, writes, plans and savepoints exists; changes nothing.

    Needs no Spark session. `deep` reads all data files and compares their checksums. Writers may go on meanwhile.
    Errors: `InvalidRequest` for the options, and where there is no table; `CorruptTable` for damaged properties.
    """
    storage = open_place(path, options)
    return verifying.verify(storage, load_config(storage), deep)


def preview_clean(path: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Paths of the files that `clean` would remove now; it only writes a file to read the storage's clock."""
    parsed = Call(options).services()
    storage = open_storage(path, parsed.manager.storage)
    plan = cleaning.preview(storage, load_config(storage), parsed.cleaning)
    return () if plan is None else plan.paths


def compact_on(
    executor: Executor, path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CommitResult]:
    """As `lakelatch.compact`, with tasks where the executor runs them."""
    with table_at_rest(path, options, system) as (table, manager, parsed):
        ensure_has_logs(table)
        context = ServiceContext(table, manager, executor)
        logs, full = LogCompaction(parsed.compaction), Compaction(parsed.compaction, parsed.cancellation)
        results = [*logs.execute_waiting(context), *full.run(context)]
        return [*results, *logs.run_anew(context)] if parsed.compaction.log_compaction else results


def cluster_on(
    executor: Executor, path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CommitResult]:
    """As `lakelatch.cluster`, with tasks where the executor runs them."""
    with table_at_rest(path, options, system) as (table, manager, parsed):
        service = Clustering(parsed.clustering, parsed.cancellation)
        return service.run(ServiceContext(table, manager, executor))


def clean_on(
    executor: Executor,
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    if_due: bool = False,
) -> list[CleanResult]:
    """As `lakelatch.clean`, with tasks where the executor runs them."""
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return Clean(parsed.cleaning, if_due).run(ServiceContext(table, manager, executor))


def maintain_on(
    executor: Executor,
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    tell: Callable[[ServiceRun], None] | None = None,
) -> MaintenanceReport:
    """As `lakelatch.maintain`, with tasks where the executor runs them."""
    return maintain_with(executor, path, Call(options).services(), system, tell)


def schedule_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a compaction plan on the timeline, for `execute_compaction`; None if there is nothing to compact."""
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return Compaction(parsed.compaction, parsed.cancellation).schedule(ServiceContext(table, manager))


def waiting_plans(path: str, options: Mapping[str, object] | None = None) -> list[str]:
    """Requested times of compactions and log compactions that are scheduled and not completed, oldest first.

    They may be running already. Errors: `InvalidRequest` where there is no table.
    """
    return waiting(path, (COMPACTION, LOG_COMPACTION), options)


def plans(path: str, options: Mapping[str, object] | None = None) -> Listing:
    """The plans of table services that have not ended, ours or Java's, oldest first: a row each.

    `begun` says that somebody has begun to carry it out, who may have died since. Errors: `InvalidRequest` where there
    is no table.
    """
    return plan_listing(open_existing_storage(path, options))


def schedule_log_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a log compaction plan on the timeline, for `execute_log_compaction`; None if there is nothing to do.

    Writers may be in flight: log files requested before such a writer are not compacted with those requested after it.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return LogCompaction(parsed.compaction).schedule(ServiceContext(table, manager))


def schedule_clustering(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a clustering plan on the timeline, for `execute_clustering`; None if there is nothing to cluster.

    Errors: `InvalidRequest` for columns that the table does not have, and for another number of buckets; `CorruptTable`
    if a file is missing in a partition to be planned.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return Clustering(parsed.clustering, parsed.cancellation).schedule(ServiceContext(table, manager))
