"""Numbers that only grow, over crashes and power cuts, and seldom wait for the disk.

Two files make a counter. The *reserve* holds one number, on the disk, that no value has exceeded yet. The *record* is
a file that the caller has locked: the last value is written there without a sync, with the id of the machine's boot.
A process that is killed loses nothing, because the kernel has what it wrote; after a reboot the id is another one, and
the values go on above the reserve, as they do wherever a record is missing, damaged, copied, or not this reserve's.

What is lost without a reboot is not noticed: a disk that forgets what the running kernel wrote may repeat values.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import NamedTuple

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.options import FILESYSTEM_PATH
from lakelatch.storage.folders import make_folder, sync_folder
from lakelatch.storage.kernel_locks import Identity, Taken

_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # the kernel's own, so all of its containers see the same
_IDENTIFIER = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RESERVE = re.compile(rb"[0-9]{1,30}\n")

_HELD, _IDLE = b'{"held":true ,', b'{"held":false,'  # of one length, so that one is written over the other
_HELD_AT, _NOT_HELD = len(b'{"held":'), b"false"
_START, _DIGITS = len(_HELD), 30
_HEAD = re.compile(
    rb'"boot":"([-0-9a-f]{36})","file":"([0-9]+):([0-9]+)",'
    rb'"reserve":\{"inode":([0-9]+),"changed_ns":([0-9]+),"size":([0-9]+),"last":([0-9]+)\},"(?:token|value)":'
)
_RECORD_MOST = 1024

Status = tuple[int, int, int]


class _Known(NamedTuple):
    """The beginning of a record that may be trusted: everything up to the value itself."""

    head: bytes
    identity: Identity
    status: Status
    reserved: int


class Counter:
    """One number; `name` is what the record calls it. It reserves `ahead` values at a time.

    So that many are skipped at most when the record cannot be trusted any more: by a reboot, or if its file was
    replaced. `guard` excludes those who have other files locked for the same counter; it is taken for each reserve.
    Where the machine's boots have no ids, every call reserves, and none is skipped.
    """

    def __init__(
        self, path: str, name: str, ahead: int, guard: Callable[[float], AbstractContextManager[None]]
    ) -> None:
        self._path = path
        self._name = name.encode()
        self._ahead = ahead
        self._guard = guard
        self._known: _Known | None = None

    def advance(self, taken: Taken, timeout_s: float, at_least: int, count: int, note: bytes | None = None) -> int:
        """Draws `count` values, and returns the first: `max(last + 1, at_least)`. The caller has the record locked.

        `note` is the rest of the record, JSON members each after a comma, and marks it as held.

        Errors: `CorruptTable` if the reserve holds no number, `Unavailable` if a file cannot be read or written.
        """
        try:
            text = os.pread(taken.handle, _RECORD_MOST, 0)
            known = self._known
            if known is None or known.identity != taken.identity or not text.startswith(known.head, _START):
                known = _recognise(text, taken.identity)
            last = _last(text, known) if known is not None else None
            if known is not None and last is not None and known.status == _status(self._path):
                first = last + 1 if last >= at_least else at_least
                if first + count - 1 <= known.reserved:
                    _write(taken, known.head, first + count - 1, note, len(text))
                    self._known = known
                    return first
            with self._guard(timeout_s):
                return self._reserve(taken, known, last, at_least, count, note)
        except OSError as error:
            raise unavailable("advance", self._path, error) from error

    def _reserve(
        self, taken: Taken, known: _Known | None, last: int | None, at_least: int, count: int, note: bytes | None
    ) -> int:
        """Goes on from the record only if it is whole, and no other process has reserved since."""
        stored = read_reserve(self._path)
        if known is None or last is None or known.status != _status(self._path):
            last = max(last or 0, stored)
        first = max(last + 1, at_least)
        boot = boot_id()
        reserved = first + count - 1 + (self._ahead if boot else 0)
        _write_reserve(self._path, reserved)
        status = _status(self._path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)
        head = b'"boot":"%s","file":"%d:%d","reserve":{"inode":%d,"changed_ns":%d,"size":%d,"last":%d},"%s":' % (
            *(boot.encode(), *taken.identity),
            *(*status, reserved, self._name),
        )
        os.ftruncate(taken.handle, 0)
        _write(taken, head, first + count - 1, note, 0)
        self._known = _Known(head, taken.identity, status, reserved) if boot else None
        return first


def mark_idle(taken: Taken) -> None:
    """Notes in a record that it is free, for people only."""
    try:
        os.pwrite(taken.handle, _NOT_HELD, _HELD_AT)
    except OSError:
        return


def read_reserve(path: str) -> int:
    """The number in a file, 0 if there is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except FileNotFoundError:
        return 0
    if not _RESERVE.fullmatch(text):
        raise CorruptTable(
            f"the counter file {path} holds {text!r}, which is no number: write into it a number, with a line break, "
            "that is greater than every token or time that was ever handed out",
            path=path,
        )
    return int(text)


@cache
def boot_id() -> str:
    """Differs after every start of this machine; empty where there is none."""
    with suppress(OSError, ValueError), open(_BOOT_ID) as file:
        text = file.read(64).strip()
        return text if _IDENTIFIER.fullmatch(text) else ""
    return ""


def _recognise(text: bytes, identity: Identity) -> _Known | None:
    """None unless the record was written since the boot, and into this very file."""
    found = _HEAD.match(text, _START)
    if found is None or found[1].decode() != boot_id() or (int(found[2]), int(found[3])) != identity:
        return None
    return _Known(found[0], identity, (int(found[4]), int(found[5]), int(found[6])), int(found[7]))


def _last(text: bytes, known: _Known) -> int | None:
    """None if it is damaged."""
    start = _START + len(known.head)
    try:
        last = int(text[start : start + _DIGITS])
    except ValueError:
        return None
    return last if 0 <= last <= known.reserved else None


def _write(taken: Taken, head: bytes, last: int, note: bytes | None, length: int) -> None:
    """Writes the record whole within a page, so that a killed process leaves all of it or nothing."""
    record = b"%s%s%30d%s}" % (_IDLE if note is None else _HELD, head, last, note or b"")
    if os.pwrite(taken.handle, record.ljust(length), 0) < len(record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), taken.path)


def _write_reserve(path: str, number: int) -> None:
    """The file is replaced as a whole, and is on the disk before it is acted on."""
    staged = path + ".next"
    make_folder(os.path.dirname(path))
    handle = os.open(staged, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(handle, b"%d\n" % number)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(staged, path)
    sync_folder(os.path.dirname(path))


def _status(path: str) -> Status | None:
    """Differs after everything that was done to a file, by hand as well."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def unavailable(verb: str, path: str, error: OSError) -> Unavailable:
    """The error for a file that could not be used, with what can be done about it."""
    way_out = {
        errno.ENOSPC: "; free some space and run it again",
        errno.EACCES: "; give this user the right to write there",
        errno.EROFS: f"; set {FILESYSTEM_PATH} to a folder that can be written",
    }.get(error.errno or 0, "")
    return Unavailable(f"could not {verb} {path}: {error.strerror}{way_out}", path=path)
