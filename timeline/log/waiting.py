"""Who asks to go first, by files among the slots, which everybody lists. A hint: nothing is decided by it."""

from __future__ import annotations

from collections.abc import Collection

from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.events import LOG_FOLDER

#: Who puts slots for many loses them to those who try alone; and so does who holds the table's lock, as for a plan,
#: which others cannot put.
NAME, NAME_OF_HOLDER = "waiting", "waiting-with-lock"


class Waiting:
    """What the last listing of the log showed of those who lose their slots."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.others = False  # whether somebody should go first
        self.holder = False  # and that is the lock's holder

    def seen(self, names: Collection[str]) -> None:
        """Takes note of a listing."""
        self.holder = NAME_OF_HOLDER in names
        self.others = self.holder or NAME in names

    def ask(self, with_lock: bool) -> None:
        """For who loses its slots to those who try alone: they queue from now on, until `stop`.

        For the lock's holder (`with_lock`) those who put slots for others hold back as well, for a while.
        """
        self._storage.put(f"{LOG_FOLDER}/{NAME_OF_HOLDER if with_lock else NAME}", b"")
        self.holder = self.holder or with_lock

    def stop(self, with_lock: bool) -> None:
        """For who has its slot, or gives the lock back (`with_lock`): others need not queue any more for its sake."""
        if with_lock and self.holder:
            self._storage.delete(f"{LOG_FOLDER}/{NAME_OF_HOLDER}")
            self.holder = False
        if self.others and not self.holder:
            self._storage.delete(f"{LOG_FOLDER}/{NAME}")
            self.others = False
