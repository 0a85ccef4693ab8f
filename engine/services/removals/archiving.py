"""Archiving: completed instants leave the active timeline for Hudi's history, oldest first.

One archiver at a time, by the table's lock. The lock may fail: instants are in a manifest of the history before their
files are removed, manifests are create-only, any archiver may remove timeline files that are already in the history,
and an archiver that finds another one was faster begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.services.cancelling import open_requests
from lakelatch.engine.services.counters import Counters, count_until
from lakelatch.engine.services.removals.archive_boundary import (
    Candidates,
    Hold,
    cancelled_hold,
    first_hold,
    holds_of_files,
    left_out_hold,
    timeline_hold,
)
from lakelatch.errors import Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.notebook import Shown
from lakelatch.storage.contract import NotFound, delete_all
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.actions import CLEAN, CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, SAVEPOINT
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.writer import ArchiverOvertaken, HistoryRow, HistoryWriter
from lakelatch.timeline.instant import COMPLETED, REQUESTED, Instant
from lakelatch.timeline.log.lost_completions import ensure_none_lost
from lakelatch.timeline.plans.service_plan import read_aborted_plan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.attempts.attempt import table_lock
from lakelatch.transactions.attempts.cancellation import remove_tombstones
from lakelatch.transactions.manager import TransactionManager

_AT_ONCE = 1000  # instants that are archived under one lease of the lock
_TRIES_MAX = 20
_YOUNG_PER_AGED = 10
_PLANNED = frozenset({CLEAN, CLUSTERING, REPLACE_COMMIT, COMPACTION, LOG_COMPACTION})  # whose plans Hudi archives
_log = logging.getLogger("lakelatch.services")


@dataclass(frozen=True)
class Archived(Shown):
    """The result of one call. `held_at` is the boundary before which instants may leave, and `held_by` its reason."""

    instants: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()  # files of failed writes
    held_at: str = ""
    held_by: str = ""


def is_due(counters: Counters, options: ArchivingOptions) -> bool:
    """Whether there are more writes on the active timeline than the options allow."""
    return len(counters.writes) > options.max_commits


def is_worth_a_try(counters: Counters, options: ArchivingOptions) -> bool:
    """Whether enough writes are due for archiving, and seem old enough, for an attempt to be worth its cost.

    Enough are as many as the least that an archiving removes, and a tenth of those that are too young: a table with
    thousands of writes a minute is not archived after each of them. A write with a time ahead of this clock counts as
    old, so that a writer whose clock is behind tries as well.
    """
    if not is_due(counters, options):
        return False
    surplus = counters.writes[: len(counters.writes) - options.min_commits]
    now, old = to_instant(counters.now_ms), counters.earlier(options.minimum_age_s * 1000)
    aged = count_until(surplus, old) + len(surplus) - count_until(surplus, now)
    return aged >= max(options.max_commits - options.min_commits, (len(surplus) - aged) // _YOUNG_PER_AGED)


def archive(manager: TransactionManager, config: TableConfig, options: ArchivingOptions) -> Archived:
    """Moves the instants that may leave the active timeline into the history, and merges its level files.

    The work of an archiver that died is finished first. Others may archive, write and read at the same time. Errors:
    `LockTimeout`; `CorruptTable` for a history or metadata that cannot be read, and for missing files of the leaving
    instants or of the log; `Unavailable` if other archivers were faster again and again. Instants archived before an
    error stay archived.
    """
    manager.recover()
    open_requests(manager)  # removes those of plans that a restore removed, which would hold the boundary
    run = _Run(manager, config, options)
    done = Archived()
    while True:
        one = run.round()
        done = Archived(done.instants + one.instants, done.removed + one.removed, one.held_at, one.held_by)
        if len(one.instants) < _AT_ONCE:
            break
    if done.instants:
        run.merge()
    return done


class _Run:
    def __init__(self, manager: TransactionManager, config: TableConfig, options: ArchivingOptions) -> None:
        self._manager = manager
        self._context = manager.context
        self._storage = manager.storage
        self._config = config
        self._options = options
        self._writer = HistoryWriter(manager.storage, manager.context.system)

    def round(self) -> Archived:
        """Archives what may leave now, under one lease of the lock."""
        for _ in range(_TRIES_MAX):
            before = self._finish_others()
            tail = self._context.log.tail()
            candidates = self._candidates(before)
            hold = timeline_hold(self._storage, candidates, self._options)
            leaving = candidates.may_leave(hold.time)
            if not leaving:
                return Archived((), (), hold.time, hold.why)
            log = self._context.log
            ensure_none_lost(log, log.look(tail, self._context.snapshots.listing))
            if len(leaving) > _AT_ONCE:
                part = first_hold(candidates, [Hold(leaving[_AT_ONCE].requested, "")])
                hold = part if candidates.may_leave(part.time) else hold
            try:
                hold, removed = self._held_by_files(candidates, candidates.may_leave(hold.time), hold)
                instants = self._archive(candidates, hold) if candidates.has_any_before(hold.time) else []
                self._remove_cancelled(candidates, hold)
            except (ArchiverOvertaken, NotFound):
                continue
            return Archived(tuple(instants), removed, hold.time, hold.why)
        raise Unavailable(f"other archivers of {self._storage.uri} were faster {_TRIES_MAX} times: try again")

    def merge(self) -> None:
        """Merges level files, unless another archiver is merging them."""
        with table_lock(self._context):
            try:
                self._writer.merge(self._options.merged_files)
            except ArchiverOvertaken:
                _log.info("level files of %s are merged by another archiver", self._storage.uri)

    def _candidates(self, before: Snapshot) -> Candidates:
        return Candidates.take(self._storage, self._context.snapshots, before)

    def _finish_others(self) -> Snapshot:
        """Removes instants from the active timeline that are in the history, as an archiver died or files came late.

        Instants with a savepoint stay in both. Returns the snapshot that it used.
        """
        active = self._context.snapshots.at_rest()
        history = History.load(self._storage) if active.has_history else History.empty(self._storage)
        if history.is_empty:
            return active
        found = history.find_all({one.requested for one in active.instants if one.requested <= history.latest})
        kept = {one.requested for one in active.instants if one.action == SAVEPOINT}
        completed = {one.requested: one.completion for one in active.completed if one.action != SAVEPOINT}
        both = {
            requested
            for requested, archived in found.items()
            if requested not in kept and completed.get(requested, archived.completion) == archived.completion
        }
        if both:
            with table_lock(self._context):
                self._remove(active.instants, both)
        return active

    def _held_by_files(
        self, candidates: Candidates, leaving: list[Instant], hold: Hold
    ) -> tuple[Hold, tuple[str, ...]]:
        """Removes orphans that are old enough; returns the hold that is left then, and the removed paths."""
        now_ms = self._context.observer.storage_time_ms()
        holds, removed = [hold], []
        for instant in sorted(
            leaving, key=lambda one: one.completion or "", reverse=True
        ):  # files appear in this order
            if now_ms - self._storage.stat(instant.path).modified_ms >= self._options.minimum_age_s * 1000:
                break
            holds.append(Hold(instant.requested, f"its file is younger than {self._options.minimum_age_s} s"))
        first = first_hold(candidates, holds)
        for over in candidates.whole.active.aborted:
            if over.requested < first.time:
                if self._is_old(over, now_ms):
                    remove_tombstones(self._storage, read_aborted_plan(self._storage, over))
                    failpoint("archive.after_tombstones")
                else:
                    holds.append(cancelled_hold(candidates, over))
        first = first_hold(candidates, holds)
        for instant in (one for one in leaving if one.requested < first.time):
            left_out = left_out_hold(candidates, instant)
            if left_out is not None and not self._is_old(instant, now_ms):
                holds.append(left_out)
        first = first_hold(candidates, holds)
        leaving = [one for one in leaving if one.requested < first.time]
        files = holds_of_files(self._storage, self._config, candidates, leaving, first.time)
        holds.extend(files.holds)
        for orphan in files.orphans:
            if now_ms - orphan.modified_ms >= self._options.orphan_age_s * 1000:
                self._storage.delete(orphan.path)
                removed.append(orphan.path)
                failpoint("archive.after_orphan")
            elif not orphan.harmless:
                holds.append(orphan.hold(candidates))
        return files.hold_of_past(candidates, first_hold(candidates, holds)), tuple(removed)

    def _is_old(self, instant: Instant, now_ms: int) -> bool:
        """Whether requests made before the instant's file existed can no longer be in flight."""
        return now_ms - self._storage.stat(instant.path).modified_ms >= self._options.orphan_age_s * 1000

    def _remove_cancelled(self, candidates: Candidates, hold: Hold) -> None:
        """Removes the plans that were cancelled before the boundary; their tombstones are gone already."""
        for over in candidates.whole.active.aborted:
            if over.requested < hold.time:
                self._storage.delete(over.path)

    def _archive(self, seen: Candidates, hold: Hold) -> list[str]:
        """Archives what may still leave, under the lock. Errors: `ArchiverOvertaken`, `NotFound` if others do it."""
        with table_lock(self._context):
            candidates = self._candidates(seen.whole.active)
            hold = min(hold, timeline_hold(self._storage, candidates, self._options), key=_time)
            if not candidates.same_before(seen, hold.time):
                raise ArchiverOvertaken
            leaving = candidates.may_leave(hold.time)
            if not leaving:
                return []
            rows = self._storage.together(
                *(partial(self._row, one, candidates.whole.active.of(one.requested)) for one in leaving)
            )
            written = {row.requested for row in self._writer.append(rows)}
            self._remove(candidates.whole.active.instants, written)
            return sorted(written)

    def _row(self, instant: Instant, files: Iterable[Instant]) -> HistoryRow:
        plans = [one for one in files if one.state == REQUESTED and one.action in _PLANNED]
        plan = self._storage.read(plans[0].path) if plans else b""
        metadata = self._storage.read(instant.path)
        return HistoryRow(instant.requested, instant.completion or "", instant.action, metadata, plan or None)

    def _remove(self, instants: Iterable[Instant], archived: Collection[str]) -> None:
        """Removes pending files first, so that their instants never seem pending; then completed ones, oldest first.

        Those of one state are removed at once, but for the completed ones: Hudi's readers count what is older than the
        first one that is there, and no other that has gone.
        """
        gone = sorted(one for one in instants if one.requested in archived and one.action != SAVEPOINT)
        pending = [one for one in gone if one.state != COMPLETED]
        for requested in (False, True):
            delete_all(self._storage, [one.path for one in pending if (one.state == REQUESTED) is requested])
            failpoint("archive.after_pending")
        for one in gone:
            if one.state == COMPLETED:
                self._storage.delete(one.path)
                failpoint("archive.after_completed")


def _time(hold: Hold) -> str:
    return hold.time
