"""Instants of a table's timeline, and the names of the files that stand for them (Hudi timeline layout 2).

`Timeline` is one look at the folder; `TimelineFolder` follows it, cheaply, where it is read again and again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import COMMIT, COMPLETED_ACTIONS, WRITE_ACTIONS

TIMELINE_FOLDER = ".hoodie/timeline"
CLAIMS_FOLDER = ".hoodie/.heartbeat"  # Hudi's name; heartbeat/contract.py has what lies in it
HISTORY_NAME = "history"  # of the folder in it to which archivers move what is old
_LISTINGS_MAX = 200

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"

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


def requested(instant: str, action: str) -> Instant:
    return Instant(instant, action, REQUESTED)


def inflight(instant: str, action: str) -> Instant:
    return Instant(instant, action, INFLIGHT)


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
    if action in COMPLETED_ACTIONS and state in (REQUESTED, INFLIGHT):
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
                found = map(parse_file_name, listing.files)
                instants = tuple(instant for instant in found if instant is not None)
                return cls(instants, HISTORY_NAME in listing.folders)
            before = listing
        raise Unavailable(f"{TIMELINE_FOLDER} changed during each of {_LISTINGS_MAX} listings: try again")

    @property
    def completed(self) -> tuple[Instant, ...]:
        """Completed instants, by requested time."""
        return tuple(instant for instant in self.instants if instant.state == COMPLETED)

    @property
    def pending(self) -> tuple[Instant, ...]:
        """One instant for each requested time that has not completed, the furthest state of it."""
        ended = {instant.requested for instant in self.instants if instant.state == COMPLETED}
        furthest: dict[str, Instant] = {}
        for instant in self.instants:
            if instant.requested not in ended and (instant.requested not in furthest or instant.state == INFLIGHT):
                furthest[instant.requested] = instant
        return tuple(furthest[key] for key in sorted(furthest))

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


class TimelineFolder:
    """Follows one table's timeline folder. `refresh` lists it; everything else speaks of the last listing.

    Only names that were not there before are parsed, so a process that commits often pays for what is new. Threads may
    share it; each then speaks of a listing at least as new as its own.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._names: frozenset[str] = frozenset()
        self._instants: dict[str, Instant] = {}
        self._latest = ""
        self._slot: int | None = None
        self._guard = threading.Lock()

    def refresh(self, slot: int) -> None:
        """Lists the folder. `slot` is a slot of the commit log whose projection, and all before it, are there."""
        with self._guard:
            names = self._storage.names(TIMELINE_FOLDER)
            fresh = [name for name in names if name not in self._names]
            gone = self._names.difference(names) if len(names) != len(self._names) + len(fresh) else ()
            if fresh or gone:
                instants = dict(self._instants)
                for name in gone:
                    instants.pop(name, None)
                for name in fresh:
                    instant = parse_file_name(name)
                    if instant is not None:
                        instants[name] = instant
                        self._latest = max(self._latest, instant.requested, instant.completion or "")
                # Replaced, not changed: others may be reading them.
                self._names, self._instants = self._names.union(fresh).difference(gone), instants
            self._slot = slot

    @property
    def slot(self) -> int | None:
        """The slot that the last listing is at least as new as; None if there was no listing."""
        return self._slot

    @property
    def names(self) -> frozenset[str]:
        """Every name in the folder."""
        return self._names

    @property
    def latest_time(self) -> str:
        """The greatest time that any file was ever seen to name: the floor that new times must exceed."""
        return self._latest

    def completed_since(self, known: frozenset[str]) -> list[Instant]:
        """Completed instants whose files are not among the known ones, by completion time."""
        instants = self._instants
        fresh = [instants[name] for name in self._names - known if name in instants]
        return sorted(
            (instant for instant in fresh if instant.state == COMPLETED), key=lambda instant: instant.completion or ""
        )

    def has(self, instant: Instant) -> bool:
        """Whether this very file is there."""
        return instant.file_name in self._names

    def pending(self) -> list[Instant]:
        """One instant for each requested time that has not completed, by requested time."""
        instants = self._instants
        ended = {name.partition("_")[0] for name in instants if "_" in name}
        # In name order `.inflight` comes before `.requested`, and both speak of one action.
        waiting = sorted(name for name in instants if name.partition(".")[0].partition("_")[0] not in ended)
        return list({instants[name].requested: instants[name] for name in reversed(waiting)}.values())[::-1]
