"""Instants that rollbacks and restores have undone, and files of theirs that have come back since.

A request may arrive long after its caller gave it up, and create a file again that was removed. No name on a timeline
is used twice, so a rollback or restore says for good which names are void: they are ignored, and the next recovery
removes them.

The requested file of a rollback or restore is there before any completed file that it names goes. These are void from
then on, since one that is still to go looks like one that has gone and come back. Each executor removes all of them,
also after others that have died.

A rollback voids only what had completed before it: a file with which a write begins makes it pending, and then it is
rolled back again, with the data that came late as well; and the plan of a service is left to its next executor, as in
Hudi. A restore removes plans, too. The files with which an instant begins are kept until its data has gone, since
readers would count the data otherwise; so they have come back if they are there after the restore's end.

Another engine removes nothing before its inflight file is there. So a plan of another engine that cannot be read voids
nothing until then: it is being written, or its process has died. Ours are there whole or not at all, and have a claim
until they have completed, so one that cannot be read is damaged. Another engine's rollback of a run of a service (ours
have none) counts from its inflight file on: the next executor of the service begins it, unless the run has completed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _Undone:
    """The instants that rollbacks and restores undo: which each way, and by which rollback."""

    restored: frozenset[str] = frozenset()
    restoring: frozenset[str] = frozenset()
    rolled_back: Mapping[str, str] = field(default_factory=dict)


class Rollbacks:
    """The rollbacks and restores of one table. Threads may share it; it caches what they undo, which cannot change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._targets: dict[str, frozenset[str]] = {}  # by the rollback's requested time
        self._of_runs: set[str] = set()  # rollbacks of runs of services
        self._late = frozenset[str](), frozenset[str]()  # the last listing whose plans are all known, and what is late
        self._undone: tuple[frozenset[str], _Undone] = frozenset(), _Undone()  # and what its plans undo

    def late(self, listing: Snapshot) -> frozenset[str]:
        """The names of a listing that belong to instants undone or being undone. Reads new plans.

        The cost follows the rollbacks and restores, and the instants that they name. Errors: `CorruptTable` for a plan
        that cannot be read, unless another engine may still be writing it.
        """
        if listing.listed is self._late[0]:
            return self._late[1]
        if not listing.undoers:
            return frozenset()
        undone = self._undone_by(listing.undoers)
        restored, restoring, rolled_back = undone.restored, undone.restoring, undone.rolled_back
        targets = restored.union(restoring, rolled_back)
        instants = (one for target in targets for one in listing.of(target) if one.action != SAVEPOINT)
        late = listing.listed.intersection(
            one.file_name
            for one in instants
            if one.requested in restored
            or (one.completion is not None and one.requested in restoring)
            or (one.completion is not None and one.completion < rolled_back.get(one.requested, ""))
        )
        if undone is self._undone[1]:
            self._late = listing.listed, late
        return late

    def _undone_by(self, undoers: frozenset[str]) -> _Undone:
        """What rollbacks and restores undo, by their names. It is kept if all plans are known. Reads new plans."""
        if undoers == self._undone[0]:
            return self._undone[1]
        found = [one for name in undoers if (one := parse_file_name(name)) is not None]
        restores = {one.requested for one in found if one.action == RESTORE}
        rollbacks = {one.requested for one in found} - restores
        done = {one.requested for one in found if one.state == COMPLETED}
        self._read_all(sorted(restores | rollbacks), undoers)
        waiting = self._of_runs - {one.requested for one in found if one.state != REQUESTED}
        undone = _Undone(
            self._all_targets(restores & done),
            self._all_targets(restores - done),
            {target: one for one in sorted(rollbacks - waiting) for target in self._targets.get(one, ())},
        )
        if self._targets.keys() >= restores | rollbacks:
            self._undone = undoers, undone
        return undone

    def left_to_others(self, names: Collection[str]) -> frozenset[str]:
        """The instants that other engines are about to undo: they expect to find the files that they remove.

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
        """Whether another engine is still writing this plan, or died while writing it, so that it names nothing yet.

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
    """Whether a completed instant may have been undone, without reading any plan.

    It may if it has no inflight file any more, or if a later rollback or restore has not completed. A completed file
    that came back together with its inflight file is not noticed: it is left to recovery.
    """
    if done is None:
        return False
    if all(one.state != INFLIGHT for one in timeline.of(done.requested)):
        return True
    found = [one for name in timeline.undoers if (one := parse_file_name(name)) and one.requested > done.requested]
    return not {one.requested for one in found} <= {one.requested for one in found if one.state == COMPLETED}
