"""Locks by DynamoDB: conditional writes of single items, and nothing else."""

from __future__ import annotations

from lakelatch.locks.contract import LockScope
from lakelatch.locks.dynamodb.client import DynamodbTable
from lakelatch.locks.dynamodb.hudi_item import HudiDynamodbItem
from lakelatch.locks.dynamodb.options import DEFAULT_PREFIX, DynamodbOptions
from lakelatch.locks.dynamodb.records import DynamodbRecords
from lakelatch.locks.hudi.java_lock import JavaLock
from lakelatch.locks.hudi.names import hudi_base_path, hudi_path_hash, hudi_table_name
from lakelatch.locks.hudi.provider import SharedTableKey
from lakelatch.locks.hudi.shared_keys import SharedKeysBackend
from lakelatch.locks.options import BASE_PATH, DEFAULT_LEASE_S, keys_of
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.provider import SessionLockProvider

_HUDI = "hudi:"


class DynamodbLockProvider(SessionLockProvider):
    """Leases as items of a DynamoDB table, whose partition key has to be a string attribute named `key`.

    There are no notifications: who waits looks again, the next one often and the others rarely.

    Keys below `hoodie.write.lock.dynamodb.`:
    `table` (`lakelatch_locks`), `partition_key` (`lakelatch`, with which all our items' keys begin), `region`
    (AWS_REGION or the profile's, else us-east-1), `endpoint_url`; a table that is missing is made with `billing_mode`,
    `read_capacity` and `write_capacity` within `table_creation_timeout` ms, unless `create_table` is false. Credentials
    are found as every AWS client finds them.
    """

    not_secret = keys_of("dynamodb", "table", "partition_key", "region", "endpoint_url") | {BASE_PATH}

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._settings = DynamodbOptions.of(scope, self._default_lease_s())
        self._options = self._settings.given

    @property
    def system_name(self) -> str:
        return "aws.dynamodb"  # OpenTelemetry's name of it

    def make_backend(self) -> SessionBackend:
        options, system = self._settings, self.scope.system
        records = DynamodbRecords(DynamodbTable(options, system), options.partition_key or DEFAULT_PREFIX, system)
        return RecordBackend(records, system, options.lease_s)

    def _default_lease_s(self) -> float:
        return DEFAULT_LEASE_S


class HudiDynamodbLockProvider(SharedTableKey, DynamodbLockProvider):
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

    def make_backend(self) -> SessionBackend:
        options, system = self._settings, self.scope.system
        items = DynamodbTable(options, system)

        def find(name: str) -> JavaLock | None:
            if not name.startswith(_HUDI):
                return None
            return HudiDynamodbItem(items, name[len(_HUDI) :], options.lease_s, system)

        return SharedKeysBackend(DynamodbRecords(items, DEFAULT_PREFIX, system), system, options.lease_s, find)

    @property
    def table_lock(self) -> str:
        return _HUDI + self._item

    def _default_lease_s(self) -> float:
        return min(max(self.scope.lock_options.timeout_s, 1.0), 3600.0)

    def _place(self) -> str:
        return hudi_table_name(self.scope, self._settings.partition_key, self._options.key("partition_key"))


class HudiImplicitDynamodbLockProvider(HudiDynamodbLockProvider):
    """As `HudiDynamodbLockProvider`, for Hudi's class that derives the item's key from the table's base path.

    Both sides must name the table alike; `hoodie.base.path` says how the others do, if not as our URI does.
    """

    def _place(self) -> str:
        return hudi_path_hash(hudi_base_path(self.scope))
