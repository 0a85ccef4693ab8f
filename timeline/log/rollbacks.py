"""What rollbacks and restores have undone, and which files of it have come back since.

A request may arrive long after its caller gave it up, and make a file once more that was taken away. No name on a
timeline is used twice, so what a rollback or restore names says for good which files these are: they count for nobody,
and whoever tidies up next removes them.

The requested file of a rollback or restore is there before any completed file that it names goes. So these count for
nobody from that file on: whether one of them is still to go, or has gone and come back, nobody could tell. Whoever
carries it out takes all of them away, also after others that have died.

Of what a rollback names only what had completed before it: a file with which a write begins makes it pending, and then
it is rolled back once more, with the data that came late as well; and the plan of a service is left to its next
executor, as in Hudi. A restore takes plans away, too. The files with which an instant begins are there until its data
has gone, for else others would count that, so they have come back if they are there after the restore's end.

Another engine removes nothing before its inflight file is there. So a plan of its that cannot be read names nothing
until then: it is being written, or its process has died. Ours are there whole or not at all, and have a claim until
they have completed, so one that cannot be read is damaged. And what it plans for a run of a service (ours never name
one) counts from that file on: whoever carries the service out once more begins it, and nobody does if that has
completed.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from lakelatch.errors import CorruptTable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import PLANNED_SERVICES, RESTORE, ROLLBACK, SAVEPOINT
from lakelatch.timeline.instant import (
    CLAIMS_FOLDER,
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    Instant,
    parse_file_name,
    requested,
    undoes,
)
from lakelatch.timeline.metadata import RollbackPlan
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.timeline.service_metadata import read_rolled_back
from lakelatch.timeline.snapshot import Snapshot


class Rollbacks:
    """Those of one table. Threads may share it; it remembers what they undo, which cannot change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._targets: dict[str, frozenset[str]] = {}  # by the rollback's requested time
        self._of_runs: set[str] = set()  # rollbacks of runs of services

    def late(self, listing: Snapshot) -> frozenset[str]:
        """Those of a listing's names that belong to what was undone, or is to be. Reads what it has not read before.

        Costs what there is of rollbacks and restores, and of what they name. Errors: `CorruptTable` for what cannot be
        read, unless another engine may still be writing it.
        """
        found = [one for name in listing.undoers if (one := parse_file_name(name)) is not None]
        if not found:
            return frozenset()
        restores = {one.requested for one in found if one.action == RESTORE}
        rollbacks = {one.requested for one in found} - restores
        done = {one.requested for one in found if one.state == COMPLETED}
        self._read_all(sorted(restores | rollbacks), listing.undoers)
        restored, restoring = self._all_targets(restores & done), self._all_targets(restores - done)
        waiting = self._of_runs - {one.requested for one in found if one.state != REQUESTED}
        rolled_back = {target: one for one in sorted(rollbacks - waiting) for target in self._targets.get(one, ())}
        targets = restored.union(restoring, rolled_back)
        instants = (one for target in targets for one in listing.of(target) if one.action != SAVEPOINT)
        return listing.listed.intersection(
            one.file_name
            for one in instants
            if one.requested in restored
            or (one.completion is not None and one.requested in restoring)
            or (one.completion is not None and one.completion < rolled_back.get(one.requested, ""))
        )

    def left_to_others(self, names: Collection[str]) -> frozenset[str]:
        """The instants that other engines are about to undo: they expect to find the files that they take away.

        Ours have a claim until they have completed; one request for each that has not.
        """
        found = [one for name in names if undoes(name) and (one := parse_file_name(name)) is not None]
        done = {one.requested for one in found if one.state == COMPLETED}
        pending = sorted({one.requested for one in found} - done)
        claims = [f"{CLAIMS_FOLDER}/{one}" for one in pending]
        ours = self._storage.together(*(partial(self._storage.exists, path) for path in claims))
        foreign = [one for one, is_ours in zip(pending, ours, strict=True) if not is_ours]
        self._read_all(foreign, names)
        return self._all_targets(foreign)

    def targets_of(self, rollback: str, names: Collection[str]) -> frozenset[str]:
        """The instants that a rollback or a restore undoes, by its plan; none if its files are gone meanwhile."""
        self._read_all([rollback], names)
        return self._targets.get(rollback, frozenset())

    def is_waiting(self, rollback: str, names: Collection[str]) -> bool:
        """Whether a rollback is of a run of a service, and has not begun."""
        self._read_all([rollback], names)
        return rollback in self._of_runs and not _has_begun(rollback, names)

    def is_unreadable(self, rollback: str, names: Collection[str]) -> bool:
        """Whether another engine is still writing this plan, or has died at it, so that nobody knows what it names.

        Errors: `CorruptTable` for one of ours, and for one that has begun.
        """
        self._read_all([rollback], names)
        plans = [one for action in (ROLLBACK, RESTORE) if (one := requested(rollback, action)).file_name in names]
        return rollback not in self._targets and any(self._storage.exists(one.path) for one in plans)

    def _all_targets(self, rollbacks: Collection[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self._targets.get(one, ()) for one in rollbacks))

    def _read_all(self, rollbacks: Collection[str], names: Collection[str]) -> None:
        unread = [one for one in rollbacks if one not in self._targets]
        if not unread:
            return
        own = {one.requested: one for one in map(parse_file_name, filter(undoes, names)) if one and one.completion}
        found = self._storage.together(*(lambda one=one: self._read(one, names, own.get(one)) for one in unread))
        self._targets.update({one: targets for one, targets in zip(unread, found, strict=True) if targets is not None})

    def _read(self, rollback: str, names: Collection[str], done: Instant | None) -> frozenset[str] | None:
        """An archiver removes the requested file before the completed one."""
        by_rollback, by_restore = requested(rollback, ROLLBACK), requested(rollback, RESTORE)
        try:
            if by_rollback.file_name in names:
                plan = RollbackPlan.read(self._storage, by_rollback.path)
                if plan.action in PLANNED_SERVICES:
                    self._of_runs.add(rollback)
                return frozenset([plan.instant])
            if by_restore.file_name in names:
                return RestorePlan.read(self._storage, by_restore.path).requested_times
            if done is not None:
                return read_rolled_back(self._storage.read(done.path), done.path)
        except NotFound:
            pass
        except CorruptTable:
            if _has_begun(rollback, names) or self._storage.exists(f"{CLAIMS_FOLDER}/{rollback}"):
                raise
        return None


def _has_begun(rollback: str, names: Collection[str]) -> bool:
    found = (one for name in names if name.startswith(rollback) and (one := parse_file_name(name)) is not None)
    return any(one.state != REQUESTED and one.action in (ROLLBACK, RESTORE) for one in found)


def may_be_undone(done: Instant | None, timeline: Snapshot) -> bool:
    """Whether a completed instant may be one of what was undone, for who has read no plan.

    It has no inflight file any more, or a later rollback or restore has not completed. A file that came back with its
    inflight one, after both, is not noticed: it is pending for whoever tidies up.
    """
    if done is None:
        return False
    if all(one.state != INFLIGHT for one in timeline.of(done.requested)):
        return True
    found = [one for name in timeline.undoers if (one := parse_file_name(name)) and one.requested > done.requested]
    return not {one.requested for one in found} <= {one.requested for one in found if one.state == COMPLETED}
