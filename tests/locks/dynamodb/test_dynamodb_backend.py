"""What is special about DynamoDB: Hudi's item, the table that has to be there, rights, lost answers, what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from backend_checks import check_lost_answer_to_acquire, check_lost_answer_to_release, for_s

from lakelatch.errors import CorruptTable, InvalidRequest, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope, file_group_key
from lakelatch.locks.dynamodb.provider import (
    DynamodbLockProvider,
    HudiDynamodbLockProvider,
    HudiImplicitDynamodbLockProvider,
)
from lakelatch.locks.hudi.names import hudi_path_hash
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy, free_port
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, lock_options

PREFIX = "hoodie.write.lock.dynamodb."
JAVA_OWNER = "host-7f2c3b1a-0000-4000-8000-000000000000"
SOON_S = 30.0


@pytest.fixture
def options(dynamodb_server: Server, tmp_path: Path) -> dict[str, str]:
    """A table of its own for each test, and a name for its lock."""
    own = {PREFIX + "table": tmp_path.name, "hoodie.table.name": "flights"}
    return {**lock_options(dynamodb_server, lease_s=6), **own}


@pytest.fixture
def opening(options: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., DynamodbLockProvider]]:
    """Opens providers, which are closed at the end."""
    with ExitStack() as opened:

        def open_one(
            kind: type[DynamodbLockProvider] = HudiDynamodbLockProvider, place: str = "", **more: str
        ) -> DynamodbLockProvider:
            own = {PREFIX + key: value for key, value in more.items()}
            scope = LockScope(place or f"file://{tmp_path}/table", {**options, **own})
            return opened.enter_context(closing(kind(scope)))

        yield open_one


class Table:
    """The table as another client sees it."""

    def __init__(self, server: Server, name: str) -> None:
        place = {"endpoint_url": f"http://{server.host}:{server.port}", "region_name": "us-east-1"}
        self.client: Any = boto3.client("dynamodb", **place)
        self.name = name

    def left(self) -> list[str]:
        """Without records of slots and registers, which stay."""
        items = self.client.scan(TableName=self.name, ConsistentRead=True)["Items"]
        found = sorted(item["key"]["S"] for item in items)
        return [key for key in found if not key.startswith(("lakelatch/locks/", "lakelatch/registers/"))]

    def item(self, key: str) -> dict[str, str]:
        found = self.client.get_item(TableName=self.name, Key={"key": {"S": key}}, ConsistentRead=True).get("Item", {})
        assert all(list(value) == ["S"] for value in found.values())
        return {name: value["S"] for name, value in found.items()}

    def put(self, key: str, **attributes: str) -> None:
        """As Amazon's lock client does."""
        item = {"key": key, "ownerName": JAVA_OWNER, "leaseDuration": "2000", **attributes}
        self.client.put_item(TableName=self.name, Item={name: {"S": value} for name, value in item.items()})

    def renew(self, key: str, old: str, new: str) -> None:
        """As Amazon's lock client does; fails if the item is not the expected one any more."""
        self.client.update_item(
            TableName=self.name,
            Key={"key": {"S": key}},
            UpdateExpression="SET recordVersionNumber = :new",
            ConditionExpression="attribute_exists(#key) AND recordVersionNumber = :old AND ownerName = :owner",
            ExpressionAttributeNames={"#key": "key"},
            ExpressionAttributeValues={":new": {"S": new}, ":old": {"S": old}, ":owner": {"S": JAVA_OWNER}},
        )


@pytest.fixture
def table(dynamodb_server: Server, tmp_path: Path) -> Table:
    return Table(dynamodb_server, tmp_path.name)


def make(opening: Callable[..., DynamodbLockProvider]) -> DynamodbLockProvider:
    """A provider whose table exists."""
    provider = opening()
    assert provider.acquire(TABLE_KEY, SOON_S).release()
    return provider


