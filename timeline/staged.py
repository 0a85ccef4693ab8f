"""A table as a transaction over several of them sees it: at one moment, and with the commits that it has staged itself.

Nobody else sees any of this. What reads a timeline and its files is given a storage that hides what has completed after
the moment, and shows one completed file more for each staged commit, as if it had completed after all others. So it
needs to know nothing of transactions; only the completion times of staged commits are no moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, TypeVar

from lakelatch.errors import WriteConflict
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import FileStatus, Listing, Storage, SupportsFirstPaths
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, is_seen, parse_file_name, requested_time, staged_time
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Mark

T = TypeVar("T")


@dataclass(frozen=True)
class StagedCommit:
    """A commit that is not in the log yet: the name of its completed file, and its content. Pickles."""

    file: str
    content: bytes

    @classmethod
    def of(cls, number: int, instant: str, pending_action: str, metadata: CommitMetadata) -> StagedCommit:
        """The commit of this number among those of one transaction in one table, from 0."""
        one = completed(instant, pending_action, staged_time(number))
        return cls(one.file_name, add_checksum(metadata.to_avro(), one.path))

    @property
    def path(self) -> str:
        return f"{TIMELINE_FOLDER}/{self.file}"


@dataclass(frozen=True)
class StagedStorage(Storage):
    """A table's storage as of a completion time, None for now, that shows these commits as well. Pickles.

    What is written goes to the table. `there` are the files of writes that had completed by then, for whoever plans a
    read (`WholeTimeline`); those who carry it out get none of them.
    """

    storage: Storage
    moment: str | None
    commits: tuple[StagedCommit, ...] = ()
    there: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "there": frozenset()}

    @property
    def instants(self) -> list[str]:
        """Those of the staged commits, in their order."""
        return [requested_time(commit.file) for commit in self.commits]

    @property
    def uri(self) -> str:
        return self.storage.uri

    @property
    def files(self) -> frozenset[str]:
        """The names of the completed files that only this storage shows."""
        return frozenset(commit.file for commit in self.commits)

    def read(self, path: str) -> bytes:
        found = self._content(path)
        return self.storage.read(path) if found is None else found

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        found = self._content(path)
        return self.storage.read_range(path, start, size_bytes) if found is None else found[start : start + size_bytes]

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        found = self._content(path)
        if found is None:
            return self.storage.read_end(path, size_bytes)
        return found[max(0, len(found) - size_bytes) :], len(found)

    def stat(self, path: str) -> FileStatus:
        found = self._content(path)
        return self.storage.stat(path) if found is None else FileStatus(len(found), 0)

    def list(self, folder: str) -> Listing:
        found = self.storage.list(folder)
        if folder != TIMELINE_FOLDER:
            return found
        return Listing(tuple(sorted(self._shown(found.files))), found.folders)

    def names(self, folder: str) -> Sequence[str]:
        found = self.storage.names(folder)
        return found if folder != TIMELINE_FOLDER else self._shown(found)

    def put(self, path: str, data: bytes) -> None:
        self.storage.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.storage.put_if_absent(path, data)

    def create_from_file(self, path: str, file: BinaryIO) -> bool:
        return self.storage.create_from_file(path, file)

    def delete(self, path: str) -> None:
        self.storage.delete(path)

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        return self.storage.together(*requests)

    def exists(self, path: str) -> bool:
        return self._content(path) is not None or self.storage.exists(path)

    def full_path(self, path: str) -> str:
        return self.storage.full_path(path)

    def _shown(self, names: Iterable[str]) -> Sequence[str]:
        return [*(name for name in names if _is_of(name, self.moment)), *self.files]

    def _content(self, path: str) -> bytes | None:
        return next((commit.content for commit in self.commits if commit.path == path), None)


class _FlatStagedStorage(StagedStorage):
    """The same over a storage whose listings are flat."""

    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        assert isinstance(self.storage, SupportsFirstPaths)
        return self.storage.first_paths(folder)


def as_of(storage: Storage, mark: Mark) -> StagedStorage:
    """A table's storage at the moment of a mark, with nothing staged yet."""
    kind = _FlatStagedStorage if isinstance(storage, SupportsFirstPaths) else StagedStorage
    return kind(storage, mark.moment, there=frozenset(filter(_is_write, mark.names)))


def with_staged(storage: StagedStorage, commit: StagedCommit) -> StagedStorage:
    """A storage that shows one commit more, after those that it shows already."""
    return replace(storage, commits=(*storage.commits, commit))


def by_now(storage: StagedStorage) -> Storage:
    """The table as it is now, with the same commits."""
    return replace(storage, moment=None, there=frozenset()) if storage.commits else storage.storage


def renewed(storage: Storage, commits: Sequence[CommitMetadata]) -> Storage:
    """The table as it is now, with what these commits are by now, whose files may have moved.

    They are in the order of those shown.
    """
    if not isinstance(storage, StagedStorage):
        return storage
    pairs = zip(storage.commits, commits, strict=True)
    now = (StagedCommit(shown.file, add_checksum(one.to_avro(), shown.path)) for shown, one in pairs)
    return by_now(replace(storage, commits=tuple(now)))


def no_longer_readable(storage: StagedStorage, path: str, clean: str) -> WriteConflict:
    """The error of a read at a moment of which a clean has removed a file since."""
    return WriteConflict(
        f"the moment that this transaction reads of {without_secrets(storage.uri)} is no longer readable: the clean "
        f"{clean} has removed {path}, as others have written its file group anew since. Run the block again; if it has "
        "to stay open for so long, raise hoodie.cleaner.commits.retained (or hoodie.cleaner.hours.retained, by "
        "hoodie.cleaner.policy) of the writers that clean the table",
        path=path,
        clean=clean,
    )


def _is_of(name: str, moment: str | None) -> bool:
    """Whether a file of the timeline was there at a moment, if it is a completed one; what is pending has no effect."""
    one = parse_file_name(name)
    return one is None or one.completion is None or is_seen(one.completion, moment)


def _is_write(name: str) -> bool:
    """Whether a file of the timeline is that of a completed write."""
    one = parse_file_name(name)
    return one is not None and one.completion is not None and one.action in WRITE_ACTIONS
