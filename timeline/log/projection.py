"""The projection of a slot beside writers that know no slots: made if nobody has made it, and never brought back.

Java Hudi archives completed instants, and rolls them back. Whoever finds a slot's file missing must tell apart a writer
that died between its slot and its file, and a file that others took away on purpose. Each slot has a *witness*, a file
that is there before the slot is, and that goes in a known order:

- A completed file's witness is the instant's inflight file. An archiver removes it *before* the completed file, when
  both are in the history already; a rollback removes it *after* the completed file, and its plan is on the timeline
  before it removes either. So a completed file is made only beside its inflight file, and under no rollback's plan.
  That plan may have been archived by the time somebody looks: then its victim is in no history, and its witness gone.
- The witness of the requested file of a plan or of a rollback is the claim of its time, which is removed only once the
  requested file has been there. It is the heartbeat of whoever carries the plan out as well, and may outlive the plan
  where others carried it out: the history is asked in any case.
- The witness of what ends a plan (a request to cancel it, and then its terminal state) is the plan's requested file,
  which goes once the terminal state is there, and before the request. An archiver takes the terminal state away last.

The look and the put are two calls, so there is a second look after the put: what was taken away in between is taken
away again. Nobody else makes a file of this name, so that removes nothing but what came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from lakelatch.failpoints import failpoint
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import System
from lakelatch.timeline.actions import COMPLETED_ACTIONS, RESTORE, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import (
    CLAIMS_FOLDER,
    TIMELINE_FOLDER,
    Instant,
    aborted,
    inflight,
    is_completed,
    parse_file_name,
    requested,
    requested_time,
)
from lakelatch.timeline.log.events import ABORT, CANCEL, COMPLETE, LOCKS, PLAN, WITHDRAW, Event
from lakelatch.timeline.log.events import ROLLBACK as ROLLBACK_EVENT
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.snapshot import Snapshot


class Fate(Enum):
    """What has become of the file of a slot that was created."""

    THERE = "there"
    NEVER = "nobody has made it"
    ELSEWHERE = "others have completed the instant"  # and it completes once
    ARCHIVED = "others have archived it"
    ROLLED_BACK = "others have rolled it back"


class Shower(Protocol):
    """Who shows an event of its own, and what it asks meanwhile; none of these requests raises anything."""

    def beside_file(self, event: Event) -> Sequence[Callable[[], None]]:
        """Requests beside the put of the event's file, if the slot has no other event."""
        ...

    def beside_last_look(self) -> Sequence[Callable[[], None]]:
        """Requests beside the second look, once the file was made here."""
        ...


