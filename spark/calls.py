"""Table services in one call, from a table's path and options, with a session's executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lakelatch.engine.calls import clean_on, cluster_on, compact_on, maintain_on
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.report import MaintenanceReport, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.removals.cleaning import CleanResult
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.manager import table_at_rest
from lakelatch.spark.session.executor import SparkExecutor
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession, path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CommitResult]:
    """Carries out the plans that wait, schedules another one, carries that out; returns what this call completed.

    With `hoodie.log.compaction.enable` it also schedules and carries out a log compaction of file groups that are not
    due for a compaction; plans of one that wait are carried out in any case. Writers go on meanwhile, under either
    concurrency mode. A plan that another process is working on is left to it, and so is that of a process which died,
    until its heartbeat has expired; `waiting_plans` names those. Errors: `InvalidRequest` for a copy-on-write table.
    """
    return compact_on(SparkExecutor.of(spark), path, options, system)


def execute_compaction(
    spark: SparkSession,
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Carries out one plan. `TransactionEnded` if it has completed, `Unavailable` while another process works on it."""
    with table_at_rest(path, options, system) as (table, manager, _):
        return Compaction().execute(ServiceContext(table, manager, SparkExecutor.of(spark)), instant)


def execute_log_compaction(
    spark: SparkSession,
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Carries out one plan. `TransactionEnded` if it has completed, `Unavailable` while another process works on it.

    `lakelatch.compact` carries out the plans that wait as well. Errors: `InvalidRequest` for a Java writer's plan.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        return LogCompaction().execute(ServiceContext(table, manager, SparkExecutor.of(spark)), instant)


def cluster(
    spark: SparkSession, path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CommitResult]:
    """Carries out the clusterings that wait, schedules another one, carries that out; returns what was completed.

    Writers go on meanwhile. A file group that was written to since it was planned is left as it is; if all
    were, or if the plan is to be carried out whole, nothing of it is completed, and a later call plans anew. Plans of
    Java writers are left to them, and those that another process is working on to it.
    """
    return cluster_on(SparkExecutor.of(spark), path, options, system)


def execute_clustering(
    spark: SparkSession,
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Carries out one plan. `TransactionEnded` if it has completed, `Unavailable` while another process works on it.

    `WriteConflict` if others have written to its file groups since: the plan has ended, and nothing of it is visible.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        return Clustering().execute(ServiceContext(table, manager, SparkExecutor.of(spark)), instant)


def maintain(
    spark: SparkSession,
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    tell: Callable[[ServiceRun], None] | None = None,
) -> MaintenanceReport:
    """Does what is due, in this order: rolls back what the dead left, cancels plans past their policy and carries out
    cancellations, carries out plans that wait, compacts, compacts logs (with `hoodie.log.compaction.enable`), clusters
    (if sort columns are named, or an option asks for clusterings), cleans (unless `hoodie.clean.automatic` is off) and
    archives (unless `hoodie.archive.automatic` is). Last it makes a file index, if the one there is has grown old.

    What is due is decided by Hudi's inline triggers (`hoodie.compact.inline.max.delta.commits` and so on), and a
    compaction is then of every file group that has log files. A plan that another live process works on is left to
    it. A service that fails is in the report, and keeps no other from running; the next call tries it again. `tell`
    is given each run of a service when it ends. Any number of calls may run at once. Errors: `InvalidRequest` for the
    options, or if there is no table that can be written.
    """
    return maintain_on(SparkExecutor.of(spark), path, options, system, tell)


def clean(
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    if_due: bool = False,
    spark: SparkSession | None = None,
) -> list[CleanResult]:
    """Removes the files that no reader within retention needs; returns the cleans that this call completed.

    A clean that waits is carried out first. Writers and readers go on meanwhile. What another process works on is left
    to it. Threads of this process remove the files, and the executors of a `spark` session if there are more than a
    thousand; `if_due` cleans only if enough has been committed since the last one.
    """
    return clean_on(HERE if spark is None else SparkExecutor.of(spark), path, options, system, if_due)
