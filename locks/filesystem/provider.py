"""Locks among the processes of one machine, by the kernel's file locks: no service, and nothing to clean up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit
from zlib import crc32

from lakelatch.errors import InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import IN_TABLE, WAITERS_MOST, Holder, LockProvider, LockScope, ProviderRegister, Register
from lakelatch.locks.filesystem.durable_counter import Counter, mark_idle, unavailable
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import FILESYSTEM_PATH, WAIT_TIME
from lakelatch.locks.renewal import renewals
from lakelatch.storage.checksums import json_object
from lakelatch.storage.folders import make_folder, put_once
from lakelatch.storage.kernel_locks import Taken, kernel_locks
from lakelatch.storage.uris import refuse_home, scheme_of
from lakelatch.system import process_name

DEFAULT_FOLDER = ".hoodie/.lakelatch/locks"

_LOCK = ".lock"
_ID = "+id"
_ASKED = "+guard.00"  # any file that is there anyway once a lock was taken
_TOKENS_AHEAD = 1000
_VALUES_AHEAD = 2000  # two seconds, where they are times
_NAME_MOST = 200  # characters of a name; file systems take 255 bytes
_OWNER_MOST = 100
_PLACES_MOST = 1000
_GUARDS = 16
_GUARD_WAIT_S = 5.0  # guards are held for a few milliseconds, so that long means that their holder is stopped
_GIVING_BACK_S = 0.1
_LOOK_S = 1.0


class _Place:
    """The files of one key."""

    def __init__(self, stem: str, guard: Callable[[float], AbstractContextManager[None]]) -> None:
        self.lock = stem + _LOCK
        self.tokens = Counter(stem + ".token", "token", _TOKENS_AHEAD, guard)
        self.value = stem + ".value"
        self.values = Counter(stem + ".register", "value", _VALUES_AHEAD, guard)


class _Owner(NamedTuple):
    process: int
    name: str
    text: bytes

    @classmethod
    def of_this_process(cls) -> _Owner:
        name = process_name()
        return cls(os.getpid(), name, json.dumps(name[:_OWNER_MOST]).encode())


class FilesystemLockProvider(LockProvider):
    """Leases for all processes of one machine; they last as long as their process, and end with it, however it ends.

    A holder that is stopped keeps its keys: `break_` takes them. All writers must be on one machine and use the same
    folder, `hoodie.write.lock.filesystem.path`, which is `.hoodie/.lakelatch/locks` in a local table. Two tables that
    share a folder share their locks.

    Tokens and registers grow over reboots and power cuts as well. After one, and after a lock was broken or a file
    replaced, up to 1,000 tokens or 2,000 values are skipped: a time from a register may then be two seconds
    ahead of where it would have been. A disk that forgets what it was given while the machine runs is not noticed.
    """

    not_secret = frozenset({FILESYSTEM_PATH})

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._folder = _choose_folder(scope.lock_options.filesystem_path, scope.table_uri)
        self._timeout_s = scope.lock_options.timeout_s
        self._places: dict[str, _Place] = {}
        self._held: dict[Lease, Taken] = {}
        self._watching = 0  # the process whose renewals look at what is held
        self._owner = _Owner.of_this_process()
        self._closed = False

    @property
    def identity(self) -> Hashable:
        return self.domain, self._folder

    def acquire(self, key: str, timeout_s: float) -> Lease:
        place = self._place(key)
        system = self.scope.system
        deadline_ns = system.monotonic_ns() + int(timeout_s * 1e9)
        remaining_s = timeout_s
        while True:
            if self._closed:
                raise InvalidRequest(f"the lock provider of {self.scope.table_uri} is closed: open another one")
            lease = self._make_lease(key)  # what can be done before the wait does not hold up others after it
            taken = self._take(key, place, remaining_s, timeout_s)
            remaining_s = max((deadline_ns - system.monotonic_ns()) / 1e9, 0.0)
            try:
                granted = self._grant(lease, place, taken, remaining_s)
            except BaseException:
                self._held.pop(lease, None)
                taken.free()
                raise
            if granted:
                return lease
            taken.free(keep=False)  # broken, or deleted, before it was granted

    def register(self, key: str) -> Register:
        return ProviderRegister(self._advance, key)

    def ask(self) -> None:
        """There is no service; a folder that an option names is made, if it can be."""
        if self.scope.lock_options.filesystem_path is None:
            return
        try:
            make_folder(self._folder)
            os.close(os.open(os.path.join(self._folder, _ASKED), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except OSError as error:
            found = unavailable("use", self._folder, error)
            raise Unavailable(f"{found.message}; see {FILESYSTEM_PATH}", **found.details) from error

    def lock_id(self, proposed: str = "") -> str | None:
        if self.scope.lock_options.filesystem_path is None:
            return IN_TABLE
        path = os.path.join(self._folder, _ID)
        try:
            if proposed and not os.path.exists(path):
                make_folder(self._folder)
                put_once(path, proposed.encode())
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise unavailable("read", path, error) from error

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
                    found.append(_with_waiters(noted, path))
        return sorted(found, key=lambda holder: holder.key)

    def break_(self, key: str) -> bool:
        path = self._place(key).lock
        with self._guard(key, self._timeout_s):
            if not kernel_locks().locked(path):
                return False
            fresh = path + ".fresh"
            try:
                os.close(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
                os.replace(fresh, path)  # waiters for the old file notice, and turn to this one
            except OSError as error:
                raise unavailable("break", path, error) from error
            return True

    def close(self) -> None:
        self._closed = True
        for lease, taken in list(self._held.items()):
            if taken.process == os.getpid():
                lease.release()
        kernel_locks().forget(self._folder)

    def _advance(self, key: str, at_least: int, count: int) -> int:
        place = self._place(key)
        with self._alone(place.value, self._timeout_s) as taken:
            return place.values.advance(taken, self._timeout_s, at_least, count)

    def _take(self, key: str, place: _Place, remaining_s: float, timeout_s: float) -> Taken:
        """Locked, but maybe not current."""
        taken = _lock_file(place.lock, remaining_s, self._is_closed, look=False)
        if taken is None and _read_note(key, place.lock) is None:  # a waiter that gave up is giving it back
            taken = _lock_file(place.lock, _GIVING_BACK_S, self._is_closed, look=False)
        if taken is not None:
            return taken
        if self._closed:
            raise Unavailable(f"the lock provider of {self.scope.table_uri} was closed while a thread waited")
        noted = _read_note(key, place.lock)
        raise LockTimeout.of(key, timeout_s, WAIT_TIME, noted.owner if noted else None)

    def _make_lease(self, key: str) -> Lease:
        """Not valid yet: it has no token and no lock."""
        if self._owner.process != os.getpid():
            self._owner = _Owner.of_this_process()
        return Lease(key, 0, self._owner.name, self.scope.system, None, self._release, self._is_held)

    def _grant(self, lease: Lease, place: _Place, taken: Taken, remaining_s: float) -> bool:
        """Draws the token and notes the holder; False if the file was replaced meanwhile.

        The token that was drawn is then not used: the holder of the new file draws one from above the reserve.
        """
        note = b',"since_ms":%d,"owner":%s' % (self.scope.system.realtime_ms(), self._owner.text)
        lease.token = place.tokens.advance(taken, remaining_s, 1, 1, note)
        if not taken.current():
            return False
        self._held[lease] = taken
        if self._watching != taken.process:
            self._watching = taken.process
            renewals().add(lease, _LOOK_S, self._look)
        if self._closed:
            lease.release()
            raise Unavailable(f"the lock provider of {self.scope.table_uri} was closed while a thread took a lease")
        return True

    def _is_held(self, lease: Lease) -> bool:
        taken = self._held.get(lease)
        if taken is None or taken.current():
            return taken is not None
        lease.lose(_reason(lease.key, taken.path))
        return False

    def _look(self, _: Lease) -> bool:
        """Sets `lost` of what is held no more, also if no caller asks. One check a second of all of them is cheap."""
        process = os.getpid()
        if not self._look_at_held(process):
            self._watching = 0
            if self._look_at_held(process):  # taken in between
                self._watching = process
        return self._watching == process

    def _look_at_held(self, process: int) -> bool:
        answers = [lease.valid() for lease, taken in list(self._held.items()) if taken.process == process]
        return any(answers)

    def _release(self, lease: Lease) -> bool:
        taken = self._held.pop(lease, None)
        if taken is None:
            return False
        held = taken.current()
        if held:
            mark_idle(taken)
        else:
            lease.lose(_reason(lease.key, taken.path))
        taken.free(keep=held)
        return held

    def _is_closed(self) -> bool:
        return self._closed

    @contextmanager
    def _guard(self, key: str, timeout_s: float) -> Iterator[None]:
        """Excludes others from reserving for the key, and from breaking it, for a few milliseconds."""
        stripe = crc32(key.encode()) % _GUARDS
        with self._alone(os.path.join(self._folder, f"+guard.{stripe:02d}"), timeout_s):
            yield

    @contextmanager
    def _alone(self, path: str, timeout_s: float) -> Iterator[Taken]:
        """With a file locked that is held for moments only."""
        wait_s = max(timeout_s, _GUARD_WAIT_S)
        taken = _lock_file(path, wait_s)
        if taken is None:
            raise LockTimeout.of(path, wait_s, WAIT_TIME)
        try:
            yield taken
        finally:
            taken.free()

    def _place(self, key: str) -> _Place:
        """Keys are percent-encoded; a long one is cut into folders, whose names end with `+`, which keys never have."""
        place = self._places.get(key)
        if place is None:
            name = quote(key, safe="")
            pieces = [name[start : start + _NAME_MOST] for start in range(0, len(name), _NAME_MOST)] or [""]
            stem = os.path.join(self._folder, *(piece + "+" for piece in pieces[:-1]), pieces[-1])
            if len(self._places) >= _PLACES_MOST:
                self._places.clear()
            place = self._places[key] = _Place(stem, partial(self._guard, key))
        return place

    def _key_at(self, path: str) -> str:
        name = os.path.relpath(path, self._folder)[: -len(_LOCK)]
        return unquote(name.replace("+" + os.sep, ""))


def _reason(key: str, path: str) -> str:
    """Why a lock file that was held is another one now, or none, and who holds it since."""
    if not os.path.exists(path):
        return f"{path} was deleted"
    noted = _read_note(key, path)
    by = f"; {noted.owner} has taken the lock since" if noted is not None else ""
    return f"{path} was replaced, as by an operator who breaks the lock{by}"


def _lock_file(
    path: str, timeout_s: float, cancelled: Callable[[], bool] = lambda: False, look: bool = True
) -> Taken | None:
    """As `KernelLocks.take`; the error names the option that chose the folder."""
    try:
        return kernel_locks().take(path, timeout_s, cancelled, look)
    except Unavailable as error:
        raise Unavailable(f"{error.message}; see {FILESYSTEM_PATH}", **error.details) from error


def _choose_folder(given: str | None, table_uri: str) -> str:
    if given is not None:
        if given.startswith("file:"):
            return os.path.abspath(unquote(urlsplit(given).path))
        refuse_home(given, f"{FILESYSTEM_PATH}:")
        if scheme_of(given):
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


def _with_waiters(holder: Holder, path: str) -> Holder:
    waiting = kernel_locks().waiting_at(path)
    if waiting is None:
        return holder
    waiters = tuple(process_name(process) for process in waiting[:WAITERS_MOST])
    return replace(holder, waiting=len(waiting), waiters=waiters)


def _read_note(key: str, path: str) -> Holder | None:
    """The holder that a lock file notes, which may have crashed since; None if it notes none yet."""
    try:
        with open(path, "rb") as file:
            note = json_object(file.read(4096))
        if note is None or not note.get("held", True):  # written once by an earlier version, and gone when free
            return None
        return Holder(key, str(note["owner"]), int(note["token"]), int(note["since_ms"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
