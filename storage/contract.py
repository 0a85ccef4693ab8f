"""The contract of a storage: the place where a table lies.

An implementation has six calls and its `uri`: `read`, `stat`, `list`, `put`, `put_if_absent` and `delete`. All other
methods of `Storage` are made of these, and may be replaced by ones that need fewer requests. What only some storages
can do is an ability of its own (`SupportsDeleteAtOnce`, `SupportsFirstPaths`, `SupportsSweep`), which a class has by
having its method, and callers look for with `isinstance`. `put_if_absent` alone decides races. Every implementation
promises:

- **Whole or not at all.** A reader sees an object complete or does not see it.
- **Durable.** When a put returns, the object and its name outlive a crash of the machine. The exception is an object
  that says that its writer lives (`ends_with_its_writer`), if a crash of the machine ends all writers too.
- **Exactly one.** Of all `put_if_absent` of one path at most one ever creates it, whatever fails.
- **Read your writes, for all readers.** After a put or delete returned every later read and listing, anywhere shows it.
- **Unknown is its own answer.** A put whose answer was lost raises `PutUnknown`; the caller resolves it by reading. An
  implementation does not retry a conditional put by itself, because its own first try could answer 'exists'.

Object stores keep all of this with conditional puts (`If-None-Match: *`), local file systems with `link`.
Paths are relative to the table, with `/`, without a leading one. There are no folders: `list` groups by `/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeVar

from lakelatch.errors import Unavailable
from lakelatch.telemetry import measure_calls

T = TypeVar("T")


def path_below(folder: str, name: str) -> str:
    """The path of a name in a folder; "" is the table's own."""
    return f"{folder}/{name}" if folder else name


#: Where a storage may put what is to be linked or copied to its place; nothing there counts.
STAGING_FOLDER = ".hoodie/.lakelatch/staging"

_OF_LIVING_WRITERS = (".hoodie/.heartbeat/", ".hoodie/.lakelatch/open/", ".hoodie/.lakelatch/beats/")
_NOW = ".hoodie/.lakelatch/now"
_READS = "read", "read_range", "read_end", "stat", "list", "names", "first_paths"
_MEASURED = (*_READS, "put", "put_if_absent", "create_from_file", "delete", "delete_at_once")


def ends_with_its_writer(path: str) -> bool:
    """Whether an object loses its meaning when its writer ends: claims, heartbeats, openings."""
    return path.startswith(_OF_LIVING_WRITERS) or path == _NOW


def depth_first(path: str) -> list[tuple[bool, str]]:
    """A sort key of paths: files before folders, each by name."""
    *folders, name = path.split("/")
    return [*((True, folder) for folder in folders), (False, name)]


class NotFound(Unavailable):
    """There is no object at this path."""

    code = "LAKELATCH-NOT-FOUND"


class PutUnknown(Unavailable):
    """A put was sent and its answer was lost: it may have happened. Read before doing it again."""

    code = "LAKELATCH-PUT-UNKNOWN"


@dataclass(frozen=True)
class Listing:
    """Names directly below a folder, sorted, without the folder's own path."""

    files: tuple[str, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True)
class FileStatus:
    """`modified_ms` is the storage's own clock, in milliseconds since 1970; compare it only with the same storage's."""

    size_bytes: int
    modified_ms: int


class Storage(ABC):
    """One place with objects in it. Values of it travel to executors, so they pickle and hold no connection."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        measure_calls(cls, _MEASURED)

    @property
    def system_name(self) -> str:
        """The kind of the storage, for measurements: its scheme."""
        scheme, found, _ = self.uri.partition("://")
        return scheme if found else "file"

    @property
    @abstractmethod
    def uri(self) -> str:
        """The place as Spark and other readers name it, without a trailing slash."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole object, or `NotFound`."""

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        """A part of an object, shorter or empty where the object ends before it; or `NotFound`.

        For objects that never change. This reads the whole object; a storage that can read a part of one does.
        """
        return self.read(path)[start : start + size_bytes]

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        """The last bytes of an object, or all of it if it has no more, and how many it has; or `NotFound`.

        As `read_range`, this reads the whole object. A storage that does not asks once if the object has no more.
        """
        data = self.read(path)
        return data[max(0, len(data) - size_bytes) :], len(data)

    @abstractmethod
    def stat(self, path: str) -> FileStatus:
        """Size and time of an object, or `NotFound`."""

    @abstractmethod
    def list(self, folder: str) -> Listing:
        """The names directly below a folder; a folder that does not exist is empty."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Creates or replaces the object."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Creates the object and says True, or leaves what is there and says False; `PutUnknown` if it cannot tell.

        After False the object exists, and if it was ours (a lost answer, a repeated request) only its content shows.
        """

    def create_from_file(self, path: str, file: BinaryIO) -> bool:
        """As `put_if_absent`, with the content of an open local file, which may be larger than memory.

        This reads the whole file; a storage that can take it in parts does.
        """
        file.seek(0)
        return self.put_if_absent(path, file.read())

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes the object; nothing happens if there is none."""

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        """Makes requests of which none needs another one's answer, and returns the answers in order.

        This makes one after the other; a storage that is far away makes them at the same time. After an error, which is
        the first one's in order, any of the others may have been carried out, and none is under way.
        """
        return [request() for request in requests]

    def names(self, folder: str) -> Sequence[str]:
        """The names of `list`, files and folders together and in no order: cheaper for thousands of files."""
        listing = self.list(folder)
        return [*listing.files, *listing.folders]

    def delete_folder(self, folder: str) -> None:
        """Removes every object below a folder. Not atomic: others see it shrink, and may add to it meanwhile."""
        for path in list(self.walk(folder)):
            self.delete(path)

    def walk(self, folder: str) -> Iterator[str]:
        """Every path below a folder, depth first, in name order."""
        prefix = f"{folder}/" if folder else ""
        listing = self.list(folder)
        for name in listing.files:
            yield prefix + name
        for name in listing.folders:
            yield from self.walk(prefix + name)

    def exists(self, path: str) -> bool:
        """Whether there is an object at this path now."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def full_path(self, path: str) -> str:
        """The path as Spark and other readers name it."""
        return f"{self.uri}/{path}"


class SupportsDeleteAtOnce(ABC):
    """A storage that removes many objects by one request."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return hasattr(kind, "delete_at_once")

    @abstractmethod
    def delete_at_once(self, paths: Sequence[str]) -> None:
        """Removes objects by their paths. After an error, and to others meanwhile, some of them may be gone."""


def delete_all(storage: Storage, paths: Sequence[str]) -> None:
    """Removes objects by one request, or side by side, in no order; see `delete_at_once` for what errors leave."""
    if isinstance(storage, SupportsDeleteAtOnce):
        storage.delete_at_once(paths)
    else:
        storage.together(*(partial(storage.delete, path) for path in paths))


class SupportsFirstPaths(ABC):
    """A storage whose listings are flat: one request shows the paths of a folder and of all folders below it."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return hasattr(kind, "first_paths")

    @abstractmethod
    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        """The paths below a folder that one request shows, in no order, and whether these are all of them."""


class SupportsSweep(ABC):
    """A storage whose puts leave files where no reader looks, if they crash."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return hasattr(kind, "sweep")

    @abstractmethod
    def sweep(self, older_than_s: float) -> int:
        """Removes such files of at least this age, and returns how many it has removed."""
