"""Direct markers: every data file is announced before it is made, so that no attempt can leave one behind unseen.

The order makes it exact, whichever process is paused at whichever step:

- A task **announces** the file's full name (`.hoodie/.temp/<instant>/<partition>/<file>.marker.<TYPE>`), **checks**
  that the instant is open, and only then **creates** the data file, put-if-absent.
- The driver (or a rollback) **closes** the instant, **lists** the markers, and puts an empty file, a tombstone, in the
  place of each announced file that does not belong to the commit, whether it is there yet or not.

Either the list shows the marker, and then the data file cannot be made any more under that name, or the task finds the
instant closed. So no data file of a failed attempt is ever under a committed instant, also if its task was paused for
hours, and if the request that made it arrives once more. An instant is open while a file says so, which is created
once, at its beginning, and never put again. The heartbeat does not suffice: a beat that was under way brings it back
after it was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import why_not_beating
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import Storage, SupportsFirstPaths, path_below
from lakelatch.transactions.markers.files import MARKERS_FOLDER, ensure_whole, marker_of, read_announced

OPEN_FOLDER = ".hoodie/.lakelatch/open"
_BASE_FILES = (".parquet", ".orc", ".hfile")


@dataclass(frozen=True)
class Markers:
    """The markers of one instant. Travels to executors; every call goes to the storage.

    `opening` counts how often its driver has opened it anew after closing it; tasks of an earlier opening are refused.
    """

    storage: Storage
    instant: str
    opening: int = 0

    def open(self) -> None:
        """Lets tasks announce files. Not to be repeated after an error: the first try might arrive after the end."""
        self.storage.put_if_absent(self._open_path, b"")

    def create_data_file(self, partition: str, name: str, data: bytes) -> None:
        """Announces, checks and creates one data file, with its checksum, that only this attempt may name.

        Errors: `TransactionEnded` if the instant ended or this attempt was given up; then nothing was made.
        """
        self.announce(partition, name)
        self.place_data_file(partition, name, data)

    def place_data_file(self, partition: str, name: str, data: bytes) -> None:
        """Creates a file, with its checksum, that was announced, however long ago: a swept name has a tombstone.

        Errors as above.
        """
        path = path_below(partition, name)
        if not self.storage.put_if_absent(path, add_checksum(data, path)):
            raise TransactionEnded(
                f"the attempt that writes {path!r} for instant {self.instant} was given up by its driver, and another "
                "one has taken its place"
            )
        failpoint("data.after")

    def announce(self, partition: str, name: str) -> None:
        """Creates the marker, and checks afterwards that the instant still takes files."""
        marker = self.path_of(partition, name)
        self.storage.put_if_absent(marker, b"")
        failpoint("mark.after")
        self.ensure_taking(marker)

    def ensure_taking(self, marker: str) -> None:
        """Raises `TransactionEnded` if the instant takes no more files; ask after this file with a marker was made."""
        ended, is_open = self.storage.together(  # the first one asks for two things at once
            partial(why_not_beating, self.storage, self.instant, marker), partial(self.storage.exists, self._open_path)
        )
        if not is_open:
            raise TransactionEnded(
                f"instant {self.instant} takes no more files: its commit has begun, or it has ended elsewhere, so "
                "this attempt came too late",
                instant=self.instant,
            )
        if isinstance(ended, TransactionEnded):
            raise ended

    def path_of(self, partition: str, name: str) -> str:
        """Where the marker of a data file lies."""
        return f"{MARKERS_FOLDER}/{self.instant}/{marker_of(partition, name)}"

    def close(self) -> None:
        """Closes the instant, so that no more files can be announced; the driver may open it again."""
        self.storage.delete(self._open_path)
        failpoint("close.after")

    def announced(self, *meanwhile: Callable[[], None]) -> list[str]:
        """Paths of all data files that were announced, relative to the table: here, or through a marker server.

        `meanwhile` are requests that need not wait for this one.
        """
        found: list[str] = []
        self.storage.together(lambda: found.extend(read_announced(self.storage, self.instant)), *meanwhile)
        return found

    def ensure_whole(self) -> None:
        """Checks the markers before the owner commits. Errors: `CorruptTable` for damaged markers of a server."""
        ensure_whole(self.storage, self.instant)

    def close_and_sweep(self, keep: Iterable[str] = (), meanwhile: Iterable[Callable[[], None]] = ()) -> list[str]:
        """Closes, then puts a tombstone in the place of every announced file that is not kept, made or still to come.

        Returns these paths. Doing it again changes nothing. A file that was only deleted would leave its name free, for
        the request that made it may arrive once more. `meanwhile` are requests that are made between the two.
        """
        self.close()
        kept = set(keep)
        swept = [path for path in self.announced(*meanwhile) if path not in kept]
        for path in swept:
            sweep_file(self.storage, path)
        return swept

    def close_all(self) -> None:
        """Closes every opening, for those who do not know how many there were."""
        for name in self.storage.names(OPEN_FOLDER):
            if _instant_of(name) == self.instant:
                self.storage.delete(f"{OPEN_FOLDER}/{name}")

    @property
    def _open_path(self) -> str:
        return f"{OPEN_FOLDER}/{self.instant}" + (f"-{self.opening}" if self.opening else "")


def sweep_file(storage: Storage, path: str) -> None:
    """Puts a tombstone in the place of a log file. A base file is only deleted: other writers do not ask whether a name
    is taken, and their readers take an empty one for damage. No commit of ours goes on when it has to delete one.
    """
    if is_base_file(path):
        storage.delete(path)
    else:
        storage.put(path, b"")


def is_base_file(path: str) -> bool:
    """Whether a data file is a base file, of any of Hudi's formats."""
    return path.endswith(_BASE_FILES)


def marked_instants(storage: Storage) -> set[str]:
    """Instants that have markers or are open, dead or alive."""
    return instants_with_markers(storage) | open_instants(storage)


def instants_with_markers(storage: Storage) -> set[str]:
    """Instants that have markers. Some object stores go on listing folders in which nothing is left."""
    paths, are_all = storage.first_paths(MARKERS_FOLDER) if isinstance(storage, SupportsFirstPaths) else ((), False)
    if not are_all:
        return set(storage.list(MARKERS_FOLDER).folders)
    return {path.removeprefix(f"{MARKERS_FOLDER}/").partition("/")[0] for path in paths}


def open_instants(storage: Storage) -> set[str]:
    """Instants whose tasks may announce files."""
    return set(map(_instant_of, storage.list(OPEN_FOLDER).files))


def _instant_of(open_file: str) -> str:
    return open_file.partition("-")[0]
