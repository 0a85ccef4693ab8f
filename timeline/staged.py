"""Commits that a transaction has staged, as it sees them itself: completed, and after all that others have committed.

Nobody else sees any of this. What reads a timeline and its files is given a storage that shows one completed file more
for each of them, and needs to know nothing of transactions; only their completion times are no moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar

from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import FileStatus, Listing, Storage, SupportsFirstPaths
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, staged_time
from lakelatch.timeline.metadata import CommitMetadata

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
    """A table's storage that shows these commits as well. What is written goes to the table. Pickles."""

    storage: Storage
    commits: tuple[StagedCommit, ...]

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
        return Listing(tuple(sorted((*found.files, *self.files))), found.folders)

    def names(self, folder: str) -> Sequence[str]:
        found = self.storage.names(folder)
        return found if folder != TIMELINE_FOLDER else [*found, *self.files]

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

    def _content(self, path: str) -> bytes | None:
        return next((commit.content for commit in self.commits if commit.path == path), None)


class _FlatStagedStorage(StagedStorage):
    """The same over a storage whose listings are flat."""

    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        assert isinstance(self.storage, SupportsFirstPaths)
        return self.storage.first_paths(folder)


def with_staged(storage: Storage, commit: StagedCommit) -> StagedStorage:
    """A storage that shows one commit more, after those that it shows already."""
    inner, before = (storage.storage, storage.commits) if isinstance(storage, StagedStorage) else (storage, ())
    kind = _FlatStagedStorage if isinstance(inner, SupportsFirstPaths) else StagedStorage
    return kind(inner, (*before, commit))


def renewed(storage: Storage, commits: Sequence[CommitMetadata]) -> Storage:
    """The same with what these commits are by now, whose files may have moved; they are in the order of those shown."""
    if not isinstance(storage, StagedStorage):
        return storage
    pairs = zip(storage.commits, commits, strict=True)
    now = (StagedCommit(shown.file, add_checksum(one.to_avro(), shown.path)) for shown, one in pairs)
    return replace(storage, commits=tuple(now))
