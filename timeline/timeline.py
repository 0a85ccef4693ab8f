"""Instants of a table's timeline, and the names of the files that stand for them (Hudi timeline layout 2).

`Timeline` is one look at the folder; `TimelineFolder` follows it, cheaply, where it is read again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Listing, Storage
from lakelatch.timeline.actions import CLUSTERING, COMMIT, COMPLETED_ACTIONS, DELTA_COMMIT, WRITE_ACTIONS

TIMELINE_FOLDER = ".hoodie/timeline"
CLAIMS_FOLDER = ".hoodie/.heartbeat"  # Hudi's name; heartbeat/contract.py has what lies in it
HISTORY_NAME = "history"  # of the folder in it to which archivers move what is old
_LISTINGS_MAX = 200

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"
ABORTED = "aborted"  # a plan that was cancelled; other engines pass over its file

_ABORTED_SUFFIX = f".{ABORTED}"
_numbers = count(1)
_COMPLETED_NAMES = frozenset(COMPLETED_ACTIONS.values())


@dataclass(frozen=True, order=True)
class Instant:
    """One file of the timeline. `action` is the completed action's name once completed, the pending one's before."""

    requested: str
    action: str
    state: str
    completion: str | None = None

    @property
    def file_name(self) -> str:
        if self.state == COMPLETED:
            return f"{self.requested}_{self.completion}.{self.action}"
        if self.action == COMMIT and self.state == INFLIGHT:
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action}.{self.state}"

    @property
    def path(self) -> str:
        return f"{TIMELINE_FOLDER}/{self.file_name}"

    def is_as_old_as(self, time: str) -> bool:
        """Whether this file tells of something that had happened by then; that a write has begun is nothing yet."""
        if self.state != COMPLETED and self.action in (COMMIT, DELTA_COMMIT):
            return False
        return (self.completion or self.requested) <= time


def requested(instant: str, action: str) -> Instant:
    return Instant(instant, action, REQUESTED)


def inflight(instant: str, action: str) -> Instant:
    return Instant(instant, action, INFLIGHT)


def aborted(instant: str, action: str) -> Instant:
    """The terminal state of a plan that was cancelled; `action` is the pending one's name."""
    return Instant(instant, action, ABORTED)


def completed(instant: str, pending_action: str, completion: str) -> Instant:
    """The completed instant of a pending action: a compaction completes as a commit."""
    return Instant(instant, COMPLETED_ACTIONS[pending_action], COMPLETED, completion)


@lru_cache(maxsize=65_536)  # the same folder is listed again and again
def parse_file_name(name: str) -> Instant | None:
    """The instant that a file of the timeline folder stands for, or None for a name that is no instant's."""
    head, _, rest = name.partition(".")
    start, underscore, completion = head.partition("_")
    if not _is_time(start):
        return None
    if underscore:
        known = rest in _COMPLETED_NAMES and _is_time(completion)
        return Instant(start, rest, COMPLETED, completion) if known else None
    if rest == INFLIGHT:
        return Instant(start, COMMIT, INFLIGHT)
    action, _, state = rest.partition(".")
    if action in COMPLETED_ACTIONS and state in (REQUESTED, INFLIGHT, ABORTED):
        return Instant(start, action, state)
    return None


def _is_time(text: str) -> bool:
    return len(text) in (14, 17) and text.isascii() and text.isdigit()


