"""One kazoo client for one ZooKeeper session: calls that end in time, watches that wake, errors of ours."""

from __future__ import annotations

import atexit
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    ConnectionDropped,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    QuotaExceededError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.serialization import Create2
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.locks.session.backend import SessionGone
from lakelatch.locks.zookeeper.options import LEASE_SHARE, Target
from lakelatch.system import System

__all__ = [
    "CONTAINER",
    "EPHEMERAL",
    "EPHEMERAL_SEQUENTIAL",
    "PERSISTENT",
    "BadVersionError",
    "Link",
    "NoNodeError",
    "NodeExistsError",
    "session_name",
]

PERSISTENT, EPHEMERAL, EPHEMERAL_SEQUENTIAL, CONTAINER = 0, 1, 3, 4  # ZooKeeper's numbers
_CreateContainer: Any = type("CreateContainer", (Create2,), {"type": 19})  # kazoo knows no containers

_LEASE_LEAST_S, _LEASE_MOST_S = 1.0, 3600.0
# kazoo makes a selector for each look at its sockets; this one costs no system calls of its own
_POLL = SimpleNamespace(
    DefaultSelector=getattr(selectors, "PollSelector", selectors.DefaultSelector),
    EVENT_READ=selectors.EVENT_READ,
    EVENT_WRITE=selectors.EVENT_WRITE,
)
_BATCH = 500  # calls that are under way at the same time
_REFUSED = (NoAuthError, AuthFailedError, InvalidACLError, SessionClosedRequireSaslError, QuotaExceededError)
_log = logging.getLogger("lakelatch.kazoo")
_log.addHandler(logging.NullHandler())


def _fit_to_be_shown(record: logging.LogRecord) -> bool:
    """Errors, and INFO where it is wanted; below INFO kazoo logs what it sends, secrets included."""
    return record.levelno >= logging.ERROR or (record.levelno >= logging.INFO and _log.isEnabledFor(logging.INFO))


_log.addFilter(_fit_to_be_shown)


