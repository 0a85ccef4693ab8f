"""One DynamoDB table, by boto3."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from lakelatch.locks.dynamodb.options import DynamodbOptions
from lakelatch.locks.dynamodb.records import KEY, Item
from lakelatch.retry import Backoff, tries
from lakelatch.system import System

_DEFAULT_REGION = "us-east-1"
_CONNECTIONS_MOST = 64
_LOOKS = Backoff(first_s=0.5, longest_s=0.5, jitter=0)  # at a table that is being made
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


class DynamodbTable:
    """One table, which is made if it is missing. Each request is sent once, and reads are consistent."""

    def __init__(self, options: DynamodbOptions, system: System) -> None:
        self.where = f"the DynamoDB table {options.table!r}"
        self.table = options.table
        self._options = options
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
        """Makes the table, unless another process does, and waits until it can be used."""
        if not self._options.create_table:
            option = self._options.key("create_table")
            raise InvalidRequest(
                f"{self.where} does not exist, and {option}=false: make it, with the string {KEY!r} as its partition "
                "key",
                option=option,
            )
        try:
            with self._errors():
                self._send(client, "create_table", **_definition(self._options))
        except _TableBusy:  # another process was first
            pass
        timeout_ms = self._options.creation_timeout_ms
        for _ in tries(self._system, _LOOKS, limit_s=timeout_ms / 1000):
            if self._active(client):
                return
        raise Unavailable(f"{self.where} was not ready within {timeout_ms} ms; look at it in the AWS console")

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


def _definition(options: DynamodbOptions) -> dict[str, Any]:
    capacity = {"ReadCapacityUnits": options.read_capacity, "WriteCapacityUnits": options.write_capacity}
    return {
        "TableName": options.table,
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "BillingMode": options.billing_mode,
        **({"ProvisionedThroughput": capacity} if options.billing_mode == "PROVISIONED" else {}),
    }


def _open(options: DynamodbOptions) -> Any:
    """The client, which never repeats a request by itself, as a conditional put must not be."""
    session = boto3.session.Session()  # the default one may not be shared by threads
    return session.client(
        "dynamodb",
        region_name=options.region or os.environ.get("AWS_REGION") or session.region_name or _DEFAULT_REGION,
        endpoint_url=options.endpoint_url or None,
        config=Config(
            connect_timeout=options.call_s,
            read_timeout=options.call_s,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=_CONNECTIONS_MOST,
        ),
    )
