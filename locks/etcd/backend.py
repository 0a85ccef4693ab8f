"""Sessions, queues and registers at etcd, each step one transaction."""

from __future__ import annotations

import json
import math
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.locks.contract import WAITERS_MOST, Holder
from lakelatch.locks.etcd.client import EtcdClient
from lakelatch.locks.etcd.messages import (
    Condition,
    Created,
    Delete,
    Done,
    Exists,
    Operation,
    Put,
    Read,
    ReadAll,
    Rewrite,
    Unchanged,
)
from lakelatch.locks.etcd.options import Target
from lakelatch.locks.etcd.register import EtcdRegister
from lakelatch.locks.session.backend import Held, SessionBackend, SessionGone, Wait
from lakelatch.storage.checksums import json_object
from lakelatch.system import System

_PREFIX = "/lakelatch"
_LONG_WAIT_NS = 1_000_000_000  # from then on a holder's `since_ms` is not that of its place in the queue


@dataclass(eq=False)
class _Entry:
    """A request's place in the queue of a name."""

    session: str
    request: str
    queue: str  # the prefix of its keys
    key: str
    token: int = 0  # 0 as long as no answer said that the key was created
    granted: bool = False
    doubtful: bool = False  # the key may be created yet, or once more, by an attempt without an answer


@dataclass(frozen=True)
class _Place:
    """The place of an entry in its queue at a revision: behind which key, if any."""

    token: int
    before: bytes | None
    revision: int


