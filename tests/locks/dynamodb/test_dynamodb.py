from __future__ import annotations

from typing import ClassVar

import pytest

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.dynamodb.provider import DynamodbLockProvider, HudiDynamodbLockProvider
from lakelatch.testing.conformance.lock_provider import LockProviderConformance
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import lock_options


class TestDynamodb(LockProviderConformance):
    provider: ClassVar[type[DynamodbLockProvider]] = DynamodbLockProvider

    @pytest.fixture(autouse=True)
    def _use_server(self, dynamodb_server: Server) -> None:
        self.options = lock_options(dynamodb_server, lease_s=3)

    def make_provider(self, table_uri: str) -> LockProvider:
        return self.provider(LockScope(table_uri, {**self.options, "hoodie.table.name": table_uri}))


class TestHudiDynamodb(TestDynamodb):
    provider = HudiDynamodbLockProvider
