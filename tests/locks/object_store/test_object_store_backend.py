"""What is special about locks in storage: Hudi's object, stores that cannot be trusted, rights, forks, what stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3
import pytest
from backend_checks import check_lost_answer_to_acquire, check_lost_answer_to_release

from lakelatch.errors import CorruptTable, InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope, file_group_key
from lakelatch.locks.object_store.hudi_object import PATH
from lakelatch.locks.object_store.options import open_objects
from lakelatch.locks.object_store.provider import HudiStorageLockProvider, StorageLockProvider
from lakelatch.locks.object_store.records import ObjectRecords
from lakelatch.locks.records.slots import slots_of_table
from lakelatch.locks.session.options import BackendOptions
from lakelatch.storage import open_storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.object_store import GuardedObjectStore, VersionedObject
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.in_processes import in_fork
from lakelatch.testing.servers import Server, TcpProxy, free_port
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, lock_options
from lakelatch.testing.servers.seaweedfs import BUCKET

PREFIX = "hoodie.write.lock.storage."
JAVA_OWNER = "7f2c3b1a-0000-4000-8000-000000000000"
SOON_S = 30.0

Opening = Callable[..., StorageLockProvider]


@pytest.fixture
def options(seaweedfs_server: Server) -> dict[str, str]:
    found = lock_options(seaweedfs_server, lease_s=6)
    del found[PREFIX + "url"]  # so that the records lie in the table
    return found


@pytest.fixture
def opening(options: dict[str, str], tmp_path: Path) -> Iterator[Opening]:
    """Opens providers of a table in the bucket, which are closed at the end."""
    with ExitStack() as opened:

        def open_one(
            kind: type[StorageLockProvider] = HudiStorageLockProvider, place: str = "", **more: str
        ) -> StorageLockProvider:
            own = {PREFIX + key: value for key, value in more.items()}
            scope = LockScope(place or f"s3://{BUCKET}/{tmp_path.name}", {**options, **own})
            return opened.enter_context(closing(kind(scope)))

        yield open_one


class Bucket:
    """The table's objects as another client sees them."""

    def __init__(self, server: Server, table: str) -> None:
        place = {"endpoint_url": f"http://{server.host}:{server.port}", "region_name": "us-east-1"}
        self.client: Any = boto3.client("s3", **place)
        self.table = table

    def lock(self) -> dict[str, Any]:
        return dict(json.loads(self.client.get_object(Bucket=BUCKET, Key=f"{self.table}/{PATH}")["Body"].read()))

    def put_lock(self, left_ms: int, expired: bool = False, **condition: str) -> str:
        """As Hudi does; the entity tag."""
        until_ms = REAL_SYSTEM.realtime_ms() + left_ms
        value = {"expired": expired, "validUntil": until_ms, "owner": JAVA_OWNER}
        body = json.dumps(value).encode()
        return str(self.client.put_object(Bucket=BUCKET, Key=f"{self.table}/{PATH}", Body=body, **condition)["ETag"])

    def left(self) -> list[str]:
        """Without records of slots and registers, which stay."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.table}/.hoodie/").get("Contents", [])
        keys = [entry["Key"].partition("/.lakelatch/lock_records/")[2] for entry in found]
        return sorted(key for key in keys if key and not key.startswith(("locks/", "registers/")))


@pytest.fixture
def bucket(seaweedfs_server: Server, tmp_path: Path) -> Bucket:
    return Bucket(seaweedfs_server, tmp_path.name)


# Hudi's object


def test_the_object_is_what_java_writers_expect(opening: Opening, bucket: Bucket) -> None:
    provider = opening()
    with provider.acquire(TABLE_KEY, SOON_S) as lease:
        first = bucket.lock()
        assert sorted(first) == ["expired", "owner", "validUntil"] and first["expired"] is False
        assert str(UUID(first["owner"])) == first["owner"] and type(first["validUntil"]) is int
        assert 0 < first["validUntil"] - REAL_SYSTEM.realtime_ms() <= 6000
        assert wait_until(lambda: bucket.lock()["validUntil"] > first["validUntil"], SOON_S)
        assert bucket.lock()["owner"] == first["owner"] and lease.valid()
        assert lease.deadline_ns is not None
        valid_for_ms = (lease.deadline_ns - REAL_SYSTEM.monotonic_ns()) / 1e6
        assert REAL_SYSTEM.realtime_ms() + valid_for_ms <= bucket.lock()["validUntil"]
    last = bucket.lock()
    assert last["expired"] is True and last["owner"] == first["owner"]
    with provider.acquire(TABLE_KEY, 0):
        assert bucket.lock()["expired"] is False and bucket.lock()["owner"] != first["owner"]


def test_a_java_holder_is_respected_until_its_time_is_over(opening: Opening, bucket: Bucket) -> None:
    provider = opening()
    tag = bucket.put_lock(4000)
    for _ in range(3):
        with pytest.raises(LockTimeout, match=JAVA_OWNER):
            provider.acquire(TABLE_KEY, 0.5)
        tag = bucket.put_lock(4000, IfMatch=tag)
    assert [(holder.key, holder.owner) for holder in provider.holders()] == [(TABLE_KEY, JAVA_OWNER)]
    until_ms = bucket.lock()["validUntil"]
    with provider.acquire(TABLE_KEY, SOON_S) as lease:
        assert REAL_SYSTEM.realtime_ms() > until_ms + 500 and lease.valid()
        with pytest.raises(bucket.client.exceptions.ClientError, match="PreconditionFailed"):
            bucket.put_lock(4000, IfMatch=tag)


def test_a_released_java_lock_is_free_at_once(opening: Opening, bucket: Bucket) -> None:
    bucket.put_lock(3_600_000, expired=True)
    assert opening().acquire(TABLE_KEY, 0).release()


def test_a_holder_that_lost_the_object_loses_its_lease(opening: Opening, bucket: Bucket) -> None:
    provider = opening()
    lease, other = provider.acquire(TABLE_KEY, SOON_S), provider.acquire(file_group_key("p", "0"), SOON_S)
    bucket.put_lock(60_000)
    assert lease.lost.wait(SOON_S) and not lease.valid()
    assert not lease.release() and bucket.lock()["owner"] == JAVA_OWNER and bucket.lock()["expired"] is False
    assert other.valid() and other.release()


def test_the_default_lease_time_is_that_of_hudi(opening: Opening, options: dict[str, str], bucket: Bucket) -> None:
    del options["lakelatch.lock.lease_s"]
    for given, seconds in (({}, 300), ({"validity.timeout.secs": "120", "renew.interval.secs": "12"}, 120)):
        with opening(**given).acquire(TABLE_KEY, SOON_S):
            left_ms = bucket.lock()["validUntil"] - REAL_SYSTEM.realtime_ms()
            assert seconds * 1000 - 20_000 < left_ms <= seconds * 1000


def test_an_object_that_is_no_lock_is_left_alone(opening: Opening, bucket: Bucket) -> None:
    for body in (b"{}", b"[1]", b'{"expired": "no", "validUntil": 1, "owner": "x"}'):
        bucket.client.put_object(Bucket=BUCKET, Key=f"{bucket.table}/{PATH}", Body=body)
        with pytest.raises(CorruptTable, match=r"table_lock\.json"):
            opening().acquire(TABLE_KEY, 0)
        assert bucket.client.get_object(Bucket=BUCKET, Key=f"{bucket.table}/{PATH}")["Body"].read() == body


# Object stores


@pytest.mark.parametrize("kind", [StorageLockProvider, HudiStorageLockProvider])
def test_nothing_is_left_behind(kind: type[StorageLockProvider], opening: Opening, bucket: Bucket) -> None:
    provider = opening(kind)
    leases = [provider.acquire(key, SOON_S) for key in (TABLE_KEY, *(file_group_key("p", str(n)) for n in range(9)))]
    with pytest.raises(LockTimeout):
        provider.acquire(TABLE_KEY, 0.3)
    assert [key.partition("/")[0] for key in bucket.left()] == ["sessions"]
    assert all(lease.release() for lease in leases[1:])
    provider.close()
    assert wait_until(lambda: bucket.left() == [], SOON_S)


@pytest.mark.parametrize("kind", [StorageLockProvider, HudiStorageLockProvider])
def test_a_lost_answer_is_resolved(
    kind: type[StorageLockProvider], opening: Opening, seaweedfs_server: Server, proxy_to: Callable[[Server], TcpProxy]
) -> None:
    proxy = proxy_to(seaweedfs_server)
    other, provider = opening(kind), opening(kind, endpoint_url=f"http://{proxy.host}:{proxy.port}")
    assert other.acquire(TABLE_KEY, SOON_S).release() and provider.acquire(TABLE_KEY, SOON_S).release()
    check_lost_answer_to_acquire(proxy, provider, other)
    check_lost_answer_to_release(proxy, provider, other)


def test_refused_credentials_are_reported_without_secrets(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    for wrong in ({"access_key_id": "nobody"}, {"secret_access_key": f"file:{secret}"}):
        provider = opening(**wrong)
        with pytest.raises(InvalidRequest, match=r"refuses these credentials.*storage\.access_key_id") as caught:
            provider.acquire(TABLE_KEY, 5)
        told = str(caught.value) + repr(provider.scope) + repr(provider.__dict__)
        assert not any(word in told for word in ("swordfish", *AWS_ENVIRONMENT.values()))
    monkeypatch.setenv("LATCH_SECRET", AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
    assert opening(secret_access_key="env:LATCH_SECRET").acquire(TABLE_KEY, SOON_S).release()


def test_a_missing_bucket_or_server_is_reported(options: dict[str, str], opening: Opening) -> None:
    own = BackendOptions("storage", {key[len(PREFIX) :]: value for key, value in options.items()}, 6.0)
    unchecked: Any = open_objects("s3://no-such-bucket/t", own, "", REAL_SYSTEM)
    with pytest.raises(InvalidRequest, match=r"no bucket.*NoSuchBucket.*storage\.url"):
        unchecked._objects.get("a")
    with pytest.raises(Unavailable, match=r"could not be used.*storage\.url"):
        opening(endpoint_url=f"http://127.0.0.1:{free_port()}").acquire(TABLE_KEY, 0.5)


def test_a_forked_child_is_told_that_it_cannot_use_the_store(opening: Opening) -> None:
    provider = opening()
    assert provider.acquire(TABLE_KEY, SOON_S).release()

    def check() -> None:
        with pytest.raises(InvalidRequest, match="spawn"):
            provider.acquire(TABLE_KEY, 5)

    assert in_fork(check)


@pytest.mark.parametrize(
    ("place", "more", "said"),
    [
        ("hdfs://name/t", {}, r"no hdfs://.*storage\.url"),
        ("s3://bucket/t", {"allow_http": "false"}, r"endpoint_url has no TLS.*allow_http"),
        ("file:///tmp/t", {}, r"endpoint_url means nothing at file:///tmp/t"),
        ("gs://bucket/t", {}, r"endpoint_url means nothing at gs://bucket/t"),
        ("az://container/t", {"region": "us-east-1"}, r"region means nothing at az://container/t"),
        ("s3://bucket/t", {"renew.interval.secs": "30"}, r"renew\.interval\.secs=30 is more than a third"),
        ("s3://bucket/t", {"bucket": "x"}, r"storage\.bucket is no option"),
    ],
)
def test_wrong_options_are_named(opening: Opening, place: str, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        opening(place=place, **more)


# Local places


def test_a_local_table_has_its_records_beside_it(tmp_path: Path) -> None:
    scope = LockScope(f"file://{tmp_path}/table", {"lakelatch.lock.lease_s": "6"})
    with closing(StorageLockProvider(scope)) as provider, provider.acquire(TABLE_KEY, SOON_S) as lease:
        [slot] = (tmp_path / "table/.hoodie/.lakelatch/lock_records/locks").glob("*/table.json")
        [entry] = json.loads(slot.read_text())["held"].values()
        assert entry["token"] == lease.token
    slot.write_text("{")
    with closing(StorageLockProvider(scope)) as provider, pytest.raises(CorruptTable, match=r"table\.json"):
        provider.acquire(TABLE_KEY, SOON_S)


def test_tables_can_share_one_place(tmp_path: Path) -> None:
    shared = {PREFIX + "url": str(tmp_path / "shared"), "lakelatch.lock.lease_s": "6"}
    providers = [StorageLockProvider(LockScope(f"memory://{name}", shared)) for name in "ab"]
    with closing(providers[0]) as first, closing(providers[1]) as second:
        assert first.acquire(TABLE_KEY, SOON_S).valid() and second.acquire(TABLE_KEY, SOON_S).valid()
        assert len(list((tmp_path / "shared/sessions").iterdir())) == 1


def test_a_table_in_memory_has_its_records_there(tmp_path: Path) -> None:
    scope = LockScope(f"memory://{tmp_path.name}", {"lakelatch.lock.lease_s": "6"})
    with closing(HudiStorageLockProvider(scope)) as provider, provider.acquire(TABLE_KEY, SOON_S):
        assert json.loads(open_storage(scope.table_uri).read(PATH))["expired"] is False
        with pytest.raises(LockTimeout):
            provider.acquire(TABLE_KEY, 0)


class WatchedObjects(GuardedObjectStore):
    """Counts what is read."""

    reads = 0

    def get(self, path: str) -> VersionedObject:
        self.reads += 1
        return super().get(path)


def test_of_all_slots_of_a_table_those_are_read_that_are_there(tmp_path: Path) -> None:
    objects = WatchedObjects(LocalStorage(str(tmp_path)), "guards", 5.0, "url")
    records = ObjectRecords(objects, "locks_of_table", REAL_SYSTEM)
    slots = slots_of_table("0123456789abcdef")
    for slot in (slots[0], slots[7]):
        assert records.put(slot, {"token": 1, "held": {}}, None).done
    objects.reads = 0
    assert sorted(records.get_all(slots)) == sorted([slots[0], slots[7]])
    assert objects.reads == 2