def test_the_item_is_what_java_writers_expect(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    with provider.acquire(TABLE_KEY, 1) as lease, provider.acquire(file_group_key("p", "0"), 1):
        first = table.item("flights")
        assert sorted(first) == ["key", "leaseDuration", "ownerName", "recordVersionNumber"]
        assert first["leaseDuration"] == "6000" and first["ownerName"].startswith(lease.owner)
        taken = table.client.exceptions.ConditionalCheckFailedException
        with pytest.raises(taken):
            table.client.put_item(
                TableName=table.name,
                Item={"key": {"S": "flights"}},
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": "key"},
            )
        assert wait_until(lambda: table.item("flights")["recordVersionNumber"] != first["recordVersionNumber"], SOON_S)
        assert {**table.item("flights"), "recordVersionNumber": ""} == {**first, "recordVersionNumber": ""}
        assert lease.valid()
    assert table.item("flights") == {}


def test_the_default_lease_time_is_that_of_hudi(
    opening: Callable[..., DynamodbLockProvider], options: dict[str, str], table: Table
) -> None:
    del options["lakelatch.lock.lease_s"]
    with opening().acquire(TABLE_KEY, SOON_S):
        assert table.item("flights")["leaseDuration"] == "60000"
    options["hoodie.write.lock.wait_time_ms"] = "45000"
    with opening().acquire(TABLE_KEY, 1):
        assert table.item("flights")["leaseDuration"] == "45000"


def test_a_java_holder_is_overtaken_only_after_silence(
    opening: Callable[..., DynamodbLockProvider], table: Table
) -> None:
    provider = make(opening)
    table.put("flights", recordVersionNumber="v0")
    for number in range(8):  # for twice its lease time
        with pytest.raises(LockTimeout, match=JAVA_OWNER):
            provider.acquire(TABLE_KEY, 0.5)
        table.renew("flights", f"v{number}", f"v{number + 1}")
    begun_ns = REAL_SYSTEM.monotonic_ns()
    with provider.acquire(TABLE_KEY, SOON_S) as lease:
        assert (REAL_SYSTEM.monotonic_ns() - begun_ns) / 1e9 > 1.9 and lease.valid()
        with pytest.raises(table.client.exceptions.ConditionalCheckFailedException):
            table.renew("flights", "v8", "v9")


def test_an_item_that_was_released_and_kept_is_free(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    table.put("flights", recordVersionNumber="v0", isReleased="1", leaseDuration="3600000", data="x")
    with provider.acquire(TABLE_KEY, 0):
        assert sorted(table.item("flights")) == ["key", "leaseDuration", "ownerName", "recordVersionNumber"]


def test_a_java_holder_is_shown_and_can_be_broken(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    table.put("flights", recordVersionNumber="0")
    assert [(holder.key, holder.owner) for holder in provider.holders()] == [(TABLE_KEY, JAVA_OWNER)]
    with ThreadPoolExecutor(1) as pool:
        broken = pool.submit(provider.break_, TABLE_KEY)
        number = 0
        while table.item("flights"):
            with suppress(table.client.exceptions.ConditionalCheckFailedException):
                table.renew("flights", str(number), str(number + 1))
                number += 1
            REAL_SYSTEM.sleep(0.05)
        assert broken.result(SOON_S) and number > 2
    assert not provider.break_(TABLE_KEY) and provider.acquire(TABLE_KEY, 0).release()


def test_a_holder_that_lost_the_item_loses_its_lease(
    opening: Callable[..., DynamodbLockProvider], table: Table
) -> None:
    provider = make(opening)
    lease = provider.acquire(TABLE_KEY, 1)
    other = provider.acquire(file_group_key("p", "0"), 1)
    table.put("flights", recordVersionNumber="v0")
    assert lease.lost.wait(SOON_S) and not lease.valid()
    assert not lease.release() and table.item("flights")["ownerName"] == JAVA_OWNER
    assert other.valid() and other.release()


def test_the_implicit_item_has_the_hash_of_the_base_path(
    opening: Callable[..., DynamodbLockProvider], table: Table
) -> None:
    assert hudi_path_hash("s3a://my-bucket/my_lake/my_table") == "C0E15D0CE1AD11CC"
    assert [hudi_path_hash(path) for path in ("s3://bucket/t", "gs://b/t")] == ["12F8D3B144D2825E", "26FFB891CCC31D45"]
    provider = opening(HudiImplicitDynamodbLockProvider, "s3://my-bucket/my_lake/my_table")
    with provider.acquire(TABLE_KEY, SOON_S):
        assert table.item("C0E15D0CE1AD11CC")["leaseDuration"] == "6000"


def test_an_item_that_is_no_lock_is_left_alone(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    table.put("flights", leaseDuration="soon")
    with pytest.raises(CorruptTable, match="flights"):
        provider.acquire(TABLE_KEY, 0)
    assert table.item("flights")["leaseDuration"] == "soon"


def test_nothing_is_left_behind(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    for kind in (DynamodbLockProvider, HudiDynamodbLockProvider):
        provider = opening(kind)
        leases = [
            provider.acquire(key, SOON_S) for key in (TABLE_KEY, *(file_group_key("p", str(n)) for n in range(9)))
        ]
        with pytest.raises(LockTimeout):
            provider.acquire(TABLE_KEY, 0.3)
        assert [key.split("/")[:2] for key in table.left() if key != "flights"] == [["lakelatch", "sessions"]]
        assert all(lease.release() for lease in leases[1:])
        provider.close()
        assert wait_until(lambda: table.left() == [], SOON_S)


def test_a_session_that_ends_releases_the_item(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    backend, name = provider.make_backend(), provider.name_of(TABLE_KEY)
    session = backend.open_session("me")
    assert backend.take(session, "r1", name, for_s(0)) is not None
    assert table.item("flights")["ownerName"].endswith(" r1")
    backend.close_session(session)
    assert table.item("flights") == {} and provider.acquire(TABLE_KEY, 0).release()
    backend.close()


def test_the_table_is_made_as_the_options_say(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    with pytest.raises(InvalidRequest, match=r"does not exist.*create_table=false"):
        opening(create_table="false").acquire(TABLE_KEY, 5)
    provisioned = {"billing_mode": "PROVISIONED", "read_capacity": "7", "write_capacity": "3"}
    assert opening(**provisioned).acquire(TABLE_KEY, SOON_S).release()
    found = table.client.describe_table(TableName=table.name)["Table"]
    assert found["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    assert found["AttributeDefinitions"] == [{"AttributeName": "key", "AttributeType": "S"}]
    capacity = found["ProvisionedThroughput"]
    assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (7, 3)


def test_a_table_of_another_shape_is_refused(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    table.client.create_table(
        TableName=table.name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(InvalidRequest, match=r"'key' its partition key.*dynamodb\.table"):
        opening().acquire(TABLE_KEY, 5)


def test_missing_or_refused_credentials_are_reported(
    opening: Callable[..., DynamodbLockProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not-a-key")
    with pytest.raises(InvalidRequest, match="refuses these credentials") as caught:
        opening().acquire(TABLE_KEY, 5)
    assert not any(secret in str(caught.value) for secret in ("not-a-key", AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]))
    for name in AWS_ENVIRONMENT:
        monkeypatch.delenv(name)
    for name, value in (("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")):
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidRequest, match="NoCredentialsError"):
        opening(region="us-west-2").acquire(TABLE_KEY, 5)


def test_a_missing_server_is_reported(opening: Callable[..., DynamodbLockProvider]) -> None:
    provider = opening(endpoint_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"could not be reached.*endpoint_url"):
        provider.acquire(TABLE_KEY, 0.5)
    with pytest.raises(InvalidRequest, match=r"endpoint_url.* cannot be used"):
        opening(endpoint_url="nowhere").acquire(TABLE_KEY, 0.5)


@pytest.mark.parametrize(
    ("option", "value"), [("billing_mode", "cheap"), ("read_capacity", "0"), ("create_table", "no"), ("url", "x")]
)
def test_wrong_options_are_named(opening: Callable[..., DynamodbLockProvider], option: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"dynamodb\.{option}"):
        opening(**{option: value})


def test_a_hudi_lock_needs_a_name(opening: Callable[..., DynamodbLockProvider], options: dict[str, str]) -> None:
    del options["hoodie.table.name"]
    with pytest.raises(InvalidRequest, match=r"dynamodb\.partition_key"):
        opening()
    assert opening(partition_key="flights") and opening(HudiImplicitDynamodbLockProvider, "s3://bucket/flights")
    del options[PREFIX + "table"]
    with pytest.raises(InvalidRequest, match=r"dynamodb\.table"):
        opening(partition_key="flights")


@pytest.mark.parametrize("kind", [DynamodbLockProvider, HudiDynamodbLockProvider])
def test_a_lost_answer_is_resolved(
    kind: type[DynamodbLockProvider],
    opening: Callable[..., DynamodbLockProvider],
    dynamodb_server: Server,
    proxy_to: Callable[[Server], TcpProxy],
) -> None:
    proxy = proxy_to(dynamodb_server)
    other = opening(kind)
    assert other.acquire(TABLE_KEY, SOON_S).release()
    provider = opening(kind, endpoint_url=f"http://{proxy.host}:{proxy.port}")
    assert provider.acquire(TABLE_KEY, 5).release()
    check_lost_answer_to_acquire(proxy, provider, other)
    check_lost_answer_to_release(proxy, provider, other)


def test_a_register_is_one_call(opening: Callable[..., DynamodbLockProvider], table: Table) -> None:
    provider = make(opening)
    register = provider.register("time")
    assert [register.advance(least, count) for least, count in ((50, 1), (0, 3), (51, 1), (100, 2))] == [
        50,
        51,
        54,
        100,
    ]
    items = table.client.scan(TableName=table.name)["Items"]
    numbers = [item["number"] for item in items if item["key"]["S"].startswith("lakelatch/registers/")]
    assert numbers == [{"N": "101"}]
