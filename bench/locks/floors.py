"""Floors: the fewest calls with the same client library that could do the work, with nothing else around them.

The lock floors come in two kinds: one that cannot wait (for the uncontended figure), and one that queues (for the
hand-off). They have no token, no renewal, no deadline that outlasts a lost connection: nobody should use them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from importlib import import_module
from typing import Any

from bench.locks.common import Contender, NotHere, Place

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers.seaweedfs import BUCKET

_DELETE_IF_OWN = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
_GROW = """
local value = math.max((tonumber(redis.call('get', KEYS[1])) or 0) + 1, tonumber(ARGV[1]))
redis.call('set', KEYS[1], string.format('%.0f', value))
return value
"""
_ETCD_LEASE_S = 3600  # floors do not renew, so theirs outlasts the run


def redis_client(place: Place) -> Any:
    return import_module("redis").Redis(place.host, place.port, socket_timeout=None)


def zookeeper_client(place: Place, session_s: float) -> Any:
    client = import_module("kazoo.client").KazooClient(f"{place.host}:{place.port}", timeout=session_s)
    client.start(30)
    return client


def etcd_client(place: Place) -> Any:
    return import_module("pyetcd").client(place.host, place.port)


def dynamodb_client(place: Place) -> Any:
    """With a table of its own, which is there afterwards."""
    errors = import_module("botocore.exceptions")
    client = import_module("boto3").client(
        "dynamodb", endpoint_url=f"http://{place.host}:{place.port}", region_name="us-east-1"
    )
    try:
        client.create_table(
            TableName="bench-floor",
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    except errors.ClientError as error:
        if error.response["Error"]["Code"] != "ResourceInUseException":
            raise
    client.get_waiter("table_exists").wait(TableName="bench-floor")
    return client


def object_store() -> Any:
    """By the environment, as the provider finds it."""
    return import_module("obstore.store").from_url(f"s3://{BUCKET}", client_options={"allow_http": True})


class RedisSet(Contender):
    """SET NX PX, and a script that deletes what is one's own."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._client = redis_client(place)
        self._key, self._owner, self._lease_ms = key, REAL_SYSTEM.new_id(), int(lease_s * 1000)
        self._delete = self._client.register_script(_DELETE_IF_OWN)

    def acquire(self, timeout_s: float) -> bool:
        return bool(self._client.set(self._key, self._owner, nx=True, px=self._lease_ms))

    def release(self) -> None:
        self._delete(keys=(self._key,), args=(self._owner,))


class RedisToken(Contender):
    """One element that goes round: BLPOP and LPUSH."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._client, self._key = redis_client(place), key
        if self._client.set(f"{key}:made", 1, nx=True):
            self._client.lpush(key, "token")

    def acquire(self, timeout_s: float) -> bool:
        return self._client.blpop(self._key, timeout_s) is not None

    def release(self) -> None:
        self._client.lpush(self._key, "token")


class ZookeeperNode(Contender):
    """One ephemeral sequential node is made and deleted; nobody looks whether it is the first."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self.client = zookeeper_client(place, lease_s)
        self.path = f"/floor-{key}"
        self.node = ""
        self.client.ensure_path(self.path)

    def acquire(self, timeout_s: float) -> bool:
        self.node = self.client.create(f"{self.path}/n-", b"", ephemeral=True, sequence=True)
        return True

    def release(self) -> None:
        self.client.delete(self.node)


class ZookeeperQueue(ZookeeperNode):
    """The same with the list of nodes, and a watch on the one before the own."""

    def acquire(self, timeout_s: float) -> bool:
        super().acquire(timeout_s)
        own = self.node.rpartition("/")[2]
        while True:
            before = [name for name in self.client.get_children(self.path) if name < own]
            if not before:
                return True
            gone = threading.Event()
            there = self.client.exists(f"{self.path}/{max(before)}", lambda event, gone=gone: gone.set())
            if there is not None and not gone.wait(timeout_s):
                self.release()
                return False


