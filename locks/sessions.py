"""The process's session with a lock service: one renewal thread, and one deadline for all leases."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.locks.keeper import Keeper, Keepers, Term, trusted_until_ns
from lakelatch.locks.lease import Lease
from lakelatch.locks.service import LockService, SessionGone
from lakelatch.system import System, Thread, process_name

_TICKS = 3  # renewals in a lease time
_RETRIES = 12  # tries in a lease time if the service does not answer
_LOOKS = 6  # at the keeper, in a lease time
_log = logging.getLogger("lakelatch.locks")


class Session:
    """Opened on first use, opened anew (with another id) after it was lost, closed when nobody has used it for a while.

    Every lease's deadline is the session's: the start of the last successful renewal, plus the lease time, minus a
    margin, on the own monotonic clock. So a holder that was paused, or whose renewal could not run, knows it at once.
    With `keepers`, another process renews it, and this one as long as there is none that can.
    """

    def __init__(self, service: LockService, system: System, keepers: Keepers | None = None) -> None:
        self.service = service
        self._system = system
        self._guard = system.new_condition()
        self._id: str | None = None
        self._term = Term()
        self._keepers = keepers
        self._leases: dict[str, tuple[Lease, str]] = {}  # and its name at the service, by request
        self._owed: dict[tuple[str, str, str], None] = {}  # (session, request, name) that could not be given back yet
        self._unwanted: set[str] = set()  # requests to be given up whose grant has not been heard of yet
        self._asked: set[str] = set()  # requests under way
        self._strange: set[str] = set()  # requests that the service lately said to hold something, unknown to us
        self._users = 0
        self._idle_since_ns = 0
        self._poked = False
        self._failing = False
        self._closed = False
        self._thread: Thread | None = None
        service.on_doubt = self.poke

    def use(self) -> bool:
        """One more user; False if the session is closed for good."""
        with self._guard:
            if not self._closed:
                self._users += 1
            return not self._closed

    def leave(self) -> None:
        with self._guard:
            self._users -= 1
            self._idle_since_ns = self._system.monotonic_ns()

    def open(self) -> str:
        """The id of a session that is alive as far as we know; opens one if there is none."""
        with self._guard:
            if self._id is not None and self._system.monotonic_ns() < self._term.deadline_ns():
                return self._id
            if self._closed:
                raise Unavailable("the session with the lock service was closed: try again")
            self._lose_all()
            if self._keepers is not None:
                self._keepers.wait(self)
            started_ns = self._system.monotonic_ns()
            self._id = self.service.open_session(process_name())
            self._term.own_ns = trusted_until_ns(started_ns, self.service.lease_s)
            self._hand_over()
            if self._thread is None:
                self._thread = self._system.start_thread(self._run, "lakelatch-lock-session")
            self._guard.notify_all()
            return self._id

    @contextmanager
    def asking(self, request: str) -> Iterator[None]:
        """A request is under way, so that what the service has granted it is not taken for forgotten."""
        with self._guard:
            self._asked.add(request)
        try:
            yield
        finally:
            with self._guard:
                self._asked.discard(request)

    def grant(self, session: str, request: str, name: str, lease: Lease) -> bool:
        """Puts a lease under this session's deadline; False if that session has ended meanwhile."""
        with self._guard:
            if self._id != session or request in self._unwanted:
                return False
            lease.follow(self._term.deadline_ns)
            self._leases[request] = lease, name
            return lease.valid()

    def give_back(self, session: str, request: str, name: str) -> bool:
        """Frees what a request holds, now or, if the service does not answer, as soon as it does."""
        with self._guard:
            self._leases.pop(request, None)
            self._unwanted.discard(request)
            alive = self._id == session
        try:
            return self.service.give_back(session, request, name)
        except SessionGone:
            return False
        except Unavailable:
            if alive:
                with self._guard:
                    self._owed[session, request, name] = None
                self.poke()
            return alive

    def lost(self, session: str) -> None:
        """The service says that this session is gone."""
        with self._guard:
            if self._id == session:
                self._lose_all()

    def poke(self) -> None:
        """Makes the next renewal come at once."""
        self.rouse()
        with self._guard:
            if self._term.keeper is not None:
                self._term.keeper.poke()

    def rouse(self) -> None:
        """Makes the session's thread look at everything at once."""
        with self._guard:
            self._poked = True
            self._guard.notify_all()

    def give_up(self, keeper: Keeper, requests: list[str]) -> None:
        """What a keeper found to be wished; it waits for this before it says that the leases last any longer."""
        with self._guard:
            if self._term.keeper is keeper:
                self._lose(requests)
        self.rouse()

    def close(self) -> None:
        """Ends the session; its leases are lost. For the end of the process, and for idle sessions."""
        with self._guard:
            self._closed = True
            session, keeper = self._id, self._term.keeper
            self._lose_all()
            self._guard.notify_all()
        if keeper is not None:
            keeper.end()
        if self._keepers is not None:
            self._keepers.close()
        with suppress(LakelatchError):
            if session is not None:
                self.service.close_session(session)
        self.service.close()

    def _lose(self, requests: list[str]) -> None:
        """Whoever had these does not any more, before anybody else can be granted them; they are owed from now on."""
        for request in requests:
            if self._id is not None and request in self._leases:
                lease, name = self._leases.pop(request)
                lease.lose()
                self._owed[self._id, request, name] = None
            else:
                self._unwanted.add(request)

    def _lose_all(self) -> None:
        self._term.end()
        self._term = Term()
        for lease, _ in self._leases.values():
            lease.lose()
        self._leases.clear()
        self._owed.clear()
        self._unwanted.clear()
        self._id = None

    def _between_s(self) -> float:
        return self.service.renew_s or self.service.lease_s / _TICKS

    def _hand_over(self) -> None:
        """To a keeper, if there is one that is ready. Not while a renewal of our own is under way."""
        keeper = self._keepers.take() if self._keepers is not None else None
        if keeper is not None and self._id is not None:
            self._term.hand_over(keeper, self._id, self.service.lease_s, self._between_s())

    def _look_after_keeper(self, keepers: Keepers) -> bool:
        """Whether one renews the session. Sees to it that there is one; if it died, it is up to us until then."""
        keeper = self._term.keeper
        if keeper is not None and keeper.ended.is_set():
            keepers.fell(keeper)
            if not self._term.take_over():
                return False
        elif keeper is not None and keeper.stuck(self.service.lease_s):
            keeper.kill()  # which rouses us once it is dead
        if self._term.keeper is None:
            keepers.prepare(self)
            self._hand_over()
        return self._term.keeper is not None

    def _run(self) -> None:
        between_s = self._between_s()
        if self._keepers is not None:
            between_s = min(between_s, self.service.lease_s / _LOOKS)
        nap_s = between_s
        while True:
            with self._guard:
                if not self._poked and not self._closed:
                    self._guard.wait(nap_s)
                self._poked = False
                if self._closed:
                    return
                idle_s = (self._system.monotonic_ns() - self._idle_since_ns) / 1e9
                idle = self._users == 0 and idle_s > self.service.lease_s
                self._closed = idle  # at once, so that nobody begins to use it meanwhile
            if idle:
                self.close()
                return
            nap_s = between_s if self._renew() else min(between_s, self.service.lease_s / _RETRIES)

    def _renew(self) -> bool:
        """One renewal, unless a keeper does it; False if the service did not answer."""
        with self._guard:
            session = self._id
            kept = session is not None and self._keepers is not None and self._look_after_keeper(self._keepers)
            started_ns = self._system.monotonic_ns()
            lapsed = started_ns >= self._term.deadline_ns()
            if lapsed:
                self._lose_all()
        if session is None:
            return True
        if kept and not lapsed:
            return self._settle()
        try:
            if lapsed:  # it may still be alive at the service, and keep others waiting
                self.service.close_session(session)
                return True
            unwanted = self.service.renew_session(session)
        except SessionGone:
            self.lost(session)
            return True
        except LakelatchError as error:
            if not self._failing:
                _log.warning("the session with the lock service could not be renewed yet: %s", error.message)
            self._failing = True
            return False
        self._renewed(session, started_ns, unwanted)
        return self._settle()

    def _renewed(self, session: str, started_ns: int, unwanted: list[str]) -> None:
        with self._guard:
            if self._failing:
                self._failing = False
                _log.warning("the session with the lock service is renewed again")
            if self._id == session:
                self._lose(unwanted)
                self._term.own_ns = trusted_until_ns(started_ns, self.service.lease_s)

    def _settle(self) -> bool:
        """Gives back what is owed, and what nobody here knows of; False if the service did not answer."""
        with self._guard:
            session = self._id
        if session is not None and self.service.may_forget:
            with suppress(LakelatchError):  # debts come first; the next renewal asks again
                self._owe_forgotten(session, self.service.held_by(session))
        with self._guard:
            debts = list(self._owed)
        for debt in debts:
            try:
                with suppress(SessionGone):
                    self.service.give_back(*debt)
            except LakelatchError:
                return False
            with self._guard:
                self._owed.pop(debt, None)
        return True

    def _owe_forgotten(self, session: str, held: list[tuple[str, str]]) -> None:
        """A service that lost its latest writes may have forgotten that we gave something back, or gave it up.

        What is unknown once may have been given back since the service answered.
        """
        with self._guard:
            strange = {
                request: name for request, name in held if request not in self._leases and request not in self._asked
            }
            if self._id == session:
                self._owed.update(
                    {(session, each, strange[each]): None for each in sorted(self._strange & set(strange))}
                )
            self._strange = set(strange)


class _Sessions:
    """The sessions of this process, by service; providers of the same service share theirs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sessions: dict[Hashable, Session] = {}

    def find(self, identity: Hashable, make: Callable[[], Session]) -> Session:
        """The guard is never held while a session's own is waited for: one service must not keep another waiting."""
        while True:
            with self._guard:
                session = self._sessions.get(identity)
            if session is not None and session.use():
                return session
            with self._guard:
                if self._sessions.get(identity) is session:  # none, or one that its last user has closed
                    self._sessions[identity] = make()

    def close_all(self) -> None:
        with self._guard:
            open_now, self._sessions = list(self._sessions.values()), {}
        for session in open_now:
            session.close()


_sessions = _Sessions()
_inherited: list[_Sessions] = []


def shared_session(identity: Hashable, make: Callable[[], Session]) -> Session:
    """The session of this identity, with one more user; `leave` it at the end."""
    return _sessions.find(identity, make)


def _begin_anew() -> None:
    """A forked child is another process. Its parent's clients are kept, since collecting them would close them."""
    global _sessions
    _inherited.append(_sessions)
    _sessions = _Sessions()


def _close_at_exit() -> None:
    _sessions.close_all()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_close_at_exit)
