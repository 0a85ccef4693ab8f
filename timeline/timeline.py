"""One table's timeline as a process follows it, and the names of what is on it.

`Timeline` is one look at the folder; `TimelineFolder` follows it, cheaply, where it is read again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import CLUSTERING
from lakelatch.timeline.instant import (
    ABORTED,
    CLAIMS_FOLDER,
    COMPLETED,
    HISTORY_NAME,
    INFLIGHT,
    REQUESTED,
    TIMELINE_FOLDER,
    Instant,
    aborted,
    completed,
    inflight,
    parse_file_name,
    requested,
)
from lakelatch.timeline.snapshot import Snapshot

__all__ = [
    "ABORTED",
    "CLAIMS_FOLDER",
    "COMPLETED",
    "HISTORY_NAME",
    "INFLIGHT",
    "REQUESTED",
    "TIMELINE_FOLDER",
    "Instant",
    "Timeline",
    "TimelineFolder",
    "aborted",
    "completed",
    "inflight",
    "parse_file_name",
    "requested",
]

#: What readers call it, for whom nothing is late before they have asked.
Timeline = Snapshot


class TimelineFolder:
    """Follows one table's timeline folder. `refresh` lists it; everything else speaks of the last listing.

    Threads may share it; each then speaks of a listing at least as new as its own. `late` tells which names of a
    listing count for nobody (`Rollbacks.late`); only `listed` has them.
    """

    def __init__(self, storage: Storage, late: Callable[[Snapshot], frozenset[str]] | None = None) -> None:
        self._storage = storage
        self._late = late
        self.listing = Snapshot()  # the last one, in which everything counts
        self._guard = threading.Lock()
        self.snapshot = Snapshot()
        self.slot: int | None = None  # that the last listing is at least as new as; None if there was no listing

    def refresh(self, slot: int, listing: Snapshot | None = None) -> None:
        """Lists the folder. `slot` is a slot of the commit log whose projection, and all before it, are there.

        `listing` is for a caller who has just listed it, knowing that. If another thread has come with a listing that
        was begun later, that one stays.
        """
        with self._guard:
            listing = Snapshot.take(self._storage, self.listing) if listing is None else listing
            if listing.number < self.listing.number:
                return
            late = self._late(listing) if self._late is not None else frozenset()  # may fail: nothing has changed then
            before = self.snapshot
            if not late and not before.late and listing.latest_time >= before.latest_time:
                self.snapshot = listing
            else:
                self.snapshot = before.following(listing.listed, late, listing.number)
            self.listing, self.slot = listing, slot

    @property
    def names(self) -> frozenset[str]:
        """Every name in the folder that counts."""
        return self.snapshot.names

    @property
    def listed(self) -> frozenset[str]:
        """Every name in the folder."""
        return self.snapshot.listed

    @property
    def latest_time(self) -> str:
        """The greatest time that any file was ever seen to name: the floor that new times must exceed."""
        return self.snapshot.latest_time

    @property
    def latest_completion(self) -> str:
        """The greatest completion time of what is there, "" for nothing: what a plan is planned against."""
        return self.snapshot.latest_completion

    def completed_since(self, known: frozenset[str]) -> tuple[Instant, ...]:
        """Completed instants whose files are not among the known ones, by completion time."""
        return self.snapshot.completed_since(known)

    def has(self, instant: Instant) -> bool:
        """Whether this very file is there, and counts."""
        return self.snapshot.has(instant)

    def aborted(self) -> tuple[Instant, ...]:
        """Plans that were cancelled, by requested time."""
        return self.snapshot.aborted

    def pending(self) -> tuple[Instant, ...]:
        """One instant for each requested time that has not ended, by requested time."""
        return self.snapshot.pending

    def pending_clusterings(self) -> list[Instant]:
        """Those that have not ended, by requested time."""
        return [one for one in self.snapshot.pending if one.action == CLUSTERING]
