"""Every lock that is measured, under one face: ours, the floors, and the peers that are installed.

The peers are no dependency of ours: `pip install -r bench/requirements-peers.txt` brings them. The clients of redis
and ZooKeeper, which are extras of ours, have locks of their own, which are peers too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bench.locks.common import Contender, NotHere, Place
from bench.locks.counted import open_counted
from bench.locks.floors import (
    DynamodbItem,
    EtcdQueue,
    EtcdTransaction,
    KernelLock,
    KernelLockWithToken,
    RedisSet,
    RedisToken,
    StoredObject,
    ZookeeperNode,
    ZookeeperQueue,
    redis_client,
    zookeeper_client,
)

from lakelatch.errors import LockTimeout
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.system import REAL_SYSTEM


class Ours(Contender):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._provider = self._open(place, lease_s)
        self._key = key
        self._provider.acquire("warm", 30).release()

    def _open(self, place: Place, lease_s: float) -> LockProvider:
        return place.open_provider(lease_s)

    def acquire(self, timeout_s: float) -> bool:
        try:
            self._lease = self._provider.acquire(self._key, timeout_s)
        except LockTimeout:
            return False
        return True

    def release(self) -> None:
        self._lease.release()

    def held(self) -> bool | None:
        return self._lease.valid()


class OursCounted(Ours):
    """Ours at a store of records, whose requests are what is paid for."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._requests = [0, 0]
        super().__init__(place, key, lease_s)

    def _open(self, place: Place, lease_s: float) -> LockProvider:
        return open_counted(LockScope(place.table_uri, place.options(lease_s)), self._requests)

    def requests(self) -> tuple[int, int] | None:
        reads, writes = self._requests
        return reads, writes


class LibraryLock(Contender):
    """A lock of a library that has an object for it, `_lock`, and waits for so many seconds."""

    _lock: Any

    def acquire(self, timeout_s: float) -> bool:
        return bool(self._lock.acquire(timeout=timeout_s))

    def release(self) -> None:
        self._lock.release()


class RedisPy(LibraryLock):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._lock = redis_client(place).lock(f"redis-py-{key}", timeout=lease_s)

    def acquire(self, timeout_s: float) -> bool:
        return bool(self._lock.acquire(blocking_timeout=timeout_s))


class PythonRedisLock(LibraryLock):
    """With its renewal on, which is what makes it a lease; its times are whole seconds."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._make = import_module("redis_lock").Lock
        self._client, self._key, self._lease_s = redis_client(place), key, int(lease_s)

    def acquire(self, timeout_s: float) -> bool:
        self._lock = self._make(self._client, self._key, expire=self._lease_s, auto_renewal=True)
        return bool(self._lock.acquire(timeout=int(timeout_s)))


class FenceKit(Contender):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._module = import_module("fencekit")
        self._lock = self._module.DistributedLock(redis_client(place))
        self._key, self._lease = key, timedelta(seconds=lease_s)

    def acquire(self, timeout_s: float) -> bool:
        wait = timedelta(seconds=timeout_s)
        try:
            self._handle = self._lock.acquire(self._key, ttl=self._lease, blocking=True, wait=wait)
        except self._module.errors.LockNotAcquired:
            return False
        return True

    def release(self) -> None:
        self._lock.release(self._handle)


class PortalockerRedis(LibraryLock):
    """Held by a connection, not by a lease. Without contention it takes 113 ms, so it is left out there."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._module = import_module("portalocker")
        self._key, self._client = key, redis_client(place)

    def acquire(self, timeout_s: float) -> bool:
        self._lock = self._module.RedisLock(self._key, connection=self._client, timeout=timeout_s, check_interval=0.25)
        try:
            self._lock.acquire()
        except self._module.exceptions.LockException:
            return False
        return True


