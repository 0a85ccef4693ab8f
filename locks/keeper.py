"""Keepers: processes that renew a session for one whose Python cannot run for a while (C code that keeps the GIL).

A keeper is started before its session is opened, and renews it from then on; the kept process only listens. One of the
two renews at any time, never both: the kept process goes on by itself when the keeper is dead, and a new keeper begins
when it is told to. So each knows of all wishes that were found, and no deadline is published past an unheard one.

The deadline lies in memory that both share, so that a lease is right at the first look after a call into C. It is on
the machine's steady clock, which all its processes share.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.options import KEEPER
from lakelatch.locks.service import LockService
from lakelatch.system import RealSystem, System

_MARGIN = 0.1  # of the lease time: so much earlier than the service may does the holder give its leases up
_MODULE = "lakelatch.locks.keeper_process"
_FAILURES_MOST = 3  # in succession; then the process goes on without a keeper
_LONG_S = 60.0  # one that died after so long was no failure
_READY_MOST_S = 20.0
_END_MOST_S = 5.0
_SILENT_MOST = 1 / 3  # of the lease time: then a keeper that is not in the midst of a renewal is taken for stuck
_log = logging.getLogger("lakelatch.locks")


def trusted_until_ns(renewed_ns: int, lease_s: float) -> int:
    """The deadline of a session's leases after a renewal that began at this time."""
    return renewed_ns + int(lease_s * (1 - _MARGIN) * 1e9)


class KeeperMemory:
    """What a keeper and the process that it keeps for share: numbers that, once it keeps, the keeper alone writes.

    `deadline_ns` is the session's, 0 once it is over. `looked_ns` is when the keeper was last seen alive. `renewing` is
    1 from before a renewal until its outcome has been told: a keeper that dies then may have taken a wish with it.
    """

    SIZE = mmap.PAGESIZE
    _DEADLINE, _LOOKED, _RENEWING = range(3)

    def __init__(self, descriptor: int) -> None:
        self._words = memoryview(mmap.mmap(descriptor, self.SIZE)).cast("q")

    @property
    def deadline_ns(self) -> int:
        return self._words[self._DEADLINE]

    @deadline_ns.setter
    def deadline_ns(self, value: int) -> None:
        self._words[self._DEADLINE] = value

    @property
    def looked_ns(self) -> int:
        return self._words[self._LOOKED]

    @looked_ns.setter
    def looked_ns(self, value: int) -> None:
        self._words[self._LOOKED] = value

    @property
    def renewing(self) -> bool:
        return bool(self._words[self._RENEWING])

    @renewing.setter
    def renewing(self, value: bool) -> None:
        self._words[self._RENEWING] = value


class Kept(Protocol):
    """Who is kept: it hears from its keeper, in a thread that belongs to the keeper."""

    def give_up(self, keeper: Keeper, requests: list[str]) -> None:
        """Operators want these back; when this returns, nobody here believes in their leases any more."""

    def lost(self, session: str) -> None:
        """The session is over."""

    def rouse(self) -> None:
        """The keeper has ended, or is ready: look after it."""


