"""Table services after a commit: those that the write's options ask for, if they are due.

The commit is there before any of this begins, and whatever fails here never makes it fail: its result names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.report import DONE, SCHEDULED, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.due import Standing
from lakelatch.engine.services.keeping.file_index import FILE_INDEX
from lakelatch.engine.services.keeping.steps import (
    AUTOMATIC_ARCHIVE,
    CANCELLATIONS,
    CLEANS,
    COMPACTIONS,
    LOG_COMPACTIONS,
    Piece,
    Step,
    Work,
    clusterings,
    keep,
    one_at_a_time,
)
from lakelatch.engine.table.table import OpenedTable
from lakelatch.timeline.actions import COMMIT, DELTA_COMMIT, REPLACE_COMMIT
from lakelatch.timeline.instant import completed
from lakelatch.transactions.manager import TransactionManager

_FRUITLESS_KEPT = 1000
_AGAIN_AFTER = 10  # completed instants, and a tenth of those that there are


def after_commit(
    result: CommitResult,
    table: OpenedTable,
    manager: TransactionManager,
    options: ServiceOptions,
    executor: Executor,
) -> CommitResult:
    """The result with what ran after its commit. While nothing is due, this reads and lists nothing."""
    if result.repeated or not options.inline.enabled:
        return result
    work = Work(table, manager, options, executor)
    action = REPLACE_COMMIT if result.file_groups_replaced else COMMIT if table.config.copies_on_write else DELTA_COMMIT
    standing = work.standing([completed(result.instant, action, result.completion)])
    runs = keep(work, [_unless_fruitless(step) for step in inline_steps(options)], standing)
    return replace(result, services=runs) if runs else result


def inline_steps(options: ServiceOptions) -> list[Step]:
    """What runs after a commit, in order."""
    inline = options.inline
    steps: list[Step] = []
    if inline.log_compaction:
        steps += [LOG_COMPACTIONS.waiting(), LOG_COMPACTIONS.fresh()]
    if inline.compaction.run:
        steps += [COMPACTIONS.waiting(), COMPACTIONS.fresh()]
    if inline.compaction.schedule:
        steps.append(COMPACTIONS.plan_only())
    if inline.clustering.run:
        steps += [clusterings(inline.clustering_commits).waiting(), clusterings(inline.clustering_commits).fresh()]
    if inline.clustering.schedule:
        steps.append(clusterings(inline.clustering_commits).plan_only())
    if options.cleaning.automatic:
        steps += [CANCELLATIONS, one_at_a_time(CLEANS.waiting()), one_at_a_time(CLEANS.fresh())]
    if options.archiving.automatic:
        steps.append(one_at_a_time(AUTOMATIC_ARCHIVE))
    return [*steps, FILE_INDEX]


class _Fruitless:
    """Services that were due and found nothing to do, or failed: they are not tried again after each commit.

    A table whose timeline cannot be archived yet, say, is due for it with every commit, and looking costs a listing.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._seen: dict[tuple[str, str], int] = {}

    def may_try(self, key: tuple[str, str], completed: int) -> bool:
        with self._guard:
            seen = self._seen.get(key)
            return seen is None or not seen <= completed < seen + max(_AGAIN_AFTER, seen // 10)

    def note(self, key: tuple[str, str], completed: int | None) -> None:
        """None: it was of use."""
        with self._guard:
            self._seen.pop(key, None)
            if completed is not None:
                self._seen[key] = completed
                while len(self._seen) > _FRUITLESS_KEPT:
                    del self._seen[next(iter(self._seen))]


_fruitless = _Fruitless()


def _unless_fruitless(step: Step) -> Step:
    """The step, but for a while after it was in vain."""

    def key(work: Work) -> tuple[str, str]:
        return work.table.storage.uri, step.service

    def is_due(work: Work, standing: Standing) -> bool:
        return step.is_due(work, standing) and _fruitless.may_try(key(work), len(standing.completed))

    def pieces(work: Work, standing: Standing) -> Iterator[Piece]:
        for instant, act in step.pieces(work, standing):
            yield instant, partial(_noted, act, key(work), len(standing.completed))

    return Step(step.service, is_due, pieces)


def _noted(act: Callable[[], ServiceRun | None], key: tuple[str, str], completed: int) -> ServiceRun | None:
    _fruitless.note(key, completed)
    run = act()
    if run is not None and run.outcome in (DONE, SCHEDULED):
        _fruitless.note(key, None)
    return run
