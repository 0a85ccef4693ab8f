"""The completed files of a slot of several commits, for those who wait while its writer makes them."""

from __future__ import annotations

from collections.abc import Sequence

from lakelatch.system import System
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.projection import Projections
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.snapshot import Snapshot

_REQUESTS = 10  # in the time of so many requests a slot or a file should come
_LEAST_NS, _MOST_NS = 20_000_000, 5_000_000_000  # and within these: one request may have been slow
_LOOKS = 40  # for one file, within the time that it may take
_LOOKS_LEAST = 2


def time_of_one_ns(request_ns: float, least_ns: float = 0) -> int:
    """Within which time a slot, or a file of it, should come from a writer that is alive, by how long requests take."""
    return round(min(max(_LEAST_NS, _REQUESTS * request_ns, least_ns), _MOST_NS))


class AwaitedFiles:
    """Files that are late once none of them has come for `time_ns`, however many there are.

    Where each of them waits for the one before it, a file takes as long as a request. Then who waits for many looks
    again when half of them may be there, or the looks of all who wait would slow down whoever makes them.
    """

    def __init__(
        self, projections: Projections, system: System, events: Sequence[Event], time_ns: float, request_ns: float
    ) -> None:
        self._projections, self._system, self._events = projections, system, events
        self._time_ns, self._request_ns = time_ns, request_ns
        self._left = len(events)
        self._until_ns = system.monotonic_ns() + time_ns

    def are_there(self, listing: Snapshot) -> bool:
        """Whether all of them are, by a listing."""
        left = sum(self._projections.is_awaited(event, listing) for event in self._events)
        if left < self._left:
            self._left, self._until_ns = left, self._system.monotonic_ns() + self._time_ns
        return not left

    @property
    def are_late(self) -> bool:
        """Whether no more of them have come for a while, so that whoever makes them may be dead."""
        return self._system.monotonic_ns() >= self._until_ns

    def pause(self) -> None:
        """Until it is worth another look."""
        in_a_row_ns = 0 if self._events[0].at_once else self._left * self._request_ns / 2
        pause_ns = min(max(self._time_ns / _LOOKS, in_a_row_ns), self._time_ns / _LOOKS_LEAST)
        self._system.sleep(pause_ns / 1e9)


def listing_with_files(
    projections: Projections, snapshots: Snapshots, system: System, events: Sequence[Event], listing: Snapshot
) -> Snapshot:
    """This listing, or a later one that shows all of a slot's files, if its writer is making them.

    Who begins just then would make each of them once more, and slow it down. One event has one file, which is made as
    fast as it is looked for.
    """
    if len(events) < 2 or not any(projections.is_awaited(event, listing) for event in events):
        return listing
    began_ns = system.monotonic_ns()
    listing = snapshots.list()
    request_ns = system.monotonic_ns() - began_ns
    files = AwaitedFiles(projections, system, events, time_of_one_ns(request_ns), request_ns)
    while not files.are_there(listing) and not files.are_late:
        files.pause()
        listing = snapshots.list()
    return listing
