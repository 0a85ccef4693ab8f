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
    lease_s: ClassVar[int] = 3

    @pytest.fixture(autouse=True)
    def _use_server(self, dynamodb_server: Server) -> None:
        self.options = lock_options(dynamodb_server, lease_s=self.lease_s)

    def make_provider(self, table_uri: str) -> LockProvider:
        return self.provider(LockScope(table_uri, {**self.options, "hoodie.table.name": table_uri}))


class TestHudiDynamodb(TestDynamodb):
    """Each key has a lease of its own, which is renewed by several requests: on a busy machine that takes longer."""

    provider = HudiDynamodbLockProvider
    lease_s = 6
