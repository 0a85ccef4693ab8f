"""Data files that a transaction's own process makes, of an instant that no task was given: announced, asked, created.

Nobody else may make files then, so there is no opening, and nothing to close: whatever was announced is known here.
But others may take the process for dead and roll its instant back, while it goes on. So the order is that of tasks,
with the log in the place of the opening: a file is **announced** by its marker, then the **log** is asked whether the
instant has ended, and only then is the file **created**, put-if-absent.

A rollback has its place in the log before it lists the markers. So if the log says nothing of one after the marker was
there, every rollback will find it, and bar the file's name. The claim would not do: a beat that was under way brings it
back after it was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.conditional_puts import create_own, ensure_created
from lakelatch.storage.contract import path_below
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.markers.direct import Markers, bar

_HELD_BYTES = 16 * 1024 * 1024


class OwnFiles:
    """The files of one transaction, for its own process and one thread of it.

    Files are held until `place`, which makes all of them side by side; when many bytes are held, they go at once.
    """

    def __init__(self, context: TransactionContext, state: TransactionState) -> None:
        self._context = context
        self._state = state
        self._markers = Markers(context.storage, state.instant)
        self._announced: dict[str, None] = {}
        self._held: dict[str, bytes] = {}
        self._held_bytes = 0

    def announce_all(self, files: Iterable[tuple[str, str]]) -> None:
        """Announces data files, each a partition and a name, which may be made from then on.

        Errors: `TransactionEnded` if the instant has ended; then they must not be made.
        """
        new = [file for file in files if path_below(*file) not in self._announced]
        if not new:
            return
        storage, system = self._context.storage, self._context.system

        def announce(marker: str) -> None:
            ensure_created(storage, marker, b"", system)
            failpoint("mark.after")

        storage.together(*(partial(announce, self._markers.path_of(*file)) for file in new))
        ensure_not_ended(self._context, self._state)
        self._announced.update((path_below(*file), None) for file in new)

    def create(self, partition: str, name: str, data: bytes) -> None:
        """Makes a data file, with its checksum, at `place` or before; its name is no other file's.

        Errors: those of `place`.
        """
        path = path_below(partition, name)
        self._held[path] = data
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_BYTES:
            self.place()

    @property
    def announced(self) -> list[str]:
        """The paths of all files that were announced."""
        return list(self._announced)

    def announce_held(self) -> None:
        """Announces the files that `place` is going to make. Errors: `TransactionEnded`, as of `announce_all`."""
        self.announce_all(path.rpartition("/")[::2] for path in self._held)

    def place(self, beside: Iterable[Callable[[], None]] = ()) -> None:
        """Makes the files that are held, and `beside` them requests that need no answer of theirs.

        Errors: `TransactionEnded` if the instant has ended, `Unavailable`; then some of them may be there. Asked again,
        it makes the rest.
        """
        self.announce_held()
        self._context.storage.together(*(partial(self._create, *file) for file in self._held.items()), *beside)
        self._held.clear()
        self._held_bytes = 0

    def sweep(self, keep: Iterable[str]) -> list[str]:
        """Puts a tombstone in the place of every announced file that is not kept, and returns their paths."""
        kept = set(keep)
        swept = [path for path in self._announced if path not in kept]
        for path in swept:
            bar(self._context.storage, path)
        return swept

    def _create(self, path: str, data: bytes) -> None:
        context = self._context
        if not create_own(context.storage, path, add_checksum(data, path), context.system):
            raise TransactionEnded(
                f"the name {path!r} is taken: others took the writer of instant {self._state.instant} for dead, and "
                "rolled it back. Begin a new one",
                instant=self._state.instant,
            )
        failpoint("data.after")


def ensure_not_ended(context: TransactionContext, state: TransactionState) -> None:
    """By the log as it is now, and by no claim. Errors: `TransactionEnded`."""
    if context.log.may_have_ended(state.instant, state.mark.slot, context.log.tail()):
        raise TransactionEnded(
            f"instant {state.instant} has ended elsewhere, so nothing more is written for it: begin a new one. If this "
            "writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
            instant=state.instant,
        )
