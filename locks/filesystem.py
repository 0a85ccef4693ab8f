"""Locks among the processes of one machine, by the kernel's file locks: no service, and nothing to clean up."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote, unquote, urlsplit
from zlib import crc32

from lakelatch.errors import CorruptTable, InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import Holder, LockProvider, LockScope, Register, check_count
from lakelatch.locks.kernel_locks import Taken, kernel_locks
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import FILESYSTEM_PATH, WAIT_TIME, LockOptions
from lakelatch.locks.renewal import renewals
from lakelatch.system import process_name

DEFAULT_FOLDER = ".hoodie/.lakelatch/locks"

_LOCK, _TOKEN, _REGISTER = ".lock", ".token", ".register"
_VALUE = re.compile(rb"[0-9]{1,30}\n")
_NAME_MOST = 200  # characters of a name; file systems take 255 bytes
_GUARDS = 16
_GUARD_WAIT_S = 5.0  # guards are held for a few milliseconds, so that long means that their holder is stopped
_GIVING_BACK_S = 0.1
_LOOK_S = 1.0


class FilesystemLockProvider(LockProvider):
    """Leases for all processes of one machine; they last as long as their process, and end with it, however it ends.

    A holder that is stopped keeps its keys: `break_` takes them. All writers must be on one machine and use the same
    folder, `hoodie.write.lock.filesystem.path`, which is `.hoodie/.lakelatch/locks` in a local table. Two tables that
    share a folder share their locks.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        options = LockOptions.from_options(scope.options)
        self._folder = _choose_folder(options.filesystem_path, scope.table_uri)
        self._timeout_s = options.timeout_s
        self._held: dict[Lease, Taken] = {}
        self._closed = False

    def acquire(self, key: str, timeout_s: float) -> Lease:
        path = self._path(key, _LOCK)
        system = self.scope.system
        deadline_ns = system.monotonic_ns() + int(timeout_s * 1e9)
        remaining_s = timeout_s
        while True:
            if self._closed:
                raise InvalidRequest(f"the lock provider of {self.scope.table_uri} is closed: open another one")
            taken = kernel_locks().take(path, remaining_s, lambda: self._closed)
            if taken is None and _read_note(key, path) is None:  # locked by nobody: a waiter that gave up gives it back
                taken = kernel_locks().take(path, _GIVING_BACK_S, lambda: self._closed)
            if taken is None and self._closed:
                raise Unavailable(f"the lock provider of {self.scope.table_uri} was closed while a thread waited")
            if taken is None:
                noted = _read_note(key, path)
                raise LockTimeout.of(key, timeout_s, WAIT_TIME, noted.owner if noted else None)
            remaining_s = max((deadline_ns - system.monotonic_ns()) / 1e9, 0.0)
            try:
                lease = self._grant(key, taken, remaining_s)
            except BaseException:
                taken.free()
                raise
            if lease is not None:
                return lease
            taken.free()  # broken before it was granted

    def register(self, key: str) -> Register:
        return _FileRegister(self, key)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                key = self._key_at(path) if name.endswith(_LOCK) else None
                if key is None or not key.startswith(prefix):
                    continue
                noted = _read_note(key, path)  # an idle lock has no note, and is not looked at further
                if noted is not None and kernel_locks().locked(path):
                    found.append(noted)
        return sorted(found, key=lambda holder: holder.key)

    def break_(self, key: str) -> bool:
        path = self._path(key, _LOCK)
        with self._guard(key, self._timeout_s):  # so nobody is just being granted the key
            if not kernel_locks().locked(path):
                return False
            fresh = path + ".fresh"
            try:
                os.close(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
                os.replace(fresh, path)  # who waits for the old file notices, and turns to this one
            except OSError as error:
                raise _unavailable("break", path, error) from error
            return True

    def close(self) -> None:
        self._closed = True
        for lease, taken in list(self._held.items()):
            if taken.process == os.getpid():
                lease.release()

    def advance(self, key: str, at_least: int, count: int) -> int:
        """For this provider's registers."""
        check_count(count)
        with self._guard(key, self._timeout_s):
            return _advance(self._path(key, _REGISTER), at_least, count)

    def _grant(self, key: str, taken: Taken, remaining_s: float) -> Lease | None:
        """Draws the token and notes the holder; None if the key was broken meanwhile."""
        system = self.scope.system
        with self._guard(key, remaining_s):
            if not taken.current():
                return None
            token = _advance(self._path(key, _TOKEN), 1, 1)
            note = {"owner": process_name(), "token": token, "since_ms": system.realtime_ms()}
            try:
                os.ftruncate(taken.handle, 0)
                os.pwrite(taken.handle, json.dumps(note).encode(), 0)
            except OSError as error:
                raise _unavailable("note the holder in", taken.path, error) from error
            lease = Lease(key, token, process_name(), system, None, self._release, lambda _: taken.current())
            self._held[lease] = taken
        renewals().add(lease, _LOOK_S, Lease.valid)  # so that `lost` is set even if nobody asks
        if self._closed:
            lease.release()
            raise Unavailable(f"the lock provider of {self.scope.table_uri} was closed while a thread took a lease")
        return lease

    def _release(self, lease: Lease) -> bool:
        renewals().remove(lease)
        taken = self._held.pop(lease, None)
        if taken is None:
            return False
        held = taken.current()
        with suppress(OSError):  # the note is for people only
            os.ftruncate(taken.handle, 0)
        taken.free()
        return held

    @contextmanager
    def _guard(self, key: str, timeout_s: float) -> Iterator[None]:
        """Excludes others from the key's value files, and from breaking it, for a few milliseconds."""
        stripe = crc32(key.encode()) % _GUARDS
        path = os.path.join(self._folder, f"+guard.{stripe:02d}")
        wait_s = max(timeout_s, _GUARD_WAIT_S)
        taken = kernel_locks().take(path, wait_s)
        if taken is None:
            raise LockTimeout.of(path, wait_s, WAIT_TIME)
        try:
            yield
        finally:
            taken.free()

    def _path(self, key: str, suffix: str) -> str:
        """Keys are percent-encoded; a long one is cut into folders, whose names end with `+`, which keys never have."""
        name = quote(key, safe="")
        pieces = [name[start : start + _NAME_MOST] for start in range(0, len(name), _NAME_MOST)] or [""]
        return os.path.join(self._folder, *(piece + "+" for piece in pieces[:-1]), pieces[-1] + suffix)

    def _key_at(self, path: str) -> str:
        name = os.path.relpath(path, self._folder)[: -len(_LOCK)]
        return unquote(name.replace("+" + os.sep, ""))


class _FileRegister(Register):
    def __init__(self, provider: FilesystemLockProvider, key: str) -> None:
        self._provider = provider
        self._key = key

    def advance(self, at_least: int, count: int = 1) -> int:
        return self._provider.advance(self._key, at_least, count)


def _choose_folder(given: str | None, table_uri: str) -> str:
    if given is not None:
        if given.startswith("file:"):
            return os.path.abspath(unquote(urlsplit(given).path))
        if "://" in given:
            raise InvalidRequest(
                f"{FILESYSTEM_PATH}={given!r} is not on this machine: kernel locks need a local folder",
                option=FILESYSTEM_PATH,
            )
        return os.path.abspath(given)
    if not table_uri.startswith("file:///"):
        raise InvalidRequest(
            f"the lock provider 'filesystem' has no folder for {table_uri}, which is not on this machine: set "
            f"{FILESYSTEM_PATH} to a local folder that all writers share, or choose another provider",
            option=FILESYSTEM_PATH,
        )
    return os.path.join(table_uri[len("file://") :], DEFAULT_FOLDER)


def _read_note(key: str, path: str) -> Holder | None:
    """Who noted itself in a lock file, and may have crashed since; None if nobody did, or is about to."""
    try:
        with open(path, "rb") as file:
            note = json.loads(file.read(4096))
        return Holder(key, str(note["owner"]), int(note["token"]), int(note["since_ms"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _advance(path: str, at_least: int, count: int) -> int:
    """Under the guard: the file is replaced as a whole, and is on the disk before anybody acts on its value."""
    first = max(_stored(path) + 1, at_least)
    staged = path + ".next"
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    try:
        _make_folder(os.path.dirname(path))
        handle = os.open(staged, flags, 0o666)
        try:
            os.write(handle, b"%d\n" % (first + count - 1))
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(staged, path)
        _sync_folder(os.path.dirname(path))
    except OSError as error:
        raise _unavailable("advance", path, error) from error
    return first


def _stored(path: str) -> int:
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unavailable("read", path, error) from error
    if not _VALUE.fullmatch(text):
        raise CorruptTable(
            f"the counter file {path} holds {text!r}, which is no number: write into it a number, with a line break, "
            "that is greater than every token or time that was ever handed out",
            path=path,
        )
    return int(text)


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unavailable(verb: str, path: str, error: OSError) -> Unavailable:
    way_out = {
        errno.ENOSPC: "; free some space and run it again",
        errno.EACCES: "; give this user the right to write there",
        errno.EROFS: f"; set {FILESYSTEM_PATH} to a folder that can be written",
    }.get(error.errno or 0, "")
    return Unavailable(f"could not {verb} {path}: {error.strerror}{way_out}", path=path)