@dataclass(frozen=True)
class Timeline:
    """The active timeline at one moment. Files appear in slot order, so it ends at some slot and lacks none before.

    What archivers have taken off it is not here (`WholeTimeline` has both); `has_history` says whether any may be.
    """

    instants: tuple[Instant, ...]
    has_history: bool = False

    @classmethod
    def load(cls, storage: Storage) -> Timeline:
        """Lists the folder until two listings agree.

        One listing alone may show a file and lack an earlier one, if both appeared while it was read; an incremental
        reader would then go past a commit that it never saw. Errors: `Unavailable` on a table that never rests.
        """
        before = storage.list(TIMELINE_FOLDER)
        for _ in range(_LISTINGS_MAX):
            listing = storage.list(TIMELINE_FOLDER)
            if listing == before:
                return cls._of(listing)
            before = listing
        raise Unavailable(f"{TIMELINE_FOLDER} changed during each of {_LISTINGS_MAX} listings: try again")

    @classmethod
    def look(cls, storage: Storage) -> Timeline:
        """Lists the folder once, for a caller who lists it again later and asks `lacks_nothing` then."""
        return cls._of(storage.list(TIMELINE_FOLDER))

    @classmethod
    def _of(cls, listing: Listing) -> Timeline:
        return cls.of_names([*listing.files, *(name for name in listing.folders if name == HISTORY_NAME)])

    @classmethod
    def of_names(cls, names: Collection[str]) -> Timeline:
        """That of a listing which somebody has made, perhaps a while ago."""
        found = map(parse_file_name, names)
        return cls(tuple(one for one in found if one is not None), HISTORY_NAME in names)

    def lacks_nothing(self, later: Collection[str], until: str = "") -> bool:
        """Whether this shows all that had happened by its latest completion, and by `until`, if it is one listing.

        `later` are the names of a listing that began after this one had ended. It shows what this one should have
        shown, unless that was taken away meanwhile; and what the log shows appears in the order of its times. So the
        answer is yes if nothing has gone, and nothing has come that is as old as what was there. The files with which
        a write begins are in no order, and say nothing about what has completed.
        """
        names, known = frozenset(later), {instant.file_name for instant in self.instants}
        if not known <= names or self.has_history != (HISTORY_NAME in names):
            return False
        latest = max((instant.completion or "" for instant in self.instants), default="")
        come = (parse_file_name(name) for name in names - known)
        return not any(one is not None and one.is_as_old_as(max(latest, until)) for one in come)

    def without(self, names: Collection[str]) -> Timeline:
        """The same without these files."""
        if not names:
            return self
        return Timeline(tuple(one for one in self.instants if one.file_name not in names), self.has_history)

    @property
    def completed(self) -> tuple[Instant, ...]:
        """Completed instants, by requested time."""
        return tuple(instant for instant in self.instants if instant.state == COMPLETED)

    @property
    def pending(self) -> tuple[Instant, ...]:
        """One instant for each requested time that has not ended, the furthest state of it."""
        ended = {instant.requested for instant in self.instants if instant.state in (COMPLETED, ABORTED)}
        furthest: dict[str, Instant] = {}
        for instant in self.instants:
            if instant.requested not in ended and (instant.requested not in furthest or instant.state == INFLIGHT):
                furthest[instant.requested] = instant
        return tuple(furthest[key] for key in sorted(furthest))

    @property
    def aborted(self) -> tuple[Instant, ...]:
        """Plans that were cancelled, by requested time. None of them has completed, nor ever will."""
        return tuple(sorted(instant for instant in self.instants if instant.state == ABORTED))

    def completion_times(self) -> dict[str, str]:
        """Completion time by requested time, of every completed write (commit, deltacommit, replacecommit)."""
        return {
            instant.requested: instant.completion or ""
            for instant in self.instants
            if instant.state == COMPLETED and instant.action in WRITE_ACTIONS
        }

    def latest_time(self) -> str:
        """The greatest time that any file names, "" if there is none: the floor that new times must exceed."""
        return max(
            (max(instant.requested, instant.completion or "") for instant in self.instants),
            default="",
        )


class ListedNames(frozenset[str]):
    """The names of one listing of the folder. One that was begun later has a greater number, within a process."""

    number: int

    @classmethod
    def of(cls, storage: Storage) -> ListedNames:
        """The names in the folder now."""
        number = next(_numbers)
        listed = cls(storage.names(TIMELINE_FOLDER))
        listed.number = number
        return listed


