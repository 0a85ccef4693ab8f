"""Calls to etcd through a Python client of the etcd3 API: connections, endpoints, credentials, errors of ours.

The client opens the channel and brings the generated messages; its own calls are not used, since they hide the
server's revisions and reasons, and leave an endpoint alone for minutes after one failure.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.locks.etcd.fork_gate import ForkGate
from lakelatch.locks.etcd.messages import Condition, Done, Operation, transaction
from lakelatch.locks.etcd.options import OpenClient, Target
from lakelatch.locks.etcd.watches import Watch, Watches
from lakelatch.locks.session.backend import SessionGone
from lakelatch.locks.session.options import BackendOptions
from lakelatch.system import System

Result = TypeVar("Result")

_VERBOSITY = "GRPC_VERBOSITY"


def _quiet_grpc() -> Any:
    """gRPC, which reads its verbosity when it is imported, and by default writes to stderr what its errors say too."""
    if "grpc" in sys.modules or _VERBOSITY in os.environ:
        return import_module("grpc")
    os.environ[_VERBOSITY] = "NONE"
    try:
        return import_module("grpc")
    finally:
        del os.environ[_VERBOSITY]


grpc = _quiet_grpc()
_LIBRARIES = ("pyetcd", "etcd3")
_CALL_MOST_S = 5.0
_LEAST_LEFT_S = 0.02
_AT_REST_S = 2.0
_LOOK_S = 0.01
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),  # or a forked child would be given its parent's TCP connection
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # the environment's is for the web
    ("grpc.max_receive_message_length", -1),
)
_BROKEN = frozenset(  # the call may have happened, and the connection, or the member behind it, is not to be trusted
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNIMPLEMENTED,  # who answers is no etcd
    }
)
_STALE = ("invalid auth token", "revision of auth store is old")
_DENIED = ("permission denied", "authentication failed", "user name is empty", "user name not found")
_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_NO = ("0", "false", "no", "f", "n")
_gate = ForkGate()


class Connection:
    """A client's channel, with a token for its calls, and the watches on it."""

    def __init__(self, client: Any, metadata: Any, generated: Any) -> None:
        channel = client.channel
        self.generated = generated
        self.keys = generated.KVStub(channel)
        self.leases = generated.LeaseStub(channel)
        self.metadata = metadata
        self.proven = False
        self.users = 0
        self.retired = False
        self._client = client
        self._watch_stub = generated.WatchStub(channel)
        self._watches: Watches | None = None
        self._guard = threading.Lock()

    def watches(self) -> Watches:
        """The stream of watches; a new one if there is none, or if it has ended."""
        with self._guard:
            if self._watches is None or self._watches.over:
                self._watches = Watches(self.generated, self._watch_stub, self.metadata)
            return self._watches

    def stop_watching(self) -> None:
        """Ends the stream of watches, so that waiters read for themselves."""
        with self._guard:
            watches = self._watches
        if watches is not None:
            watches.close()

    def close(self) -> None:
        self.stop_watching()
        self._client.close()


