"""MARKERS files, as a marker server writes them (Hudi's and ours), and an index of them.

A folder `.hoodie/.temp/<instant>/` with `MARKERS.type` has files `MARKERS0`, `MARKERS1`, ... with or instead of direct
markers. Each is a list of lines `<partition>/<data file>.marker.<TYPE>`, and only ever grows. Java Hudi rewrites them
in place, so that a reader may find one that is cut short: an incomplete line does not count yet.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.storage.contract import FileStatus, NotFound, Storage, path_below

MARKERS_FOLDER = ".hoodie/.temp"
INFIX = ".marker."
_KIND = "CREATE"  # every file of ours is new
TYPE_FILE = "MARKERS.type"
SERVER_TYPE = "TIMELINE_SERVER_BASED"
START_LENGTH = 8  # of file ids, in keys; all that a bucket's have in common
_FILE = re.compile(r"MARKERS[0-9]+")
_INSTANT = re.compile(r"_(?:[0-9]{14}|[0-9]{17})\.")
_CACHED_BYTES = 64 * 1024 * 1024


def is_markers_file(name: str) -> bool:
    return _FILE.fullmatch(name) is not None


def data_files_in(content: bytes) -> Iterator[str]:
    """Paths of the data files that are announced, relative to the table; lines that are no marker are left out.

    Paths that lead out of the table, or into its `.hoodie`, are no data files: a rollback would remove them.
    """
    for line in content.split(b"\n"):
        path, infix, _ = line.rpartition(INFIX.encode())
        if not infix:
            continue
        try:
            text = path.decode("utf-8").removeprefix("/")
        except UnicodeDecodeError:
            continue
        if is_data_path(text):
            yield text


def has_direct_markers(storage: Storage, instant: str) -> bool:
    """Whether an instant's folder has anything but a marker server's files."""
    names = storage.names(f"{MARKERS_FOLDER}/{instant}")
    return any(name != TYPE_FILE and not is_markers_file(name) for name in names)


def marker_of(partition: str, data_file_name: str) -> str:
    """A data file's marker, as a line of a MARKERS file and below the instant's folder."""
    return f"{path_below(partition, data_file_name)}{INFIX}{_KIND}"


def is_data_path(path: str) -> bool:
    """Whether this can be the path of a data file in a table."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") for part in parts) and parts[0] != ".hoodie" and "\n" not in path


def read_announced(storage: Storage, instant: str) -> list[str]:
    """Paths of all data files that any marker of the instant announces, in either form, each once.

    A damaged MARKERS file may name files of other instants, which are left out. Errors: `Unavailable`, since a rollback
    could not remove files that it does not see.
    """
    folder = f"{MARKERS_FOLDER}/{instant}/"
    found: dict[str, None] = {}
    for path in storage.walk(folder.rstrip("/")):
        inner = path[len(folder) :]
        data_file, infix, _ = inner.rpartition(INFIX)
        if infix:
            found[data_file] = None
        elif is_markers_file(inner):
            try:
                content = storage.read(path)
            except NotFound:  # the instant has ended, and another process cleans up
                continue
            found.update((name, None) for name in data_files_in(content) if not _is_of_another(name, instant))
    return list(found)


def ensure_whole(storage: Storage, instant: str) -> None:
    """For the owner of an instant, whose MARKERS files are put whole. Errors: `CorruptTable` for any other line."""
    folder = f"{MARKERS_FOLDER}/{instant}"
    for name in filter(is_markers_file, storage.names(folder)):
        try:
            content = storage.read(f"{folder}/{name}")
        except NotFound:  # this instant has ended, as its commit will find
            continue
        found = list(data_files_in(content))
        whole = content.endswith(b"\n") and len(found) == content.count(b"\n")
        if not whole or any(_is_of_another(one, instant) for one in found):
            raise CorruptTable(
                f"{folder}/{name} is no list of markers of {instant}: files of failed attempts could stay unseen, so "
                "nothing was committed. Write it again",
                path=f"{folder}/{name}",
            )


def _is_of_another(data_file: str, instant: str) -> bool:
    """Whether a data file has another instant in its name than this one."""
    name = data_file.rpartition("/")[2]
    return instant not in name and _INSTANT.search(name) is not None


