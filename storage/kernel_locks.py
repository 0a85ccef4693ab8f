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
from lakelatch.storage.folders import make_folder

_LOOK_S = 0.25  # a waiter looks this often whether the file that it waits for was replaced: nothing wakes it then
_PARKED_S = 2.0  # a helper that has nothing to do ends after that
_IDLE_MOST = 64  # files that stay open, unlocked, for the next to take them

Identity = tuple[int, int]
_Opened = tuple[int, Identity]


class Taken:
    """A locked, open file. `identity` stays its own while it is open, so it shows whether the path was replaced."""

    __slots__ = ("_freed", "handle", "identity", "path", "process")

    def __init__(self, path: str, handle: int, identity: Identity) -> None:
        self.path = path
        self.handle = handle
        self.identity = identity
        self.process = os.getpid()
        self._freed = False

    def current(self) -> bool:
        """Whether the path still leads to this file. Asks the file system, and works on a copy after fork."""
        return _identity_at(self.path) == self.identity

    def free(self, keep: bool = True) -> None:
        """Unlocks, once. The file stays open for the next to take it, unless the path does not lead to it any more."""
        if self.process == os.getpid() and not self._freed:
            self._freed = True
            _kernel_locks.put_back(self, keep)


class _Ticket:
    """A thread's place in a queue; `gate` is locked until it is served."""

    __slots__ = ("error", "gate", "look", "taken")

    def __init__(self, look: bool) -> None:
        self.look = look
        self.gate = threading.Lock()
        self.gate.acquire()
        self.taken: Taken | None = None
        self.error: Unavailable | None = None


@dataclass
class _Waits:
    """The threads that wait for one path, first come first served, and the helper that waits in the kernel for them."""

    queue: deque[_Ticket] = field(default_factory=deque)
    helper: _Helper | None = None


