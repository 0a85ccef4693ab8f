"""Kernel file locks with a timeout, a queue among threads, and no surprises after fork.

The kernel frees a file lock when the last descriptor of its holder is closed, at a crash as well, and it wakes who
waits. It knows no timeout and does not notice that a file was replaced; both are added here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from lakelatch.errors import Unavailable
from lakelatch.locks.options import FILESYSTEM_PATH

_LOOK_S = 0.25  # a waiter looks this often whether the file that it waits for was replaced: nothing wakes it then

Identity = tuple[int, int]


class Taken:
    """A locked, open file. `identity` stays its own while it is open, so it tells whether the path was replaced."""

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.identity = _identity_of(handle)
        self.process = os.getpid()

    def current(self) -> bool:
        """Whether the path still leads to this file. Asks the file system, and works on a copy after fork."""
        return _identity_at(self.path) == self.identity

    def free(self) -> None:
        """Unlocks explicitly, because a child that was forked in an unlucky moment may have the file open as well."""
        if self.process == os.getpid():
            _kernel_locks.close(self.handle, unlock=True)


@dataclass
class _Ticket:
    done: threading.Event = field(default_factory=threading.Event)
    taken: Taken | None = None
    error: Unavailable | None = None


@dataclass
class _Waits:
    """The threads that wait for one path, first come first served, and the helper that waits in the kernel for them."""

    queue: deque[_Ticket] = field(default_factory=deque)
    helper: _Helper | None = None


class KernelLocks:
    """All kernel locks of this process. `lock` guards the rest, and is held across fork, so that a child sees it whole.

    For each path at most one helper thread is blocked in the kernel (one more for each time that the file was
    replaced under it). It outlives callers that gave up, serves the next one, and gives back what nobody wants.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._handles: set[int] = set()
        self._waits: dict[str, _Waits] = {}

    def take(self, path: str, timeout_s: float, cancelled: Callable[[], bool] = lambda: False) -> Taken | None:
        """Locks the file at a path, which is created if need be; None after the timeout or when `cancelled` says so.

        Errors: `Unavailable` if the file cannot be opened or locked.
        """
        with self.lock:
            queued = path in self._waits and bool(self._waits[path].queue)
        if not queued:
            taken = self._try(path)
            if taken is not None or timeout_s <= 0:
                return taken
        if timeout_s <= 0:
            return None
        ticket = _Ticket()
        try:
            with self.lock:
                self._waits.setdefault(path, _Waits()).queue.append(ticket)
            self._wait(path, ticket, timeout_s, cancelled)
        except BaseException:
            late = self._withdraw(path, ticket)
            if late is not None:
                late.free()
            raise
        taken = self._withdraw(path, ticket)
        if ticket.error is not None:
            raise ticket.error
        return taken

    def locked(self, path: str) -> bool:
        """Whether somebody has the file at the path locked; a free one is locked by this look for an instant."""
        with self.lock:  # no fork meanwhile: the child would keep the lock
            try:
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise _unavailable("open", path, error) from error
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True
            except OSError as error:
                raise _unavailable("look at", path, error) from error
            finally:
                os.close(handle)

    def close(self, handle: int, unlock: bool) -> None:
        with self.lock:
            self._close(handle, unlock)

    def close_inherited(self) -> None:
        """In a forked child: closing leaves the parent's locks alone, and they must not outlive the parent here."""
        for handle in self._handles:
            with suppress(OSError):
                os.close(handle)

    def _try(self, path: str) -> Taken | None:
        while True:
            handle = self._open(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close(handle, unlock=False)
                return None
            except OSError as error:
                self.close(handle, unlock=False)
                raise _unavailable("lock", path, error) from error
            taken = Taken(path, handle)
            if taken.current():
                return taken
            taken.free()  # replaced between open and lock

    def _wait(self, path: str, ticket: _Ticket, timeout_s: float, cancelled: Callable[[], bool]) -> None:
        remaining_s = timeout_s
        while remaining_s > 0 and not cancelled():
            with self.lock:
                if ticket.done.is_set():
                    return
                waits = self._waits[path]
                blocked_on = waits.helper.identity if waits.helper is not None else None
                if waits.helper is None or (blocked_on is not None and blocked_on != _identity_at(path)):
                    waits.helper = _Helper(self, path, waits)
                    waits.helper.start()
            slice_s = min(remaining_s, _LOOK_S)
            if ticket.done.wait(slice_s):
                return
            remaining_s -= slice_s

    def _withdraw(self, path: str, ticket: _Ticket) -> Taken | None:
        """Leaves the queue; a grant that came at the last moment is returned."""
        with self.lock:
            waits = self._waits.get(path)
            if waits is not None and ticket in waits.queue:
                waits.queue.remove(ticket)
                if waits.helper is None and not waits.queue:
                    del self._waits[path]
            return ticket.taken

    def _open(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            with self.lock:
                try:
                    handle = os.open(path, flags, 0o666)
                except FileNotFoundError:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    handle = os.open(path, flags, 0o666)
                self._handles.add(handle)
                return handle
        except OSError as error:
            raise _unavailable("open", path, error) from error

    def _close(self, handle: int, unlock: bool) -> None:
        self._handles.discard(handle)
        try:
            if unlock:
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)

    def hand_over(self, helper: _Helper, waits: _Waits, taken: Taken) -> bool:
        """Gives a locked file to the first in the queue; True tells the helper to lock it once more for the next."""
        with self.lock:
            if waits.helper is not helper:  # the file was replaced, and another helper waits for the new one
                self._close(taken.handle, unlock=True)
                return False
            if not taken.current():
                self._close(taken.handle, unlock=True)
                helper.identity = None
                return True
            if waits.queue:
                ticket = waits.queue.popleft()
                ticket.taken = taken
                ticket.done.set()
            else:
                self._close(taken.handle, unlock=True)
            if waits.queue:
                return True
            waits.helper = None
            del self._waits[taken.path]
            return False

    def fail(self, helper: _Helper, waits: _Waits, path: str, error: Unavailable) -> None:
        with self.lock:
            if waits.helper is not helper:
                return
            for ticket in waits.queue:
                ticket.error = error
                ticket.done.set()
            waits.queue.clear()
            del self._waits[path]

    def lock_in_kernel(self, path: str, helper: _Helper) -> Taken:
        handle = self._open(path)
        try:
            helper.identity = _identity_of(handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            self.close(handle, unlock=False)
            raise _unavailable("lock", path, error) from error
        return Taken(path, handle)


class _Helper(threading.Thread):
    """Blocked in the kernel for the threads that wait for one path. `identity` is the file's, once it is open."""

    def __init__(self, locks: KernelLocks, path: str, waits: _Waits) -> None:
        super().__init__(name="lakelatch-kernel-lock", daemon=True)
        self.identity: Identity | None = None
        self._locks = locks
        self._path = path
        self._waits = waits

    def run(self) -> None:
        more = True
        while more:
            try:
                taken = self._locks.lock_in_kernel(self._path, self)
            except Unavailable as error:
                self._locks.fail(self, self._waits, self._path, error)
                return
            more = self._locks.hand_over(self, self._waits, taken)


def _identity_of(handle: int) -> Identity:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


def _identity_at(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _unavailable(verb: str, path: str, error: OSError) -> Unavailable:
    way_out = f"; set {FILESYSTEM_PATH} to a folder of a local disk that all writers may write to"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        way_out = "; too many files are open: raise the limit (ulimit -n)"
    return Unavailable(f"could not {verb} the lock file {path}: {error.strerror}{way_out}", path=path)


_kernel_locks = KernelLocks()


def kernel_locks() -> KernelLocks:
    """The process's own."""
    return _kernel_locks


def _before_fork() -> None:
    _kernel_locks.lock.acquire()


def _after_fork_in_parent() -> None:
    _kernel_locks.lock.release()


def _after_fork_in_child() -> None:
    global _kernel_locks
    inherited, _kernel_locks = _kernel_locks, KernelLocks()
    inherited.close_inherited()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
