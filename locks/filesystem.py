"""Leases among the processes of one machine, by the kernel's file locks.

The kernel frees a lock at the instant at which its process dies, and wakes the next waiter; nobody polls and nothing
expires. A holder that is merely stopped keeps its lock: `break_` is for that.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import suppress
from urllib.parse import quote, unquote, urlsplit

from lakelatch.errors import CorruptTable, InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import Holder, LockProvider, LockScope, Register
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import FILESYSTEM_PATH, WAIT_TIME
from lakelatch.system import process_name

_DEFAULT_FOLDER = ".hoodie/.lakelatch/locks"
_LOCK_SUFFIX = ".lock"
_VALUE_SUFFIX = ".value"


class FilesystemLockProvider(LockProvider):
    """A lock file for each key, held by `flock`; a value file for each token counter and register.

    The files lie in hoodie.write.lock.filesystem.path, or below the table. All writers must be on one machine and name
    the same folder: a network file system may keep such locks to one host.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._system = scope.system
        self._folder = _folder(scope)
        self._held: dict[Lease, int] = {}

    def acquire(self, key: str, timeout_s: float) -> Lease:
        path = self._path(key, _LOCK_SUFFIX)
        handle = _lock_current_file(path, blocking=False)
        if handle is None and timeout_s > 0:
            handle = _Waiter(path).wait(timeout_s)
        if handle is None:
            raise LockTimeout.of(key, timeout_s, WAIT_TIME, _owner_in(path))
        try:
            token = _advance(self._path(f"token/{key}", _VALUE_SUFFIX), 1, 1)
            owner = f"{process_name()}/{threading.current_thread().name}"
            note = {"owner": owner, "token": token, "since_ms": self._system.realtime_ms()}
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(note).encode("utf-8"), 0)
        except OSError as error:
            os.close(handle)
            raise Unavailable(f"could not note the holder in {path}: {error.strerror}") from error
        except BaseException:
            os.close(handle)
            raise
        lease = Lease(key, token, owner, self._system, None, self._release, self._still_held)
        self._held[lease] = handle
        return lease

    def register(self, key: str) -> Register:
        return _FileRegister(self._path(f"register/{key}", _VALUE_SUFFIX))

    def holders(self, prefix: str = "") -> list[Holder]:
        found = []
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._folder)):
                key = unquote(name[: -len(_LOCK_SUFFIX)])
                if name.endswith(_LOCK_SUFFIX) and key.startswith(prefix):
                    holder = _holder(key, os.path.join(self._folder, name))
                    if holder is not None:
                        found.append(holder)
        return sorted(found, key=lambda holder: holder.key)

    def break_(self, key: str) -> bool:
        path = self._path(key, _LOCK_SUFFIX)
        with _Guard(path + ".break"):
            if _holder(key, path) is None:
                return False
            # Waiters on the old file find that it is no longer the one at the path, and turn to the new one.
            with suppress(FileNotFoundError):
                os.unlink(path)
            return True

    def close(self) -> None:
        for lease in list(self._held):
            lease.release()

    def _path(self, key: str, suffix: str) -> str:
        return os.path.join(self._folder, quote(key, safe="") + suffix)

    def _still_held(self, lease: Lease) -> bool:
        handle = self._held.get(lease)
        return handle is not None and _is_at(handle, self._path(lease.key, _LOCK_SUFFIX))

    def _release(self, lease: Lease) -> bool:
        handle = self._held.pop(lease, None)
        if handle is None:
            return False
        current = _is_at(handle, self._path(lease.key, _LOCK_SUFFIX))
        try:
            os.ftruncate(handle, 0)
            fcntl.flock(handle, fcntl.LOCK_UN)  # also if a forked child still has the file open
        finally:
            os.close(handle)
        return current


class _FileRegister(Register):
    def __init__(self, path: str) -> None:
        self._path = path

    def advance(self, at_least: int, count: int = 1) -> int:
        return _advance(self._path, at_least, count)


class _Waiter:
    """Waits for a file lock in a thread of its own, since the kernel takes no timeout.

    A grant that comes after the caller has given up is given back at once.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._done = threading.Event()
        self._handle: int | None = None
        self._error: Exception | None = None
        self._given_up = False

    def wait(self, timeout_s: float) -> int | None:
        threading.Thread(target=self._run, name="lakelatch-lock-wait", daemon=True).start()
        self._done.wait(timeout_s)
        with self._guard:
            self._given_up = True
            if self._error is not None:
                raise self._error
            return self._handle

    def _run(self) -> None:
        try:
            handle = _lock_current_file(self._path, blocking=True)
        except Unavailable as error:
            self._error = error
            self._done.set()
            return
        with self._guard:
            if self._given_up and handle is not None:
                os.close(handle)
            else:
                self._handle = handle
        self._done.set()


class _Guard:
    """A short exclusive section around a value file or a lock file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> _Guard:
        self._handle = _open(self._path)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        return self

    def __exit__(self, *details: object) -> None:
        os.close(self._handle)


def _folder(scope: LockScope) -> str:
    given = scope.options.get(FILESYSTEM_PATH)
    if given:
        parts = urlsplit(given)
        if parts.scheme not in ("", "file"):
            raise InvalidRequest(f"{FILESYSTEM_PATH}={given!r}: kernel locks need a local folder")
        return os.path.abspath(unquote(parts.path) if parts.scheme else given)
    parts = urlsplit(scope.table_uri)
    if parts.scheme != "file":
        raise InvalidRequest(
            f"the lock provider 'filesystem' has no folder for {scope.table_uri}: set {FILESYSTEM_PATH} to a folder "
            "that all writers on this machine share, or choose another provider"
        )
    return os.path.join(scope.table_uri[len("file://") :], _DEFAULT_FOLDER)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, flags, 0o666)
    except OSError as error:
        raise Unavailable(f"could not open the lock file {path}: {error.strerror}") from error


def _lock_current_file(path: str, blocking: bool) -> int | None:
    """An open, locked file that is the one at the path; None if it is held and waiting was not wanted."""
    while True:
        handle = _open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError as error:
            os.close(handle)
            raise Unavailable(f"could not lock {path}: {error.strerror}") from error
        if _is_at(handle, path):
            return handle
        os.close(handle)  # it was broken while we waited


def _is_at(handle: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _holder(key: str, path: str) -> Holder | None:
    """Who holds the lock file: the note in it counts only while somebody has it locked."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(handle, 65536, 0)
    finally:
        os.close(handle)
    try:
        note = json.loads(text)
        return Holder(key, str(note["owner"]), int(note["token"]), int(note["since_ms"]))
    except (ValueError, KeyError, TypeError):
        return Holder(key, "unknown (just now)", 0, 0)


def _owner_in(path: str) -> str | None:
    holder = _holder("", path)
    return holder.owner if holder is not None else None


def _advance(path: str, at_least: int, count: int) -> int:
    """`max(stored + 1, at_least)`, durably; the file then holds the last of `count` values."""
    with _Guard(path + ".guard"):
        first = max(_stored(path) + 1, at_least)
        staged = path + ".next"
        try:
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                os.write(handle, str(first + count - 1).encode("ascii"))
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(staged, path)
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise Unavailable(f"could not advance {path}: {error.strerror}") from error
        return first


def _stored(path: str) -> int:
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Unavailable(f"could not read {path}: {error.strerror}") from error
    if not text.isdigit():
        raise CorruptTable(f"the counter {path} holds {text!r}: remove it, times go on from what the table knows")
    return int(text)