def keys_of(partition: str, file_id: str) -> tuple[bytes, ...]:
    """The prefixes of a file group's lines, up to one character behind the start of the file id.

    Lines of other file groups may have them, too. None for a file id shorter than any of Hudi's: it may be anywhere.
    """
    if len(file_id) < START_LENGTH:
        return ()
    folder, start = f"{partition}/" if partition else "", file_id[:START_LENGTH]
    names = (f".{start}", file_id[: START_LENGTH + 1], f"{start}-", f"{start}_")
    return tuple(f"{folder}{name}".encode() for name in names)


class MarkersFileReader:
    """Reads MARKERS files of other instants, each again only when it has changed. Used by one thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._contents: dict[str, tuple[FileStatus, bytes]] = {}
        self._cached = 0

    def marked_in(self, path: str, partition: str) -> Iterator[str]:
        """Names of the data files of a partition that a MARKERS file announces; none if it cannot be read now."""
        prefix = f"{partition}/" if partition else ""
        pattern = rb"^/?" + re.escape(prefix.encode()) + rb"([^/\n]+)" + re.escape(INFIX.encode())
        for name in re.findall(pattern, self._content(path), re.MULTILINE):
            yield name.decode("utf-8", "replace")

    def _content(self, path: str) -> bytes:
        try:
            status = self._storage.stat(path)
            known = self._contents.get(path)
            if known is not None and known[0] == status:
                return known[1]
            content = self._storage.read(path)
        except Unavailable:  # also if it is gone: the next check handles it
            return b""
        if self._cached > _CACHED_BYTES:
            self._contents.clear()
            self._cached = 0
        self._contents[path] = status, content
        self._cached += len(content)
        return content


class KeyIndex:
    """The instants that have marked file groups in MARKERS files, by keys, in memory. Used by one thread at a time.

    A lookup costs the same for any number of writers. It misses no file group that was read, and may return a writer
    that has only a similar one.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, dict[str, tuple[FileStatus, dict[bytes, str]]]] = {}
        self._first: dict[bytes, str] = {}
        self._more: dict[bytes, set[str]] = {}
        self.with_direct: set[str] = set()  # these have direct markers as well, which are not in the index

    def refresh(self, instants: Collection[str]) -> None:
        """Brings the index up to date for these instants: reads what has changed, and drops the others."""
        gone = self._files.keys() - set(instants)
        for instant in gone:
            del self._files[instant]
        if gone:
            self._build()
        self.with_direct = {instant for instant in instants if self._read(instant)}

    def instants_of(self, partition: str, file_id: str) -> set[str]:
        """The instants that may have marked this file group."""
        keys = keys_of(partition, file_id)
        return self.instants_with(set(keys)) if keys else set(self._files)

    def instants_with(self, keys: set[bytes]) -> set[str]:
        """The instants that may have marked a file group with any of these keys (`keys_of`)."""
        found: set[str] = set()
        for key in self._first.keys() & keys:
            found.add(self._first[key])
            found |= self._more.get(key, set())
        return found

    def __len__(self) -> int:
        return len(self._first)

    def _read(self, instant: str) -> bool:
        """Reads an instant's MARKERS files that have changed; returns whether it has direct markers as well."""
        direct = False
        known = self._files.setdefault(instant, {})
        folder = f"{MARKERS_FOLDER}/{instant}"
        for name in self._storage.names(folder):
            if not is_markers_file(name):
                direct |= name != TYPE_FILE
                continue
            try:
                status = self._storage.stat(f"{folder}/{name}")
                if name in known and known[name][0] == status:
                    continue
                content = self._storage.read(f"{folder}/{name}")
            except Unavailable:
                continue
            lines = content.replace(b"\n/", b"\n").removeprefix(b"/").split(b"\n")
            keys = dict.fromkeys([line[: line.rfind(b"/") + 2 + START_LENGTH] for line in lines], instant)
            known[name] = status, keys
            self._add(instant, keys)
        return direct

    def _add(self, instant: str, keys: dict[bytes, str]) -> None:
        for key in keys.keys() & self._first.keys():
            if self._first[key] != instant:
                self._more.setdefault(key, set()).update((self._first[key], instant))
        self._first.update(keys)

    def _build(self) -> None:
        self._first, self._more = {}, {}
        for instant, files in self._files.items():
            for _, keys in files.values():
                self._add(instant, keys)
