"""Locks by DynamoDB: conditional writes of single items, and nothing else."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import TABLE_KEY, Holder, LockScope
from lakelatch.locks.dynamodb_records import KEY, DynamodbRecords, Item
from lakelatch.locks.foreign_names import ForeignLock, ForeignNamesService
from lakelatch.locks.hudi_dynamodb_item import HudiDynamodbItem
from lakelatch.locks.hudi_names import hudi_base_path, hudi_path_hash, hudi_table_name
from lakelatch.locks.options import DEFAULT_LEASE_S, LockOptions
from lakelatch.locks.record_service import RecordService
from lakelatch.locks.service import LockService
from lakelatch.locks.service_options import ServiceOptions
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.system import System

DEFAULT_TABLE, DEFAULT_PREFIX = "lakelatch_locks", "lakelatch"

_KNOWN = frozenset(
    {
        "table",
        "partition_key",
        "region",
        "billing_mode",
        "read_capacity",
        "write_capacity",
        "table_creation_timeout",
        "endpoint_url",
        "create_table",
    }
)
_BILLING_MODES = ("PAY_PER_REQUEST", "PROVISIONED")
_CAPACITIES = {"read_capacity": 20, "write_capacity": 10}
_CREATION_MS, _CREATION_RANGE_MS = 600_000, (1000, 3_600_000)
_DEFAULT_REGION = "us-east-1"
_HUDI = "hudi:"
_CALL_MOST_S = 5.0
_CONNECTIONS_MOST = 64
_LOOK_S = 0.5  # at a table that is being made
_WRONG_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound)
_SKEWED = re.compile("Signature expired|Signature not yet current|RequestTimeTooSkewed|RequestExpired")
_REFUSALS = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "ExpiredTokenException",
        "AccessDeniedException",
        "OptInRequired",
    }
)


class DynamodbLockProvider(SessionLockProvider):
    """Leases as items of a DynamoDB table, whose partition key has to be a string attribute named `key`.

    Nothing notifies here: who waits looks again, at most four times a second. Keys below `hoodie.write.lock.dynamodb.`:
    `table` (`lakelatch_locks`), `partition_key` (`lakelatch`, with which all our items' keys begin), `region`
    (AWS_REGION or the profile's, else us-east-1), `endpoint_url`; a table that is missing is made with `billing_mode`,
    `read_capacity` and `write_capacity` within `table_creation_timeout` ms, unless `create_table` is false. Credentials
    are found as every AWS client finds them.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = ServiceOptions.of("dynamodb", scope.options, _KNOWN, self._default_lease_s())
        _check(self._options)

    @property
    def identity(self) -> Hashable:
        return self._options.identity()

    def make_service(self) -> LockService:
        options, system = self._options, self.scope.system
        items = DynamodbItems(options, options.text("table", DEFAULT_TABLE), system)
        records = DynamodbRecords(items, options.text("partition_key", DEFAULT_PREFIX), system)
        return RecordService(records, system, options.lease_s)

    def _default_lease_s(self) -> float:
        return DEFAULT_LEASE_S


class HudiDynamodbLockProvider(DynamodbLockProvider):
    """The provider of Hudi's class name: the table's key is the item that Hudi's Java writers take.

    Its key is `partition_key`, or the table's name, `hoodie.table.name`. The lease time is that of Hudi,
    `hoodie.write.lock.wait_time_ms`, unless `lakelatch.lock.lease_s` is given. What Java writers have no lock for lies
    in items of the same table whose keys begin with `lakelatch/`.

    A Java writer does not hear of `break_`: its item is removed all the same, after its lease time.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options.required("table", "hudi_locks")
        self._item = self._place()

    def make_service(self) -> LockService:
        options, system = self._options, self.scope.system
        items = DynamodbItems(options, options.text("table"), system)

        def find(name: str) -> ForeignLock | None:
            if not name.startswith(_HUDI):
                return None
            return HudiDynamodbItem(items, name[len(_HUDI) :], options.lease_s, system)

        return ForeignNamesService(DynamodbRecords(items, DEFAULT_PREFIX, system), system, options.lease_s, find)

    def name_of(self, key: str) -> str:
        return _HUDI + self._item if key == TABLE_KEY else super().name_of(key)

    def key_of(self, name: str) -> str | None:
        return TABLE_KEY if name == self.name_of(TABLE_KEY) else super().key_of(name)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = super().holders(prefix)
        if TABLE_KEY.startswith(prefix):
            of_table = self._session().service.holders(self.name_of(TABLE_KEY))
            found += [replace(holder, key=TABLE_KEY) for holder in of_table]
        return sorted(found, key=lambda holder: holder.key)

    def _default_lease_s(self) -> float:
        return min(max(LockOptions.from_options(self.scope.options).timeout_s, 1.0), 3600.0)

    def _place(self) -> str:
        return hudi_table_name(self.scope, self._options.text("partition_key"), self._options.key("partition_key"))


class HudiImplicitDynamodbLockProvider(HudiDynamodbLockProvider):
    """As `HudiDynamodbLockProvider`, for Hudi's class that derives the item's key from the table's base path.

    Both sides must name the table alike; `hoodie.base.path` says how the others do, if not as our URI does.
    """

    def _place(self) -> str:
        return hudi_path_hash(hudi_base_path(self.scope))


class DynamodbItems:
    """One table, which is made if it is missing. Each request is sent once, and reads are consistent."""

    def __init__(self, options: ServiceOptions, table: str, system: System) -> None:
        self.where = f"the DynamoDB table {table!r}"
        self._options = options
        self.table = table
        self._system = system
        self._guard = threading.Lock()
        self._opened: Any = None

    def read(self, key: str) -> Item | None:
        found = self.call("get_item", Key={KEY: {"S": key}}, ConsistentRead=True).get("Item")
        return found if isinstance(found, dict) else None

    def change(self, operation: str, **arguments: Any) -> tuple[bool, Item | None]:
        """Whether the condition held; then the answer's attributes, and else the item that is there instead."""
        try:
            answer = self.call(operation, ReturnValuesOnConditionCheckFailure="ALL_OLD", **arguments)
        except _Refused as refused:
            return False, refused.details["item"]
        return True, answer.get("Attributes")

    def call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """The answer to one request; it is for this table unless it says itself which one it is for."""
        if "RequestItems" not in arguments:
            arguments["TableName"] = self.table
        client = self._client()
        try:
            with self._errors():
                return self._send(client, operation, **arguments)
        except _TableMissing:
            self._make_table(client)
        with self._errors():
            return self._send(client, operation, **arguments)

    def close(self) -> None:
        with self._guard:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _send(self, client: Any, operation: str, **arguments: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = getattr(client, operation)(**arguments)
        return answer

    def _client(self) -> Any:
        with self._guard:
            if self._opened is None:
                with self._errors():
                    self._opened = _open(self._options)
            return self._opened

    def _make_table(self, client: Any) -> None:
        """Makes the table unless somebody else does, and waits until it can be used."""
        option = self._options.key("create_table")
        if not self._options.flag("create_table", default=True):
            raise InvalidRequest(
                f"{self.where} does not exist, and {option}=false: make it, with the string {KEY!r} as its partition "
                "key",
                option=option,
            )
        timeout_ms = self._options.number("table_creation_timeout", _CREATION_MS, *_CREATION_RANGE_MS)
        until_ns = self._system.monotonic_ns() + timeout_ms * 1_000_000
        try:
            with self._errors():
                self._send(client, "create_table", **_definition(self.table, self._options))
        except _TableBusy:  # another process was first
            pass
        while not self._active(client):
            if self._system.monotonic_ns() > until_ns:
                raise Unavailable(f"{self.where} was not ready within {timeout_ms} ms; look at it in the AWS console")
            self._system.sleep(_LOOK_S)

    def _active(self, client: Any) -> bool:
        try:
            with self._errors():
                return bool(
                    self._send(client, "describe_table", TableName=self.table)["Table"]["TableStatus"] == "ACTIVE"
                )
        except _TableMissing:
            return False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        table = self._options.key("table")
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            self._raise_known(code, error)
            if _SKEWED.search(str(error)):
                raise Unavailable(f"{self.where} refuses requests of this machine: its clock is wrong") from None
            if code in _REFUSALS:
                raise self._refused(code) from None
            if code == "ValidationException":
                raise InvalidRequest(
                    f"{self.where} cannot be used ({code}); is the string {KEY!r} its partition key, without a sort "
                    f"key? If not, set {table} to another one",
                    option=table,
                ) from None
            raise Unavailable(f"{self.where} could not be used ({code})", option=table) from None
        except _WRONG_CREDENTIALS as error:
            raise self._refused(type(error).__name__) from None
        except ValueError as error:
            option = self._options.key("endpoint_url")
            raise InvalidRequest(
                f"{option} or the region cannot be used ({type(error).__name__})", option=option
            ) from None
        except BotoCoreError as error:
            raise Unavailable(
                f"{self.where} could not be reached ({type(error).__name__}); are {self._options.key('region')} and "
                f"{self._options.key('endpoint_url')} right, and the service up?",
                option=self._options.key("endpoint_url"),
            ) from None

    def _raise_known(self, code: str, error: ClientError) -> None:
        if code == "ConditionalCheckFailedException":
            raise _Refused("the condition did not hold", item=error.response.get("Item")) from None
        if code == "ResourceNotFoundException":
            raise _TableMissing(f"{self.where} does not exist", option=self._options.key("table")) from None
        if code == "ResourceInUseException":
            raise _TableBusy(f"{self.where} is being made", option=self._options.key("table")) from None

    def _refused(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.where} refuses these credentials, or their rights ({reason}): look at AWS_PROFILE or "
            "AWS_ACCESS_KEY_ID in the environment; they need to get, put, update, delete and scan items there",
            option=self._options.key("table"),
        )


class _Refused(Unavailable):
    """A condition did not hold; the item that is there is in `details`."""


class _TableMissing(Unavailable):
    pass


class _TableBusy(Unavailable):
    pass


def _check(options: ServiceOptions) -> None:
    """Every setting once, before anything is connected."""
    mode = options.text("billing_mode", _BILLING_MODES[0])
    if mode not in _BILLING_MODES:
        raise InvalidRequest(
            f"{options.key('billing_mode')}={mode!r}: use {' or '.join(_BILLING_MODES)}",
            option=options.key("billing_mode"),
        )
    for name, default in _CAPACITIES.items():
        options.number(name, default, 1, 1_000_000)
    options.number("table_creation_timeout", _CREATION_MS, *_CREATION_RANGE_MS)
    options.flag("create_table", default=True)


def _definition(table: str, options: ServiceOptions) -> dict[str, Any]:
    mode = options.text("billing_mode", _BILLING_MODES[0])
    read, write = (options.number(name, default, 1, 1_000_000) for name, default in _CAPACITIES.items())
    capacity = {"ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write}}
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "BillingMode": mode,
        **(capacity if mode == "PROVISIONED" else {}),
    }


def _open(options: ServiceOptions) -> Any:
    """The client, which never repeats a request by itself, as a conditional put must not be."""
    call_s = min(options.lease_s / 3, _CALL_MOST_S)
    session = boto3.session.Session()  # the default one may not be shared by threads
    return session.client(
        "dynamodb",
        region_name=options.text("region") or os.environ.get("AWS_REGION") or session.region_name or _DEFAULT_REGION,
        endpoint_url=options.text("endpoint_url") or None,
        config=Config(
            connect_timeout=call_s,
            read_timeout=call_s,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=_CONNECTIONS_MOST,
        ),
    )
