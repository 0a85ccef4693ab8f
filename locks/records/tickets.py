"""Tickets: in which order those who wait for a name are served, though nobody can wake them.

Beside each slot is a record of its queue, `{"last": number, "waiting": [[number, name], ...]}`, with the `owners` of
tickets by number, for people. Who finds a name held
puts a ticket there, which collides with others who come at that moment, and never with the holder. The slot says which
ticket of a name was served last, which costs no put of its own. So a waiter knows by the slot alone how many are still
before it: it asks often if there is none, and otherwise as late as it seems to be its turn.

Tickets say who tries to take a free name, and never who has it: that is decided by the put of the slot. So nothing of
them has to be true. A ticket whose owner does not take the name while it is free **lapses**: after a while (on the
clock of who looks) the next one takes it, and what is below a served ticket counts for nobody. Its owner, if it
was only slow, is served next. A record that was lost, damaged or changed by strangers leaves waiters without an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lakelatch.errors import CorruptTable, LakelatchError
from lakelatch.locks.contract import WAITERS_MOST
from lakelatch.locks.records.slots import queue_of
from lakelatch.locks.records.store import Put, Record, RecordStore
from lakelatch.retry import Backoff, tries
from lakelatch.system import System

_NEXT_LEAST_S, _NEXT_MOST_S = 0.01, 0.25  # between two looks of who is next
_OTHERS_LEAST_S, _OTHERS_MOST_S = 0.02, 1.0
_SLOWER_MOST = 1.5  # so much longer is serving one expected to take than it did before, whatever kept the last one
_LAPSE_S, _LAPSE_REQUESTS = 0.3, 4  # a ticket lapses when a name was free for so long, and for so many requests' time
_GONE_SHARE = 0.25  # of that, until it is looked whether those before have given up
_LAPSES_MOST = 4  # that a waiter waits for, however many seem to be before it
_BELIEVED_S = 2.0  # for so long do those who are not next leave it to others to look whether a holder is alive
_OVERTAKEN_MOST = 2  # then there are others who know no tickets
_OWNER_MOST = 60  # characters
_WAITING_MOST = 256  # tickets of a queue: what is dropped costs its owner the order, and keeps the record small
_SERVED_MOST = 16  # names of a slot
_JOIN = Backoff(first_s=0.001, longest_s=0.008, jitter=1.0)  # each refusal means that another one has joined
_JOIN_TRIES = 24
_CROWD = 3  # as many as that hardly ever turn out to have been served meanwhile
_SERVED, _TICKET = "served", "ticket"


def served_of(record: Record | None, name: str) -> int | None:
    """The ticket of a name that was served last, as its slot says; None if there was none lately."""
    served = record.value.get(_SERVED) if record is not None else None
    number = served.get(name) if isinstance(served, dict) else None
    return number if type(number) is int else None


def by_ticket(entry: Mapping[str, Any]) -> bool:
    """Whether the holder of a name has waited for it in order."""
    return _TICKET in entry


class Turn:
    """The turn of one who waits for a name, from its first look; `paces` is what this process knows of each name's."""

    def __init__(self, store: RecordStore, system: System, name: str, paces: dict[str, float], owner: str = "") -> None:
        self._store = store
        self._system = system
        self._name = name
        self._owner = owner[:_OWNER_MOST]
        self._queue = queue_of(name)
        self._number: int | None = None
        self._before: list[int] = []  # tickets that are to be served before ours
        self._served = 0
        self._holder = ""  # at the last look that found one
        self._ended = 0  # the token of a holder that is dead
        self._overtaken = 0
        self._moved_ns = system.monotonic_ns()  # when one was seen to be served, or we began to wait
        self._paces = paces
        self._queued: list[Record | None] = []  # the queue's record, if it was read since the last rest
        self._seen = "", 0  # in which state the name was at the last look, and since when it has been
        self._request_s = 0.0
        self._idle = False  # nobody waits, though somebody did lately
        self._insists = False
        self._useless = False  # the queue's record cannot be read

    @property
    def has_ticket(self) -> bool:
        return self._number is not None

    @property
    def is_behind(self) -> bool:
        """Whether others are to be served before."""
        return bool(self._before)

    def insist(self) -> None:
        """From now on the turn has come, whoever else waits: this is the last look."""
        self._insists = True

    def joins_first(self, served: int | None) -> bool:
        """Whether so many wait that a look at the slot would be in vain, which was last seen to have served this."""
        if self._number is not None or self._insists or served is None:
            return False
        self._served = max(self._served, served)
        return len(self._waiting()) >= _CROWD

    def see(self, holder: str, in_order: bool, served: int | None) -> None:
        """Learns who holds the name now, whether by a ticket, and which ticket was served last."""
        changed = bool(self._holder) and holder != self._holder
        self._holder = holder
        self._learn(served, changed)
        self._overtaken += changed and not in_order
        if self._overtaken >= _OVERTAKEN_MOST:
            self._before = []

    def believes(self, token: int) -> bool:
        """Whether to take it for granted that the holder with this token is alive, as those who are next look at it."""
        if self._insists or token == self._ended:
            return False
        return self._stays_s(f"held {token}") < _BELIEVED_S and self.is_behind

    def believes_no_more(self, token: int) -> None:
        """Learns that the session of the holder with this token is dead, so that the name is free from now on."""
        self._ended = token

    def has_come(self, served: int | None, others: bool) -> bool:
        """Whether to take the name, which is free; `others` may have put its slot since we did."""
        self._learn(served, False)
        self._idle = False
        if self._insists:
            return True
        if self._number is None:
            waiting = served is not None and self._waiting()
            self._idle = not others and not waiting
            return not waiting
        if not self._before:
            return True
        free_s, lapse_s = self._stays_s(f"free {served}"), _LAPSE_S + _LAPSE_REQUESTS * self._request_s
        if free_s < _GONE_SHARE * lapse_s:
            return False
        waiting = self._waiting()  # without those who gave up meanwhile
        self._before = [number for number in self._before if number in waiting]
        return free_s >= lapse_s * min(len(self._before), _LAPSES_MOST)

    def join(self) -> None:
        """Puts a ticket behind all that are there, unless there is one of ours."""
        if self._number is not None or self._broken():
            return
        record = self._queued.pop() if self._queued else self._read()
        if self._broken():
            return
        for _ in tries(self._system, _JOIN, most=_JOIN_TRIES):
            number = max([_last(record), self._served, *(number for number, _ in _tickets(record))]) + 1
            waiting = [each for each in _tickets(record) if each[1] != self._name or each[0] > self._served]
            put = self._put(record, number, [*waiting, (number, self._name)], self._owner)
            if put is None:
                return
            if put.done:
                self._number, self._moved_ns = number, self._system.monotonic_ns()
                self._before = [each for each, name in waiting if name == self._name]
                return
            record = put.record

    def leave(self) -> None:
        """Takes the ticket away, if the service answers; else it lapses."""
        number, self._number = self._number, None
        if number is None or number <= self._served:
            return
        with suppress(LakelatchError):
            record = self._read()
            for _ in tries(self._system, _JOIN, most=_JOIN_TRIES):
                left = [each for each in _tickets(record) if each[0] != number]
                if record is None or len(left) == len(_tickets(record)):
                    return
                put = self._put(record, _last(record), left)
                if put is None or put.done:
                    return
                record = put.record

    def forget(self) -> None:
        """Leaves the ticket to lapse."""
        self._number = None

    def rest_s(self) -> float:
        """The time until the next look; who is not next looks again when it may be."""
        self._queued.clear()
        still_s = (self._system.monotonic_ns() - self._moved_ns) / 1e9
        each_s = self._paces.get(self._name, 0.0)
        if self._before:
            least_s, most_s, rest_s = _OTHERS_LEAST_S, _OTHERS_MOST_S, max(each_s * len(self._before), still_s) / 2
        else:
            least_s, most_s, rest_s = _NEXT_LEAST_S, _NEXT_MOST_S, max(each_s, still_s) / 4
        return min(max(rest_s, least_s), most_s) * (1 - 0.25 * self._system.random())

    def of_entry(self) -> dict[str, Any]:
        """What our entry says of tickets when we hold the name."""
        return {_TICKET: self._number} if self._number is not None else {}

    def fields_of(self, slot: Record | None) -> dict[str, Any]:
        """What a slot says of tickets when we take the name in it."""
        served = slot.value.get(_SERVED) if slot is not None else None
        served = {name: each for name, each in served.items() if name != self._name} if isinstance(served, dict) else {}
        number = max(self._served, self._number or 0)
        if number and not self._idle:
            served[self._name] = number
        return {_SERVED: dict(list(served.items())[-_SERVED_MOST:])} if served else {}

    def _stays_s(self, state: str) -> float:
        """For how long the name has been in this state, as far as we have looked."""
        now_ns = self._system.monotonic_ns()
        if state != self._seen[0]:
            self._seen = state, now_ns
        return (now_ns - self._seen[1]) / 1e9

    def _broken(self) -> bool:
        return self._useless

    def _learn(self, served: int | None, changed: bool) -> None:
        """Counts those before us who were served since the last look; nothing that was seen before is forgotten."""
        self._served = max(self._served, served or 0)
        left = [number for number in self._before if number > self._served]
        passed, self._before = len(self._before) - len(left), left
        if passed or changed:
            now_ns = self._system.monotonic_ns()
            each_s = (now_ns - self._moved_ns) / 1e9 / max(passed, 1)
            self._paces[self._name] = min(each_s, _SLOWER_MOST * self._paces.get(self._name, each_s))
            self._moved_ns = now_ns

    def _waiting(self) -> set[int]:
        if not self._queued:
            self._queued.append(self._read())
        return {number for number, name in _tickets(self._queued[0]) if name == self._name and number > self._served}

    def _read(self) -> Record | None:
        begun_ns = self._system.monotonic_ns()
        try:
            return self._store.get(self._queue)
        except CorruptTable:
            self._useless = True
            return None
        finally:
            self._request_s = max(self._request_s, (self._system.monotonic_ns() - begun_ns) / 1e9)

    def _put(self, record: Record | None, last: int, tickets: list[tuple[int, str]], owner: str = "") -> Put | None:
        """None if the record has become one that cannot be read."""
        owners = {**_owners(record), **({f"{last}": owner} if owner else {})}
        named = [f"{number}" for number, _ in tickets[-_WAITING_MOST:] if owners.get(f"{number}")][:WAITERS_MOST]
        value = {"last": last, "waiting": [list(each) for each in tickets[-_WAITING_MOST:]]}
        value |= {"owners": {number: owners[number] for number in named}} if named else {}
        try:
            return self._store.put(self._queue, value, record.version if record else None)
        except CorruptTable:
            self._useless = True
            return None


def _last(record: Record | None) -> int:
    last = record.value.get("last") if record is not None else None
    return last if type(last) is int else 0


def waiters_of(record: Record | None, name: str, served: int) -> list[str]:
    """The owners of those who wait for a name, in order, by their queue's record and the ticket served last."""
    owners = _owners(record)
    numbers = sorted(number for number, each in _tickets(record) if each == name and number > served)
    return [str(owners.get(f"{number}", "unknown")) for number in numbers]


def _owners(record: Record | None) -> dict[str, str]:
    found = record.value.get("owners") if record is not None else None
    return found if isinstance(found, dict) else {}


def _tickets(record: Record | None) -> list[tuple[int, str]]:
    """Those of the queue's record, without what is none."""
    found = record.value.get("waiting") if record is not None else None
    pairs = [each for each in found if isinstance(each, list) and len(each) == 2] if isinstance(found, list) else []
    return [(number, name) for number, name in pairs if type(number) is int and isinstance(name, str)]