class Link:
    """A connection with its session; `gone` once that has ended, and then for good.

    kazoo would go on with a new session by itself, under the leases of the old one, so a client serves one only.
    `on_end` is called, in a thread of its own, when the session ended without being closed.
    """

    def __init__(self, target: Target, system: System, on_end: Callable[[], None]) -> None:
        self.gone = False
        self.session = ""
        self.lease_s = 0.0
        self._target = target
        self._system = system
        self._on_end = on_end
        self._guard = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}
        self._decided = threading.Event()  # connected, or all hosts were tried in vain
        self._connected = threading.Event()  # or over
        self._problem = "no such host, or no answer in time"
        self._distrusted = False
        self._refused = False
        self._cut_off_ns: int | None = None  # since when there is no connection
        self._closing = False
        self._ender: threading.Thread | None = None
        self._acl = CREATOR_ALL_ACL if target.creator_only else OPEN_ACL_UNSAFE
        self._client = self._make_client()

    def open(self) -> None:
        """Connects, within the connection time; `session` and `lease_s` are known then."""
        self._client.start_async()
        atexit.unregister(self._client.handler.stop)  # a forked child would run it; we stop the client by ourselves
        self._decided.wait(self._target.connect_s)
        identity = self._client.client_id
        if identity is None:
            raise self._unavailable(self._problem, InvalidRequest if self._distrusted else Unavailable)
        self.answer(self.ask.exists_async("/"))  # answered after the credentials were
        if not _LEASE_LEAST_S <= self.lease_s <= _LEASE_MOST_S:
            raise InvalidRequest(
                f"ZooKeeper at {self._target.hosts} gives sessions of {self.lease_s / LEASE_SHARE:g} s, where "
                f"{self._target.session_s:g} s were asked for and {_LEASE_LEAST_S / LEASE_SHARE:.2g} to "
                f"{_LEASE_MOST_S / LEASE_SHARE:g} s can be used: change minSessionTimeout or maxSessionTimeout of the "
                "server",
                option=self._target.option,
            )
        self.session = session_name(identity[0])

    @property
    def ask(self) -> Any:
        """The kazoo client, for its `..._async` calls. Errors: `SessionGone`, and `Unavailable` while reconnecting."""
        self.check()
        if not self._client.connected:
            raise self._unavailable("the connection was lost, and is being made anew")
        return self._client

    def await_connection(self) -> bool:
        """Whether calls can be made: if the connection is being made anew, this waits for as long as for a call."""
        self._connected.wait(self._target.call_s)
        with suppress(SessionGone):
            self.check()
        return self._connected.is_set() and not self.gone

    def check(self) -> None:
        """Errors: `SessionGone` if the session has ended, `InvalidRequest` if the server refused to authenticate it."""
        since_ns = self._cut_off_ns
        if since_ns is not None and self._system.monotonic_ns() - since_ns > self._target.session_s * 1e9:
            self._end()  # a server that was wiped would never tell us
        if self._refused:
            raise self._refusal("AuthFailedError")
        if self.gone:
            raise SessionGone(f"the session with ZooKeeper at {self._target.hosts} has ended", session=self.session)

    def create(self, path: str, data: bytes, kind: int) -> Any:
        """Begins to create a node; the answer is its path and its stat."""
        request = (_CreateContainer if kind == CONTAINER else Create2)(path, data, self._acl, kind)
        client = self.ask
        answer = client.handler.async_result()
        client._call(request, answer)
        return answer

    def make_folders(self, path: str, root: str, kind: int) -> None:
        """Creates a node and what is missing above it: of this kind below `root`, persistent down to there."""
        parts = path.split("/")
        above = ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]
        answers = [self.create(each, b"", kind if each.startswith(root + "/") else PERSISTENT) for each in above]
        refusal: InvalidRequest | None = None
        for answer in answers:
            try:
                self.answer(answer)
                refusal = None
            except NodeExistsError:
                refusal = None
            except NoNodeError:  # because of the refusal above it, or it was removed meanwhile
                continue
            except InvalidRequest as error:  # who may not create nodes up there may do so further down
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def answer(self, pending: Any) -> Any:
        """The server's answer. Of kazoo's errors, those about the node are raised as they are: `__all__` has them."""
        with self._errors():
            found = pending.get(timeout=self._target.call_s)
        self.check()  # kazoo may have sent it in a session of its own
        return found

    def answers(self, begin: Callable[[str], Any], paths: Iterable[str]) -> list[Any]:
        """One call for each path, many at the same time; None where there is no node."""
        found: list[Any] = []
        left = list(paths)
        while left:
            pending, left = [begin(path) for path in left[:_BATCH]], left[_BATCH:]
            for each in pending:
                try:
                    found.append(self.answer(each))
                except NoNodeError:
                    found.append(None)
        return found

    @contextmanager
    def waking(self, path: str) -> Iterator[threading.Event]:
        """An event that is set when a watch (`wake`) of this path fires, or the connection changes."""
        event = threading.Event()
        with self._guard:
            self._waiting.setdefault(path, []).append(event)
        try:
            yield event
        finally:
            with self._guard:
                self._waiting[path].remove(event)
                if not self._waiting[path]:
                    del self._waiting[path]

    def wake(self, news: Any = None) -> None:
        """The one watch for all nodes: kazoo keeps equal ones once, so that those of the past do not pile up."""
        path = getattr(news, "path", None)
        with self._guard:
            lists = list(self._waiting.values()) if path is None else [self._waiting.get(path, [])]
            for event in (event for events in lists for event in events):
                event.set()

    def close(self, patiently: bool = True) -> None:
        """Ends the session; its nodes go with it. Does not wait long for a server that does not answer."""
        self._closing = True
        self._end()
        if self._ender is not None and patiently:
            self._ender.join(self._target.call_s)

    def _make_client(self) -> Any:
        target, handler = self._target, SequentialThreadingHandler()
        handler.create_connection = self._connect
        handler.select = partial(selector_select, selectors_module=_POLL)
        handler.sleep_func = self._rest
        client = KazooClient(
            hosts=target.hosts,
            timeout=target.session_s,
            handler=handler,
            auth_data=list(target.auth),
            sasl_options=dict(target.sasl) or None,
            logger=_log,
            connection_retry={
                "max_tries": -1,
                "delay": 0.05,
                "max_delay": min(target.session_s / 10, 1.0),
                "sleep_func": handler.sleep_func,
            },
        )
        client.add_listener(self._changed)
        connection = client._connection
        connect = connection._connect

        def connect_and_note(*place: Any) -> Any:
            try:
                times_ms = connect(*place)  # for reading, and for connecting to each of the hosts
            except (ConnectionDropped, KazooTimeoutError, SessionExpiredError, AuthFailedError):
                raise
            except Exception as error:  # of which kazoo's thread would die
                raise (AuthFailedError if target.sasl else ConnectionDropped)(type(error).__name__) from error
            self._negotiated(times_ms[1] * len(client.hosts) / 1000)
            return times_ms

        connection._connect = connect_and_note
        return client

    def _connect(self, address: tuple[str, int], hostname: str | None = None, **settings: Any) -> socket.socket:
        """For kazoo: a connection within a time that leaves some for the other hosts."""
        target = self._target
        limit_s = min(target.connect_s, target.session_s / 3) / len(self._client.hosts)
        try:
            connection = socket.create_connection(address, limit_s)
            self._problem = "it closed the connection, or did not answer in time"
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return target.tls.wrap_socket(connection, server_hostname=hostname) if target.tls else connection
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self._problem = f"{type(error).__name__}: {error}"
            self._distrusted = isinstance(error, ssl.SSLCertVerificationError)
            raise

    def _rest(self, duration_s: float) -> None:
        """For kazoo: the pause after all hosts were tried, or a connection was lost."""
        self._decided.set()
        self._system.sleep(duration_s)

    def _negotiated(self, session_s: float) -> None:
        lease_s = session_s * LEASE_SHARE
        if self.lease_s > lease_s:  # a server that grants less than the one before: the leases promise too much
            self._end()
        self.lease_s = lease_s

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._refused = self._client.client_state == KeeperState.AUTH_FAILED
            self._end()
        elif state == KazooState.CONNECTED:
            self._cut_off_ns = None
            self._connected.set()
            self._decided.set()
        else:
            self._cut_off_ns = self._system.monotonic_ns()
            self._connected.clear()
        self.wake()

    def _end(self) -> None:
        ender = threading.Thread(target=self._finish, name="lakelatch-kazoo-end", daemon=True)
        with self._guard:
            if self.gone:
                return
            self.gone = True
            with suppress(RuntimeError):  # at the end of the process there are no new threads
                ender.start()
                self._ender = ender
        self._connected.set()
        self._decided.set()
        self.wake()
        if self._ender is None:
            self._finish()

    def _finish(self) -> None:
        if not self._closing:
            self._on_end()
        with suppress(KazooException, OSError, RuntimeError):
            self._client.stop()
            self._client.close()

    def _refusal(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"ZooKeeper at {self._target.hosts} refuses these credentials or this user's rights ({reason}): look at "
            f"the auth, sasl and acl options beside {self._target.option}, and at the rights of the nodes",
            option=self._target.option,
        )

    def _unavailable(self, problem: str, kind: type[LakelatchError] = Unavailable) -> LakelatchError:
        return kind(
            f"ZooKeeper at {self._target.hosts} could not be used ({problem}); is {self._target.option} right, and the "
            "server up?",
            option=self._target.option,
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except _REFUSED as error:
            raise self._refusal(type(error).__name__) from None
        except (UnimplementedError, BadArgumentsError) as error:
            raise InvalidRequest(
                f"ZooKeeper at {self._target.hosts} does not know such a call ({type(error).__name__}): use ZooKeeper "
                "3.5 or later",
                option=self._target.option,
            ) from None
        except SessionExpiredError:
            self._end()
            self.check()
        except (KazooException, KazooTimeoutError) as error:
            raise self._unavailable(type(error).__name__) from None


def session_name(number: int) -> str:
    """A session in the names of nodes; ZooKeeper's numbers have a sign."""
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:016x}"
