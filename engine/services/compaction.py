"""Compaction: planned at one point of the log, carried out later, by anybody, any number of times to the same end.

A plan names, for each file group, the base file and exactly the log files that completed before the plan's time.
Carrying it out creates one base file for each group, put-if-absent under a name that depends on nothing but the plan:
tasks that are retried, executors that were paused, and two executors of one plan all make the same file once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from lakelatch.engine.options.cancellation import CancellationOptions
from lakelatch.engine.options.compaction import KEEP_DELETES, CompactionOptions
from lakelatch.engine.options.inline import (
    AFTER_LAST_REQUEST,
    NUM_AND_TIME,
    NUM_OR_TIME,
    TIME_ELAPSED,
    CompactionTrigger,
)
from lakelatch.engine.services.compaction_choice import chosen
from lakelatch.engine.services.compaction_task import CompactTask
from lakelatch.engine.services.counters import Counters, last_requested
from lakelatch.engine.services.foreign_compactions import finish_foreign_compactions
from lakelatch.engine.services.rewriting import (
    RewritingService,
    due_operations,
    ensure_has_logs,
    remove_left_over_bases,
)
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import TransactionEnded
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import COMMIT, COMPACT, COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan
from lakelatch.timeline.timeline import TimelineFolder
from lakelatch.transactions.transaction import Transaction


@dataclass(frozen=True)
class Compaction(RewritingService):
    """File groups with log files get a new base file, in which these are merged."""

    options: CompactionOptions = field(default_factory=CompactionOptions)
    cancellation: CancellationOptions = field(default_factory=CancellationOptions)
    trigger: CompactionTrigger = field(default_factory=CompactionTrigger)

    action, operation, compacts = COMPACTION, COMPACT, True

    def due(self, counters: Counters) -> bool:
        """By Hudi's triggers. While a plan waits only if plans are counted from the last request."""
        trigger, waiting = self.trigger, counters.waiting(COMPACTION)
        if waiting and trigger.strategy != AFTER_LAST_REQUEST:
            return False
        last = last_requested(counters.completed(COMMIT))
        since = list(islice(counters.deltas_after(max([last, *waiting])), max(trigger.commits, 1)))
        if not since:
            return False
        counted = len(since) >= trigger.commits
        elapsed = counters.now_ms - to_ms(last or since[0].requested) >= trigger.seconds * 1000
        if trigger.strategy in (NUM_AND_TIME, NUM_OR_TIME):
            return (counted and elapsed) if trigger.strategy == NUM_AND_TIME else (counted or elapsed)
        return elapsed if trigger.strategy == TIME_ELAPSED else counted

    def check(self, table: OpenedTable) -> None:
        ensure_has_logs(table)

    def prepare(self, context: ServiceContext) -> None:
        """Finishes what other engines have left of compactions, where tasks may run."""
        if context.executor.tasks:
            finish_foreign_compactions(context.executor, context.table)

    def plan(self, context: ServiceContext, folder: TimelineFolder) -> bytes | None:
        storage = context.table.storage

        def base_bytes(operations: Sequence[CompactionOperation]) -> list[int]:
            return list(storage.together(*(partial(_base_bytes, storage, operation) for operation in operations)))

        due = due_operations(context.table, folder, self.options.least_logs)
        operations = tuple(chosen(due, self.options, base_bytes))
        policy = self.cancellation.policy_of(COMPACTION, folder.latest_completion)
        keep = str(self.options.keep_deletes).lower()  # all executors must do the same
        return CompactionPlan(operations, {KEEP_DELETES: keep, **policy.to_extra()}).to_avro() if operations else None

    def task(
        self, table: OpenedTable, instant: str, completions: Mapping[str, str], plan: CompactionPlan
    ) -> CompactTask:
        return CompactTask(table, instant, completions, plan.extra.get(KEEP_DELETES) == "true")

    def give_up(
        self, context: ServiceContext, transaction: Transaction, plan: CompactionPlan | None, error: BaseException
    ) -> None:
        """An engine with other names for its files may have carried it out; see `RewritingService`."""
        super().give_up(context, transaction, plan, error)
        if plan is not None and isinstance(error, TransactionEnded):
            remove_left_over_bases(context.table, transaction.instant, plan.file_groups)


def _base_bytes(storage: Storage, operation: CompactionOperation) -> int:
    if operation.base_file is None:
        return 0
    return storage.stat(path_below(operation.partition, operation.base_file)).size_bytes