class EtcdClient:
    """One connection at a time, opened on first use, replaced when it fails, by the next endpoint's.

    Every call ends within `timeout_s`. A call is repeated at the other endpoints while there is time left, unless
    asked not to, so that it must do no harm if it happens twice.
    """

    def __init__(self, target: Target, system: System) -> None:
        self.timeout_s = min(target.options.lease_s / 3, _CALL_MOST_S)
        self.where = target.where
        self._target = target
        self._system = system
        self._guard = threading.Lock()
        self._open: set[Connection] = set()
        self._current: Connection | None = None
        self._turn = 0
        self._users = 0  # calls under way, on whichever connection
        self._closed = False

    def transact(
        self,
        then: Iterable[Operation],
        conditions: Iterable[Condition] = (),
        otherwise: Iterable[Operation] = (),
        doubt: Callable[[], None] | None = None,
        repeat: bool = True,
    ) -> Done:
        """One transaction. `doubt` is called if an attempt of it may still happen, even after this returned."""

        def ask(connection: Connection, timeout_s: float) -> Done:
            request = transaction(connection.generated, conditions, then, otherwise)
            answer = connection.keys.Txn(request, timeout_s, metadata=connection.metadata)
            connection.proven = True
            return Done.of(answer)

        return self._call(ask, doubt, repeat)

    def grant_lease(self, ttl_s: int) -> tuple[int, int]:
        """The id of a new lease, and its time to live, which may be longer than asked for."""

        def ask(connection: Connection, timeout_s: float) -> tuple[int, int]:
            request = connection.generated.LeaseGrantRequest(TTL=ttl_s)
            answer = connection.leases.LeaseGrant(request, timeout_s, metadata=connection.metadata)
            return answer.ID, answer.TTL

        return self._call(ask)

    def keep_alive(self, lease: int) -> int:
        """Renews a lease: its time to live from now on. Errors: `SessionGone` if the server has none of that id."""

        def ask(connection: Connection, timeout_s: float) -> int:
            requests = iter([connection.generated.LeaseKeepAliveRequest(ID=lease)])
            answers = list(connection.leases.LeaseKeepAlive(requests, timeout_s, metadata=connection.metadata))
            if not answers:
                raise Unavailable(f"{self.where} did not say whether the session was renewed")
            return int(answers[0].TTL)

        ttl_s = self._call(ask)
        if ttl_s <= 0:
            raise SessionGone(f"{self.where} does not know this session any more", session=f"{lease:016x}")
        return ttl_s

    def revoke_lease(self, lease: int) -> None:
        """Ends a lease and deletes what is attached to it; that there is none is no error."""

        def ask(connection: Connection, timeout_s: float) -> None:
            request = connection.generated.LeaseRevokeRequest(ID=lease)
            connection.leases.LeaseRevoke(request, timeout_s, metadata=connection.metadata)

        with suppress(SessionGone):
            self._call(ask)

    def watch(self, key: bytes, revision: int) -> tuple[Watches, Watch]:
        """Watches for the deletion of a key at this revision or later; remove the watch from the watches at the end."""
        watches = self._call(lambda connection, _: connection.watches())
        return watches, watches.add(key, revision)

    def disconnect(self) -> None:
        """Closes what is open; calls under way fail. The next call connects anew."""
        with self._guard:
            found, self._open, self._current = self._open, set(), None
        for connection in found:
            connection.close()

    def close(self) -> None:
        """For good: later calls are `SessionGone`. Calls under way are cut short and, for a moment, waited for.

        A thread that the end of the process overtakes inside gRPC may hold a lock of it that its destructors need.
        """
        with self._guard:
            self._closed = True
        self.disconnect()
        until_ns = self._system.monotonic_ns() + int(_AT_REST_S * 1e9)
        while self._inside() and self._system.monotonic_ns() < until_ns:
            self._system.sleep(_LOOK_S)

    def _inside(self) -> int:
        with self._guard:
            return self._users

    def _call(
        self,
        ask: Callable[[Connection, float], Result],
        doubt: Callable[[], None] | None = None,
        repeat: bool = True,
    ) -> Result:
        until_ns = self._system.monotonic_ns() + int(self.timeout_s * 1e9)
        places, refreshed = len(self._target.endpoints) if repeat else 1, False
        while True:
            left_s = max((until_ns - self._system.monotonic_ns()) / 1e9, _LEAST_LEFT_S)
            connection: Connection | None = None
            try:
                with _gate.passing():
                    connection = self._enter(left_s / places)
                    try:
                        share = min(places, 2) if connection.proven else places  # so that another one gets its turn
                        return ask(connection, left_s / share)
                    finally:
                        self._leave(connection)
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed by another thread
                failure = _Failure.of(error)
                self._give_up(connection, failure)
                left_s = (until_ns - self._system.monotonic_ns()) / 1e9
                if failure.stale and not refreshed:
                    refreshed = True
                    continue
                if failure.broken and doubt is not None:
                    doubt()
                places -= 1
                if not failure.broken or places <= 0 or left_s <= _LEAST_LEFT_S:
                    raise self._explain(failure) from None

    def _enter(self, timeout_s: float) -> Connection:
        with self._guard:
            if self._closed:
                raise SessionGone(f"the connection to {self.where} was closed")
            if self._current is None:
                self._current = self._connect(timeout_s)
                self._open.add(self._current)
            self._current.users += 1
            self._users += 1
            return self._current

    def _leave(self, connection: Connection) -> None:
        with self._guard:
            connection.users -= 1
            self._users -= 1
            close = connection.retired and connection.users == 0 and connection in self._open
            if close:
                self._open.discard(connection)
        if close:
            connection.close()

    def _give_up(self, connection: Connection | None, failure: _Failure) -> None:
        """Goes on with another connection. Calls that are under way on this one may end; its watches are lost."""
        with self._guard:
            if not (failure.broken or failure.stale) or connection is not self._current:
                return
            self._current = None
            self._turn += failure.broken
            if connection is None:
                return
            connection.retired = True
            idle = connection.users == 0 and connection in self._open
            if idle:
                self._open.discard(connection)
        if idle:
            connection.close()
        else:
            connection.stop_watching()

    def _connect(self, timeout_s: float) -> Connection:
        if _gate.forked and os.environ.get(_FORK_SUPPORT, "true").lower() in _NO:
            raise InvalidRequest(
                f"this process was forked from one that uses gRPC, with {_FORK_SUPPORT} switched off, so that a call "
                f"to {self.where} would hang: unset the variable, or start processes by spawning them"
            )
        client = self._target.open(self._turn, timeout_s, _CHANNEL)
        _stay_up()
        _gate.add(self)
        generated = _generated_code_of(client, self._target.options)
        try:
            metadata = getattr(client, "metadata", None)
            if self._target.options.text("username"):
                metadata = self._token(client, generated, timeout_s)
            return Connection(client, metadata, generated)
        except BaseException:
            client.close()
            raise

    def _token(self, client: Any, generated: Any, timeout_s: float) -> Any:
        options = self._target.options
        request = generated.AuthenticateRequest(name=options.secret("username"), password=options.secret("password"))
        try:
            token = generated.AuthStub(client.channel).Authenticate(request, timeout_s).token
        except grpc.RpcError as error:
            if "authentication is not enabled" in _details(error):
                return None
            raise
        return (("token", token),)

    def _explain(self, failure: _Failure) -> LakelatchError:
        options = self._target.options
        url, said = options.key("url"), f"({failure.code}: {failure.details})"
        if failure.denied or failure.stale:
            return InvalidRequest(
                f"{self.where} refuses these credentials or this user's rights {said}: look at "
                f"{options.key('username')}, {options.key('password')} and the roles of that user, which needs to read "
                f"and write all keys below {options.key('prefix')}",
                option=options.key("username"),
            )
        if failure.no_lease:
            return SessionGone(f"{self.where} does not know this session any more")
        return Unavailable(f"{self.where} could not be used {said}; is {url} right, and the server up?", option=url)


