"""A thousand file-group leases of one process: what they cost in connections, threads and files, and do they last?

The process takes them one after the other, keeps them for a while that is longer than two lease times, looks which it
still has, and gives them back. Connections are those of the process to the server's port, as the kernel lists them.
The peers keep each lock alive by their own means: a thread each, a call each, or the connection.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

from bench.harness import Result
from bench.locks.common import BACKENDS, NotHere, Place, main, open_place, print_table, short
from bench.locks.floors import redis_client, zookeeper_client
from bench.locks.turns import Worker, serve

from lakelatch.locks.contract import file_group_key
from lakelatch.system import REAL_SYSTEM

_COUNT, _QUICK_COUNT = 1000, 200
_LEASE_S = 3.0
_KEEP_S = 2.5 * _LEASE_S
_CONNECTIONS_MOST, _THREADS_MOST = 2, 10  # kazoo has three threads of its own, gRPC five or six
_HEADERS = (
    *("lock", "kind", "leases", "connections", "threads in all", "files more", "taken in ms each"),
    *("CPU % while kept", "still held", "given back in ms each"),
)


@dataclass(frozen=True)
class _Figures:
    connections: int
    threads: int
    files: int
    take_ms: float
    cpu_share: float
    still_held: int
    release_ms: float


@dataclass(frozen=True)
class _Many:
    """`held` asks as a user would: the lease itself, or, where the lock knows nothing, its server."""

    take: Callable[[str], Any]
    held: Callable[[Any], bool]
    release: Callable[[Any], object]
    place: Place


def _ours(place: Place) -> _Many:
    provider = place.open_provider(_LEASE_S)
    provider.acquire("warm", 30).release()
    return _Many(lambda key: provider.acquire(key, 30), lambda lease: lease.valid(), lambda x: x.release(), place)


def _python_redis_lock(place: Place) -> _Many:
    client, make = redis_client(place), import_module("redis_lock").Lock

    def take(key: str) -> Any:
        lock = make(client, key, expire=int(_LEASE_S), auto_renewal=True)
        return lock if lock.acquire(timeout=30) else None

    return _Many(take, lambda lock: lock.id == lock.get_owner_id(), lambda lock: lock.release(), place)


def _kazoo(place: Place) -> _Many:
    client = zookeeper_client(place, _LEASE_S)

    def take(key: str) -> Any:
        lock = client.Lock(f"/kazoo/{key.replace('/', '+')}", "bench")
        return lock if lock.acquire(timeout=30) else None

    return _Many(take, lambda lock: bool(lock.is_acquired), lambda lock: lock.release(), place)


def _tooz(place: Place) -> _Many:
    query = f"?timeout={_LEASE_S:g}&lock_timeout={_LEASE_S:g}"
    scheme = {"redis": "redis", "etcd": "etcd3+http"}[place.backend]
    make = import_module("tooz.coordination").get_coordinator
    coordinator = make(f"{scheme}://{place.host}:{place.port}{query}", REAL_SYSTEM.new_id().encode())
    coordinator.start(start_heart=True)

    def take(key: str) -> Any:
        lock = coordinator.get_lock(key.encode())
        return lock if lock.acquire(blocking=30) else None

    def held(lock: Any) -> bool:
        try:
            return bool(lock.is_still_owner())
        except import_module("tooz").NotImplemented:
            return bool(lock.acquired)

    return _Many(take, held, lambda lock: lock.release(), place)


def _fasteners(place: Place) -> _Many:
    make = import_module("fasteners").InterProcessLock

    def take(key: str) -> Any:
        lock = make(f"{place.folder}/{key.replace('/', '+')}")
        return lock if lock.acquire(timeout=30) else None

    return _Many(take, lambda lock: bool(lock.acquired), lambda lock: lock.release(), place)


_PEERS: dict[str, dict[str, tuple[str, Callable[[Place], _Many]]]] = {
    "filesystem": {"fasteners": ("fasteners", _fasteners)},
    "redis": {"python-redis-lock": ("redis_lock", _python_redis_lock), "tooz": ("tooz", _tooz)},
    "zookeeper": {"kazoo": ("kazoo", _kazoo)},
    "etcd": {"tooz": ("tooz", _tooz)},
}


def run(quick: bool = False, backends: Sequence[str] = BACKENDS) -> list[Result]:
    results = []
    for backend in backends:
        try:
            with open_place(backend) as place:
                results += _measure(place, _QUICK_COUNT if quick else _COUNT)
        except NotHere as error:
            print_table(f"{backend}: leases", (), [], [f"{backend}: {error}"])
    return results


def _measure(place: Place, count: int) -> list[Result]:
    opens = {"lakelatch": ("", _ours), **_PEERS.get(place.backend, {})}
    figures: dict[str, _Figures] = {}
    left_out = []
    for name, (needs, _) in opens.items():
        if needs and find_spec(needs) is None:
            left_out.append(f"{place.backend}: {name} is not installed")
            continue
        worker = Worker(_work, name, place)
        try:
            worker.receive()
            figures[name] = worker.ask(count, 300)
        except NotHere as error:
            left_out.append(f"{place.backend}: {name}: {error}")
        finally:
            worker.end()
    rows = [
        (
            *(name, "ours" if name == "lakelatch" else "peer", str(count), str(found.connections), str(found.threads)),
            *(str(found.files), short(found.take_ms), short(100 * found.cpu_share), str(found.still_held)),
            short(found.release_ms),
        )
        for name, found in figures.items()
    ]
    print_table(f"{place.backend}: {count} leases of one process, lease time {_LEASE_S:g} s", _HEADERS, rows, left_out)
    return _results(place, figures, count)


def _work(connection: Connection, name: str, place: Place) -> None:
    opens = _ours if name == "lakelatch" else _PEERS[place.backend][name][1]
    serve(connection, lambda: opens(place), _keep)


def _keep(many: _Many, count: int) -> _Figures:
    system = REAL_SYSTEM
    files = _files()
    began_ns = system.monotonic_ns()
    leases = [many.take(file_group_key(f"day={number % 30}", f"{number:08x}-0")) for number in range(count)]
    taken_ns = system.monotonic_ns()
    if None in leases:
        raise NotHere("a free lock was not granted")
    cpu_s = _cpu_s()
    system.sleep(_KEEP_S)
    cpu_share = (_cpu_s() - cpu_s) / _KEEP_S
    connections, threads, files = _connections(many.place.port), _threads(), _files() - files
    still_held = [lease for lease in leases if many.held(lease)]
    kept_ns = system.monotonic_ns()
    for lease in still_held:
        many.release(lease)
    release_ms = (system.monotonic_ns() - kept_ns) / 1e6 / max(len(still_held), 1)
    take_ms = (taken_ns - began_ns) / 1e6 / count
    return _Figures(connections, threads, files, take_ms, cpu_share, len(still_held), release_ms)


def _threads() -> int:
    """Of the kernel's, so that those of a library's own count too."""
    return len(os.listdir("/proc/self/task"))


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _connections(port: int) -> int:
    """Established TCP connections of this process to the server's port."""
    sockets = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            sockets.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the listing's own
            continue
    found = 0
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                remote_port, state, inode = int(fields[2].rpartition(":")[2], 16), fields[3], fields[9]
                found += remote_port == port and state == "01" and f"socket:[{inode}]" in sockets
    return found


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _results(place: Place, figures: dict[str, _Figures], count: int) -> list[Result]:
    ours = figures.get("lakelatch")
    if ours is None:
        return []
    peers = ", ".join(
        f"{name} {found.connections} connections and {found.threads} threads, {found.still_held} still held"
        for name, found in figures.items()
        if name != "lakelatch"
    )
    met = ours.connections <= _CONNECTIONS_MOST and ours.threads <= _THREADS_MOST and ours.still_held == count
    return [
        Result(
            f"locks_leases_{place.backend}",
            ours.connections,
            f"connections for {count} leases",
            None,
            None,
            None,
            f"at most {_CONNECTIONS_MOST} connections and {_THREADS_MOST} threads in all; all held for {_KEEP_S:g} s",
            met,
            f"{ours.threads} threads in all, {ours.files} files more, {100 * ours.cpu_share:.1f} % CPU while kept, "
            f"{ours.still_held} still held, lease time {_LEASE_S:g} s" + (f"; {peers}" if peers else ""),
        )
    ]


if __name__ == "__main__":
    main(run)
