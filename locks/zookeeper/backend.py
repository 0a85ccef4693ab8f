"""Sessions, registers, and queues of ephemeral nodes as Apache Curator's InterProcessMutex makes them, at ZooKeeper.

Below the root: `locks/<name>/_c_<request>-lock-<sequence>` the holder of a name (the first) and the waiters, in order;
`sessions/<session>` what a session is asked to give up; `registers/<name>` numbers; `ids/<name>` the
id of a table's locks. Folders of queues and sessions are container nodes, which the server removes when they have been
empty for a while.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import WAITERS_MOST, Holder
from lakelatch.locks.session.backend import Held, SessionBackend, SessionGone, Wait
from lakelatch.locks.zookeeper.client import (
    CONTAINER,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    PERSISTENT,
    BadVersionError,
    Link,
    NodeExistsError,
    NoNodeError,
    session_name,
)
from lakelatch.locks.zookeeper.options import Target
from lakelatch.locks.zookeeper.queue import Head, in_order, owner_in, place_for, request_of
from lakelatch.system import System

_RACES_MOST = 20  # against the server's removal of empty folders, or others that write the same node


class ZookeeperBackend(SessionBackend):
    """A name that begins with `/` is the path of its queue, with persistent nodes above it: Hudi's Java writers' place.

    A session here is one of ZooKeeper's, and ends with its client. Tokens are the transaction ids that created the
    nodes, so they grow for all names together.
    """

    def __init__(self, target: Target, root: str, system: System) -> None:
        self.lease_s = target.lease_s
        self._target = target
        self._root = root
        self._system = system
        self._guard = threading.Lock()
        self._current: _Session | None = None
        self._counters: dict[str, _Counter] = {}

    def open_session(self, owner: str) -> str:
        with self._guard:
            session = self._current
            if session is None or session.node or session.link.gone:
                session = self._connect()
            try:
                session.announce(owner, f"{self._root}/sessions")
            except BaseException:
                session.link.close()
                raise
            self.lease_s = session.link.lease_s
            return session.link.session

    def renew_session(self, session: str) -> list[str]:
        return self._session(session).renew()

    def close_session(self, session: str) -> None:
        with self._guard:
            current = self._current
            if current is None or current.link.session != session:
                return
            self._current = None
        current.link.close()

    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        mine = self._session(session)
        link, folder = mine.link, self._queue_of(name)
        path, token, children = self._enqueue(mine, folder, request)
        mine.places[request] = path
        node = path.rpartition("/")[2]
        while True:
            queue = in_order(children)
            if node not in queue:
                raise Unavailable(f"the place in the queue at {folder} was removed by another client: try again")
            if queue[0] == node:
                mine.granted.add(request)
                return token
            before = queue[queue.index(node) - 1]
            if not self._wait_for_end_of(link, f"{folder}/{before}", wait):
                self.give_back(session, request, name)
                return None
            wait.calm_down()
            children = wait.patiently(lambda: link.answer(link.ask.get_children_async(folder)), SessionGone)

    def give_back(self, session: str, request: str, name: str) -> bool:
        mine = self._session(session)
        path = mine.places.get(request)
        if path is not None:
            removed, granted = self._delete(mine.link, path), request in mine.granted
            mine.forget(request)
            return removed and granted
        folder, link = self._queue_of(name), mine.link
        for node in self._children_now(link, folder):
            if request_of(node) == request:
                self._delete(link, f"{folder}/{node}")
        return False

    def advance(self, name: str, at_least: int, count: int) -> int:
        path = f"{self._root}/registers/{name.lstrip('/')}"
        counter = self._counters.setdefault(path, _Counter(path))
        return counter.advance(self._link(), self._root, at_least, count, Wait(self._target.call_s, self._system, _no))

    def holders(self, prefix: str) -> list[Holder]:
        link = self._link()
        found = []
        for name, head in self._heads(link, self._names(link, prefix)).items():
            nodes = head.behind[:WAITERS_MOST]
            places = link.answers(link.ask.get_async, [f"{self._queue_of(name)}/{node}" for node in nodes])
            waiters = tuple(owner_in(node, place[0]) for node, place in zip(nodes, places, strict=True) if place)
            found.append(Holder(name, head.owner, head.stat.czxid, head.stat.ctime, len(head.behind), waiters))
        return found

    def find_holder(self, name: str) -> Held | None:
        head = self._heads(self._link(), [name]).get(name)
        if head is None:
            return None
        return Held(session_name(head.stat.ephemeralOwner), request_of(head.node), head.lease_s or self.lease_s)

    def ask(self, name: str) -> None:
        self._link()  # which has asked something when it connected

    def lock_id(self, name: str, proposed: str) -> str:
        link, path = self._link(), f"{self._root}/ids/{name.lstrip('/')}"
        for _ in range(_RACES_MOST):
            with suppress(NoNodeError):
                return str(link.answer(link.ask.get_async(path))[0].decode())
            if not proposed:
                return ""
            with suppress(NodeExistsError):
                try:
                    link.answer(link.create(path, proposed.encode(), PERSISTENT))
                except NoNodeError:
                    link.make_folders(path.rpartition("/")[0], self._root, PERSISTENT)
        raise Unavailable(f"{path} could not be created: it is removed all the time")

    def time_ms(self) -> int:
        """By the stamp of a node that is made for it, and removed."""
        link, path = self._link(), f"{self._root}/now-{self._system.new_id()}"
        for _ in range(_RACES_MOST):
            try:
                path, stat = link.answer(link.create(path, b"", EPHEMERAL))
            except NoNodeError:
                link.make_folders(self._root, self._root, PERSISTENT)
            else:
                self._delete(link, path)
                return int(stat.ctime)
        raise Unavailable(f"{self._root} could not be created: it is removed all the time")

    def ask_to_give_up(self, held: Held, name: str) -> None:
        link, path = self._link(), f"{self._root}/sessions/{held.session}"
        for _ in range(_RACES_MOST):
            try:
                data, stat = link.answer(link.ask.get_async(path))
                requests = [*_requests_in(data), held.request]
                link.answer(link.ask.set_async(path, json.dumps(requests).encode(), stat.version))
                return
            except NoNodeError:  # the session has ended, or belongs to a client that knows nothing of this
                return
            except BadVersionError:
                continue
        raise Unavailable(f"{path} was changed by others all the time: try again")

    def force(self, held: Held, name: str) -> bool:
        link, folder = self._link(), self._queue_of(name)
        queue = in_order(self._children_now(link, folder))
        return bool(queue) and request_of(queue[0]) == held.request and self._delete(link, f"{folder}/{queue[0]}")

    def close(self) -> None:
        with self._guard:
            current, self._current = self._current, None
        if current is not None:
            current.link.close()

    def _connect(self) -> _Session:
        """A new connection, in the place of one that has ended."""
        former, self._current = self._current, None
        if former is not None:
            former.link.close(patiently=False)
        link = Link(self._target, self._system, self._in_doubt)
        try:
            link.open()
        except BaseException:
            link.close()
            raise
        self._current = _Session(link)
        return self._current

    def _in_doubt(self) -> None:
        if self.on_doubt is not None:
            self.on_doubt()

    def _link(self) -> Link:
        """The connection of this process, for what needs no session of ours."""
        while True:
            with self._guard:
                current = self._current
                if current is None or current.link.gone:
                    current = self._connect()
            if current.link.await_connection() or not current.link.gone:
                return current.link

    def _session(self, session: str) -> _Session:
        current = self._current
        if current is None or not current.node or current.link.session != session:
            raise SessionGone(f"this session with ZooKeeper at {self._target.hosts} has ended", session=session)
        current.link.check()
        return current

    def _queue_of(self, name: str) -> str:
        return name if name.startswith("/") else f"{self._root}/locks/{name}"

    def _enqueue(self, mine: _Session, folder: str, request: str) -> tuple[str, int, list[str]]:
        """The node's path, its transaction id, and the queue; one round trip if the folder is there."""
        link = mine.link
        for _ in range(_RACES_MOST):
            created = link.create(f"{folder}/{place_for(request)}", mine.about, EPHEMERAL_SEQUENTIAL)
            listed = link.ask.get_children_async(folder)
            try:
                children = link.answer(listed)  # the later one first, so that this thread is woken once
                path, stat = link.answer(created)
                return path, stat.czxid, children
            except NoNodeError:
                link.make_folders(folder, f"{self._root}/locks", CONTAINER)
        raise Unavailable(f"{folder} could not be created: it is removed all the time")

    def _wait_for_end_of(self, link: Link, path: str, wait: Wait) -> bool:
        """Whether it is time to look again; False at the deadline."""
        with link.waking(path) as woken:
            if wait.left_s() <= 0:
                return False
            try:
                wait.patiently(lambda: link.answer(link.ask.get_async(path, watch=link.wake)), SessionGone)
            except NoNodeError:
                return True
            while not woken.is_set():
                nap_s = wait.nap_s()
                if nap_s <= 0:
                    return False
                woken.wait(nap_s)
            return True

    def _delete(self, link: Link, path: str) -> bool:
        try:
            link.answer(link.ask.delete_async(path))
        except NoNodeError:
            return False
        return True

    def _children_now(self, link: Link, folder: str) -> list[str]:
        """As the leader knows them, with all that this session did before, over whichever server."""
        link.ask.sync_async(folder)
        return (link.answers(link.ask.get_children_async, [folder]) or [[]])[0] or []

    def _names(self, link: Link, prefix: str) -> list[str]:
        table, found, key = prefix.partition("/=")
        if prefix.startswith("/") or key:
            return [prefix]
        root = f"{self._root}/locks"
        tables = [table] if found else link.answers(link.ask.get_children_async, [root])[0] or []
        lists = link.answers(link.ask.get_children_async, [f"{root}/{each}" for each in tables])
        names = [f"{table}/{key}" for table, keys in zip(tables, lists, strict=True) for key in keys or ()]
        return sorted(name for name in names if name.startswith(prefix))

    def _heads(self, link: Link, names: Iterable[str]) -> dict[str, Head]:
        """The first of each queue. A queue whose first one left while we looked is looked at again."""
        found: dict[str, Head] = {}
        left = list(names)
        for _ in range(_RACES_MOST):
            lists = link.answers(link.ask.get_children_async, [self._queue_of(name) for name in left])
            queues = {name: in_order(children or ()) for name, children in zip(left, lists, strict=True)}
            left = [name for name in left if queues[name]]
            heads = link.answers(link.ask.get_async, [f"{self._queue_of(name)}/{queues[name][0]}" for name in left])
            for name, head in zip(left, heads, strict=True):
                if head is not None:
                    found[name] = Head(queues[name][0], head[0], head[1], queues[name][1:])
            left = [name for name in left if name not in found]
        return found