class Tooz(LibraryLock):
    """One coordinator of the back end, with its heartbeat on."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        address = f"{place.host}:{place.port}"
        query = f"?timeout={lease_s:g}&lock_timeout={lease_s:g}"
        urls = {
            "redis": f"redis://{address}{query}",
            "zookeeper": f"zookeeper://{address}?timeout={lease_s:g}",
            "etcd": f"etcd3+http://{address}{query}",
            "filesystem": f"file://{place.folder}/tooz",
        }
        make = import_module("tooz.coordination").get_coordinator
        self._coordinator = make(urls[place.backend], REAL_SYSTEM.new_id().encode())
        self._coordinator.start(start_heart=place.backend != "filesystem")
        self._lock = self._coordinator.get_lock(key.encode())

    def acquire(self, timeout_s: float) -> bool:
        return bool(self._lock.acquire(blocking=timeout_s))

    def held(self) -> bool | None:
        return bool(self._lock.acquired)


class Kazoo(LibraryLock):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._lock = zookeeper_client(place, lease_s).Lock(f"/kazoo-{key}", "bench")

    def held(self) -> bool | None:
        return bool(self._lock.is_acquired)


class CslabEtcd3(LibraryLock):
    """A maintained copy of python-etcd3, whose own lock raises with today's tenacity; it does not renew."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._lock = import_module("etcd3").client(place.host, place.port).lock(key, ttl=int(lease_s))


class Etcd3Aio(Contender):
    """Asynchronous, so a loop runs for each call; it queues first come first served, and does not renew."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = import_module("etcd3aio").Etcd3Client([f"{place.host}:{place.port}"])
        self._loop.run_until_complete(self._client.connect())
        self._key, self._lease_s = key, int(lease_s)

    def acquire(self, timeout_s: float) -> bool:
        self._lock = self._client.lock(self._key, ttl=self._lease_s)
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._lock.acquire(), timeout_s))
        except asyncio.TimeoutError:
            self.release()
            return False
        return True

    def release(self) -> None:
        self._loop.run_until_complete(self._lock.release())


class Etcd3Gw(LibraryLock):
    """Its lock does not wait, so it is measured without contention only."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        client = import_module("etcd3gw").client(place.host, place.port)
        self._lock = client.lock(key, ttl=int(lease_s))

    def acquire(self, timeout_s: float) -> bool:
        return bool(self._lock.acquire())


class Fasteners(LibraryLock):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._lock = import_module("fasteners").InterProcessLock(f"{place.folder}/fasteners-{key}")

    def held(self) -> bool | None:
        return bool(self._lock.acquired)


class FileLock(LibraryLock):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._module = import_module("filelock")
        self._lock = self._module.FileLock(f"{place.folder}/filelock-{key}")

    def acquire(self, timeout_s: float) -> bool:
        try:
            self._lock.acquire(timeout=timeout_s)
        except self._module.Timeout:
            return False
        return True

    def held(self) -> bool | None:
        return bool(self._lock.is_locked)


class PortalockerFile(LibraryLock):
    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._module, self._path = import_module("portalocker"), f"{place.folder}/portalocker-{key}"

    def acquire(self, timeout_s: float) -> bool:
        self._lock = self._module.Lock(self._path, mode="a", timeout=timeout_s)
        try:
            self._lock.acquire()
        except self._module.exceptions.LockException:
            return False
        return True


@dataclass(frozen=True)
class Adapter:
    """`kind` is ours, floor or peer; `duties` are the benchmarks in which it takes part; `needs` is what it imports."""

    backend: str
    name: str
    kind: str
    make: Callable[[Place, str, float], Contender]
    duties: str = "alone handoff"
    needs: str = ""

    def missing(self) -> str | None:
        return self.needs if self.needs and find_spec(self.needs) is None else None