class Keeper:
    """One process, from its start to its end. It keeps nothing before `keep`, and then one session for good."""

    def __init__(self, settings: Mapping[str, Any], kept: Kept, system: System) -> None:
        """Errors: `OSError` if the machine does not give us a process."""
        self.ready = threading.Event()  # or ended
        self.ended = threading.Event()  # dead for certain, and all that it said has been heard
        self.able = False
        self.reason = "it said nothing"
        self._kept = kept
        self._system = system
        self._guard = threading.Lock()
        self._descriptors: set[int] = set()
        self.started_ns = system.monotonic_ns()
        self._process = self._start(settings)
        threading.Thread(target=self._listen, name="lakelatch-lock-keeper", daemon=True).start()

    def keep(self, session: str, deadline_ns: int, lease_s: float, between_s: float) -> None:
        """From now on it renews the session, until it is killed or this process is dead, and owns the deadline."""
        self.memory.deadline_ns = deadline_ns
        self.memory.looked_ns = self._system.monotonic_ns()
        self._say({"keep": session, "lease_s": lease_s, "between_s": between_s})

    def poke(self) -> None:
        """Makes the next renewal come at once."""
        self._say({"poke": True})

    def stuck(self, lease_s: float) -> bool:
        """Whether it has not been seen for long, though it waits for nobody's answer."""
        silent_ns = self._system.monotonic_ns() - self.memory.looked_ns
        return silent_ns > lease_s * _SILENT_MOST * 1e9 and not self.memory.renewing

    def kill(self) -> None:
        """Ends it without a last word; it does not close the session. `ended` comes soon after."""
        self._process.kill()

    def end(self) -> None:
        """Kills it and waits until it is dead."""
        self.kill()
        self.ended.wait(_END_MOST_S)

    def forget(self) -> None:
        """For a forked child: an open end here would hide that the parent, or its keeper, has died."""
        for descriptor in self._descriptors:
            with suppress(OSError):
                os.close(descriptor)
        self._descriptors = set()

    def _start(self, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        settings = {**settings, "search_path": _search_path(), "folder": os.getcwd()}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(settings["search_path"])}
        _alive.add(self)
        try:
            theirs_in, self._to = self._new(*os.pipe())
            self._from, theirs_out = self._new(*os.pipe())
            (shared,) = self._new(os.memfd_create("lakelatch-keeper"))
            os.ftruncate(shared, KeeperMemory.SIZE)
            self.memory = KeeperMemory(shared)
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid()), str(shared)],
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=subprocess.DEVNULL,
                pass_fds=(shared,),
                start_new_session=True,  # so that a terminal's signals to us do not reach it
                cwd="/",  # or modules that lie about here would be found first; it comes here afterwards
                env=environment,
            )
        except BaseException:
            self._close(*list(self._descriptors))
            raise
        self._close(theirs_in, theirs_out, shared)
        self._say(settings)
        os.set_blocking(self._to, False)  # whatever it does, it must not hold us up
        return process

    def _new(self, *descriptors: int) -> tuple[int, ...]:
        self._descriptors.update(descriptors)
        return descriptors

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            with self._guard, suppress(OSError):  # somebody may have closed all that this process had open
                self._descriptors.discard(descriptor)
                os.close(descriptor)

    def _say(self, message: Mapping[str, Any]) -> None:
        with self._guard, suppress(OSError):  # that it is dead is noticed elsewhere
            if self._to in self._descriptors:
                os.write(self._to, json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        try:
            with suppress(OSError):
                for message in _messages(self._from):
                    self._hear(message)
        finally:
            self._process.kill()
            self._process.wait()
            self._close(self._to, self._from)
            _alive.discard(self)
            self.ended.set()
            self.ready.set()
            self._kept.rouse()

    def _hear(self, message: Mapping[str, Any]) -> None:
        said = message["say"]
        if said == "ready":
            self.able = True
            self.ready.set()
            self._kept.rouse()
        elif said == "failed":
            self.reason = message["reason"]
        elif said == "wishes":
            self._kept.give_up(self, message["requests"])
            self._say({"heard": message["number"]})
        elif said == "gone":
            self._kept.lost(message["session"])
        elif said == "failing":
            _log.warning("the session with the lock service could not be renewed yet: %s", message["reason"])
        elif said == "well":
            _log.warning("the session with the lock service is renewed again")


class Term:
    """One session's deadline, for all its leases: its keeper's as long as it has one, else what is known here."""

    def __init__(self) -> None:
        self.own_ns = 0
        self.keeper: Keeper | None = None

    def deadline_ns(self) -> int:
        keeper = self.keeper
        return self.own_ns if keeper is None else keeper.memory.deadline_ns

    def hand_over(self, keeper: Keeper, session: str, lease_s: float, between_s: float) -> None:
        """Only between two renewals of our own."""
        keeper.keep(session, self.own_ns, lease_s, between_s)
        self.keeper = keeper

    def take_over(self) -> bool:
        """Once the keeper has ended. False if it died in the midst of a renewal, so that the session cannot go on."""
        keeper = self.keeper
        if keeper is None:
            return True
        self.own_ns = 0 if keeper.memory.renewing else keeper.memory.deadline_ns
        self.keeper = None
        return self.own_ns > 0

    def end(self) -> None:
        """No lease of it is valid any more. The keeper that it had is killed."""
        keeper, self.own_ns, self.keeper = self.keeper, 0, None
        if keeper is not None:
            keeper.kill()


class Keepers:
    """Has the next keeper ready. Gives up, with a warning, after some that did not come up or soon died."""

    def __init__(self, settings: Mapping[str, Any], system: System) -> None:
        self._settings = settings
        self._system = system
        self._next: Keeper | None = None
        self._failures = 0

    @classmethod
    def of(cls, kind: type, scope: LockScope, service: LockService) -> Keepers:
        """For sessions of a provider of this class. Errors: `InvalidRequest` if nobody else can renew those."""
        if not service.can_be_kept:
            raise InvalidRequest(
                f"{KEEPER}=true: {kind.__name__} cannot have its session renewed by another process: remove the "
                "option, or use the provider redis or etcd",
                option=KEEPER,
            )
        linux = hasattr(os, "memfd_create") and Path("/proc/self/stat").exists()
        if not linux or not isinstance(scope.system, RealSystem):
            raise InvalidRequest(
                f"{KEEPER}=true needs Linux, its /proc, and the machine's own clock: remove the option", option=KEEPER
            )
        options = {str(key): str(value) for key, value in scope.options.items()}
        provider = {"module": kind.__module__, "name": kind.__qualname__}
        return cls({**provider, "table_uri": scope.table_uri, "options": options}, scope.system)

    def prepare(self, kept: Kept) -> None:
        """Starts one if there is none; notices that one did not come up."""
        keeper = self._next
        if keeper is not None:
            late = self._age_s(keeper) > _READY_MOST_S and not keeper.able
            if late or keeper.ended.is_set():
                keeper.kill()
                self._next = None
                self._fail(keeper.reason)
        if self._next is None and self._failures < _FAILURES_MOST:
            try:
                self._next = Keeper(self._settings, kept, self._system)
            except OSError as error:
                self._fail(str(error))

    def wait(self, kept: Kept) -> None:
        """Returns when one is ready, or did not come up."""
        self.prepare(kept)
        if self._next is not None:
            self._next.ready.wait(max(_READY_MOST_S - self._age_s(self._next), 0.0))

    def fell(self, keeper: Keeper) -> None:
        """One that kept has died."""
        if self._age_s(keeper) > _LONG_S:
            self._failures = 0
        self._fail("it died")

    def take(self) -> Keeper | None:
        """The one that is ready."""
        keeper = self._next
        if keeper is None or not keeper.able or keeper.ended.is_set():
            return None
        self._next = None
        return keeper

    def close(self) -> None:
        keeper, self._next = self._next, None
        if keeper is not None:
            keeper.end()

    def _age_s(self, keeper: Keeper) -> float:
        return (self._system.monotonic_ns() - keeper.started_ns) / 1e9

    def _fail(self, reason: str) -> None:
        self._failures += 1
        if self._failures == _FAILURES_MOST:
            _log.warning(
                "%s=true: the keeper does not stay up (%s), so that a call into C that keeps Python's interpreter for "
                "longer than the lease time loses the leases",
                KEEPER,
                reason,
            )


def _messages(descriptor: int) -> Iterator[Mapping[str, Any]]:
    rest = b""
    while True:
        found = os.read(descriptor, 65536)
        if not found:
            return
        *lines, rest = (rest + found).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _search_path() -> list[str]:
    """Where modules are found here, as absolute paths."""
    return [os.path.abspath(path) for path in sys.path]


_alive: WeakSet[Keeper] = WeakSet()


def _forget_all() -> None:
    for keeper in list(_alive):
        keeper.forget()


os.register_at_fork(after_in_child=_forget_all)