class KernelLocks:
    """All kernel locks of this process. `lock` guards the rest, and is held across fork, so that a child sees it whole.

    For each path at most one helper thread is blocked in the kernel (one more for each time that the file was
    replaced under it). It outlives callers that gave up, serves the next one, and frees locks that are not wanted.
    Unlocked files stay open for a while, the latest few of them, because opening is dearer than locking.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._handles: set[int] = set()
        self._idle: dict[str, _Opened] = {}  # the file unlocked last is at the end
        self._waits: dict[str, _Waits] = {}
        self._parked: list[_Helper] = []

    def take(
        self, path: str, timeout_s: float, cancelled: Callable[[], bool] = lambda: False, look: bool = True
    ) -> Taken | None:
        """Locks the file at a path, which is created if need be; None after the timeout or when `cancelled` says so.

        Without `look` it may be a file that the path did not lead to any more when it was locked: for a caller who
        asks `current()` later anyway, and takes the path again if it is not.

        Errors: `Unavailable` if the file cannot be opened or locked.
        """
        with self.lock:
            waits = self._waits.get(path)
            queued = waits is not None and bool(waits.queue)
            opened = None if queued else self._idle.pop(path, None)
        if not queued:
            taken = self._try(path, opened, look)
            if taken is not None:
                return taken
        if timeout_s <= 0:
            return None
        ticket = _Ticket(look)
        try:
            with self.lock:
                self._waits.setdefault(path, _Waits()).queue.append(ticket)
            self._wait(path, ticket, timeout_s, cancelled)
        except BaseException:
            late = self._withdraw(path, ticket)
            if late is not None:
                late.free()
            raise
        taken = ticket.taken or self._withdraw(path, ticket)
        if ticket.error is not None:
            raise ticket.error
        return taken

    def locked(self, path: str) -> bool:
        """Whether the file at the path is locked by any process; a free one is locked by this check for an instant."""
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

    def waiting_at(self, path: str) -> list[int] | None:
        """The processes of this machine that wait for the lock of the file at the path; None if the kernel tells not.

        Those in another container are not seen.
        """
        try:
            device, number = os.stat(path).st_dev, os.stat(path).st_ino
            with open("/proc/locks", encoding="ascii") as file:
                lines = [line.split() for line in file]
        except OSError:
            return None
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{number}"
        seen = [int(words[5]) for words in lines if words[1:3] == ["->", "FLOCK"] and words[6] == place]
        return [process for process in seen if process > 0]

    def put_back(self, taken: Taken, keep: bool) -> None:
        """Unlocks explicitly, because a child that was forked in an unlucky moment may have the file open as well."""
        try:
            fcntl.flock(taken.handle, fcntl.LOCK_UN)
        except OSError:
            keep = False  # closing unlocks as well
        if keep:
            self._keep(taken.path, (taken.handle, taken.identity))
        else:
            self._close(taken.handle)

    def forget(self, folder: str) -> None:
        """Closes what is only kept open below a folder."""
        with self.lock:
            for path in [path for path in self._idle if path.startswith(folder + os.sep)]:
                self._close_now(self._idle.pop(path)[0])

    def close_inherited(self) -> None:
        """In a forked child: closing leaves the parent's locks alone, and they must not outlive the parent here."""
        for handle in self._handles:
            with suppress(OSError):
                os.close(handle)

    def _try(self, path: str, opened: _Opened | None, look: bool) -> Taken | None:
        while True:
            handle, identity = opened or self._open(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if _identity_at(path) == identity:
                    self._keep(path, (handle, identity))
                    return None
                self._close(handle)  # it was replaced, and who has it does not matter
            except OSError as error:
                self._close(handle)
                raise _unavailable("lock", path, error) from error
            else:
                taken = Taken(path, handle, identity)
                if not look or taken.current():
                    return taken
                taken.free(keep=False)
            opened = None

    def _wait(self, path: str, ticket: _Ticket, timeout_s: float, cancelled: Callable[[], bool]) -> None:
        remaining_s = timeout_s
        while remaining_s > 0 and not cancelled():
            with self.lock:
                if ticket.taken is not None or ticket.error is not None:
                    return
                waits = self._waits[path]
                blocked_on = waits.helper.identity if waits.helper is not None else None
                if waits.helper is None or (blocked_on is not None and blocked_on != _identity_at(path)):
                    helper = self._parked.pop() if self._parked else _Helper(self)
                    helper.begin(path, waits)
                    waits.helper = helper
            slice_s = min(remaining_s, _LOOK_S)
            if ticket.gate.acquire(timeout=slice_s):
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

    def _open(self, path: str) -> _Opened:
        try:
            try:
                return self._open_now(path)
            except FileNotFoundError:
                make_folder(os.path.dirname(path))
                return self._open_now(path)
        except OSError as error:
            raise _unavailable("open", path, error) from error

    def _open_now(self, path: str) -> _Opened:
        with self.lock:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._handles.add(handle)
        return handle, _identity_of(handle)

    def _keep(self, path: str, opened: _Opened) -> None:
        with self.lock:
            if path in self._idle:
                self._close_now(opened[0])
                return
            self._idle[path] = opened
            if len(self._idle) > _IDLE_MOST:
                self._close_now(self._idle.pop(next(iter(self._idle)))[0])

    def _close(self, handle: int) -> None:
        with self.lock:
            self._close_now(handle)

    def _close_now(self, handle: int) -> None:
        self._handles.discard(handle)
        os.close(handle)

    def hand_over(self, helper: _Helper, waits: _Waits, taken: Taken) -> bool:
        """Gives a locked file to the first in the queue; True makes the helper lock it once more for the next."""
        ticket = None
        with self.lock:
            wanted = waits.helper is helper  # if not, the file was replaced, and another helper waits for the new one
            if wanted and waits.queue and (not waits.queue[0].look or taken.current()):
                ticket = waits.queue.popleft()
                ticket.taken = taken
                ticket.gate.release()  # before the rest, since this thread is running already
            more = wanted and bool(waits.queue)
            if more:
                helper.identity = None
            else:
                self._parked.append(helper)
            if wanted and not more:
                waits.helper = None
                del self._waits[taken.path]
        if ticket is None:
            taken.free(keep=taken.current())
        return more

    def fail(self, helper: _Helper, waits: _Waits, path: str, error: Unavailable) -> None:
        with self.lock:
            self._parked.append(helper)
            if waits.helper is not helper:
                return
            for ticket in waits.queue:
                ticket.error = error
                ticket.gate.release()
            waits.queue.clear()
            del self._waits[path]

    def retire(self, helper: _Helper) -> bool:
        """For a parked helper; False says that it is about to be woken."""
        with self.lock:
            if helper not in self._parked:
                return False
            self._parked.remove(helper)
            return True

    def lock_in_kernel(self, path: str, helper: _Helper) -> Taken:
        with self.lock:
            opened = self._idle.pop(path, None)
        handle, helper.identity = opened or self._open(path)  # the waiter checks whether it is still the path's
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            self._close(handle)
            raise _unavailable("lock", path, error) from error
        return Taken(path, handle, helper.identity)


class _Helper(threading.Thread):
    """Blocked in the kernel for the threads that wait for one path. `identity` is the file's, once it is open.

    Then it is parked for a while, since a lock that was wanted is likely to be wanted again, and a waiter for a
    thread to be started is overtaken meanwhile.
    """

    def __init__(self, locks: KernelLocks) -> None:
        super().__init__(name="lakelatch-kernel-lock", daemon=True)
        self.identity: Identity | None = None
        self._locks = locks
        self._gate = threading.Lock()  # locked while there is nothing to do
        self._path = ""
        self._waits = _Waits()

    def begin(self, path: str, waits: _Waits) -> None:
        self.identity = None
        self._path, self._waits = path, waits
        if self.ident is not None:
            self._gate.release()
            return
        self._gate.acquire()
        try:
            self.start()
        except RuntimeError as error:
            raise Unavailable(f"no thread can be started that waits for {path}: {error}", path=path) from error

    def run(self) -> None:
        while True:
            self._serve()
            if not self._gate.acquire(timeout=_PARKED_S):
                if self._locks.retire(self):
                    return
                self._gate.acquire()

    def _serve(self) -> None:
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
    way_out = "; its folder has to be on a local disk, and all writers must be allowed to write there"
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
