"""The contract of a backend, by which one provider template makes honest leases of any lock service with sessions.

A process has one **session** with a service: a record there that the service, or any contender, may take for dead
when it has not been renewed for the session's lease time. Everything that the process holds is held by its session,
so that a thousand leases are renewed by one call, and a crashed process frees them all at once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import Holder
from lakelatch.locks.options import WAIT_TIME
from lakelatch.retry import Backoff
from lakelatch.system import System
from lakelatch.telemetry import measure_calls

Result = TypeVar("Result")

_FAILED_TRIES_UNTOLD = 1  # a connection that broke since it was used last is no news
_OF_SESSIONS, _OF_HOLDERS = ("open_session", "renew_session", "close_session"), ("holders", "find_holder", "held_by")
_MEASURED = (*_OF_SESSIONS, *_OF_HOLDERS, "take", "give_back", "advance", "ask", "ask_to_give_up", "force")
_log = logging.getLogger("lakelatch.locks")


class SessionGone(Unavailable):
    """The service does not know this session any more: open another one."""


class Wait:
    """One deadline, passed down to whatever has to wait for a key.

    The waiting also ends when the provider is closed, so nothing may sleep for longer than `nap_s` says.
    """

    _NAP_MOST_S = 0.5

    def __init__(self, timeout_s: float, system: System, closed: Callable[[], bool]) -> None:
        self.system = system
        self.timeout_s = timeout_s
        self._deadline_ns = system.monotonic_ns() + int(timeout_s * 1e9)
        self._closed = closed
        self._tried = 0
        self._failed = 0

    def left_s(self) -> float:
        """The time until the deadline; 0 once it has passed."""
        return max((self._deadline_ns - self.system.monotonic_ns()) / 1e9, 0.0)

    def nap_s(self, most_s: float = _NAP_MOST_S) -> float:
        """The time to wait for a notification before looking again; 0 at the deadline.

        Errors: `Unavailable` if the provider was closed meanwhile.
        """
        if self._closed():
            raise Unavailable("the lock provider was closed while a thread waited for a key")
        return min(self.left_s(), most_s, self._NAP_MOST_S)

    def back_off(self, least_s: float = 0.01, most_s: float = 0.5) -> bool:
        """Sleeps for a growing, jittered time; False, at once, if the deadline has passed.

        For services that do not notify, and for those that do not answer. Not by `lakelatch.retry.tries`, since the
        waiting also ends when the provider is closed, and begins anew after progress.
        """
        self._tried += 1
        backoff = Backoff(0.75 * least_s, 0.75 * most_s, jitter=1 / 3)  # between half of a span and all of it
        nap_s = self.nap_s(backoff.wait_s(self._tried, self.system))
        if nap_s <= 0:
            return False
        self.system.sleep(nap_s)
        return True

    def calm_down(self) -> None:
        """Begins the back-off anew, as there was progress."""
        self._tried = 0

    def patiently(self, ask: Callable[[], Result], final: type[Unavailable]) -> Result:
        """Returns the answer of `ask`, which is asked again until the deadline while it raises what is not `final`.

        A warning in the log says that the service does not answer, once the second try failed.
        """
        while True:
            try:
                answer = ask()
            except final:
                raise
            except Unavailable as error:
                self._tell(error)
                if not self.back_off():
                    raise
            else:
                if self._failed > _FAILED_TRIES_UNTOLD:
                    _log.warning("the lock service answers again, after %d tries that failed", self._failed)
                self._failed = 0
                return answer

    def _tell(self, error: Unavailable) -> None:
        if isinstance(error, SessionGone):  # it has answered
            return
        self._failed += 1
        if self._failed == _FAILED_TRIES_UNTOLD + 1:
            _log.warning(
                "the lock service could not be used in %d tries, and is asked again for up to %.0f s (%s): %s",
                self._failed,
                self.left_s(),
                WAIT_TIME,
                error.message,
            )


@dataclass(frozen=True)
class Held:
    """The holder of a name at the service: its session, the request that was granted, and its lease time.

    `lease_s`, the most that one has to wait for it, may differ from ours.
    """

    session: str
    request: str
    lease_s: float


class SessionBackend(ABC):
    """One lock service, as `SessionLockProvider` needs it. Instances are shared by all tables and threads of a process.

    Names are text without `/` at their ends: `<table>/=<escaped key>`; any two differ in more than case. Whatever
    cannot be reached or does not answer in time raises `Unavailable`, wrong credentials, missing rights and wrong
    options `InvalidRequest`; messages carry no secrets. Calls must end within about a third of the lease time.
    A call whose answer was lost may have happened: `take` and `give_back` name their request, so that they can be
    resolved by `give_back` of the same request.
    """

    #: The service's name, for measurements.
    system_name: str = "lock_service"

    #: The session's lease time: at least that long after its last renewal *began*, it is not taken for dead.
    lease_s: float

    #: How long the session rests between two renewals, if not for a third of the lease time.
    renew_s: float | None = None

    #: Set by the user of the backend; called, in any thread, when the session has ended before its time.
    on_doubt: Callable[[], None] | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        measure_calls(cls, _MEASURED)

    @abstractmethod
    def open_session(self, owner: str) -> str:
        """A new session, alive for `lease_s`; its id. `owner` is for people."""

    @abstractmethod
    def renew_session(self, session: str) -> list[str]:
        """Keeps the session alive for another `lease_s`, and returns the release requests that operators left for it.

        A release request is reported until its request is given back, since the answer that reported it may be lost.
        Errors: `SessionGone` if it has been taken for dead, or is not known. It must not be brought back then.
        """

    @abstractmethod
    def close_session(self, session: str) -> None:
        """Ends it, and whatever it holds or waits for; nothing of it stays. An unknown session is no error."""

    @abstractmethod
    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        """The token once the name is held by this request; None at the deadline, with nothing left behind.

        A token is greater than every earlier one of the name. With nothing left to wait it tries once.
        Errors: `SessionGone`; on any other error the caller gives the request back.
        """

    @abstractmethod
    def give_back(self, session: str, request: str, name: str) -> bool:
        """Frees the name, or the request's place in the queue; False if the request did not hold the name.

        Wakes who is next. Must be idempotent.
        """

    @abstractmethod
    def advance(self, name: str, at_least: int, count: int) -> int:
        """The register of `name`: stores and reserves as `Register.advance` says, atomically and durably."""

    @abstractmethod
    def holders(self, prefix: str) -> list[Holder]:
        """All live holders of names that start with `prefix`; `Holder.key` is the name."""

    def owner_of(self, name: str) -> str | None:
        """The owner that holds the name now, as messages have it."""
        return next((found.owner for found in self.holders(name) if found.key == name), None)

    @abstractmethod
    def find_holder(self, name: str) -> Held | None:
        """The live session that holds the name now."""

    def ask(self, name: str) -> None:
        """One question, whose answer does not matter; best one round trip."""
        self.find_holder(name)

    @abstractmethod
    def lock_id(self, name: str, proposed: str) -> str:
        """The id that is kept for a name, for good, "" if there is none; a proposed one is put if there is none."""

    def time_ms(self) -> int | None:
        """The service's own wall clock; None if it does not tell."""
        return None

    @abstractmethod
    def ask_to_give_up(self, held: Held, name: str) -> None:
        """Leaves a release request for the holder's session, which finds it at its next renewal."""

    @abstractmethod
    def force(self, held: Held, name: str) -> bool:
        """Frees the name if it is still held by this very request, and wakes who is next; else False.

        Called when the holder had its whole lease time to see the release request, or to lapse.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives up connections and threads. Only sessions that were closed before are gone then."""


@runtime_checkable
class SupportsHeldBy(Protocol):
    """A backend whose service may come back without its latest writes, as of a replica promoted too early."""

    def held_by(self, session: str) -> list[tuple[str, str]]:
        """The requests that hold something for this session, each with its name.

        The session gives back those that it does not know. Request ids are never used again, so that is safe also if
        one was given back between this answer and now.
        """
