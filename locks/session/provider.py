"""The template of every provider whose service keeps sessions: leases, retries, breaking, closing."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Hashable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from urllib.parse import quote, unquote

from lakelatch.errors import InvalidRequest, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, Holder, LockProvider, LockScope, ProviderRegister, Register
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import WAIT_TIME
from lakelatch.locks.session.backend import Held, SessionBackend, SessionGone, Wait
from lakelatch.locks.session.options import BackendOptions
from lakelatch.locks.session.session import Session, shared_session
from lakelatch.telemetry import kind_name


def table_name(table_uri: str) -> str:
    """The short name of a table at a lock service: 16 hexadecimal digits, whatever the URI holds."""
    return sha256(table_uri.encode()).hexdigest()[:16]


class SessionLockProvider(LockProvider):
    """Leases at a `SessionBackend`. A subclass says which one: `make_backend`, and `_options` or another `identity`.

    All providers in a process that have the same identity share one session. A request that failed half way is given
    back by the session as soon as the service answers again.
    """

    _options: BackendOptions

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._table = table_name(scope.table_uri)
        self._guard = threading.Lock()
        self._current: Session | None = None
        self._closed = False
        self._process = os.getpid()

    @property
    def identity(self) -> Hashable:
        """The key of the backend: equal providers share one, so every setting that matters to it is in it."""
        return self._options.identity()

    @property
    def system_name(self) -> str:
        """The service's name, for measurements."""
        return kind_name(type(self), "LockProvider").removeprefix("hudi_").removeprefix("implicit_")

    @abstractmethod
    def make_backend(self) -> SessionBackend:
        """A new backend; nothing is connected yet."""

    def name_of(self, key: str) -> str:
        """The name of a key at the service."""
        return f"{self._table}/={quote(key, safe='')}"

    def key_of(self, name: str) -> str | None:
        """The key of a name, None if it is none of this table's."""
        table, found, key = name.partition("/=")
        return unquote(key) if found and table == self._table else None

    def acquire(self, key: str, timeout_s: float) -> Lease:
        self._session()
        wait = Wait(timeout_s, self.scope.system, lambda: self._closed)
        while True:
            # tried again while the service restarts, say, or when the session was gone: the next try opens one
            lease = wait.patiently(lambda: self._try(key, wait), LockTimeout)
            if lease is not None:
                return lease

    def register(self, key: str) -> Register:
        return ProviderRegister(self._advance, key)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = []
        for holder in self._session().backend.holders(f"{self._table}/="):
            key = self.key_of(holder.key)
            if key is not None and key.startswith(prefix):
                found.append(replace(holder, key=key))
        return sorted(found, key=lambda holder: holder.key)

    def ask(self) -> None:
        """Over a connection of its own, which is closed: a session that is never opened would keep one for good."""
        with closing(self._named_backend()) as backend:
            backend.ask(self.name_of(TABLE_KEY))

    def lock_id(self, proposed: str = "") -> str | None:
        """By the session's connection if there is one, else as `ask`."""
        name = self.name_of(TABLE_KEY)
        if self._current is not None:
            return self._session().backend.lock_id(name, proposed)
        with closing(self.make_backend()) as backend:
            return backend.lock_id(name, proposed)

    def time_ms(self) -> int | None:
        return self._session().backend.time_ms()

    def break_(self, key: str) -> bool:
        """The holder gives the key up at its next renewal, or has lapsed by then; it is never overtaken before that.

        So this waits for up to the holder's lease time, and usually for a third of it.
        """
        backend, name = self._session().backend, self.name_of(key)
        held = backend.find_holder(name)
        if held is None:
            return False
        backend.ask_to_give_up(held, name)
        self._session().wake()  # the holder may be this very process
        wait = Wait(held.lease_s, self.scope.system, lambda: False)
        while self._still(backend, held, name):
            if not wait.back_off(0.02, 0.2):
                backend.force(held, name)
                break
        return True

    def close(self) -> None:
        with self._guard:
            already, self._closed = self._closed, True
            session = self._current
        if already or session is None or self._process != os.getpid():
            return
        session.leave(self)

    def _advance(self, key: str, at_least: int, count: int) -> int:
        """An attempt whose answer was lost costs some values, no order."""
        wait = Wait(self.scope.lock_options.timeout_s, self.scope.system, lambda: self._closed)
        return wait.patiently(lambda: self._session().backend.advance(self.name_of(key), at_least, count), LockTimeout)

    def _session(self) -> Session:
        """This process's session object; a forked child, which is another process, finds one of its own."""
        with self._guard:
            if self._closed:
                raise InvalidRequest(f"the lock provider of {self.scope.table_uri} is closed: open another one")
            if self._current is None or self._process != os.getpid():
                self._process = os.getpid()
                identity = (type(self), self.identity, id(self.scope.system))
                self._current = shared_session(identity, self._make_session)
            return self._current

    def _make_session(self) -> Session:
        return Session(self._named_backend(), self.scope.system)

    def _named_backend(self) -> SessionBackend:
        backend = self.make_backend()
        backend.system_name = self.system_name
        return backend

    def _try(self, key: str, wait: Wait) -> Lease | None:
        """One request; None if it was granted to a session that had ended by then."""
        wait.nap_s()
        session, name = self._session(), self.name_of(key)
        identity = session.open()
        request = self.scope.system.new_id()
        with session.asking(request):
            return self._ask(session, identity, request, name, key, wait)

    def _ask(self, session: Session, identity: str, request: str, name: str, key: str, wait: Wait) -> Lease | None:
        try:
            token = session.backend.take(identity, request, name, wait)
        except SessionGone as error:
            session.lost(identity, error)
            raise
        except BaseException:
            session.give_back(identity, request, name)
            raise
        if token is None:
            raise LockTimeout.of(key, wait.timeout_s, WAIT_TIME, session.backend.owner_of(name))
        lease = session.grant(self, identity, request, name, key, token)
        with self._guard:
            closed = self._closed  # then `close` may have looked at what is granted before this was
        if lease is not None and not closed:
            return lease
        if lease is not None:
            lease.release()
        wait.nap_s()
        return None

    def _still(self, backend: SessionBackend, held: Held, name: str) -> bool:
        now = backend.find_holder(name)
        return now is not None and now.request == held.request
