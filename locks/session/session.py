"""The process's session with a lock service: one renewal thread, and one deadline for all leases."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.locks.lease import Lease, Term
from lakelatch.locks.session.backend import SessionBackend, SessionGone, SupportsHeldBy
from lakelatch.system import PerProcess, System, Thread, process_name

_TICKS = 3  # renewals in a lease time
_RETRIES = 12  # tries in a lease time if the service does not answer
_MARGIN = 0.1  # of the lease time: the holder stops believing in its leases so much earlier than the service may
_log = logging.getLogger("lakelatch.locks")


@dataclass(eq=False)
class _Grant:
    """A grant that a session has not given back: the request and its name, the lease, the provider it is for.

    A lease that was lost is not `held` any more, and is given back all the same when it is released.
    """

    user: object
    session: str
    name: str
    lease: Lease
    held: bool = True


class Session:
    """Opened on first use, opened anew (with another id) after it was lost, closed when it was unused for a while.

    Every lease's deadline is the session's: the start of the last successful renewal, plus the lease time, minus a
    margin, on the own monotonic clock. So a holder that was paused, or whose renewal could not run, knows it at once.
    """

    def __init__(self, backend: SessionBackend, system: System) -> None:
        self.backend = backend
        self._held_by = backend if isinstance(backend, SupportsHeldBy) else None
        self._system = system
        self._guard = system.new_condition()
        self._id: str | None = None
        self._term = Term(0)  # one for each session: that of one which has ended is over for good
        self._grants: dict[str, _Grant] = {}  # by request
        self._unreturned: dict[tuple[str, str, str], None] = {}  # (session, request, name)
        self._unwanted: set[str] = set()  # requests to be given up whose grant has not been heard of yet
        self._under_way: set[str] = set()  # requests whose answer is waited for
        self._unknown: set[str] = set()  # requests that the service lately said to hold something, unknown to us
        self._users = 0
        self._idle_since_ns = 0
        self._woken = False
        self._failing = False
        self._closed = False
        self._thread: Thread | None = None
        backend.on_doubt = self.wake

    def use(self) -> bool:
        """Counts one more user; False if the session is closed for good."""
        with self._guard:
            if not self._closed:
                self._users += 1
            return not self._closed

    def leave(self, user: object) -> None:
        """Releases what was granted for this user, and counts one user less."""
        with self._guard:
            leases = [grant.lease for grant in self._grants.values() if grant.user is user]
        for lease in leases:
            lease.release()
        with self._guard:
            self._users -= 1
            self._idle_since_ns = self._system.monotonic_ns()

    def open(self) -> str:
        """The id of a session that is alive as far as we know; opens one if there is none."""
        with self._guard:
            if self._id is not None and not self._term.is_over(self._system.monotonic_ns()):
                return self._id
            if self._closed:
                raise Unavailable("the session with the lock service was closed: try again")
            self._lose_all(self._term.reason())
            started_ns = self._system.monotonic_ns()
            self._id = self.backend.open_session(process_name())
            self._term.deadline_ns = self._trusted_until_ns(started_ns)
            if self._thread is None:
                self._thread = self._system.start_thread(self._run, "lakelatch-lock-session")
            self._guard.notify_all()
            return self._id

    @contextmanager
    def asking(self, request: str) -> Iterator[None]:
        """While a request is under way: what the service has granted it is not taken for forgotten."""
        with self._guard:
            self._under_way.add(request)
        try:
            yield
        finally:
            with self._guard:
                self._under_way.discard(request)

    def grant(self, user: object, session: str, request: str, name: str, key: str, token: int) -> Lease | None:
        """The lease of what the service has granted; None, and it is given back, if the session has ended meanwhile."""
        lease = Lease(key, token, process_name(), self._system, 0, lambda _: self._release(request))
        with self._guard:
            if self._id == session and request not in self._unwanted:
                lease.follow(self._term)
                self._grants[request] = _Grant(user, session, name, lease)
        if lease.valid():
            return lease
        self.give_back(session, request, name)
        return None

    def give_back(self, session: str, request: str, name: str) -> bool:
        """Frees what a request holds, now or, if the service does not answer, as soon as it does."""
        with self._guard:
            self._grants.pop(request, None)
            self._unwanted.discard(request)
            alive = self._id == session
        try:
            return self.backend.give_back(session, request, name)
        except SessionGone:
            return False
        except Unavailable:
            if alive:
                with self._guard:
                    self._unreturned[session, request, name] = None
                self.wake()
            return alive

    def lost(self, session: str, error: SessionGone) -> None:
        """The service says, by this error, that this session is gone."""
        with self._guard:
            if self._id == session:
                self._lose_all(f"the session that held it has ended ({error.message})")

    def wake(self) -> None:
        """Makes the next renewal come at once."""
        with self._guard:
            self._woken = True
            self._guard.notify_all()

    def close(self) -> None:
        """Ends the session; its leases are lost. For the end of the process, and for idle sessions."""
        with self._guard:
            self._closed = True
            session = self._id
            self._lose_all("the process closed its session with the lock service")
            self._guard.notify_all()
        with suppress(LakelatchError):
            if session is not None:
                self.backend.close_session(session)
        self.backend.close()

    def _release(self, request: str) -> bool:
        with self._guard:
            grant = self._grants.get(request)
        if grant is None:
            return False
        held = grant.lease.valid()
        return self.give_back(grant.session, request, grant.name) and held

    def _lose(self, requests: list[str]) -> None:
        """Ends the leases of these requests, before others can be granted them; they are still to be given back."""
        for request in requests:
            grant = self._grants.get(request)
            if grant is not None and grant.held:
                grant.held = False
                grant.lease.lose("its release was asked for at the lock service, as by an operator who breaks the lock")
                self._unreturned[grant.session, request, grant.name] = None
            else:
                self._unwanted.add(request)

    def _lose_all(self, reason: str) -> None:
        self._term.ended = reason  # before the deadline, since a lease that is looked at reads both
        self._term.deadline_ns = 0
        self._term = Term(0)
        for grant in self._grants.values():
            grant.held = False
            grant.lease.lose(reason)
        self._unreturned.clear()
        self._unwanted.clear()
        self._id = None

    def _trusted_until_ns(self, renewed_ns: int) -> int:
        """The deadline of the leases after a renewal that began at this time."""
        return renewed_ns + int(self.backend.lease_s * (1 - _MARGIN) * 1e9)

    def _run(self) -> None:
        between_s = self.backend.renew_s or self.backend.lease_s / _TICKS
        nap_s = between_s
        while True:
            with self._guard:
                if not self._woken and not self._closed:
                    self._guard.wait(nap_s)
                self._woken = False
                if self._closed:
                    return
                idle_s = (self._system.monotonic_ns() - self._idle_since_ns) / 1e9
                idle = self._users == 0 and idle_s > self.backend.lease_s
                self._closed = idle  # at once, so that no provider begins to use it meanwhile
            if idle:
                self.close()
                return
            nap_s = between_s if self._renew() else min(between_s, self.backend.lease_s / _RETRIES)

    def _renew(self) -> bool:
        """One renewal; False if the service did not answer."""
        with self._guard:
            session = self._id
            started_ns = self._system.monotonic_ns()
            term = self._term
            lapsed = term.is_over(started_ns)
            if lapsed:
                self._lose_all(term.reason())
        if session is None:
            return True
        try:
            if lapsed:  # it may still be alive at the service, and keep others waiting
                self.backend.close_session(session)
                return True
            unwanted = self.backend.renew_session(session)
        except SessionGone as error:
            self.lost(session, error)
            return True
        except LakelatchError as error:
            term.failure = error.message
            if not self._failing:
                _log.warning("the session with the lock service could not be renewed yet: %s", error.message)
            self._failing = True
            return False
        self._renewed(session, started_ns, unwanted)
        return self._resolve()

    def _renewed(self, session: str, started_ns: int, unwanted: list[str]) -> None:
        with self._guard:
            if self._failing:
                self._failing = False
                _log.warning("the session with the lock service is renewed again")
            if self._id == session:
                self._lose(unwanted)
                self._term.deadline_ns = self._trusted_until_ns(started_ns)
                self._term.failure = ""

    def _resolve(self) -> bool:
        """Gives back what could not be before, and grants unknown here; False if the service did not answer."""
        with self._guard:
            session = self._id
        if session is not None and self._held_by is not None:
            with suppress(LakelatchError):  # what is to be given back comes first; the next renewal asks again
                self._return_forgotten(session, self._held_by.held_by(session))
        with self._guard:
            unreturned = list(self._unreturned)
        for grant in unreturned:
            try:
                with suppress(SessionGone):
                    self.backend.give_back(*grant)
            except LakelatchError:
                return False
            with self._guard:
                self._unreturned.pop(grant, None)
        return True

    def _return_forgotten(self, session: str, held: list[tuple[str, str]]) -> None:
        """A service that lost its latest writes may have forgotten that we gave something back, or gave it up.

        What is unknown once may have been given back since the service answered.
        """
        with self._guard:
            known = {request for request, grant in self._grants.items() if grant.held} | self._under_way
            unknown = {request: name for request, name in held if request not in known}
            if self._id == session:
                self._unreturned.update(
                    {(session, each, unknown[each]): None for each in sorted(self._unknown & set(unknown))}
                )
            self._unknown = set(unknown)


class _Sessions:
    """The sessions of this process, by what identifies their backend; equal providers share theirs."""

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


_sessions = PerProcess(_Sessions)
atexit.register(lambda: _sessions().close_all())


def shared_session(identity: Hashable, make: Callable[[], Session]) -> Session:
    """The session of this identity, with one more user; `leave` it at the end."""
    return _sessions().find(identity, make)
