"""The options of locks by DynamoDB, `hoodie.write.lock.dynamodb.*`, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.session.options import BackendOptions

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
_READ_CAPACITY, _WRITE_CAPACITY, _CAPACITY_MOST = 20, 10, 1_000_000
_CREATION_MS, _CREATION_RANGE_MS = 600_000, (1000, 3_600_000)
_CALL_MOST_S = 5.0

DEFAULT_TABLE = "lakelatch_locks"
DEFAULT_PREFIX = "lakelatch"


@dataclass(frozen=True)
class DynamodbOptions:
    """One table and how it is reached. `given` are the options as they were given: equal ones share their session."""

    given: BackendOptions
    table: str
    partition_key: str
    region: str
    endpoint_url: str
    billing_mode: str
    read_capacity: int
    write_capacity: int
    creation_timeout_ms: int
    create_table: bool

    @classmethod
    def of(cls, scope: LockScope, default_lease_s: float) -> DynamodbOptions:
        """Errors: `InvalidRequest`, naming the option."""
        given = BackendOptions.of("dynamodb", scope, _KNOWN, default_lease_s)
        billing_mode = given.text("billing_mode", _BILLING_MODES[0])
        if billing_mode not in _BILLING_MODES:
            raise InvalidRequest(
                f"{given.key('billing_mode')}={billing_mode!r}: use {' or '.join(_BILLING_MODES)}",
                option=given.key("billing_mode"),
            )
        return cls(
            given,
            table=given.text("table", DEFAULT_TABLE),
            partition_key=given.text("partition_key"),
            region=given.text("region"),
            endpoint_url=given.text("endpoint_url"),
            billing_mode=billing_mode,
            read_capacity=given.number("read_capacity", _READ_CAPACITY, 1, _CAPACITY_MOST),
            write_capacity=given.number("write_capacity", _WRITE_CAPACITY, 1, _CAPACITY_MOST),
            creation_timeout_ms=given.number("table_creation_timeout", _CREATION_MS, *_CREATION_RANGE_MS),
            create_table=given.flag("create_table", default=True),
        )

    @property
    def lease_s(self) -> float:
        """The session's lease time."""
        return self.given.lease_s

    @property
    def call_s(self) -> float:
        """How long one request may take."""
        return min(self.lease_s / 3, _CALL_MOST_S)

    def key(self, name: str) -> str:
        """The whole option key, for messages."""
        return self.given.key(name)
