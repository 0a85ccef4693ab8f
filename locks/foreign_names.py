"""Names that other software locks as well, in a layout of its own: there its rules hold, and the tokens are ours."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import Holder
from lakelatch.locks.record_service import Entry, RecordService, entry_of, slot_of
from lakelatch.locks.records import RecordStore, field
from lakelatch.locks.service import Held, SessionGone
from lakelatch.system import System


@dataclass(frozen=True)
class ForeignHold:
    """What a foreign lock says now; the version tells whether it was renewed or changed hands since.

    `lapsed` is true if the layout itself says that it is free to take.
    """

    owner: str
    version: str
    lease_s: float
    lapsed: bool = False


class ForeignLock(ABC):
    """One lock in a foreign layout, with conditional puts.

    `by_silence` says that a holder may be overtaken if the version has not changed for its lease time, on the own
    monotonic clock; without it only `lapsed` counts.
    """

    by_silence: bool

    @abstractmethod
    def owner_of(self, request: str) -> str:
        """How a request of ours is called there; no two are called alike."""

    @abstractmethod
    def read(self) -> ForeignHold | None:
        """The newest state; None if nobody holds it and there is nothing to overtake."""

    @abstractmethod
    def write(self, owner: str, expected: ForeignHold | None) -> ForeignHold | None:
        """Takes it, or renews it, if it is still as expected; None if it is not."""

    @abstractmethod
    def free(self, held: ForeignHold) -> tuple[bool, ForeignHold | None]:
        """Gives it up if it is still this very hold: whether it was, and what `read` would say now if so."""


@dataclass
class _Mine:
    session: str
    foreign: ForeignLock
    hold: ForeignHold


class ForeignNamesService(RecordService):
    """A `RecordService` where some names are taken in a foreign layout; `find` says which, and how.

    Such a lock is renewed with our session, so that the deadline of its lease is the session's: the renewal starts,
    then the foreign lock is renewed, and only if that succeeded the deadline moves. Whoever wants to overtake it has to
    wait for longer. The name's own slot has the token and the entry, by which `break_` finds our session. A put whose
    answer was lost may put the lock after all; then it is held by nobody, until it lapses.
    """

    def __init__(
        self,
        store: RecordStore,
        system: System,
        lease_s: float,
        find: Callable[[str], ForeignLock | None],
        renew_s: float | None = None,
    ) -> None:
        super().__init__(store, system, lease_s, renew_s)
        self._find = find
        self._mine: dict[str, _Mine] = {}
        self._changing = threading.RLock()  # so that a renewal and a release do not refuse each other
        self._watched: dict[str, tuple[str, int]] = {}  # version and since when, by name
        self._left: dict[str, ForeignHold | None] = {}  # as we left it, which may be worth a try without reading
        self._shared_names: set[str] = set()  # and which others take as well

    def renew_session(self, session: str) -> list[str]:
        try:
            unwanted = super().renew_session(session)
        except SessionGone:
            self._free_all(session)
            raise
        for request, mine in list(self._mine.items()):
            if mine.session == session and not self._renew(request):
                unwanted.append(request)
        return unwanted

    def close_session(self, session: str) -> None:
        self._free_all(session)
        super().close_session(session)

    def try_once(self, session: str, request: str, name: str) -> int | None:
        foreign = self._find(name)
        if foreign is None:
            return super().try_once(session, request, name)
        owner = foreign.owner_of(request)
        hold = self._take(name, foreign, owner)
        if hold is None:
            return None
        with self._changing:
            self._mine[request] = _Mine(session, foreign, hold)

        def mine(held: dict[str, Any], token: int) -> bool:  # whoever else is noted there is not the holder
            since_ms = self.system.realtime_ms()
            held[name] = {"session": session, "request": request, "token": token, "since_ms": since_ms, "owner": owner}
            return True

        token = self.draw_token(session, request, name, mine)
        return token if request in self._mine else None  # a renewal may have found that it was lost meanwhile

    def give_back(self, session: str, request: str, name: str) -> bool:
        foreign = self._find(name)
        if foreign is None:
            return super().give_back(session, request, name)
        with self._changing:
            mine = self._mine.get(request)
            held = mine.hold if mine is not None else foreign.read()
            freed = False
            while held is not None and not held.lapsed and held.owner == foreign.owner_of(request) and not freed:
                freed, left = foreign.free(held)
                if freed and name not in self._shared_names:
                    self._left[name] = left
                self._shared_names.discard(name)
                held = None if freed else foreign.read()
            self._mine.pop(request, None)
        self.let_go(session, request, name)
        return freed

    def holders(self, prefix: str) -> list[Holder]:
        foreign = self._find(prefix)
        if foreign is None:
            return super().holders(prefix)
        found = foreign.read()
        if found is None or not self._alive(prefix, foreign, found):
            return []
        noted = self._noted(prefix, found)
        if noted is None:
            return [Holder(prefix, found.owner, 0, self.system.realtime_ms())]
        about = self.sessions.look(noted.session)
        return [Holder(prefix, about.owner if about else found.owner, noted.token, noted.since_ms)]

    def find_holder(self, name: str) -> Held | None:
        foreign = self._find(name)
        if foreign is None:
            return super().find_holder(name)
        found = foreign.read()
        if found is None or not self._alive(name, foreign, found):
            return None
        noted = self._noted(name, found)
        return Held(noted.session, noted.request, found.lease_s) if noted else Held("", found.owner, found.lease_s)

    def ask_to_give_up(self, held: Held, name: str) -> None:
        if held.session:  # others know no such wish
            super().ask_to_give_up(held, name)

    def force(self, held: Held, name: str) -> bool:
        foreign = self._find(name)
        if foreign is None:
            return super().force(held, name)
        found = foreign.read()
        while found is not None and not found.lapsed:
            noted = self._noted(name, found)
            if (noted.request if noted else found.owner) != held.request:
                return False
            if foreign.free(found)[0]:
                return True
            found = foreign.read()
        return False

    def _take(self, name: str, foreign: ForeignLock, owner: str) -> ForeignHold | None:
        if name in self._left:
            taken = foreign.write(owner, self._left.pop(name))
            if taken is not None:
                return taken
            self._shared_names.add(name)
        found = foreign.read()
        if found is not None and found.owner == owner and not found.lapsed:
            return found  # an earlier put has happened after all
        if found is not None and self._alive(name, foreign, found):
            return None
        return foreign.write(owner, found)

    def _alive(self, name: str, foreign: ForeignLock, found: ForeignHold) -> bool:
        """Whether it may not be overtaken yet; silence counts from when we first had this version in our hands."""
        if found.lapsed or not foreign.by_silence:
            return not found.lapsed
        now_ns = self.system.monotonic_ns()
        version, since_ns = self._watched.get(name, ("", 0))
        if version != found.version:
            self._watched[name] = found.version, now_ns
            return True
        return now_ns - since_ns < found.lease_s * 1e9

    def _noted(self, name: str, found: ForeignHold) -> Entry | None:
        """Our entry of this very hold, None if it is somebody else's."""
        slot = slot_of(name)
        record = self.store.get(slot)
        held = field(record, "held", dict, slot) if record else {}
        entry = entry_of(held, name)
        return entry if entry is not None and held[name].get("owner") == found.owner else None

    def _renew(self, request: str) -> bool:
        """False if it is not ours any more."""
        with self._changing:
            mine = self._mine.get(request)
            if mine is None:
                return True
            held: ForeignHold | None = mine.hold
            while held is not None and not held.lapsed and held.owner == mine.hold.owner:
                renewed = mine.foreign.write(held.owner, held)
                if renewed is not None:
                    mine.hold = renewed
                    return True
                held = mine.foreign.read()
            del self._mine[request]
            return False

    def _free_all(self, session: str) -> None:
        for request, mine in list(self._mine.items()):
            if mine.session == session:
                with self._changing, suppress(LakelatchError):
                    mine.foreign.free(mine.hold)
                self._mine.pop(request, None)
