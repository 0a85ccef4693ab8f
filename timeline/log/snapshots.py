"""The snapshots that one process has taken of one table: each is made from the last one."""

from __future__ import annotations

import threading

from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.rollbacks import Rollbacks
from lakelatch.timeline.snapshot import Snapshot


class Snapshots:
    """Takes one table's snapshots, and keeps the last one. Threads may share it.

    Of two listings the one that was begun later stays, whoever comes first.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._guard = threading.Lock()
        self.rollbacks = Rollbacks(storage)
        self.listing = Snapshot()  # the last one, in which everything counts
        self.current = Snapshot()  # the last one that was taken, without what is late
        self.slot: int | None = None  # `current` has the projections of this slot and all before; None if there is none

    def list(self) -> Snapshot:
        """Lists the folder once. Everything counts, also what is late."""
        return self._keep(Snapshot.take(self._storage, self.listing))

    def take(self, tail: Tail | None = None) -> Snapshot:
        """The snapshot of a tail's listing, or of one that is made now if it has none; a later one of another thread.

        The projections of the tail's slot and of all before it are there: see `CommitLog.look`. Without a tail nothing
        is known of slots.
        """
        listing = tail.listing if tail is not None and tail.listing is not None else self.list()
        late = self.rollbacks.late(listing)  # may fail: nothing has changed then
        with self._guard:
            before = self.current
            if listing.number >= before.number:
                follows = not late and not before.late and listing.latest_time >= before.latest_time
                self.current = listing if follows else before.following(listing.listed, late, listing.number)
                self.slot = tail.number if tail is not None else 0
            return self.current

    def at_rest(self) -> Snapshot:
        """Lists the folder until two listings agree, of which the first may be the last one; everything counts.

        Errors: those of `Snapshot.load`.
        """
        return self._keep(Snapshot.load(self._storage, self.listing if self.listing.number else None))

    def _keep(self, listing: Snapshot) -> Snapshot:
        with self._guard:
            if listing.number > self.listing.number:
                self.listing = listing
        return listing