class EtcdTransaction(Contender):
    """Put if absent, with a lease that is there already, and delete."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._client = etcd_client(place)
        self._lease = self._client.lease(_ETCD_LEASE_S)
        self._key = f"floor/{key}"

    def acquire(self, timeout_s: float) -> bool:
        make = self._client.transactions
        absent = make.create(self._key) == 0
        taken, _ = self._client.transaction([absent], [make.put(self._key, b"1", self._lease)], [])
        return bool(taken)

    def release(self) -> None:
        self._client.delete(self._key)


class EtcdQueue(Contender):
    """A key for each waiter and the list of them in one transaction; a watch on the one before the own."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._client = etcd_client(place)
        self._lease = self._client.lease(_ETCD_LEASE_S)
        self._prefix = f"floor/{key}/"
        self._key = f"{self._prefix}{self._lease.id:x}"
        self._end = f"floor/{key}0"  # "0" comes after "/"

    def acquire(self, timeout_s: float) -> bool:
        make = self._client.transactions
        listing = make.get(self._prefix, range_end=self._end)
        _, answers = self._client.transaction([], [make.put(self._key, b"1", self._lease), listing], [])
        while True:
            queue = sorted((found.create_revision, found.key, found) for _, found in answers[-1])
            place = next(number for number, (_, name, _) in enumerate(queue) if name.decode() == self._key)
            if place == 0:
                return True
            before = queue[place - 1][2]
            gone = threading.Event()
            watch = self._client.add_watch_callback(
                before.key, lambda said, gone=gone: gone.set(), start_revision=before.response_header.revision + 1
            )
            come = gone.wait(timeout_s)
            self._client.cancel_watch(watch)
            if not come:
                self.release()
                return False
            _, answers = self._client.transaction([], [listing], [])

    def release(self) -> None:
        self._client.delete(self._key)


class KernelLock(Contender):
    """flock on a file that stays open."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self.handle = os.open(f"{place.folder}/{key}", os.O_CREAT | os.O_RDWR, 0o666)

    def acquire(self, timeout_s: float) -> bool:
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        fcntl.flock(self.handle, fcntl.LOCK_UN)


class KernelLockWithToken(KernelLock):
    """The same, and a token that is on the disk before anybody acts on it: one write and one fdatasync."""

    synced = True

    def acquire(self, timeout_s: float) -> bool:
        super().acquire(timeout_s)
        stored = int(os.pread(self.handle, 20, 0) or b"0")
        os.pwrite(self.handle, b"%020d" % (stored + 1), 0)
        if self.synced:
            os.fdatasync(self.handle)
        return True


class DynamodbItem(Contender):
    """A conditional put and a delete."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._client, self._key = dynamodb_client(place), key

    def acquire(self, timeout_s: float) -> bool:
        self._client.put_item(
            TableName="bench-floor",
            Item={"key": {"S": self._key}},
            ConditionExpression="attribute_not_exists(#k)",
            ExpressionAttributeNames={"#k": "key"},
        )
        return True

    def release(self) -> None:
        self._client.delete_item(TableName="bench-floor", Key={"key": {"S": self._key}})


class StoredObject(Contender):
    """A put if absent and a delete."""

    def __init__(self, place: Place, key: str, lease_s: float) -> None:
        self._obstore, self._store, self._path = import_module("obstore"), object_store(), f"floor/{key}"

    def acquire(self, timeout_s: float) -> bool:
        self._obstore.put(self._store, self._path, b"1", mode="create")
        return True

    def release(self) -> None:
        self._obstore.delete(self._store, self._path)


class RegisterFloor:
    """One round trip that could make a register grow, if nobody else did."""

    def __init__(self, place: Place) -> None:
        made = getattr(self, f"_open_{place.backend}", None)
        if made is None:
            raise NotHere(f"no register floor for {place.backend}")
        self.advance = made(place)

    def _open_filesystem(self, place: Place) -> Any:
        lock = KernelLockWithToken(place, "register-floor", 0)
        lock.synced = False  # what outlives a crash of the machine need not be synced each time

        def advance() -> None:
            lock.acquire(0)
            lock.release()

        return advance

    def _open_redis(self, place: Place) -> Any:
        grow = redis_client(place).register_script(_GROW)
        return lambda: grow(keys=("register-floor",), args=(REAL_SYSTEM.realtime_ms(),))

    def _open_zookeeper(self, place: Place) -> Any:
        client = zookeeper_client(place, 10)
        client.create("/register-floor", b"0")
        versions = iter(range(10**9))
        return lambda: client.set("/register-floor", b"1795000000000", next(versions))

    def _open_etcd(self, place: Place) -> Any:
        client = etcd_client(place)
        make = client.transactions
        client.put("register-floor", b"0")
        versions = iter(range(1, 10**9))

        def advance() -> None:
            same = make.version("register-floor") == next(versions)
            done, _ = client.transaction([same], [make.put("register-floor", b"1795000000000")], [])
            if not done:
                raise AssertionError("somebody else writes the floor's register")

        return advance

    def _open_dynamodb(self, place: Place) -> Any:
        client = dynamodb_client(place)
        return lambda: client.update_item(
            TableName="bench-floor",
            Key={"key": {"S": "register"}},
            UpdateExpression="ADD #v :one",
            ExpressionAttributeNames={"#v": "value"},
            ExpressionAttributeValues={":one": {"N": "1"}},
            ReturnValues="UPDATED_NEW",
        )

    def _open_storage(self, place: Place) -> Any:
        obstore, store = import_module("obstore"), object_store()
        known = [obstore.put(store, "register-floor", b"0")]

        def advance() -> None:
            known[0] = obstore.put(store, "register-floor", b"1795000000000", mode={"e_tag": known[0]["e_tag"]})

        return advance
