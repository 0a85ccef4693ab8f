"""Files on one machine (or on a shared mount with POSIX semantics), whole or not at all and synced.

Claims and heartbeats are not synced, since a crash of the machine ends their writers. An empty file
has its folder's entry only.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage.contract import (
    STAGING_FOLDER,
    FileStatus,
    Listing,
    NotFound,
    PutUnknown,
    Storage,
    T,
    ends_with_its_writer,
)
from lakelatch.storage.folders import make_folder, sync_folder
from lakelatch.system import REAL_SYSTEM, System

_PART_BYTES = 1024 * 1024  # of a file that is copied
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


@dataclass(frozen=True)
class LocalStorage(Storage):
    """The folder `root`. An object is written to a staging folder of the table, synced, and then linked into place;
    one that is created empty needs no staging.

    The staging folder lies in the same file system and never holds data that counts; what a crash leaves there is
    removed by `sweep`.
    """

    root: str
    system: System = REAL_SYSTEM

    @property
    def uri(self) -> str:
        return "file://" + self.root

    def read(self, path: str) -> bytes:
        return self.read_range(path, 0, -1)

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        with self._opened(path) as file:
            if start:
                file.seek(start)
            return file.read(size_bytes)

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        with self._opened(path) as file:
            whole_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, whole_bytes - size_bytes))
            return file.read(), whole_bytes

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        try:
            with open(self._local(path), "rb") as file:
                yield file
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFound(f"there is no file {path!r} in {self.root}", path=path) from None
        except OSError as error:
            raise self._unavailable("read", path, error) from error

    def stat(self, path: str) -> FileStatus:
        try:
            status = os.stat(self._local(path))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"there is no file {path!r} in {self.root}", path=path) from None
        except OSError as error:
            raise self._unavailable("look at", path, error) from error
        if stat.S_ISDIR(status.st_mode):  # a folder is no object, as in every other storage
            raise NotFound(f"there is no file {path!r} in {self.root}", path=path)
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)

    def list(self, folder: str) -> Listing:
        files: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(self._local(folder)) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else files).append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return Listing((), ())
        except OSError as error:
            raise self._unavailable("list", folder, error) from error
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    def names(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(self._local(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unavailable("list", folder, error) from error

    def put(self, path: str, data: bytes) -> None:
        self._place(path, data, replace=True)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._create(path, data)

    def create_from_file(self, path: str, file: BinaryIO) -> bool:
        return self._create(path, file)

    def _create(self, path: str, data: bytes | BinaryIO) -> bool:
        target = self._local(path)
        if os.path.lexists(target):
            if os.path.isdir(target):  # False would say that the object exists
                raise self._unavailable("write", path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
            return False
        return self._place(path, data, replace=False)

    def delete(self, path: str) -> None:
        target = self._local(path)
        try:
            os.unlink(target)
            if not ends_with_its_writer(path):
                sync_folder(os.path.dirname(target))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unavailable("delete", path, error) from error

    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self._local(folder), ignore_errors=True)
        if os.path.exists(self._local(folder)):  # a writer added to it meanwhile
            super().delete_folder(folder)

    def sweep(self, older_than_s: float) -> int:
        """Removes staged files that a crash left behind, by the file system's own clock; returns how many."""
        if not self.names(STAGING_FOLDER):
            return 0
        now_ms = self._file_system_time_ms()
        removed = 0
        for name in self.list(STAGING_FOLDER).files:
            path = f"{STAGING_FOLDER}/{name}"
            try:
                if now_ms - self.stat(path).modified_ms > older_than_s * 1000:
                    self.delete(path)
                    removed += 1
            except NotFound:
                continue
        return removed

    def _file_system_time_ms(self) -> int:
        try:
            staged = self._stage(b"", synced=False)
            try:
                return os.stat(staged).st_mtime_ns // 1_000_000
            finally:
                os.unlink(staged)
        except OSError as error:
            raise self._unavailable("write", STAGING_FOLDER, error) from error

    def _local(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _place(self, path: str, data: bytes | BinaryIO, replace: bool) -> bool:
        target, synced = self._local(path), not ends_with_its_writer(path)
        folder = os.path.dirname(target)
        placed = False
        try:
            if data or replace:
                staged = self._stage(data, synced=bool(data) and synced)
                try:
                    _within(folder, partial(os.replace if replace else os.link, staged, target))
                    placed = True
                except FileExistsError:
                    return False
                finally:
                    with suppress(OSError):  # a leftover is swept later, and a replacement has moved it
                        os.unlink(staged)
            else:  # whole as soon as it has a name
                try:
                    handle = _within(folder, partial(os.open, target, _NEW_FILE, 0o644))
                except FileExistsError:
                    return False
                placed = True
                os.close(handle)
            if synced:
                with suppress(FileNotFoundError):  # removed meanwhile, and the removal is what counts
                    sync_folder(folder)
        except OSError as error:
            if placed:  # visible now, and perhaps gone after a crash
                raise PutUnknown(f"{path!r} was written and could not be synced: {error.strerror}") from error
            if os.path.isfile(self.root):
                raise InvalidRequest(f"{self.root} is a file, and a table is a folder: name another path") from error
            raise self._unavailable("write", path, error) from error
        return True

    def _stage(self, data: bytes | BinaryIO, synced: bool) -> str:
        folder = self._local(STAGING_FOLDER)
        staged = f"{folder}/{self.system.new_id()}"
        handle = _within(folder, partial(os.open, staged, _NEW_FILE, 0o644))
        try:
            try:
                for part in _parts(data):
                    view = memoryview(part)
                    while view:
                        view = view[os.write(handle, view) :]
                if synced:
                    _sync_data(handle)
            finally:
                os.close(handle)
        except OSError:
            os.unlink(staged)
            raise
        return staged

    def _unavailable(self, verb: str, path: str, error: OSError) -> Unavailable:
        reason = error.strerror or str(error)
        way_out = {
            errno.ENOSPC: "; free some space and run it again",
            errno.EDQUOT: "; the quota is used up: raise it and run it again",
            errno.EFBIG: "; this process may not write files of that size: raise its limit (ulimit -f)",
            errno.EACCES: "; give this user the right to do so",
            errno.EROFS: "; the file system is mounted read-only",
        }.get(error.errno or 0, "")
        return Unavailable(f"could not {verb} {path!r} in {self.root}: {reason}{way_out}", path=path, errno=error.errno)


def _within(folder: str, make: Callable[[], T]) -> T:
    """What makes a file in a folder, which is made first if it is not there."""
    try:
        return make()
    except FileNotFoundError:
        make_folder(folder)
        return make()


def _parts(data: bytes | BinaryIO) -> Iterator[bytes]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield data
        return
    data.seek(0)
    while part := data.read(_PART_BYTES):
        yield part


def _sync_data(handle: int) -> None:
    """Data and size, without the file's times, which are not used."""
    getattr(os, "fdatasync", os.fsync)(handle)