class _Session:
    """A connection that serves as a session: its node, what it holds, and the release requests not reported yet."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.node = ""
        self.about = b""
        self.places: dict[str, str] = {}  # in queues: nodes by request
        self.granted: set[str] = set()
        self._version = 0
        self._release_requests: list[str] = []

    def announce(self, owner: str, folder: str) -> None:
        self.about = json.dumps({"owner": owner, "lease_s": self.link.lease_s}).encode()
        path = f"{folder}/{self.link.session}"
        for _ in range(_RACES_MOST):
            try:
                self.link.answer(self.link.create(path, b"[]", EPHEMERAL))
                self.node = path
                return
            except NoNodeError:
                self.link.make_folders(folder, folder.rpartition("/")[0], CONTAINER)
        raise Unavailable(f"{path} could not be created: its folder is removed all the time")

    def forget(self, request: str) -> None:
        self.places.pop(request, None)
        self.granted.discard(request)

    def renew(self) -> list[str]:
        """Writes the node, which a server can only confirm with the majority that may end the session.

        What operators wrote there since shows in its version.
        """
        link = self.link
        for _ in range(_RACES_MOST):
            try:
                stat = link.answer(link.ask.set_async(self.node, b"[]", self._version))
            except BadVersionError:
                data, stat = self._read()
                self._release_requests += _requests_in(data)
                self._version = stat.version
            except NoNodeError:
                raise self._removed() from None
            else:
                self._version = stat.version
                requests, self._release_requests = self._release_requests, []
                return requests
        raise Unavailable(f"{self.node} was changed by others all the time")

    def _read(self) -> Any:
        try:
            return self.link.answer(self.link.ask.get_async(self.node))
        except NoNodeError:
            raise self._removed() from None

    def _removed(self) -> SessionGone:
        self.link.close()  # what it holds would not be renewed
        return SessionGone(f"the node of this session, {self.node}, was removed", session=self.link.session)


class _Counter:
    """One register, with what its node held when it was last seen, so that to advance it is one call."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()  # threads would only spoil each other's attempts
        self._seen: tuple[int, int] | None = None  # value and version

    def advance(self, link: Link, root: str, at_least: int, count: int, wait: Wait) -> int:
        with self._guard:
            while True:
                seen, self._seen = self._seen, None
                value, version = seen or self._read(link)
                first = max(value + 1, at_least)
                last = first + count - 1
                try:
                    self._seen = last, self._write(link, root, last, version)
                    return first
                except (BadVersionError, NodeExistsError, NoNodeError):
                    if seen is None and not wait.back_off(0.001, 0.05):
                        raise Unavailable(f"the register at {self._path} was changed by others all the time") from None

    def _read(self, link: Link) -> tuple[int, int]:
        try:
            data, stat = link.answer(link.ask.get_async(self._path))
        except NoNodeError:
            return 0, -1
        if not data.isdigit():
            raise InvalidRequest(f"the register at {self._path} holds no number: remove the node, or use another root")
        return int(data), stat.version

    def _write(self, link: Link, root: str, value: int, version: int) -> int:
        data = str(value).encode()
        if version >= 0:
            return int(link.answer(link.ask.set_async(self._path, data, version)).version)
        try:
            created = link.answer(link.create(self._path, data, PERSISTENT))
        except NoNodeError:
            link.make_folders(self._path.rpartition("/")[0], root, PERSISTENT)
            created = link.answer(link.create(self._path, data, PERSISTENT))
        return int(created[1].version)


def _requests_in(data: bytes) -> list[str]:
    try:
        found = json.loads(data)
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def _no() -> bool:
    return False
