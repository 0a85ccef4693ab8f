"""Hudi's DynamoDB lock: one item in the layout of Amazon's DynamoDB lock client, which Java writers take as well."""

from __future__ import annotations

from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.locks.dynamodb.records import KEY, Item, Items
from lakelatch.locks.hudi.java_lock import JavaLock, JavaLockState
from lakelatch.system import System, process_name

_OWNER, _LEASE, _VERSION, _RELEASED = "ownerName", "leaseDuration", "recordVersionNumber", "isReleased"


class HudiDynamodbItem(JavaLock):
    """The item with the key that both sides are given; its attributes are all text.

    `recordVersionNumber` is new at each renewal. A holder that has kept it for its own `leaseDuration` (in ms), on the
    taker's monotonic clock, may be overtaken. A release deletes the item; an item with `isReleased` is free.
    """

    expires_by_silence = True

    def __init__(self, items: Items, key: str, lease_s: float, system: System) -> None:
        self._items = items
        self._key = key
        self._lease_s = lease_s
        self._system = system

    def owner_of(self, request: str) -> str:
        return f"{process_name()} {request}"

    def read(self) -> JavaLockState | None:
        return self._state(self._items.read(self._key))

    def write(self, owner: str, expected: JavaLockState | None) -> JavaLockState | None:
        version = self._system.new_id()
        item = {
            KEY: {"S": self._key},
            _OWNER: {"S": owner},
            _LEASE: {"S": str(int(self._lease_s * 1000))},
            _VERSION: {"S": version},
        }
        if expected is None:
            condition: dict[str, Any] = {
                "ConditionExpression": "attribute_not_exists(#key)",
                "ExpressionAttributeNames": {"#key": KEY},
            }
        else:
            condition = self._still(expected)
        done, found = self._items.change("put_item", Item=item, **condition)
        now = self._state(item if done else found)
        return now if now is not None and now.version == version else None

    def release(self, state: JavaLockState) -> tuple[bool, JavaLockState | None]:
        done, _ = self._items.change("delete_item", Key={KEY: {"S": self._key}}, **self._still(state))
        return done, None

    def _still(self, expected: JavaLockState) -> dict[str, Any]:
        return {
            "ConditionExpression": "attribute_exists(#key) AND #version = :version AND #owner = :owner",
            "ExpressionAttributeNames": {"#key": KEY, "#version": _VERSION, "#owner": _OWNER},
            "ExpressionAttributeValues": {":version": {"S": expected.version}, ":owner": {"S": expected.owner}},
        }

    def _state(self, item: Item | None) -> JavaLockState | None:
        if not item:
            return None
        owner, version, lease = (item.get(name, {}).get("S") for name in (_OWNER, _VERSION, _LEASE))
        if not owner or not version or not str(lease).isdecimal():
            raise CorruptTable(
                f"the item {self._key!r} in {self._items.where} is no lock of Hudi's: stop all writers, and remove it",
                key=self._key,
            )
        return JavaLockState(owner, version, int(lease) / 1000, _RELEASED in item)
