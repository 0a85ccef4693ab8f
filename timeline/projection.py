"""The projection of a slot beside writers that know no slots: made if nobody has made it, and never brought back.

Java Hudi archives completed instants, and rolls them back. Whoever finds a slot's file missing must tell apart a writer
that died between its slot and its file, and a file that others took away on purpose. Each slot has a *witness*, a file
that is there before the slot is, and that goes in a known order:

- A completed file's witness is the instant's inflight file. An archiver removes it *before* the completed file, when
  both are in the history already; a rollback removes it *after* the completed file, and its plan is on the timeline
  before it removes either. So a completed file is made only beside its inflight file, and under no rollback's plan.
- The witness of the requested file of a plan or of a rollback is the claim of its time, which is removed only once the
  requested file has been there. It is the heartbeat of whoever carries the plan out as well, and may outlive the plan
  where others carried it out: the history is asked in any case.

The look and the put are two calls, so there is a second look after the put: what was taken away in between is taken
away again. Nobody else makes a file of this name, so that removes nothing but what came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from lakelatch.failpoints import failpoint
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.lost_answers import ensure_created
from lakelatch.system import System
from lakelatch.timeline.actions import ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.events import COMPLETE, LOCKS, Event
from lakelatch.timeline.history.history import History
from lakelatch.timeline.metadata import RollbackPlan
from lakelatch.timeline.timeline import CLAIMS_FOLDER, TIMELINE_FOLDER, inflight, requested

_ROLLBACKS = f".{ROLLBACK}"
_WRITES = tuple(f".{action}" for action in WRITE_ACTIONS)


class Fate(Enum):
    """What has become of the file of a slot that was created."""

    THERE = "there"
    NEVER = "nobody has made it"
    ELSEWHERE = "others have completed the instant"  # and it completes once
    ARCHIVED = "others have archived it"
    ROLLED_BACK = "others have rolled it back"


class Projections:
    """The files of one table's slots. Threads may share it; it remembers only what cannot change."""

    def __init__(self, storage: Storage, system: System) -> None:
        self._storage = storage
        self._system = system
        self._targets: dict[str, str] = {}  # of rollbacks, by their requested time
        self.listed: frozenset[str] = frozenset()  # the names of the timeline, as this has seen them last

    def show(self, event: Event, content: Callable[[Event], bytes], fresh: bool = False) -> Fate:
        """Makes the event's file if nobody has; what has become of it. `fresh`: its slot was created just now.

        A completed file that is there and should not be, because it came back after others took it away, is removed.
        Errors: `CorruptTable` for a history or a rollback's plan that cannot be read.
        """
        if event.kind == LOCKS:  # of our own folder, where nobody else takes anything away
            return self._make(event, content)
        if not fresh and self._storage.exists(event.path):
            if event.kind != COMPLETE or self._storage.exists(_witness(event)):
                return Fate.THERE
            return self._take_back(event)
        if not fresh or not self._storage.exists(_witness(event)):
            fate = self.fate(event)
            if fate is not Fate.NEVER:
                return fate
        made = self._make(event, content)
        return self._take_back(event) if made is Fate.THERE else made

    def fate(self, event: Event) -> Fate:
        """What has become of the file of a slot, by what is there now; nothing is changed."""
        names = self._list()
        if event.file in names:
            return Fate.THERE
        if self._rolled_back(event, names):
            return Fate.ROLLED_BACK
        if any(name.startswith(f"{event.instant}_") for name in names):
            return Fate.ELSEWHERE
        begun = event.kind != COMPLETE and any(name.startswith(event.instant) for name in names)  # so it was there
        if self._has_witness(event, names) and not begun:
            # A plan's claim is its executor's heartbeat too, which stays if that dies and others carry the plan out.
            return Fate.ARCHIVED if event.kind != COMPLETE and self._archived(event) else Fate.NEVER
        return Fate.ARCHIVED if self._archived(event) else Fate.ROLLED_BACK

    def was_shown(self, event: Event) -> bool:
        """Whether this very file is there, or has been until it was archived."""
        if self._storage.exists(event.path):
            return True
        if event.kind == COMPLETE and self._storage.exists(_witness(event)):  # which an archiver removes first
            return False
        archived = History.load(self._storage).find(event.instant)
        return archived is not None and (event.kind != COMPLETE or archived.completion == event.time)

    def rollback_of(self, instant: str, names: Collection[str], after: str = "", pending_only: bool = False) -> str:
        """The requested time of a rollback on the timeline that names this instant and is later than `after`, or ""."""
        found = {name[: len(instant)] for name in names if name > instant and _ROLLBACKS in name}
        done = {name.partition("_")[0] for name in names if "_" in name} if pending_only else set()
        later = sorted(one for one in found - done if one > max(after, instant))
        return next((one for one in later if self._target(one, names) == instant), "")

    # -- one file ---------------------------------------------------------------------------------------------------

    def _list(self) -> frozenset[str]:
        self.listed = names = frozenset(self._storage.names(TIMELINE_FOLDER))
        return names

    def _make(self, event: Event, content: Callable[[Event], bytes]) -> Fate:
        try:
            ensure_created(self._storage, event.path, content(event), self._system)
        except NotFound:  # its content is gone, so the slot was removed, so the file had been there
            return Fate.ARCHIVED
        failpoint("commit.after_projection")
        return Fate.THERE

    def _take_back(self, event: Event) -> Fate:
        """After its file was made, or was found without its witness: removes it if others had taken it away before.

        Only on evidence. An archiver at work removes the oldest completed file first, so one that has an older one
        beside it is left to it: readers would miss the younger of the two.
        """
        names = self._list()
        if self._rolled_back(event, names):
            fate = Fate.ROLLED_BACK
        elif (
            (event.kind == COMPLETE and self._has_witness(event, names))
            or _has_older(event, names)
            or not self._archived(event)
        ):
            return Fate.THERE
        else:
            fate = Fate.ARCHIVED
        self._storage.delete(event.path)
        return fate

    def _rolled_back(self, event: Event, names: Collection[str]) -> bool:
        if event.kind != COMPLETE:
            return False
        after = "" if event.action in WRITE_ACTIONS else event.time  # a plan may have been rolled back before as well
        return self.rollback_of(event.instant, names, after) != ""

    def _has_witness(self, event: Event, names: Collection[str]) -> bool:
        if event.kind == COMPLETE:
            return inflight(event.instant, event.action).file_name in names
        return self._storage.exists(_witness(event))

    def _archived(self, event: Event) -> bool:
        return History.load(self._storage).find(event.instant) is not None

    def _target(self, rollback: str, names: Collection[str]) -> str:
        """The instant that a rollback undoes, "" if its files are gone meanwhile."""
        if rollback not in self._targets:
            plan = requested(rollback, ROLLBACK)
            try:
                target = RollbackPlan.read(self._storage, plan.path).instant if plan.file_name in names else ""
            except NotFound:
                return ""
            self._targets[rollback] = target
        return self._targets[rollback]


def _witness(event: Event) -> str:
    if event.kind == COMPLETE:
        return inflight(event.instant, event.action).path
    return f"{CLAIMS_FOLDER}/{event.instant}"


def _has_older(event: Event, names: Collection[str]) -> bool:
    return any(name < event.instant and "_" in name and name.endswith(_WRITES) for name in names)