class EtcdBackend(SessionBackend):
    """Below the prefix: `locks/<name>/<session>-<number>` the holder of a name (the first) and the waiters, in order of
    creation; `sessions/<session>`, `wishes/<session>/<request>`, `registers/<name>`, `ids/<name>` the id of
    a table's locks.

    A session is an etcd lease, to which all that is its own is attached. Its threads number their keys from 0 and use
    them again, because etcd's index remembers every key that there ever was until its history is compacted.

    Calls without an answer may happen at any later time. So a key is deleted only if it still is the one that was
    meant, by its revision, and joining a queue is conditional on the session key's last write: who gives back a request
    whose fate is unknown writes that key, and the request can do nothing any more.
    """

    def __init__(self, target: Target, system: System) -> None:
        options = target.options
        self.lease_s = options.lease_s
        self._ttl_s = math.ceil(options.lease_s)
        self._system = system
        self._client = EtcdClient(target, system)
        prefix = options.text("prefix", _PREFIX).rstrip("/")
        self._locks, self._sessions = f"{prefix}/locks/", f"{prefix}/sessions/"
        self._release_requests, self._registers = f"{prefix}/wishes/", f"{prefix}/registers/"
        self._ids = f"{prefix}/ids/"
        self._owner = ""
        self._guard = threading.Lock()
        self._epochs: dict[str, int] = {}  # the revisions at which the session keys were last written
        self._entries: dict[str, _Entry] = {}  # of this process's requests, until they are given back
        self._keys: set[str] = set()  # theirs
        self._advancing: dict[str, EtcdRegister] = {}

    def open_session(self, owner: str) -> str:
        lease, ttl_s = self._client.grant_lease(self._ttl_s)
        session = f"{lease:016x}"
        about = json.dumps({"owner": owner, "lease_s": ttl_s, "since_ms": self._system.realtime_ms()})
        try:
            done = self._client.transact([Put(self._sessions + session, about, lease)])
        except BaseException:
            with suppress(LakelatchError):
                self._client.revoke_lease(lease)
            raise
        self.lease_s = float(ttl_s)
        self._owner = owner
        with self._guard:
            self._epochs = {session: done.revision}
            self._entries.clear()  # what an earlier session asked for ends with its lease
            self._keys.clear()
        return session

    def renew_session(self, session: str) -> list[str]:
        lease = int(session, 16)
        self.lease_s = min(self.lease_s, float(self._client.keep_alive(lease)))
        folder = f"{self._release_requests}{session}/"
        keys = [found.key.decode() for found in self._client.transact([ReadAll(folder, bare=True)]).results[0]]
        return [key[len(folder) :] for key in keys]

    def close_session(self, session: str) -> None:
        with self._guard:
            self._epochs.pop(session, None)
        self._client.revoke_lease(int(session, 16))

    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        entry = self._enter(session, request, name)
        if wait.left_s() <= 0:
            entry.granted = self._take_if_free(entry)
            return entry.token if entry.granted else None
        began_ns = self._system.monotonic_ns()
        place = self._line_up(entry)
        while place.before is not None:
            place = wait.patiently(partial(self._next_look, entry, place, wait), SessionGone)
            wait.calm_down()
            if place.before is not None and wait.left_s() <= 0:
                self._give_back(entry)
                return None
        if self._system.monotonic_ns() - began_ns > _LONG_WAIT_NS:
            note = Rewrite(entry.key, self._about(request))
            self._client.transact([note], [Created(entry.key, entry.token)])
        entry.granted = True
        return entry.token

    def give_back(self, session: str, request: str, name: str) -> bool:
        entry = self._entries.get(request)
        return entry is not None and self._give_back(entry)

    def advance(self, name: str, at_least: int, count: int) -> int:
        with self._guard:
            register = self._advancing.setdefault(name, EtcdRegister(self._registers + name))
        return register.advance(self._client, at_least, count, self._system)

    def holders(self, prefix: str) -> list[Holder]:
        queues: dict[str, list[Any]] = {}
        for entry in self._client.transact([ReadAll(self._locks + prefix)]).results[0]:
            name = entry.key.decode()[len(self._locks) :].rpartition("/")[0]
            queues.setdefault(name, []).append(entry)
        found = []
        for name, queue in sorted(queues.items()):
            owner, *waiters = (str(_about(entry).get("owner", "unknown")) for entry in queue[: WAITERS_MOST + 1])
            since_ms = int(_about(queue[0]).get("since_ms", 0))
            found.append(Holder(name, owner, queue[0].create_revision, since_ms, len(queue) - 1, tuple(waiters)))
        return found

    def find_holder(self, name: str) -> Held | None:
        for entry in self._client.transact([ReadAll(f"{self._locks}{name}/", limit=1)]).results[0]:
            about, session = _about(entry), entry.key.decode().rpartition("/")[2].partition("-")[0]
            return Held(session, str(about.get("request")), float(about.get("lease_s", self.lease_s)))
        return None

    def lock_id(self, name: str, proposed: str) -> str:
        key = self._ids + name
        if proposed:
            self._client.transact([Put(key, proposed)], [Created(key)])
        found = self._client.transact([Read(key)]).results[0]
        return str(found[0].value.decode()) if found else ""

    def ask_to_give_up(self, held: Held, name: str) -> None:
        request = Put(f"{self._release_requests}{held.session}/{held.request}", "", int(held.session, 16))
        with suppress(SessionGone):
            self._client.transact([request], [Exists(self._sessions + held.session)])

    def force(self, held: Held, name: str) -> bool:
        for entry in self._client.transact([ReadAll(f"{self._locks}{name}/", limit=1)]).results[0]:
            if _about(entry).get("request") == held.request:
                key = entry.key.decode()
                return self._client.transact([Delete(key)], [Created(key, entry.create_revision)]).held
        return False

    def close(self) -> None:
        self._client.close()

    def _enter(self, session: str, request: str, name: str) -> _Entry:
        """Reserves the first free key of this session for a request."""
        queue = f"{self._locks}{name}/"
        with self._guard:
            for number in count():
                key = f"{queue}{session}-{number}"
                if key not in self._keys:
                    break
            self._keys.add(key)
            entry = self._entries[request] = _Entry(session, request, queue, key)
        return entry

    def _leave(self, entry: _Entry) -> None:
        with self._guard:
            if self._entries.get(entry.request) is entry:
                del self._entries[entry.request]
                self._keys.discard(entry.key)

    def _about(self, request: str) -> str:
        now_ms = self._system.realtime_ms()
        return json.dumps({"owner": self._owner, "request": request, "lease_s": self.lease_s, "since_ms": now_ms})

    def _join(
        self, entry: _Entry, conditions: list[Condition], then: list[Operation], otherwise: list[Operation]
    ) -> Done:
        put = Put(entry.key, self._about(entry.request), int(entry.session, 16))
        key = self._sessions + entry.session
        conditions = [Unchanged(key, self._epoch(entry.session)), *conditions]
        doubtful, entry.doubtful = entry.doubtful, True  # until there is an answer, as the thread may be interrupted
        doubts: list[bool] = [doubtful]
        try:
            done = self._client.transact([put, *then], conditions, [Read(key), *otherwise], lambda: doubts.append(True))
        except LakelatchError:
            entry.doubtful = any(doubts)
            raise
        entry.doubtful = any(doubts)
        if not done.held:
            self._check(entry.session, done.results[0])
        return done

    def _line_up(self, entry: _Entry) -> _Place:
        """Joins the queue, at its end; the answer has the entry itself and the one before it."""
        while True:
            done = self._join(entry, [], [ReadAll(entry.queue, limit=2, newest=True, bare=True)], [])
            if not done.held:
                continue
            if done.results[1][0].key.decode() == entry.key:
                entry.token = done.results[1][0].create_revision
                return _place(done.results[1], done.revision)
            # an earlier attempt, whose answer was lost, had joined already, and others after it
            for mine in self._client.transact([Read(entry.key)]).results[0]:
                entry.token = mine.create_revision
            return self._look(entry)

    def _take_if_free(self, entry: _Entry) -> bool:
        """Joins the queue only if it is empty."""
        while True:
            done = self._join(
                entry, [Created(entry.queue, prefix=True)], [], [ReadAll(entry.queue, limit=1, bare=True)]
            )
            if done.held:
                entry.token = done.revision
                return True
            for first in done.results[1]:
                if first.key.decode() == entry.key:  # by an earlier attempt, whose answer was lost
                    entry.token = int(first.create_revision)
                    return True
                self._give_back(entry)
                return False

    def _give_back(self, entry: _Entry) -> bool:
        deleted = False
        if entry.doubtful:
            deleted = self._resolve(entry)
        elif entry.token:
            leave, same = [Delete(entry.key), self._delete_release_request(entry)], [Created(entry.key, entry.token)]
            deleted = self._client.transact(leave, same, repeat=False).held
        self._leave(entry)
        return deleted and entry.granted

    def _delete_release_request(self, entry: _Entry) -> Delete:
        """It stays until its request is given back, as the answer of the renewal that reported it may be lost."""
        return Delete(f"{self._release_requests}{entry.session}/{entry.request}")

    def _resolve(self, entry: _Entry) -> bool:
        key = self._sessions + entry.session
        while True:
            last = Unchanged(key, self._epoch(entry.session))
            leave: list[Operation] = [Delete(entry.key), self._delete_release_request(entry), Rewrite(key)]
            done = self._client.transact(leave, [last], [Read(key)], repeat=False)
            if done.held:
                self._learn(entry.session, done.revision)
                return bool(done.results[0])
            self._check(entry.session, done.results[0])

    def _next_look(self, entry: _Entry, place: _Place, wait: Wait) -> _Place:
        """The place of the entry once the one before it may be gone; it outlasts a server that is away for a while."""
        if place.before is not None:
            self._wait_for_end_of(place.before, place.revision, wait)
        return self._look(entry)

    def _wait_for_end_of(self, key: bytes, revision: int, wait: Wait) -> None:
        """Until the key is deleted, or the deadline has come, or it is time to look in any case."""
        until_ns = self._system.monotonic_ns() + int(self.lease_s * 1e9)
        watches, watch = self._client.watch(key, revision + 1)
        try:
            while not watch.ended.is_set():
                nap_s = wait.nap_s(max((until_ns - self._system.monotonic_ns()) / 1e9, 0.0))
                if nap_s <= 0:
                    return
                watch.ended.wait(nap_s)
        finally:
            watches.remove(watch)
        if watch.lost:
            raise Unavailable(f"the watch of a key at {self._client.where} has ended")

    def _look(self, entry: _Entry) -> _Place:
        done = self._client.transact([ReadAll(entry.queue, limit=2, newest=True, bare=True, after=entry.token)])
        if done.results[0] and done.results[0][0].create_revision == entry.token:
            return _place(done.results[0], done.revision)
        self._check(entry.session, self._client.transact([Read(self._sessions + entry.session)]).results[0])
        raise Unavailable("the place in the queue of a key was removed by another client: try again")

    def _epoch(self, session: str) -> int:
        with self._guard:
            if session not in self._epochs:
                raise SessionGone(f"this session with {self._client.where} was closed", session=session)
            return self._epochs[session]

    def _check(self, session: str, found: list[Any]) -> None:
        """Learns from what was read of a session's key; raises `SessionGone` if it is not there."""
        if not found:
            raise SessionGone(f"{self._client.where} does not know this session any more", session=session)
        self._learn(session, found[0].mod_revision)

    def _learn(self, session: str, revision: int) -> None:
        with self._guard:
            if session in self._epochs:
                self._epochs[session] = max(self._epochs[session], revision)


def _place(newest: list[Any], revision: int) -> _Place:
    return _Place(newest[0].create_revision, newest[1].key if len(newest) > 1 else None, revision)


def _about(entry: Any) -> dict[str, Any]:
    return json_object(entry.value) or {}
