"""Records and registers as items of a DynamoDB table, without its client library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from lakelatch.errors import CorruptTable
from lakelatch.locks.records.store import OPERATION, Put, Record, RecordStore
from lakelatch.system import System

KEY = "key"  # the table's partition key, by Hudi's convention
_VERSION, _VALUE, _NUMBER = "version", "value", "number"
_BATCH = 100  # items that one call reads at most
_PAUSE_S = 0.2  # at most, when the table is too busy to give all of them at once

Item = Mapping[str, Any]


class Items(Protocol):
    """The calls that are needed of one table."""

    where: str
    table: str

    def read(self, key: str) -> Item | None:
        """The item of a key, or None; it shows every write that returned before."""

    def change(self, operation: str, **arguments: Any) -> tuple[bool, Item | None]:
        """Whether the condition held; then the answer's attributes, and else the item that is there instead."""

    def call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """The answer to one request."""

    def close(self) -> None:
        """Gives up connections."""


class DynamodbRecords(RecordStore):
    """Records as items, with a prefix before their names; a register is one number."""

    def __init__(self, items: Items, prefix: str, system: System) -> None:
        super().__init__(system)
        self._items = items
        self._prefix = prefix + "/"

    def get(self, name: str) -> Record | None:
        return _record(self._items.read(self._prefix + name))

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        item = self._key(name) | {_VERSION: {"S": value[OPERATION]}, _VALUE: {"S": json.dumps(value)}}
        names = {"#key": KEY} if expected is None else {"#version": _VERSION}
        condition = "attribute_not_exists(#key)" if expected is None else "#version = :expected"
        values = {} if expected is None else {"ExpressionAttributeValues": {":expected": {"S": expected}}}
        done, found = self._items.change(
            "put_item", Item=item, ConditionExpression=condition, ExpressionAttributeNames=names, **values
        )
        return Put(done, _record(item if done else found))

    def delete(self, name: str) -> None:
        self._items.call("delete_item", Key=self._key(name))

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        page: dict[str, Any] = {}
        while True:  # a scan, since the table has no order; rare
            answer = self._items.call(
                "scan",
                ConsistentRead=True,
                FilterExpression="begins_with(#key, :prefix)",
                ProjectionExpression="#key",
                ExpressionAttributeNames={"#key": KEY},
                ExpressionAttributeValues={":prefix": {"S": self._prefix + prefix}},
                **page,
            )
            found += [item[KEY]["S"][len(self._prefix) :] for item in answer["Items"]]
            if not answer.get("LastEvaluatedKey"):
                return found
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def get_all(self, names: Iterable[str]) -> dict[str, Record]:
        found = {}
        for item in self._all_of([self._prefix + name for name in names]):
            record = _record(item)
            if record is not None:
                found[item[KEY]["S"][len(self._prefix) :]] = record
        return found

    def advance(self, name: str, at_least: int, count: int) -> int | None:
        least = max(at_least, 1)
        while True:  # one of the two conditions holds, but the number may grow between the two tries
            for update, condition, values in (
                (
                    "SET #number = :last",
                    "attribute_not_exists(#number) OR #number < :least",
                    {":last": least + count - 1},
                ),
                ("ADD #number :count", "#number >= :least", {":count": count}),
            ):
                numbers = {**values, ":least": least}
                done, found = self._items.change(
                    "update_item",
                    Key=self._key(name),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeNames={"#number": _NUMBER},
                    ExpressionAttributeValues={key: {"N": str(number)} for key, number in numbers.items()},
                    ReturnValues="UPDATED_NEW",
                )
                if done and found is not None:
                    return int(found[_NUMBER]["N"]) - count + 1

    def close(self) -> None:
        self._items.close()

    def _all_of(self, keys: list[str]) -> Iterator[Item]:
        left = [{KEY: {"S": key}} for key in keys]
        while left:
            request = {self._items.table: {"Keys": left[:_BATCH], "ConsistentRead": True}}
            answer = self._items.call("batch_get_item", RequestItems=request)
            yield from answer["Responses"].get(self._items.table, [])
            late = answer.get("UnprocessedKeys", {}).get(self._items.table, {}).get("Keys", [])
            if late:
                self.system.sleep(_PAUSE_S * self.system.random())
            left = [*late, *left[_BATCH:]]

    def time_ms(self) -> int | None:
        """By the date of an answer, in whole seconds."""
        answer = self._items.call("get_item", Key=self._key("now"))
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        return int(parsedate_to_datetime(date).timestamp()) * 1000 if date else None

    def _key(self, name: str) -> dict[str, Any]:
        return {KEY: {"S": self._prefix + name}}


def _record(item: Item | None) -> Record | None:
    if not item:
        return None
    try:
        return Record(json.loads(item[_VALUE]["S"]), item[_VERSION]["S"])
    except (KeyError, ValueError, TypeError):
        raise CorruptTable(
            f"the item {item.get(KEY)} is no lock record: stop all writers, and remove it", key=str(item.get(KEY))
        ) from None