@dataclass(frozen=True)
class _Failure:
    """The meaning of a failed call."""

    code: str
    details: str
    broken: bool = False
    stale: bool = False
    denied: bool = False
    no_lease: bool = False

    @classmethod
    def of(cls, error: Exception) -> _Failure:
        if not isinstance(error, grpc.RpcError):
            if "closed" not in str(error).lower():
                raise error
            return cls("CANCELLED", "the connection was closed", broken=True)
        code, details = error.code(), _details(error)
        stale = code is grpc.StatusCode.UNAUTHENTICATED or any(each in details for each in _STALE)
        denied = code is grpc.StatusCode.PERMISSION_DENIED or any(each in details for each in _DENIED)
        no_lease = code is grpc.StatusCode.NOT_FOUND and "lease not found" in details
        broken = code in _BROKEN and not stale and not denied
        return cls(code.name, details.partition("\n")[0][:400], broken, stale, denied, no_lease)


def _details(error: Any) -> str:
    return str(error.details() or "")


@cache
def _stay_up() -> Any:
    """A channel that never connects. It keeps gRPC from shutting down with the last real one, which it does in the
    background, and a child that is forked meanwhile hangs."""
    return grpc.insecure_channel("127.0.0.1:1")


def open_client_of(options: BackendOptions) -> OpenClient:
    """The function that opens clients: the one that `client` names, or that of the first library there is."""
    named = options.text("client")
    if named:
        module, _, function = named.partition(":")
        try:
            found: OpenClient = getattr(import_module(module), function)
            return found
        except (ImportError, AttributeError, ValueError) as error:
            raise options.refusal(
                "client", f"={named!r} cannot be loaded ({error}): name a function as module:function"
            ) from None
    # Both define the same messages, so that one process can only have one of them.
    for name in sorted(_LIBRARIES, key=lambda name: name not in sys.modules):
        try:
            library = import_module(name)
        except (ImportError, TypeError):
            continue
        opener: OpenClient = library.client
        return opener
    raise InvalidRequest(
        f"neither of the client libraries {' and '.join(_LIBRARIES)} can be imported: run pip install 'lakelatch[etcd]'"
    )


def _generated_code_of(client: Any, options: BackendOptions) -> Any:
    """The messages and stubs that belong to a client: next to its class, or to a class that this one extends."""
    for kind in type(client).__mro__:
        with suppress(ImportError):
            return import_module(kind.__module__.partition(".")[0] + ".etcdrpc")
    raise options.refusal(
        "client",
        f" gave a {type(client).__name__}, which is no client of the etcd3 API: it has to be an "
        "Etcd3Client of pyetcd or etcd3, or to extend it",
    )
