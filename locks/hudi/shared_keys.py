"""A backend where some names are locks of Java Hudi's: its layout and rules hold for those, and the tokens are ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import Holder
from lakelatch.locks.hudi.java_lock import JavaLock, JavaLockState
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.slots import Entry, entry_of, slot_of
from lakelatch.locks.records.store import Record, RecordStore, field
from lakelatch.locks.records.tickets import Turn, by_ticket, served_of
from lakelatch.locks.session.backend import Held, SessionGone
from lakelatch.system import System


@dataclass
class _Mine:
    session: str
    lock: JavaLock
    state: JavaLockState


class SharedKeysBackend(RecordBackend):
    """A `RecordBackend` where some names are locks of Java Hudi's; `find` says which.

    Such a lock is renewed with our session, so that the deadline of its lease is the session's: the renewal starts,
    then Java's lock is renewed, and the deadline moves only if that succeeded. A writer that wants to overtake it has
    to wait for longer. The name's own slot has the token and the entry, by which `break_` finds our session. A put
    whose answer was lost may still take the lock; it is then held by no process until it lapses.
    """

    def __init__(
        self,
        store: RecordStore,
        system: System,
        lease_s: float,
        find: Callable[[str], JavaLock | None],
        renew_s: float | None = None,
    ) -> None:
        super().__init__(store, system, lease_s, renew_s)
        self._find = find
        self._mine: dict[str, _Mine] = {}
        self._changing = threading.RLock()  # so that a renewal and a release do not refuse each other
        self._watched: dict[str, tuple[str, int]] = {}  # version and since when, by name
        self._released: dict[str, JavaLockState | None] = {}  # as we left it, which may be worth a try without reading
        self._contended: set[str] = set()  # names that others take as well, so that reading first is cheaper

    def renew_session(self, session: str) -> list[str]:
        try:
            unwanted = super().renew_session(session)
        except SessionGone:
            self._release_all(session)
            raise
        for request, mine in list(self._mine.items()):
            if mine.session == session and not self._renew(request):
                unwanted.append(request)
        return unwanted

    def close_session(self, session: str) -> None:
        self._release_all(session)
        super().close_session(session)

    def try_once(self, session: str, request: str, name: str, turn: Turn) -> int | None:
        lock = self._find(name)
        if lock is None:
            return super().try_once(session, request, name, turn)
        owner = lock.owner_of(request)
        slots: list[tuple[Record | None, bool]] = []  # as read for the turn

        def may_take() -> bool:
            slot, others = (self.store.get(slot_of(name)), True) if turn.has_ticket else self.known_slot(name)
            slots[:] = [(slot, others)]
            return turn.has_come(served_of(slot, name), others)

        state, found = self._take(name, lock, owner, may_take)
        if state is None:
            if found is not None and not slots:
                self._watch(name, found, turn)
            return None
        with self._changing:
            self._mine[request] = _Mine(session, lock, state)

        def mine(_slot: Record | None, _others: bool, held: dict[str, Any], token: int) -> bool:
            since_ms = self.system.realtime_ms()  # an entry that is there is out of date
            held[name] = {"session": session, "request": request, "token": token, "since_ms": since_ms, "owner": owner}
            held[name] |= turn.of_entry()
            return True

        token = self.draw_token(session, request, name, mine, turn, slots[0] if slots else None)
        return token if request in self._mine else None  # a renewal may have found meanwhile that it was lost

    def give_back(self, session: str, request: str, name: str) -> bool:
        lock = self._find(name)
        if lock is None:
            return super().give_back(session, request, name)
        with self._changing:
            mine = self._mine.get(request)
            held = mine.state if mine is not None else lock.read()
            freed = False
            while held is not None and not held.lapsed and held.owner == lock.owner_of(request) and not freed:
                freed, left = lock.release(held)
                if freed and name not in self._contended:
                    self._released[name] = left
                self._contended.discard(name)
                held = None if freed else lock.read()
            self._mine.pop(request, None)
        self.forget_request(session, request, name)
        return freed

    def holders(self, prefix: str) -> list[Holder]:
        lock = self._find(prefix)
        if lock is None:
            return super().holders(prefix)
        found = lock.read()
        if found is None or not self._alive(prefix, lock, found):
            return []
        noted = self._noted(prefix, found)
        served = {prefix: served_of(self.store.get(slot_of(prefix)), prefix) or 0}
        if noted is None:
            return self.with_waiters([Holder(prefix, found.owner, 0, self.system.realtime_ms())], served)
        live = self.sessions.look(noted.session)
        owner = live.owner if live else found.owner
        return self.with_waiters([Holder(prefix, owner, noted.token, noted.since_ms)], served)

    def owner_of(self, name: str) -> str | None:
        if self._find(name) is None:
            return super().owner_of(name)
        return next((found.owner for found in self.holders(name)), None)

    def find_holder(self, name: str) -> Held | None:
        lock = self._find(name)
        if lock is None:
            return super().find_holder(name)
        found = lock.read()
        if found is None or not self._alive(name, lock, found):
            return None
        noted = self._noted(name, found)
        return Held(noted.session, noted.request, found.lease_s) if noted else Held("", found.owner, found.lease_s)

    def ask_to_give_up(self, held: Held, name: str) -> None:
        if held.session:  # Java writers know no release requests
            super().ask_to_give_up(held, name)

    def force(self, held: Held, name: str) -> bool:
        lock = self._find(name)
        if lock is None:
            return super().force(held, name)
        found = lock.read()
        while found is not None and not found.lapsed:
            noted = self._noted(name, found)
            if (noted.request if noted else found.owner) != held.request:
                return False
            if lock.release(found)[0]:
                return True
            found = lock.read()
        return False

    def _take(
        self, name: str, lock: JavaLock, owner: str, may_take: Callable[[], bool]
    ) -> tuple[JavaLockState | None, JavaLockState | None]:
        """The lock as we hold it since, and as it was found."""
        if name in self._released:
            left = self._released.pop(name)
            if not may_take():
                return None, left
            taken = lock.write(owner, left)
            if taken is not None:
                return taken, left
            self._contended.add(name)
        found = lock.read()
        if found is not None and found.owner == owner and not found.lapsed:
            return found, found  # an earlier put has happened after all
        if (found is not None and self._alive(name, lock, found)) or not may_take():
            return None, found
        return lock.write(owner, found), found

    def _watch(self, name: str, found: JavaLockState, turn: Turn) -> None:
        """Tells the turn who holds the lock; only one that is behind others has to know more than that."""
        slot = self.store.get(slot_of(name)) if turn.is_behind else None
        noted = field(slot, "held", dict, slot_of(name)).get(name) if slot is not None else None
        in_order = isinstance(noted, dict) and noted.get("owner") == found.owner and by_ticket(noted)
        turn.see(found.owner, in_order, served_of(slot, name))

    def _alive(self, name: str, lock: JavaLock, found: JavaLockState) -> bool:
        """Whether it may not be overtaken yet; silence counts from when we first had this version in our hands."""
        if found.lapsed or not lock.expires_by_silence:
            return not found.lapsed
        now_ns = self.system.monotonic_ns()
        version, since_ns = self._watched.get(name, ("", 0))
        if version != found.version:
            self._watched[name] = found.version, now_ns
            return True
        return now_ns - since_ns < found.lease_s * 1e9

    def _noted(self, name: str, found: JavaLockState) -> Entry | None:
        """Our entry of the holder that was found, None if that is another writer."""
        slot = slot_of(name)
        record = self.store.get(slot)
        held = field(record, "held", dict, slot) if record else {}
        entry = entry_of(held, name)
        return entry if entry is not None and held[name].get("owner") == found.owner else None

    def _renew(self, request: str) -> bool:
        """Renews Java's lock for a request; False if it is not ours any more."""
        with self._changing:
            mine = self._mine.get(request)
            if mine is None:
                return True
            held: JavaLockState | None = mine.state
            while held is not None and not held.lapsed and held.owner == mine.state.owner:
                renewed = mine.lock.write(held.owner, held)
                if renewed is not None:
                    mine.state = renewed
                    return True
                held = mine.lock.read()
            del self._mine[request]
            return False

    def _release_all(self, session: str) -> None:
        for request, mine in list(self._mine.items()):
            if mine.session == session:
                with self._changing, suppress(LakelatchError):
                    mine.lock.release(mine.state)
                self._mine.pop(request, None)
