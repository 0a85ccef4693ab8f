"""Table services in one call, from a table's path and options; none of them needs a Spark session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelatch.engine.options.registry import Call
from lakelatch.engine.services import archiving, cancelling, cleaning, restoring, verifying
from lakelatch.engine.services import savepoints as kept
from lakelatch.engine.services.archiving import Archived
from lakelatch.engine.services.clustering import Clustering
from lakelatch.engine.services.compaction import Compaction
from lakelatch.engine.services.log_compaction import LogCompaction
from lakelatch.engine.services.restoring import Undone
from lakelatch.engine.services.savepoints import Savepoint
from lakelatch.engine.services.service import ServiceContext, waiting
from lakelatch.engine.services.verifying import Verification
from lakelatch.engine.table.manager import table_at_rest
from lakelatch.engine.table.opening import load_config, open_existing_storage, open_place
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import COMPACTION, LOG_COMPACTION
from lakelatch.transactions.base.cancel_requests import CancelRequest


def archive(path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Archived:
    """Moves completed instants from a table's active timeline into Hudi's history; needs no Spark session.

    What has to stay for the sake of any reader or writer stays, and `held_by` says what is first in the way. Writers,
    readers and other services go on meanwhile. Errors: those of `services.archiving.archive`, and `InvalidRequest` for
    options, and for a table that may only be read.
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
    """Calls a plan off, or its part on these (partition, file id); None if it was aborted already.

    Once this has returned, the plan can never commit (in that part), and nobody can take that back. Whoever works on it
    stops as soon as it looks. `execute_cancel` removes what it left, as each clean does.

    Errors: `InvalidRequest` if it has completed, is immutable, or is no plan; for file groups that are not in it, and
    for a part of a plan that goes whole or not at all. `CommitUnknown`: it may have been asked for, so ask again.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.request_cancel(manager, instant, file_groups)


def execute_cancel(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> bool:
    """Ends a plan that was called off, and removes what it left; False if it had ended already.

    Errors: `Unavailable` while a live process works on it, `InvalidRequest` if nobody has asked for all of it to be
    cancelled, and if another engine has completed it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.execute_cancel(manager, instant)


def open_cancellations(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CancelRequest]:
    """What was called off and has not ended yet, by the plans' requested times."""
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.open_requests(manager)


def savepoint(
    path: str,
    instant: str | None = None,
    comment: str = "",
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> Savepoint:
    """Keeps the table as of a completed commit, the last one unless told otherwise, until `delete_savepoint`.

    Errors: `InvalidRequest` for what is no completed commit of the active timeline, and for one of whose files a clean
    has removed some.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        chosen = instant or kept.latest_commit(manager)
        return kept.create_savepoint(table.config, manager, chosen, comment)


def delete_savepoint(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> None:
    """Gives a savepoint up. Errors: `InvalidRequest` if there is none of this commit."""
    with table_at_rest(path, options, system) as (_, manager, _):
        kept.delete_savepoint(manager, instant)


def savepoints(path: str, options: Mapping[str, object] | None = None) -> list[Savepoint]:
    """The table's savepoints, whoever made them, oldest commit first."""
    return kept.savepoints(open_existing_storage(path, options))


def roll_back(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> Undone:
    """Takes back a completed commit on which no later one builds.

    Writers under way on its file groups lose, unless they are under non-blocking control. Errors: `InvalidRequest`,
    with nothing changed, if a later commit or a plan builds on it, or a savepoint keeps it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return restoring.roll_back(manager, instant)


def restore(path: str, to: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Undone:
    """Takes the table back to where it was when this commit completed, a savepoint's or any other.

    Every write under way ends with `TransactionEnded`. Errors: `InvalidRequest`, with nothing changed, if a later
    commit was archived or is kept by a savepoint, or if a clean has removed files that are needed; `Unavailable` while
    another restore is under way.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        return restoring.restore(table.config, manager, to)


def verify(path: str, options: Mapping[str, object] | None = None, deep: bool = False) -> Verification:
    """Looks whether every file is there that slots, writes, plans and savepoints name; changes nothing.

    Needs no Spark session. `deep` reads all data files and compares their checksums. Others may go on meanwhile.
    Errors: `InvalidRequest` for the options, and where there is no table; `CorruptTable` for damaged properties.
    """
    storage = open_place(path, options)
    return verifying.verify(storage, load_config(storage), deep)


def preview_clean(path: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Paths of the files that `clean` would remove now; nothing is changed, but for a look at the storage's clock."""
    parsed = Call(options).services()
    storage = open_storage(path, parsed.manager.storage)
    plan = cleaning.preview(storage, load_config(storage), parsed.cleaning)
    return () if plan is None else plan.paths


def schedule_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a compaction plan on the timeline, for `execute_compaction`; None if there is nothing to compact."""
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return Compaction(parsed.compaction, parsed.cancellation).schedule(ServiceContext(table, manager))


def waiting_plans(path: str, options: Mapping[str, object] | None = None) -> list[str]:
    """Requested times of compactions and log compactions that are scheduled and not completed, oldest first.

    One that is there may be at work right now. Errors: `InvalidRequest` where there is no table.
    """
    return waiting(path, (COMPACTION, LOG_COMPACTION), options)


def schedule_log_compaction(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a log compaction plan on the timeline, for `execute_log_compaction`; None if there is nothing to do.

    Writers may be in flight: files that were requested on different sides of one stay apart.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return LogCompaction(parsed.compaction).schedule(ServiceContext(table, manager))


def schedule_clustering(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> str | None:
    """Puts a clustering plan on the timeline, for `execute_clustering`; None if there is nothing to cluster.

    Errors: `InvalidRequest` for columns that the table does not have, and for another number of buckets; `CorruptTable`
    if a file is missing in a partition that would be planned.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return Clustering(parsed.clustering, parsed.cancellation).schedule(ServiceContext(table, manager))