class Projections:
    """The files of one table's slots. Threads may share it; it remembers only what cannot change."""

    def __init__(self, storage: Storage, system: System, snapshots: Snapshots) -> None:
        self._storage = storage
        self._system = system
        self._snapshots = snapshots
        self._rollbacks = snapshots.rollbacks

    def show(
        self,
        event: Event,
        content: Callable[[Event], bytes],
        checked: Snapshot | None = None,
        shower: Shower | None = None,
    ) -> Fate:
        """Makes the event's file if nobody has; what has become of it.

        `checked` is the listing that a slot was checked against which was created just now. It is the look
        before the put; foreign writers do not know that the slot was created in between. `shower` is who
        created it.

        Completed files that the event undoes go, so whoever adds a slot after it finds the timeline without them. Their
        names never come back: a requested time is used once. A completed file that is there and should not be, because
        it came back after others took it away, is removed.
        Errors: `CorruptTable` for a history or a rollback's plan that cannot be read.
        """
        fate = self._show(event, content, checked, shower)
        if event.undoes:
            names = self._snapshots.list().listed
            for name in (name for name in event.undoes if name in names):
                self._storage.delete(f"{TIMELINE_FOLDER}/{name}")
                failpoint("undo.after_completed_file")
        return fate

    def show_all(
        self,
        events: Sequence[Event],
        content: Callable[[Event], bytes],
        checked: Snapshot | None = None,
        shower: Shower | None = None,
    ) -> list[Fate]:
        """The same for all events of a slot, in the order of their times or `at_once`. Several are completed writes."""
        if len(events) == 1:
            return [self.show(events[0], content, checked, shower)]
        if checked is not None and not all(self._has_witness(event, checked) for event in events):
            checked = None  # of others that had not begun when it was made
        listing, made = self._snapshots.list() if checked is None else checked, set[str]()
        fates = [Fate.NEVER if checked is not None else self.fate(event, listing) for event in events]
        missing = [place for place, fate in enumerate(fates) if fate is Fate.NEVER]

        def make(place: int) -> None:
            fates[place] = self._make(events[place], content)
            made.add(events[place].instant)

        steps = [partial(make, place) for place in missing]
        if events[0].at_once:
            self._storage.together(*steps)
        else:
            for step in steps:
                step()
        there = [
            fate is Fate.THERE and (event.instant in made or not self._has_witness(event, listing))
            for event, fate in zip(events, fates, strict=True)
        ]
        if not any(there):
            return fates
        look, removed = self._second_look(shower), set[str]()
        for place in sorted(range(len(events)), key=lambda place: events[place].instant):  # as an archiver removes them
            event = events[place]
            if there[place]:
                fates[place] = self._kept(event, look, event.instant in made, removed)
                if fates[place] is not Fate.THERE:
                    removed.add(event.file)
        return fates

    def is_listed(self, event: Event) -> bool:
        """Whether a listing of the timeline tells if there is anything to do for the event."""
        return event.kind in (COMPLETE, PLAN, ROLLBACK_EVENT) and not event.undoes

    def needs_nothing(self, event: Event, listing: Snapshot, looked_at: bool) -> bool:
        """Whether `show` would change nothing, by a listing; `looked_at` if it has been called for the event before."""
        if event.file not in listing.listed:
            return looked_at
        return event.kind != COMPLETE or inflight(event.instant, event.action).file_name in listing.listed

    def is_awaited(self, event: Event, listing: Snapshot) -> bool:
        """Whether an event's file is not on a listing, and is still to be made: its instant looks pending there."""
        if event.kind != COMPLETE or event.file in listing.listed:
            return False
        return inflight(event.instant, event.action).file_name in listing.listed

    def _show(
        self,
        event: Event,
        content: Callable[[Event], bytes],
        checked: Snapshot | None,
        shower: Shower | None,
    ) -> Fate:
        if event.kind == WITHDRAW:
            return Fate.THERE
        if event.kind == LOCKS:  # of our own folder, where nobody else takes anything away
            return self._make(event, content)
        if event.kind in (CANCEL, ABORT):
            return self._show_end_of_plan(event, content)
        if checked is None and self._storage.exists(event.path):
            if event.kind != COMPLETE or self._storage.exists(_witness(event)):
                return Fate.THERE
            return self._kept(event, self._second_look(), made=False)
        if checked is None or not self._has_witness(event, checked):
            fate = self.fate(event)
            if fate is not Fate.NEVER:
                return fate
        beside = () if shower is None else shower.beside_file(event)
        made: list[Fate] = []
        self._storage.together(lambda: made.append(self._make(event, content)), *beside)
        return self._kept(event, self._second_look(shower), made=True) if made[0] is Fate.THERE else made[0]

    def fate(self, event: Event, listing: Snapshot | None = None) -> Fate:
        """The fate of an event's file, by a listing that is made now if none is given; nothing is changed."""
        if event.kind == WITHDRAW:
            return Fate.THERE
        listing = self._snapshots.list() if listing is None else listing
        if event.file in listing.listed:
            return Fate.THERE
        if self._rolled_back(event, listing):
            return Fate.ROLLED_BACK
        action = COMPLETED_ACTIONS[event.action]  # a savepoint has the time of the commit that it keeps
        files = listing.of(event.instant)
        if any(one.completion is not None and one.action == action for one in files):
            return Fate.ELSEWHERE
        begun = event.kind != COMPLETE and bool(files)  # so it was there
        if self._has_witness(event, listing) and not begun:
            # A plan's claim is its executor's heartbeat too, which stays if that dies and others carry the plan out.
            return Fate.ARCHIVED if event.kind != COMPLETE and self._archived(event) else Fate.NEVER
        return Fate.ARCHIVED if self._archived(event) else Fate.ROLLED_BACK

    def was_shown(self, event: Event) -> bool:
        """Whether this very file is there, or has been until it was archived."""
        if event.kind == WITHDRAW:
            return False
        if self._storage.exists(event.path):
            return True
        if event.kind == CANCEL:
            return self._storage.exists(aborted(event.instant, event.action).path)
        if event.kind == ABORT:
            return False
        if event.kind == COMPLETE and self._storage.exists(_witness(event)):  # which an archiver removes first
            return False
        archived = History.load(self._storage).find(event.instant)
        return archived is not None and (event.kind != COMPLETE or archived.completion == event.time)

    def rollback_of(
        self,
        instant: str,
        undoers: Collection[str],
        after: str = "",
        pending_only: bool = False,
        beginning: bool = False,
    ) -> str:
        """The requested time of a rollback or restore on the timeline that names this instant and is later than
        `after`, or "". `undoers` are their names.

        `beginning` counts also what another engine may be about to begin: a rollback of a run of a service, and a plan
        that is still being written, which may name anything.
        """
        found = {requested_time(name) for name in undoers}
        done = {requested_time(name) for name in undoers if is_completed(name)} if pending_only else set()
        least = max(after, instant)
        later = sorted(one for one in found - done if one > least)
        return next((one for one in later if self._undoes(one, instant, undoers, beginning)), "")

    def _undoes(self, rollback: str, instant: str, undoers: Collection[str], beginning: bool) -> bool:
        if instant in self._rollbacks.targets_of(rollback, undoers):
            return beginning or not self._rollbacks.is_waiting(rollback, undoers)
        return beginning and self._rollbacks.is_unreadable(rollback, undoers)

    def undone(self, listing: Snapshot) -> list[Instant]:
        """What is on the timeline of instants that a rollback or a restore undoes: a late request has made it.

        It came after the second look of its writer, and after the next slot, so nobody looks at that slot any more. Or
        it is still to go; so the last completed one comes first, as other readers have to see it go.
        What another engine has not come to is left to it, but for a completed file without its inflight one: a rollback
        removes that one last, and an archiver, which removes it first, has the instant in history.
        """
        undoers = listing.undoers
        late = set(self._rollbacks.late(listing))
        if late:
            spared = self._rollbacks.left_to_others(undoers)
            late = {name for name in late if requested_time(name) not in spared}
        targets = {
            target
            for rollback in sorted(set(map(requested_time, undoers)))
            for target in self._rollbacks.targets_of(rollback, undoers)
        }
        for files in map(listing.of, targets):
            if all(one.completion for one in files):
                late.update(one.file_name for one in files if one.action in WRITE_ACTIONS)
        found = [one for one in map(parse_file_name, sorted(late)) if one is not None]
        return sorted(found, key=lambda one: one.completion or "", reverse=True)

    def lost(self, events: Sequence[Event], listing: Snapshot) -> list[Event]:
        """Those of the events of successive slots whose completed file is gone, and nobody has taken it away.

        `listing` was begun when all these files had been there. A file whose witness is gone as well
        counts as taken away, since a restore of other engines leaves nothing that says so.
        """
        gone: dict[str, Event] = {}
        names = listing.listed
        for event in events:
            if event.kind == ROLLBACK_EVENT:
                gone.pop(event.target or "", None)
                gone = {instant: one for instant, one in gone.items() if one.file not in event.undoes}
            elif event.kind == COMPLETE and event.action != SAVEPOINT and event.file not in names:
                gone[event.instant] = event
        gone = {one: event for one, event in gone.items() if inflight(one, event.action).file_name in names}
        archived = History.load(self._storage).find_all(gone) if gone else {}
        return [one for one in gone.values() if one.instant not in archived and not self._rolled_back(one, listing)]

    # -- one file ---------------------------------------------------------------------------------------------------

    def _make(self, event: Event, content: Callable[[Event], bytes]) -> Fate:
        try:
            ensure_created(self._storage, event.path, content(event), self._system)
        except NotFound:  # its content is gone, so the slot was removed, so the file had been there
            return Fate.ARCHIVED
        failpoint("commit.after_projection")
        return Fate.THERE

    def _show_end_of_plan(self, event: Event, content: Callable[[Event], bytes]) -> Fate:
        """A terminal state that comes back is left to the next archiver; a request would look as if it were open."""
        plan = requested(event.instant, event.action).path
        if self._storage.exists(event.path):
            return Fate.THERE
        if not self._storage.exists(plan):
            return Fate.ARCHIVED
        made = self._make(event, content)
        if event.kind == ABORT or self._storage.exists(plan):
            return made
        self._storage.delete(event.path)
        return Fate.ARCHIVED

    def _second_look(self, shower: Shower | None = None) -> Snapshot:
        """The timeline after a file was made, or was found without its witness."""
        looks: list[Snapshot] = []
        beside = () if shower is None else shower.beside_last_look()
        self._storage.together(lambda: looks.append(self._snapshots.list()), *beside)
        return looks[0]

    def _kept(self, event: Event, listing: Snapshot, made: bool, removed: Collection[str] = ()) -> Fate:
        """By the second look: removes the event's file if others had taken it away before.

        Only on evidence. An archiver at work removes the oldest completed file first, so one that has an older one
        beside it is left to it: readers would miss the younger of the two. What this caller has `removed` since that
        look is beside it no more. And it removes completed files when no
        pending one is left: while the requested file is there, the completed one has never been taken away, and
        without it the instant would look pending, and be carried out once more.
        """
        # A savepoint loses its witness to its owner alone, who gives it up: no archiver takes it.
        given_up = made and event.action == SAVEPOINT and not self._has_witness(event, listing)
        if given_up or self._rolled_back(event, listing):
            fate = Fate.ROLLED_BACK
        elif event.kind == COMPLETE and _has_pending(event, listing):
            return Fate.THERE
        elif event.kind == COMPLETE and (made or event.file not in listing.listed) and not self._archived(event):
            fate = Fate.ROLLED_BACK  # what it began with is gone, and no archiver took it
        elif _has_older(event, listing, removed) or not self._archived(event):
            return Fate.THERE
        else:
            fate = Fate.ARCHIVED
        self._storage.delete(event.path)
        return fate

    def _rolled_back(self, event: Event, listing: Snapshot) -> bool:
        if event.kind == PLAN:  # a rollback leaves it for the next executor, and a restore takes it away
            restores = [name for name in listing.undoers if f".{RESTORE}" in name]
            return self.rollback_of(event.instant, restores, event.time) != ""
        if event.kind != COMPLETE:
            return False
        after = "" if event.action in WRITE_ACTIONS else event.time  # a plan may have been rolled back before as well
        return self.rollback_of(event.instant, listing.undoers, after) != ""

    def _has_witness(self, event: Event, listing: Snapshot) -> bool:
        if event.kind == COMPLETE:
            return listing.has(inflight(event.instant, event.action))
        return self._storage.exists(_witness(event))

    def _archived(self, event: Event) -> bool:
        return History.load(self._storage).find(event.instant) is not None


def _witness(event: Event) -> str:
    if event.kind == COMPLETE:
        return inflight(event.instant, event.action).path
    return f"{CLAIMS_FOLDER}/{event.instant}"


def _has_pending(event: Event, listing: Snapshot) -> bool:
    return any(listing.has(file(event.instant, event.action)) for file in (requested, inflight))


def _has_older(event: Event, listing: Snapshot, removed: Collection[str]) -> bool:
    return any(one.requested < event.instant and one.file_name not in removed for one in listing.writes)
