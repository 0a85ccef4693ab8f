"""The keeper's own process: `python -m lakelatch.locks.keeper_process <its parent's id> <descriptor of the memory>`.

Everything else, secrets included, comes over its standard input. It renews one session for as long as its parent lives
and is not stopped, and then closes it: so a crash frees the parent's locks at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import LockScope
from lakelatch.locks.keeper import KeeperMemory, trusted_until_ns
from lakelatch.locks.service import LockService, SessionGone
from lakelatch.system import REAL_SYSTEM

_LOOKS = 12  # at the parent, in a lease time
_IDLE_LOOK_S = 1.0  # before there is a session
_FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # whose end is ours


class Abandoned(Exception):
    """There is nobody to keep for, or no way to talk to it."""


class Parent:
    """The process that is kept: whether it lives, and what it says."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._in, self._out = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)  # whatever a library prints is not for the parent
        os.set_blocking(self._out, False)
        self._rest = b""
        self._events = select.poll()
        self._events.register(self._in, select.POLLIN)
        with suppress(OSError, AttributeError):  # old kernels; then its death is noticed at the next look
            self._events.register(os.pidfd_open(process_id), select.POLLIN)

    def stopped(self) -> bool:
        """Whether it was stopped by a signal or a debugger, so that nothing may be renewed for it."""
        with suppress(OSError, IndexError):
            return Path(f"/proc/{self._process_id}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        return True

    def hear(self, timeout_s: float) -> list[Mapping[str, Any]]:
        """What it has said; waits until there is something, or for that long. Errors: `Abandoned`."""
        ready = {descriptor for descriptor, _ in self._events.poll(max(timeout_s, 0.0) * 1000)}
        if os.getppid() != self._process_id or ready - {self._in}:
            raise Abandoned
        if not ready:
            return []
        found = os.read(self._in, 65536)
        if not found:
            raise Abandoned
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, **message: Any) -> None:
        """Errors: `Abandoned` if it cannot be told, as nobody has listened for long."""
        line = json.dumps(message).encode() + b"\n"
        try:
            told = os.write(self._out, line) == len(line)
        except OSError:
            told = False
        if not told:
            raise Abandoned


class Keeping:
    """One session, renewed until it is over."""

    def __init__(self, parent: Parent, memory: KeeperMemory, service: LockService, order: Mapping[str, Any]) -> None:
        self._parent = parent
        self._memory = memory
        self._service = service
        self._session: str = order["keep"]
        self._between_s: float = order["between_s"]
        service.lease_s = order["lease_s"]
        self._look_s = service.lease_s / _LOOKS
        self._due_ns = 0
        self._renewed_ns = 0
        self._asked = self._heard = 0  # what it is told of wishes is numbered, and it confirms each
        self._told: set[str] = set()
        self._failing = False

    def run(self) -> None:
        """Returns when the session is over; it is closed then, as far as the service answers."""
        try:
            while True:
                self._memory.looked_ns = now_ns = REAL_SYSTEM.monotonic_ns()
                if now_ns >= self._memory.deadline_ns:
                    break
                if now_ns >= self._due_ns:
                    self._renew(now_ns)
                for message in self._parent.hear(min((self._due_ns - now_ns) / 1e9, self._look_s)):
                    self._obey(message)
        except (Abandoned, SessionGone):
            pass
        self._memory.deadline_ns = 0  # the parent must not believe in it any more, before anybody else is let in
        self._close()
        with suppress(Abandoned):
            self._parent.tell(say="gone", session=self._session)

    def _renew(self, now_ns: int) -> None:
        if self._parent.stopped():
            self._due_ns = now_ns + int(self._look_s * 1e9)
            return
        self._memory.renewing = True
        try:
            wishes = self._service.renew_session(self._session)
        except SessionGone:
            raise
        except Exception as error:
            self._note_failure(error)
            self._due_ns = now_ns + int(min(self._between_s, self._look_s) * 1e9)
        else:
            if self._failing:
                self._failing = False
                self._parent.tell(say="well")
            unheard = [wish for wish in wishes if wish not in self._told]  # a service may say them again
            if unheard:
                self._asked += 1
                self._parent.tell(say="wishes", number=self._asked, requests=unheard)
                self._told.update(unheard)
            self._renewed_ns = now_ns
            self._due_ns = now_ns + int(self._between_s * 1e9)
            self._publish()
        self._memory.renewing = False

    def _publish(self) -> None:
        """Not as long as the parent may believe in a lease that somebody else is to be given."""
        if self._heard == self._asked and self._renewed_ns:
            self._memory.deadline_ns = trusted_until_ns(self._renewed_ns, self._service.lease_s)

    def _obey(self, message: Mapping[str, Any]) -> None:
        if "heard" in message:
            self._heard = message["heard"]
            self._publish()
        if "poke" in message:
            self._due_ns = 0

    def _note_failure(self, error: Exception) -> None:
        if not self._failing:
            self._parent.tell(say="failing", reason=_reason(error))
        self._failing = True

    def _close(self) -> None:
        until_ns = trusted_until_ns(self._renewed_ns, self._service.lease_s)  # soon after, it ends by itself
        while True:
            try:
                self._service.close_session(self._session)
            except Exception:
                if REAL_SYSTEM.monotonic_ns() >= until_ns:
                    return
                REAL_SYSTEM.sleep(self._look_s)
            else:
                return


def _make_service(settings: Mapping[str, Any]) -> LockService:
    sys.path[:] = settings["search_path"]
    os.chdir(settings["folder"])
    kind: Any = import_module(settings["module"])
    for name in settings["name"].split("."):
        kind = getattr(kind, name)
    service: LockService = kind(LockScope(settings["table_uri"], settings["options"])).make_service()
    return service


def _wait_for(parent: Parent, key: str) -> Mapping[str, Any]:
    while True:
        for message in parent.hear(_IDLE_LOOK_S):
            if key in message:
                return message


def _reason(error: Exception) -> str:
    """For people; the text of errors that are not ours may hold anything."""
    if isinstance(error, LakelatchError):
        return error.message
    return f"{type(error).__name__}: {error}" if isinstance(error, ImportError | AttributeError) else repr(type(error))


def main() -> None:
    for number in _FOR_THE_PARENT:
        signal.signal(number, signal.SIG_IGN)
    parent, memory = Parent(int(sys.argv[1])), KeeperMemory(int(sys.argv[2]))
    with suppress(Abandoned):
        settings = _wait_for(parent, "module")
        try:
            service = _make_service(settings)
        except Exception as error:
            parent.tell(say="failed", reason=_reason(error))
            return
        parent.tell(say="ready")
        Keeping(parent, memory, service, _wait_for(parent, "keep")).run()


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # at once: there is nothing to tidy up, and a client library's threads must not hold it up
