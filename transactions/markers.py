"""Direct markers: every data file is announced before it is made, so that no attempt can leave one behind unseen.

The order makes it exact, whoever is paused at whichever step:

- A task **announces** the file's full name (`.hoodie/.temp/<instant>/<partition>/<file>.marker.<TYPE>`), **checks**
  that the instant is neither sealed nor ended, and only then **creates** the data file, put-if-absent.
- The driver (or a rollback) **seals** the instant, **lists** the markers, and for each announced file that does not
  belong to the commit removes it, or, if it is not there yet, creates an empty file of that name.

Either the list shows the marker, and then the data file cannot be made any more under that name, or the task sees the
seal. So no data file of a failed attempt is ever under a committed instant, also if its task was paused for hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.storage.contract import NotFound, Storage

MARKERS_FOLDER = ".hoodie/.temp"
SEALS_FOLDER = ".hoodie/.lakelatch/sealed"
CREATE = "CREATE"
_INFIX = ".marker."


@dataclass(frozen=True)
class Markers:
    """The markers of one instant. Travels to executors; every call goes to the storage."""

    storage: Storage
    instant: str

    def create_data_file(self, partition: str, name: str, data: bytes) -> None:
        """Announces, checks and creates one data file that only this attempt may name.

        Errors: `TransactionEnded` if the instant ended or this attempt was given up; then nothing was made.
        """
        self.announce(partition, name)
        path = f"{partition}/{name}" if partition else name
        if not self.storage.put_if_absent(path, data):
            raise TransactionEnded(
                f"the attempt that writes {path!r} for instant {self.instant} was given up by its driver, and another "
                "one has taken its place"
            )
        failpoint("data.after")

    def announce(self, partition: str, name: str, kind: str = CREATE) -> None:
        """Creates the marker, and checks afterwards that the instant still takes files."""
        folder = f"{MARKERS_FOLDER}/{self.instant}"
        inner = f"{partition}/{name}" if partition else name
        self.storage.put_if_absent(f"{folder}/{inner}{_INFIX}{kind}", b"")
        failpoint("mark.after")
        # The seal first: it is removed only after the heartbeat, so whoever no longer finds the one misses the other.
        if self.storage.exists(self._seal_path):
            raise TransactionEnded(
                f"instant {self.instant} takes no more files: its commit has begun, and this attempt came too late",
                instant=self.instant,
            )
        ensure_beating(self.storage, self.instant)

    def seal(self) -> None:
        """From now on no further file can be announced."""
        self.storage.put_if_absent(self._seal_path, b"")
        failpoint("seal.after")

    def announced(self) -> list[str]:
        """Paths of all data files that were announced, relative to the table."""
        folder = f"{MARKERS_FOLDER}/{self.instant}/"
        paths = []
        for path in self.storage.walk(folder.rstrip("/")):
            inner = path[len(folder) :]
            data_file, infix, _ = inner.rpartition(_INFIX)
            if infix:
                paths.append(data_file)
        return paths

    def seal_and_sweep(self, keep: Iterable[str] = ()) -> list[str]:
        """Seals, then removes every announced file that is not kept, and bars the names of those still to come.

        Returns the paths that were removed or barred. Doing it again changes nothing.
        """
        self.seal()
        kept = set(keep)
        swept = [path for path in self.announced() if path not in kept]
        for path in swept:
            try:
                if not self.storage.put_if_absent(path, b"") and self.storage.stat(path).size_bytes > 0:
                    self.storage.delete(path)
            except NotFound:  # another one sweeps as well, and was faster
                continue
        return swept

    def delete(self) -> None:
        """Forgets the markers and the seal; only after the instant's heartbeat is gone, which bars tasks by then."""
        self.storage.delete_folder(f"{MARKERS_FOLDER}/{self.instant}")
        self.storage.delete(self._seal_path)

    @property
    def _seal_path(self) -> str:
        return f"{SEALS_FOLDER}/{self.instant}"


def marked_instants(storage: Storage) -> set[str]:
    """Instants that have markers or a seal, dead or alive."""
    return {*storage.list(MARKERS_FOLDER).folders, *storage.list(SEALS_FOLDER).files}
