"""Conflict detection in the marker server: this write's markers in memory, other writes' on the storage.

Only writes that were requested earlier and still count (live, or completed since) abort this one, so two never abort
each other; later ones that do not check again are marked aborted. A round reads what has changed since the last one;
between rounds, a new marker is compared with what the last round has seen. A suspected conflict is confirmed exactly
before a write is marked aborted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.conflicts.contract import Conflict, Contender, OtherWrite
from lakelatch.transactions.early.concurrent_writers import order_of
from lakelatch.transactions.early.context import Detection
from lakelatch.transactions.early.notes import aborted_by, mark_aborted
from lakelatch.transactions.markers.files import START_LENGTH, KeyIndex, has_direct_markers, keys_of

_log = logging.getLogger("lakelatch.transactions")


class MarkerChecker:
    """Threads may share it. `conflict` is the one by which this write is aborted, once it is known.

    `when_lost` is called once, when the storage has the note of it as well.
    """

    def __init__(self, detection: Detection, when_lost: Callable[[], None] | None = None) -> None:
        self._detection = detection
        self._near = detection.conflicts.equal_start_length >= START_LENGTH
        self._index = KeyIndex(detection.storage)
        self._groups: set[FileGroup] = set()
        self._keys: set[bytes] = set()
        self._keyless = False  # one of ours may be anywhere
        self._guard = threading.Lock()
        self._reading = threading.Lock()  # held while the index and the concurrent writers are used
        self._stopped = detection.system.new_event()
        self._when_lost = when_lost
        self._marked = False
        self._marked_later: set[str] = set()
        self.conflict: Conflict | None = None

    def add(self, groups: Iterable[FileGroup]) -> Conflict | None:
        """Takes in file groups whose markers count, and returns this write's conflict, as far as it is known here."""
        with self._guard:
            new = [group for group in dict.fromkeys(groups) if group not in self._groups]
            self._groups.update(new)
            for group in new:
                keys = keys_of(*group)
                self._keys.update(keys)
                self._keyless |= not keys
        # While a round is under way the next one will do.
        if new and self.conflict is None and self._near and self._reading.acquire(blocking=False):
            try:
                suspects = {instant for group in new for instant in self._index.instants_of(*group)}
                if suspects:
                    self._look_closely(new, suspects)
            finally:
                self._reading.release()
        return self.conflict

    def round(self) -> Conflict | None:
        """One full check; returns the conflict of this write, if there is one."""
        with self._reading:
            detection = self._detection
            with self._guard:
                groups, keys, keyless = list(self._groups), set(self._keys), self._keyless
            if self.conflict is None:
                self.conflict = aborted_by(detection.storage, detection.instant)
            if self.conflict is None:
                others = detection.concurrent_writers.instants()
                earlier = [one for one in others if order_of(one) < order_of(detection.instant)]
                suspects = self._suspects(None if keyless else keys, earlier)
                if groups and suspects:
                    self._look_closely(groups, suspects)
                if groups and self.conflict is None:
                    self._mark_later_writers(groups, set(others).difference(earlier))
            if self.conflict is None and groups and detection.settings.check_commits:
                contender = Contender(detection.instant, detection.action, frozenset(groups))
                self.conflict = detection.conflicts.find(contender, detection.completed())
            self._mark()
            return self.conflict

    def watch(self, delay_ms: int, period_ms: int) -> None:
        """Rounds until `stop`, or until this write is marked aborted; failures only delay it."""
        wait_ms = delay_ms
        while not self._stopped.wait(wait_ms / 1000) and not self._marked:
            wait_ms = period_ms
            try:
                self.round()
            except LakelatchError as error:
                instant = self._detection.instant
                _log.warning("a check for conflicts of %s failed, the next one follows: %s", instant, error)

    def stop(self) -> None:
        self._stopped.set()

    def _suspects(self, keys: set[bytes] | None, earlier: list[str]) -> Collection[str]:
        """Those of the earlier instants that may have marked any of the groups; all of them for `keys` None."""
        if not self._near:
            return earlier
        self._index.refresh(earlier)
        found = set(earlier) if keys is None else self._index.instants_with(keys)
        return found | self._index.with_direct

    def _look_closely(self, groups: list[FileGroup], suspects: Collection[str]) -> None:
        concurrent_writers = self._detection.concurrent_writers.on(groups, suspects)
        if concurrent_writers:
            self.conflict = Conflict(concurrent_writers[0], concurrent_writers[0].file_groups)
            self._mark()

    def _mark_later_writers(self, groups: list[FileGroup], later: Iterable[str]) -> None:
        """Marks later writers with direct markers aborted: they have checked already; those with a server repeat it."""
        detection = self._detection
        direct = [one for one in later if one not in self._marked_later and has_direct_markers(detection.storage, one)]
        for other in detection.concurrent_writers.on(groups, direct) if direct else ():
            if other.inflight:
                self._marked_later.add(other.instant)
                this = OtherWrite(
                    detection.instant,
                    detection.action,
                    "",
                    other.file_groups,
                    detection.writer,
                    inflight=True,
                )
                mark_aborted(detection.storage, other.instant, Conflict(this, other.file_groups))

    def _mark(self) -> None:
        """Marks this write aborted for the driver, second attempts, and tasks that cannot reach the server."""
        if self.conflict is not None and not self._marked:
            mark_aborted(self._detection.storage, self._detection.instant, self.conflict)
            with suppress(Unavailable):  # the next round does it again, as it does if the file is not there
                self._marked = aborted_by(self._detection.storage, self._detection.instant) is not None
            if self._marked and self._when_lost is not None:
                self._when_lost()