_OURS = tuple(
    Adapter(backend, "lakelatch", "ours", Ours, "alone handoff takeover zombie")
    for backend in ("filesystem", "redis", "zookeeper", "etcd")
) + tuple(
    Adapter(backend, "lakelatch", "ours", OursCounted, "alone handoff takeover zombie")
    for backend in ("dynamodb", "storage")
)
_FLOORS = (
    Adapter("filesystem", "flock", "floor", KernelLock),
    Adapter("filesystem", "flock + synced token", "second floor", KernelLockWithToken, "alone handoff"),
    Adapter("redis", "SET NX PX + DEL script", "floor", RedisSet, "alone", "redis"),
    Adapter("redis", "BLPOP + LPUSH", "floor", RedisToken, "handoff", "redis"),
    Adapter("zookeeper", "create + delete", "floor", ZookeeperNode, "alone", "kazoo"),
    Adapter("zookeeper", "create, list, watch + delete", "floor", ZookeeperQueue, "handoff", "kazoo"),
    Adapter("etcd", "transaction + delete", "floor", EtcdTransaction, "alone", "pyetcd"),
    Adapter("etcd", "put and list, watch + delete", "floor", EtcdQueue, "handoff", "pyetcd"),
    Adapter("dynamodb", "put if absent + delete", "floor", DynamodbItem, "alone", "boto3"),
    Adapter("storage", "put if absent + delete", "floor", StoredObject, "alone", "obstore"),
)
_PEERS = (
    Adapter("filesystem", "fasteners", "peer", Fasteners, "alone handoff takeover zombie", "fasteners"),
    Adapter("filesystem", "filelock", "peer", FileLock, "alone handoff", "filelock"),
    Adapter("filesystem", "portalocker", "peer", PortalockerFile, "alone", "portalocker"),
    Adapter("filesystem", "tooz", "peer", Tooz, "alone", "tooz"),
    Adapter("redis", "redis-py", "peer", RedisPy, "alone handoff takeover", "redis"),
    Adapter("redis", "python-redis-lock", "peer", PythonRedisLock, "alone handoff takeover", "redis_lock"),
    Adapter("redis", "fencekit", "peer", FenceKit, "alone", "fencekit"),
    Adapter("redis", "tooz", "peer", Tooz, "alone zombie", "tooz"),
    Adapter("redis", "portalocker", "peer", PortalockerRedis, "takeover", "portalocker"),
    Adapter("zookeeper", "kazoo", "peer", Kazoo, "alone handoff takeover zombie", "kazoo"),
    Adapter("zookeeper", "tooz", "peer", Tooz, "alone handoff", "tooz"),
    Adapter("etcd", "cslab-etcd3", "peer", CslabEtcd3, "alone handoff takeover", "etcd3"),
    Adapter("etcd", "etcd3aio", "peer", Etcd3Aio, "alone handoff takeover", "etcd3aio"),
    Adapter("etcd", "etcd3gw", "peer", Etcd3Gw, "alone", "etcd3gw"),
    Adapter("etcd", "tooz", "peer", Tooz, "alone zombie", "tooz"),
)
ADAPTERS = (*_OURS, *_FLOORS, *_PEERS)


def adapters_for(backend: str, duty: str) -> tuple[list[Adapter], list[str]]:
    """Those that take part, ours first; and a line for each one that is not installed."""
    wanted = [adapter for adapter in ADAPTERS if adapter.backend == backend and duty in adapter.duties.split()]
    missing = [f"{backend}: {adapter.name} is not installed" for adapter in wanted if adapter.missing()]
    return [adapter for adapter in wanted if not adapter.missing()], missing


def open_contender(place: Place, name: str, duty: str, key: str, lease_s: float) -> Contender:
    """For processes that measure, which are told the name only. The key is shared by those of the same name."""
    for adapter in ADAPTERS:
        if (adapter.backend, adapter.name) == (place.backend, name) and duty in adapter.duties.split():
            slug = "".join(letter if letter.isalnum() else "-" for letter in name)
            return adapter.make(place, f"{key}-{slug}", lease_s)
    raise NotHere(f"no {name} for {place.backend}")
