"""Sessions as records: alive while they change, dead for good once another process has marked them.

Clocks are never compared. The holder puts a new version of its record at every renewal. A process that wants to know
whether the holder is alive reads the record, and reads it again later; if it has not changed over the holder's whole
lease time, measured on the reader's *own* monotonic clock, the reader puts `dead` into it, on condition that it has
still not changed.

Why a lease's `valid()` is false before another process can take its name over:

1. The last renewal that succeeded began at `b`, on the holder's clock, and made version `v`. The lease's deadline is
   `b` and nine tenths of the lease time.
2. A contender has `v` in its hands at `c`. `v` was put after the renewal began, so `b` is earlier than `c`.
3. It sends the mark at `c` and one lease time or later, and the condition holds only if there was no renewal since.
   By then the deadline has passed, even if one of the two clocks runs a tenth faster than the other.
4. From then on every renewal finds the mark, or no record, and fails for ever. Names are free only when their session
   is dead, or when it gave them back itself.

A record that does not exist counts as dead: it is put once, by the session that drew its id, and removed only after it
was marked. So a marked record only says that its session's names have not been removed yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from lakelatch.errors import Unavailable
from lakelatch.locks.records.store import Put, Record, RecordStore, field
from lakelatch.locks.session.backend import SessionGone
from lakelatch.system import System

SESSIONS = "sessions/"
_RELEASE_REQUESTS = "wishes"  # the field's name in records, which earlier versions read too
_TRIES = 20  # a renewal meets one more version for each operator that leaves a release request meanwhile
_LOOKS = 10  # in a lease time, at the record of a session that others wait for
_LOOK_MOST_S = 1.0


@dataclass(frozen=True)
class LiveSession:
    """A session that is not dead yet, as far as this process knows."""

    owner: str
    lease_s: float


@dataclass
class _Own:
    record: Record
    counter: int  # of the last renewal that is known to have succeeded
    until_ns: int  # a lease time after it began; then this process knows no more of the session than others do


@dataclass
class _Seen:
    record: Record
    since_ns: int  # in our hands since then, unchanged
    looked_ns: int


class RecordSessions:
    """The sessions of this process, and what it has seen of others."""

    def __init__(self, store: RecordStore, system: System, lease_s: float) -> None:
        self._store = store
        self._system = system
        self._lease_s = lease_s
        self._guard = threading.Lock()
        self._own: dict[str, _Own] = {}
        self._seen: dict[str, _Seen] = {}

    def open(self, owner: str) -> str:
        """Opens a session; its id, which no other session has."""
        session = self._system.new_id()
        until_ns = self._until_ns()
        value = {"owner": owner, "lease_s": self._lease_s, "counter": 0, _RELEASE_REQUESTS: [], "dead": False}
        put = self._store.put(SESSIONS + session, value, None)
        if not put.done or put.record is None:
            raise Unavailable(f"the lock session {session} exists already: try again")
        with self._guard:
            self._own[session] = _Own(put.record, 0, until_ns)
        return session

    def own(self, session: str) -> bool:
        """Whether it is a session of this process, and was renewed within its lease time."""
        now_ns = self._system.monotonic_ns()
        with self._guard:
            return session in self._own and now_ns < self._own[session].until_ns

    def renew(self, session: str, still_wanted: Callable[[str], bool]) -> list[str]:
        """Makes a new version of the record; the requests to be released in it that `still_wanted` says True of.

        Errors: `SessionGone` if it is marked or missing.
        """
        until_ns = self._until_ns()
        with self._guard:
            own = self._own.get(session)
        if own is None:
            raise SessionGone("this lock session is closed", session=session)
        record: Record | None = own.record
        for _ in range(_TRIES):
            record = self._still_ours(session, own, record)
            counter = field(record, "counter", int, session) + 1
            wanted = [request for request in field(record, _RELEASE_REQUESTS, list, session) if still_wanted(request)]
            put = self._store.put(
                SESSIONS + session, {**record.value, "counter": counter, _RELEASE_REQUESTS: wanted}, record.version
            )
            if put.done and put.record is not None:
                with self._guard:
                    own.record, own.counter, own.until_ns = put.record, counter, until_ns
                return wanted
            record = put.record
        raise Unavailable("the lock session's record is changed by others all the time: stop those who break its locks")

    def close(self, session: str) -> None:
        """Marks a session as dead, also another process's; nothing happens if it is dead already."""
        with self._guard:
            own = self._own.pop(session, None)
        record = own.record if own is not None else self._store.get(SESSIONS + session)
        while record is not None and not _dead(record):
            record = self._mark(session, record).record

    def remove(self, session: str) -> None:
        """Removes the record of a dead session, none of whose names may be noted as held any more."""
        self._store.delete(SESSIONS + session)
        with self._guard:
            self._seen.pop(session, None)

    def look(self, session: str, at_once: bool = False) -> LiveSession | None:
        """The session, as far as it is known; None if it is dead.

        Reads the record from time to time, or `at_once`, and marks it when its lease time is over. A session of this
        process that was renewed within its lease time is not looked at.
        """
        now_ns = self._system.monotonic_ns()
        with self._guard:
            own = self._own.get(session)
            if own is not None and now_ns < own.until_ns:
                return _live_session(own.record, session)
            seen = self._seen.get(session)
        if seen is not None:
            live = _live_session(seen.record, session)
            if now_ns - seen.since_ns >= live.lease_s * 1e9:
                put = self._mark(session, seen.record)
                return self._note(session, None if put.done else put.record)
            pace_s = min(live.lease_s / _LOOKS, _LOOK_MOST_S)
            if not at_once and now_ns - seen.looked_ns < pace_s * 1e9:
                return live
        return self._note(session, self._store.get(SESSIONS + session))

    def ask_to_release(self, session: str, request: str) -> None:
        """Leaves a release request for the session to find at its next renewal."""
        record = self._store.get(SESSIONS + session)
        while record is not None and not _dead(record):
            asked = field(record, _RELEASE_REQUESTS, list, session)
            if request in asked:
                return
            put = self._store.put(
                SESSIONS + session, {**record.value, _RELEASE_REQUESTS: [*asked, request]}, record.version
            )
            if put.done:
                return
            record = put.record

    def dead_ones(self) -> list[str]:
        """Looks at all sessions there are; those that are dead and not removed yet."""
        names = self._store.names(SESSIONS)
        with self._guard:
            for session in self._seen.keys() - {name[len(SESSIONS) :] for name in names}:
                del self._seen[session]
        return [name[len(SESSIONS) :] for name in names if self.look(name[len(SESSIONS) :], at_once=True) is None]

    def _still_ours(self, session: str, own: _Own, record: Record | None) -> Record:
        """Fails if the session is dead; a record from before our last renewal would be one that was dead already."""
        if record is None or _dead(record) or field(record, "counter", int, session) < own.counter:
            with self._guard:
                self._own.pop(session, None)
            raise SessionGone("this lock session was taken for dead, as it was not renewed in time", session=session)
        return record

    def _until_ns(self) -> int:
        return self._system.monotonic_ns() + int(self._lease_s * 1e9)

    def _mark(self, session: str, record: Record) -> Put:
        return self._store.put(SESSIONS + session, {**record.value, "dead": True}, record.version)

    def _note(self, session: str, record: Record | None) -> LiveSession | None:
        """Remembers what was read just now: the same version since when it was first read, or a new one since now."""
        now_ns = self._system.monotonic_ns()
        with self._guard:
            seen = self._seen.get(session)
            if record is None or _dead(record):
                self._seen.pop(session, None)
                return None
            if seen is not None and seen.record.version == record.version:
                seen.looked_ns = now_ns
            else:
                self._seen[session] = _Seen(record, now_ns, now_ns)
        return _live_session(record, session)


def _dead(record: Record) -> bool:
    return bool(record.value.get("dead"))


def _live_session(record: Record, session: str) -> LiveSession:
    lease_s = record.value.get("lease_s")
    owner = field(record, "owner", str, session)
    return LiveSession(
        owner, float(lease_s) if isinstance(lease_s, int | float) else field(record, "lease_s", float, session)
    )
