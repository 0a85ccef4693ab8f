"""Locks over conditional puts alone: a waiter has to look again and again, and the store expires nothing.

A **slot** is one record with the names that are held in it: a table's own key has a slot for itself, its other keys
share 64 of them. `{"token": the last one, "held": {name: {session, request, token, since_ms}}}`. Taking a name and
giving it back are each one conditional put of its slot.

- **Tokens grow** because the slot's token is never below one that was handed out for any of its names, and slots are
  never removed. So there is not one record for each file group, which would have to stay for ever: object stores have
  no conditional delete, and removing a record that another process has just changed would free a name that is held.
  Tokens grow even after the store was wiped, since none is below the wall clock in milliseconds.
- **Versions are unique**, so a put that is still on its way when its caller gives up can be made harmless: `give_back`
  puts the slot again, unchanged, if it still has the version that the lost put is waiting for.
- **What a dead session holds is free**, whatever the slot says. `locks/records/sessions.py` argues when a session is
  dead. Its entries are removed later, by any process that is alive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeAlias

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.locks.contract import WAITERS_MOST, Holder
from lakelatch.locks.records.sessions import LiveSession, RecordSessions
from lakelatch.locks.records.slots import LOCKS, Entry, entry_of, id_of, queue_of, register_of, slot_of, slots_of_table
from lakelatch.locks.records.store import Put, Record, RecordStore, field
from lakelatch.locks.records.tickets import Turn, by_ticket, served_of, waiters_of
from lakelatch.locks.session.backend import Held, SessionBackend, SessionGone, Wait
from lakelatch.retry import Backoff, tries
from lakelatch.system import System, process_name

_TURN_MOST_S = 0.02  # between two looks whether it is our turn, which cost no call
_CONFLICT = Backoff(first_s=0.001, longest_s=0.05, jitter=1.0)  # each refusal means that another client got through
_SWEEP_SOON, _SWEEP_LATER = 2, 20  # lease times between two looks at all sessions
_TIDY_SHARE = 0.05  # of the lease time, at each renewal


#: Of a slot as it is known, whether others may have put it since we did, its entries, which are changed, and the token
Change: TypeAlias = Callable[[Record | None, bool, dict[str, Any], int], bool]


class RecordBackend(SessionBackend):
    """The protocol, over any `RecordStore`; the clock is the given one, so it also runs in a simulation.

    Waiting threads of one process queue here, and only the first looks at the store. Processes are served in the order
    of their tickets (`locks/records/tickets.py`), as far as those who wait are alive.
    """

    def __init__(self, store: RecordStore, system: System, lease_s: float, renew_s: float | None = None) -> None:
        self.lease_s = lease_s
        self.renew_s = renew_s
        self.store = store
        self.system = system
        self.sessions = RecordSessions(store, system, lease_s)
        self._guard = threading.Lock()
        self._register_guard = system.new_lock()
        self._requests: dict[str, tuple[str, str]] = {}  # session and name of those that may hold something
        self._sent: dict[str, str | None] = {}  # by request: the version that a put expects whose answer is not there
        self._holding: dict[str, tuple[str, str]] = {}  # session and request of this process, by name
        self._queues: dict[str, deque[str]] = {}
        self._known: dict[str, Record] = {}  # slots and registers, as we put them last
        self._shared: set[str] = set()  # slots that others put as well, so that reading first is cheaper
        self._crowded: set[str] = set()  # slots that others put even while a name in them is held here
        self._paces: dict[str, float] = {}  # how long serving one who waits takes, by name
        self._dead: list[str] = []
        self._untidy: list[str] = []  # slots that may still hold names of the dead
        self._sweeps = 0
        self._sweep_ns = 0

    # Sessions

    def open_session(self, owner: str) -> str:
        session = self.sessions.open(owner)
        if self._sweeps == 0:
            self._sweep_ns = self.system.monotonic_ns()
        return session

    def renew_session(self, session: str) -> list[str]:
        try:
            asked = self.sessions.renew(session, lambda request: request in self._requests)
        except SessionGone:
            self._forget(session)
            raise
        with suppress(LakelatchError):  # the next renewal tries again
            self._tidy()
        return asked

    def close_session(self, session: str) -> None:
        with self._guard:
            names = [name for owner, name in self._requests.values() if owner == session]
        self.sessions.close(session)  # which frees all of them at once
        self._forget(session)
        for slot in sorted({slot_of(name) for name in names}):
            self._remove_entries(slot, {session})
        self.sessions.remove(session)

    # Names

    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        with self._guard:
            self._requests[request] = session, name
        turn = Turn(self.store, self.system, name, self._paces, process_name())
        with self._turn(name, request) as queue:
            try:
                token = self._wait(session, request, name, wait, queue, turn)
            except BaseException:
                turn.leave()
                raise
        if token is None:
            turn.leave()
        with self._guard:
            if token is None:
                self._requests.pop(request, None)
            else:
                self._holding[name] = session, request
        return token

    def try_once(self, session: str, request: str, name: str, turn: Turn) -> int | None:
        """The token, or None if a live session holds the name, or it is not our turn."""

        def mine(slot: Record | None, others: bool, held: dict[str, Any], token: int) -> bool:
            entry, served = entry_of(held, name), served_of(slot, name)
            if entry is not None and self._is_alive(entry, turn):
                turn.see(f"{entry.token}", by_ticket(held[name]), served)
                return False
            if not turn.has_come(served, others):
                return False
            since_ms = self.system.realtime_ms()
            entry_now = {"session": session, "request": request, "token": token, "since_ms": since_ms}
            held[name] = entry_now | turn.of_entry()
            return True

        return self.draw_token(session, request, name, mine, turn)

    def give_back(self, session: str, request: str, name: str) -> bool:
        held = self._free(session, request, name)
        self.forget_request(session, request, name)
        return held

    def advance(self, name: str, at_least: int, count: int) -> int:
        register = register_of(name)
        first = self.store.advance(register, at_least, count)
        if first is not None:
            return first
        with self._register_guard:  # the threads of a process need not fight each other
            record, _ = self._last_known(register, self._shared)
            for _ in self._tries():
                stored = field(record, "value", int, register) if record else 0
                first = max(stored + 1, at_least)
                value = {"name": name, "value": first + count - 1}
                put = self.store.put(register, value, record.version if record else None)
                self._learn(register, put, self._shared)
                if put.done:
                    return first
                record = put.record
        raise _too_many(register)

    def holders(self, prefix: str) -> list[Holder]:
        table = prefix.partition("/=")[0] if "/=" in prefix else ""
        slots = slots_of_table(table) if table else self.store.names(LOCKS)
        found, served = list[Holder](), dict[str, int]()
        for slot, record in self.store.get_all(slots).items():
            for name in field(record, "held", dict, slot):
                entry = entry_of(record.value["held"], name)
                live = self.sessions.look(entry.session) if entry and name.startswith(prefix) else None
                if entry is not None and live is not None:
                    found.append(Holder(name, live.owner, entry.token, entry.since_ms))
                    served[name] = served_of(record, name) or 0
        return self.with_waiters(found, served)

    def with_waiters(self, found: list[Holder], served: Mapping[str, int]) -> list[Holder]:
        """Holders with those who wait behind them, by the tickets served last."""
        queues = self.store.get_all(sorted({queue_of(one.key) for one in found}))
        waiters = {one.key: waiters_of(queues.get(queue_of(one.key)), one.key, served.get(one.key, 0)) for one in found}
        return [
            replace(one, waiting=len(waiters[one.key]), waiters=tuple(waiters[one.key][:WAITERS_MOST])) for one in found
        ]

    def owner_of(self, name: str) -> str | None:
        found = self._look_up(name)
        return found[1].owner if found is not None else None

    def find_holder(self, name: str) -> Held | None:
        found = self._look_up(name)
        return Held(found[0].session, found[0].request, found[1].lease_s) if found is not None else None

    def _look_up(self, name: str) -> tuple[Entry, LiveSession] | None:
        slot = slot_of(name)
        record = self.store.get(slot)
        entry = entry_of(field(record, "held", dict, slot), name) if record else None
        live = self.sessions.look(entry.session) if entry is not None else None
        return (entry, live) if entry is not None and live is not None else None

    def lock_id(self, name: str, proposed: str) -> str:
        place = id_of(name)
        found = self.store.get(place)
        if found is None and proposed:
            found = self.store.put(place, {"name": name, "id": proposed}, None).record
        return field(found, "id", str, place) if found is not None else ""

    def time_ms(self) -> int | None:
        return self.store.time_ms()

    def ask_to_give_up(self, held: Held, name: str) -> None:
        self.sessions.ask_to_release(held.session, held.request)

    def force(self, held: Held, name: str) -> bool:
        return self._free(held.session, held.request, name)

    def close(self) -> None:
        self.store.close()

    # For subclasses that keep some names elsewhere

    def known_slot(self, name: str) -> tuple[Record | None, bool]:
        """The slot of a name for the next `draw_token`, and whether others may have put it since we did."""
        return self._last_known(slot_of(name), self._shared)

    def draw_token(
        self,
        session: str,
        request: str,
        name: str,
        change: Change,
        turn: Turn,
        known: tuple[Record | None, bool] | None = None,
    ) -> int | None:
        """Puts the slot of a name with the next token, and what `change` makes of its entries.

        None if `change` says False of entries that have just been read.
        """
        slot = slot_of(name)
        record, fresh = known or self.known_slot(name)
        for _ in self._tries():
            held = dict(field(record, "held", dict, slot)) if record else {}
            mine = entry_of(held, name)
            if mine is not None and (mine.session, mine.request) == (session, request):
                return mine.token  # an earlier put has happened after all
            token = max((field(record, "token", int, slot) if record else 0) + 1, self.system.realtime_ms())
            if not change(record, fresh, held, token):
                if fresh:
                    return None
                before, record, fresh = record, self.store.get(slot), True
                if (record and record.version) != (before and before.version):
                    self._shared.add(slot)
                continue
            expected = record.version if record else None
            self._sent[request] = expected
            order = turn.fields_of(record)
            put = self.store.put(slot, {**order, "token": token, "held": held}, expected)
            self._sent.pop(request, None)
            self._learn(slot, put, self._shared)
            if put.done:
                return token
            record, fresh = put.record, True
        raise _too_many(slot)

    def forget_request(self, session: str, request: str, name: str) -> None:
        """Forgets a request that holds nothing any more."""
        with self._guard:
            if self._holding.get(name) == (session, request):
                del self._holding[name]
            self._requests.pop(request, None)
            self._sent.pop(request, None)

    def _is_alive(self, entry: Entry, turn: Turn) -> bool:
        """Whether the holder of a name is, as far as this turn has to know."""
        if turn.believes(entry.token):
            return True
        alive = self.sessions.look(entry.session) is not None
        if not alive:
            turn.believes_no_more(entry.token)
        return alive

    def _free(self, session: str, request: str, name: str) -> bool:
        """Removes the entry of a request, and makes sure that no put of it can happen any more."""
        slot = slot_of(name)
        record, fresh = self._last_known(slot, self._crowded)
        for _ in self._tries():
            version = record.version if record else None
            held = dict(field(record, "held", dict, slot)) if record else {}
            entry = entry_of(held, name)
            ours = entry is not None and (entry.session, entry.request) == (session, request)
            if not ours and not fresh:
                record, fresh = self.store.get(slot), True
                continue
            if not ours and not (request in self._sent and self._sent[request] == version):
                return False
            if ours:
                del held[name]
            token = field(record, "token", int, slot) if record else 0
            order = dict(record.value) if record else {}
            put = self.store.put(slot, {**order, "token": token, "held": held}, version)
            self._learn(slot, put, self._crowded)
            if put.done:
                return ours
            record, fresh = put.record, True
        raise _too_many(slot)

    def _remove_entries(self, slot: str, sessions: set[str]) -> None:
        record = self.store.get(slot)
        while record is not None:
            held = field(record, "held", dict, slot)
            left = {name: entry for name, entry in held.items() if entry.get("session") not in sessions}
            if len(left) == len(held):
                return
            put = self.store.put(slot, {**record.value, "held": left}, record.version)
            if put.done:
                return
            record = put.record

    def _tries(self) -> Iterator[int]:
        """For as long as a lease; then the caller gets an error."""
        return tries(self.system, _CONFLICT, limit_s=self.lease_s)

    # This process's own

    def _wait(self, session: str, request: str, name: str, wait: Wait, queue: deque[str], turn: Turn) -> int | None:
        due_ns = 0
        while True:
            last = wait.left_s() <= 0
            first = queue[0] == request and not self._held_here(name)
            look = last or (first and self.system.monotonic_ns() >= due_ns)
            if look:
                try:
                    if last:
                        turn.insist()
                    known = self._known.get(slot_of(name))
                    token = None
                    if not turn.joins_first(served_of(known, name)):
                        token = self.try_once(session, request, name, turn)
                    if token is not None or last:
                        return token
                    turn.join()
                except Unavailable:
                    turn.forget()
                    raise
                wait.calm_down()
                due_ns = self.system.monotonic_ns() + int(turn.rest_s() * 1e9)
            if first:
                self.system.sleep(wait.nap_s(max((due_ns - self.system.monotonic_ns()) / 1e9, 0.0)))
            else:
                wait.back_off(most_s=_TURN_MOST_S)

    @contextmanager
    def _turn(self, name: str, request: str) -> Iterator[deque[str]]:
        with self._guard:
            queue = self._queues.setdefault(name, deque())
            queue.append(request)
        try:
            yield queue
        finally:
            with self._guard:
                queue.remove(request)
                if not queue:
                    self._queues.pop(name, None)

    def _held_here(self, name: str) -> bool:
        """Whether a thread of this process holds the name, as far as we know, so that asking the store is useless."""
        holding = self._holding.get(name)
        return holding is not None and self.sessions.own(holding[0])

    def _last_known(self, name: str, doubted: set[str]) -> tuple[Record | None, bool]:
        """A record, and whether it was read just now; the last put of this process will do where no other puts it."""
        known = self._known.get(name)
        if known is not None and name not in doubted:
            return known, False
        record = self.store.get(name)
        if record is not None and known is not None and record.version == known.version:
            doubted.discard(name)
        return record, True

    def _learn(self, name: str, put: Put, doubted: set[str]) -> None:
        if not put.done:
            doubted.add(name)
        elif put.record is not None:
            self._known[name] = put.record

    def _forget(self, session: str) -> None:
        with self._guard:
            self._holding = {name: held for name, held in self._holding.items() if held[0] != session}
            for request in [request for request, (owner, _) in self._requests.items() if owner == session]:
                del self._requests[request]
                self._sent.pop(request, None)

    def _tidy(self) -> None:
        """Removes what the dead have left, a little at a time, so that the renewal is not late."""
        start_ns = self.system.monotonic_ns()
        if not self._dead and start_ns >= self._sweep_ns:
            self._sweeps += 1
            rest_s = (_SWEEP_SOON if self._sweeps == 1 else _SWEEP_LATER) * self.lease_s * (0.5 + self.system.random())
            self._sweep_ns = start_ns + int(rest_s * 1e9)
            self._dead = self.sessions.dead_ones()
            self._untidy = self.store.names(LOCKS) if self._dead else []
        while self._untidy:
            self._remove_entries(self._untidy[-1], set(self._dead))
            self._untidy.pop()
            if self.system.monotonic_ns() - start_ns > _TIDY_SHARE * self.lease_s * 1e9:
                return
        while self._dead:
            self.sessions.remove(self._dead[-1])
            self._dead.pop()


def _too_many(name: str) -> Unavailable:
    return Unavailable(f"the lock record {name!r} is changed by too many at once: try again")
