"""The timeline folder as names, read again and again: cheap where a full `Timeline` would parse thousands of files."""

from __future__ import annotations

import threading

from lakelatch.storage.contract import Storage
from lakelatch.timeline.instants import COMPLETED, TIMELINE_FOLDER, Instant, parse_file_name


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
