"""The marker server's look at other writers: this write's markers in memory, theirs on the storage.

Only writes that were requested earlier and still count (live, or completed since) can end this one, so two never end
each other; later ones that do not look again are told. A round reads what has changed since the last one; between
rounds, a new marker is held against what the last round has seen. What looks like a meeting is looked at closely before
anybody loses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.transactions.bloom import BloomReader, bloom_key, hashes_of
from lakelatch.transactions.conflicts import Conflict, Contender, FileGroup, OtherWrite
from lakelatch.transactions.doom import condemn, doom_of
from lakelatch.transactions.marker_files import START_LENGTH, KeyIndex, has_direct_markers, keys_of
from lakelatch.transactions.rivals import order_of

if TYPE_CHECKING:
    from lakelatch.transactions.early_detection import Detection

_log = logging.getLogger("lakelatch.transactions")


class MarkerChecker:
    """Threads may share it. `conflict` is what this write has lost against, as soon as anybody knows.

    `when_lost` is called once, when the storage says so as well.
    """

    def __init__(self, detection: Detection, blooms: bool, when_lost: Callable[[], None] | None = None) -> None:
        self._detection = detection
        self._near = detection.conflicts.equal_start_length >= START_LENGTH
        self._index = KeyIndex(detection.storage)
        self._blooms = BloomReader(detection.storage) if blooms and self._near else None
        self._groups: dict[FileGroup, Any] = {}  # ours, each with its hashes if there are Bloom files
        self._keys: set[bytes] = set()
        self._keyless = False  # one of ours may be anywhere
        self._guard = threading.Lock()
        self._reading = threading.Lock()  # held by whoever uses the index and the rivals
        self._stopped = detection.system.new_event()
        self._when_lost = when_lost
        self._told = False
        self.conflict: Conflict | None = None
        self.rounds = 0

    def add(self, groups: Iterable[FileGroup]) -> Conflict | None:
        """Takes in file groups whose markers count, and says whether this write has lost, as far as is known here."""
        with self._guard:
            new = [group for group in groups if group not in self._groups]
            for group in new:
                self._groups[group] = hashes_of([bloom_key(*group)]) if self._blooms is not None else None
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
        """One whole look."""
        with self._reading:
            detection = self._detection
            with self._guard:
                groups, keys, keyless = dict(self._groups), set(self._keys), self._keyless
            if self.conflict is None:
                self.conflict = doom_of(detection.storage, detection.instant)
            if self.conflict is None:
                others = detection.rivals.instants()
                earlier = [one for one in others if order_of(one) < order_of(detection.instant)]
                suspects = self._suspects(groups, None if keyless else keys, earlier)
                if groups and suspects:
                    self._look_closely(list(groups), suspects)
                if groups and self.conflict is None:
                    self._tell_later(list(groups), set(others).difference(earlier))
            if self.conflict is None and groups and detection.settings.check_commits:
                contender = Contender(detection.instant, detection.action, frozenset(groups))
                self.conflict = detection.conflicts.find(contender, detection.completed())
            self._tell()
            self.rounds += 1
            return self.conflict

    def watch(self, delay_ms: int, period_ms: int) -> None:
        """Rounds until `stop`, or until the storage says that this write has lost; its failures only delay it."""
        wait_ms = delay_ms
        while not self._stopped.wait(wait_ms / 1000) and not self._told:
            wait_ms = period_ms
            try:
                self.round()
            except LakelatchError as error:
                instant = self._detection.instant
                _log.warning("a look for conflicts of %s failed, the next one follows: %s", instant, error)

    def stop(self) -> None:
        self._stopped.set()

    def _suspects(self, groups: dict[FileGroup, Any], keys: set[bytes] | None, earlier: list[str]) -> Collection[str]:
        """Those of the instants that may have marked any of the groups; keys None may be any."""
        if not self._near:
            return earlier
        if self._blooms is not None and groups:
            hashes = np.concatenate(list(groups.values()))
            earlier = [instant for instant in earlier if self._blooms.may_mark(instant, hashes)]
        self._index.refresh(earlier)
        found = set(earlier) if keys is None else self._index.instants_with(keys)
        return found | self._index.with_direct

    def _look_closely(self, groups: list[FileGroup], suspects: Collection[str]) -> None:
        rivals = self._detection.rivals.on(groups, suspects)
        if rivals:
            self.conflict = Conflict(rivals[0], rivals[0].file_groups)
            self._tell()

    def _tell_later(self, groups: list[FileGroup], later: Iterable[str]) -> None:
        """Those with direct markers have looked before ours were there; those with a server look by themselves."""
        detection = self._detection
        direct = [one for one in later if one not in detection.told and has_direct_markers(detection.storage, one)]
        for rival in detection.rivals.on(groups, direct) if direct else ():
            if rival.inflight:
                detection.told.add(rival.instant)
                this = OtherWrite(
                    detection.instant, detection.action, "", rival.file_groups, detection.writer, inflight=True
                )
                condemn(detection.storage, rival.instant, Conflict(this, rival.file_groups))

    def _tell(self) -> None:
        """Lets those know who look at the storage: the driver, second attempts, tasks that cannot reach the server."""
        if self.conflict is not None and not self._told:
            condemn(self._detection.storage, self._detection.instant, self.conflict)
            with suppress(Unavailable):  # the next round does it again, as it does if the file is not there
                self._told = doom_of(self._detection.storage, self._detection.instant) is not None
            if self._told and self._when_lost is not None:
                self._when_lost()