class TimelineFolder:
    """Follows one table's timeline folder. `refresh` lists it; everything else speaks of the last listing.

    Only names that were not there before are parsed, so a process that commits often pays for what is new. Threads may
    share it; each then speaks of a listing at least as new as its own. `late` tells which names of a listing count for
    nobody (`Rollbacks.late`); only `listed` has them.
    """

    def __init__(self, storage: Storage, late: Callable[[Collection[str]], Collection[str]] | None = None) -> None:
        self._storage = storage
        self._late = late
        self._listed: frozenset[str] = frozenset()
        self._names: frozenset[str] = frozenset()
        self._instants: dict[str, Instant] = {}
        self._latest = ""
        self._clusterings: frozenset[str] = frozenset()  # names of their files in any state but the completed one
        self._slot: int | None = None
        self._number = 0  # of the last listing
        self._guard = threading.Lock()

    def refresh(self, slot: int, listed: Collection[str] | None = None) -> None:
        """Lists the folder. `slot` is a slot of the commit log whose projection, and all before it, are there.

        `listed` are its names for a caller who has just listed it, knowing that. If another thread has come with a
        listing that was begun later, that one stays.
        """
        with self._guard:
            names = ListedNames.of(self._storage) if listed is None else listed
            number = names.number if isinstance(names, ListedNames) else self._number
            if number < self._number:
                return
            fresh = [name for name in names if name not in self._listed]
            gone = self._listed.difference(names) if len(names) != len(self._listed) + len(fresh) else ()
            if fresh or gone:
                listed = self._listed.union(fresh).difference(gone)
                late = self._late(listed) if self._late is not None else ()  # may fail, and then nothing has changed
                counted = listed.difference(late) if late else listed
                self._follow(counted.difference(self._names), self._names.difference(counted))
                self._listed, self._names = listed, counted
            self._slot, self._number = slot, number

    def _follow(self, fresh: Collection[str], gone: Collection[str]) -> None:
        instants = dict(self._instants)
        clusterings = set(self._clusterings)
        for name in fresh:
            instant = parse_file_name(name)
            if instant is not None:
                instants[name] = instant
                if instant.action == CLUSTERING:
                    clusterings.add(name)
                self._latest = max(self._latest, instant.requested, instant.completion or "")
        for name in gone:
            instants.pop(name, None)
        self._clusterings = frozenset(clusterings.difference(gone))
        self._instants = instants  # replaced, not changed: others may be reading it

    @property
    def slot(self) -> int | None:
        """The slot that the last listing is at least as new as; None if there was no listing."""
        return self._slot

    @property
    def names(self) -> frozenset[str]:
        """Every name in the folder that counts."""
        return self._names

    @property
    def listed(self) -> frozenset[str]:
        """Every name in the folder."""
        return self._listed

    @property
    def latest_time(self) -> str:
        """The greatest time that any file was ever seen to name: the floor that new times must exceed."""
        return self._latest

    @property
    def latest_completion(self) -> str:
        """The greatest completion time of what is there, "" for nothing: what a plan is planned against."""
        return max((instant.completion or "" for instant in self._instants.values()), default="")

    def completed_since(self, known: frozenset[str]) -> list[Instant]:
        """Completed instants whose files are not among the known ones, by completion time."""
        instants = self._instants
        fresh = [instants[name] for name in self._names - known if name in instants]
        return sorted(
            (instant for instant in fresh if instant.state == COMPLETED), key=lambda instant: instant.completion or ""
        )

    def has(self, instant: Instant) -> bool:
        """Whether this very file is there, and counts."""
        return instant.file_name in self._instants

    def aborted(self) -> list[Instant]:
        """Plans that were cancelled, by requested time."""
        instants = self._instants
        return [instants[name] for name in sorted(instants) if name.endswith(_ABORTED_SUFFIX)]

    def pending_clusterings(self) -> list[Instant]:
        """Those that have not ended, by requested time. Free where there were none lately."""
        return [one for one in self.pending() if one.action == CLUSTERING] if self._clusterings else []

    def pending(self) -> list[Instant]:
        """One instant for each requested time that has not ended, by requested time."""
        instants = self._instants
        ended = {name.partition("_")[0] for name in instants if "_" in name}
        ended.update(name.partition(".")[0] for name in instants if name.endswith(_ABORTED_SUFFIX))
        # In name order `.inflight` comes before `.requested`, and both speak of one action.
        waiting = sorted(name for name in instants if name.partition(".")[0].partition("_")[0] not in ended)
        return list({instants[name].requested: instants[name] for name in reversed(waiting)}.values())[::-1]
