"""The archived timeline at one moment.

**Load the active timeline first, the history afterwards.** An archiver writes the level file, then the manifest and
`_version_`, and only then removes what it archived from the active timeline. So an instant that a listing of the active
timeline lacks is in every manifest that is read later; in the other order, one that was archived between the two would
be on neither. An instant may be on both for as long as an archiver is at work, or for good if it died: then the active
one counts, and it says the same.

Reorganized level files are removed while others read them. Their rows are in the next manifest, so a reader that misses
a file loads the manifest again and goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.history.level_file import METADATA, PLAN, ArchivedInstant, find_in, read_bytes, select_from
from lakelatch.timeline.history.manifest import HISTORY_FOLDER, LevelFile, Manifest, load_manifest

_RELOADS_MAX = 20
T = TypeVar("T")


class History:
    """The archived instants of a table. Parts of level files are read when they are needed, and once.

    Threads may share it. It may show instants that were archived after it was loaded; callers compare with the active
    timeline that was listed before. Errors, of every method: `CorruptTable` that names the manifest or level file that
    is missing, cut, or not what it says.
    """

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        self._storage = storage
        self._manifest = manifest
        self._guard = threading.Lock()

    @classmethod
    def load(cls, storage: Storage) -> History:
        """The history now. One listing where there is none. Load it *after* the active timeline."""
        return cls(storage, load_manifest(storage))

    @classmethod
    def empty(cls, storage: Storage) -> History:
        """The history of a table whose active timeline shows no folder for one."""
        return cls(storage, Manifest())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever archived."""
        return not self._manifest.files

    @property
    def latest(self) -> str:
        """The greatest requested time in it, "" if it is empty."""
        return max((file.last for file in self._manifest.files), default="")

    def find(self, requested: str) -> ArchivedInstant | None:
        """The completed instant of this requested time, None if it was not archived."""
        return self.find_all((requested,)).get(requested)

    def find_all(self, requested: Collection[str]) -> dict[str, ArchivedInstant]:
        """The archived instants of these requested times. Ask only for times that the active timeline lacks."""
        found = self._try(lambda manifest: self._find_all(manifest.files, requested))
        lost = self._try(lambda manifest: self._find_all(manifest.loose, set(requested).difference(found)))
        for archived in lost.values():
            raise CorruptTable(
                f"{archived.file.path} has the instant {archived.requested}, which the active timeline has not, and no "
                f"manifest names that file: restore {HISTORY_FOLDER}/_version_ and its manifests from a copy",
                path=archived.file.path,
            )
        return found

    def instants(
        self,
        actions: Collection[str] | None = None,
        after: str = "",
        until: str | None = None,
        planned_only: bool = False,
    ) -> list[ArchivedInstant]:
        """Archived instants, of these actions or all, completed after a time and until another, by completion.

        `planned_only`: only those that have a plan.
        """

        def read(manifest: Manifest) -> dict[str, ArchivedInstant]:
            chosen = (select_from(self._storage, file, actions, after, until, planned_only) for file in manifest.files)
            return {one.requested: one for file in chosen for one in file}

        return sorted(self._try(read).values(), key=lambda archived: (archived.completion, archived.requested))

    def metadata(self, archived: ArchivedInstant) -> bytes:
        """The bytes that the completed file had. Errors also: `CorruptTable` if the history has none."""
        data = self._bytes(archived, METADATA)
        if not data:
            raise CorruptTable(
                f"{archived.file.path} has no metadata of {archived.action} {archived.requested}: restore it from a "
                "copy",
                path=archived.file.path,
            )
        return data

    def plan(self, archived: ArchivedInstant) -> bytes | None:
        """The bytes of the instant's plan (of a compaction, a clean, a replace commit), None if it had none."""
        return self._bytes(archived, PLAN) or None

    def _bytes(self, archived: ArchivedInstant, column: str) -> bytes | None:
        """A column of an instant, from the level file that has it now."""

        def read(manifest: Manifest) -> bytes | None:
            now = self._find_all(manifest.files, (archived.requested,)).get(archived.requested, archived)
            return read_bytes(self._storage, now, column)

        return self._try(read)

    def _find_all(self, files: Iterable[LevelFile], requested: Iterable[str]) -> dict[str, ArchivedInstant]:
        missing, found = set(requested), dict[str, ArchivedInstant]()
        for file in files:
            if not missing:
                break
            inside = [one for one in missing if file.first <= one <= file.last]
            if inside:
                found.update(find_in(self._storage, file, inside))
                missing.difference_update(found)
        return found

    def _try(self, read: Callable[[Manifest], T]) -> T:
        """Returns `read(manifest)`, loading the manifest again for as long as level files vanish meanwhile."""
        for _ in range(_RELOADS_MAX):
            manifest = self._manifest
            try:
                return read(manifest)
            except NotFound as error:
                self._reload(manifest, error)
        raise Unavailable(f"level files of {HISTORY_FOLDER} vanished {_RELOADS_MAX} times: try again")

    def _reload(self, seen: Manifest, problem: NotFound) -> None:
        with self._guard:
            if self._manifest is not seen:
                return
            fresh = load_manifest(self._storage)
            if fresh == seen:
                gone = _missing(self._storage, seen.files)
                raise CorruptTable(
                    f"manifest_{seen.version} names {gone or 'a level file'}, which is not there: restore it from a "
                    "copy. Without it, it is unknown which files of the table count",
                    path=gone,
                ) from problem
            self._manifest = fresh


def _missing(storage: Storage, files: Iterable[LevelFile]) -> str:
    return next((file.path for file in files if not storage.exists(file.path)), "")
