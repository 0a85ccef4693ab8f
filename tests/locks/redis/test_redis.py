from __future__ import annotations

import pytest

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.redis.provider import RedisLockProvider
from lakelatch.testing.conformance.lock_provider import LockProviderConformance
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import lock_options


class TestRedis(LockProviderConformance):
    first_come_first_served = True
    names_waiters = True

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: Server) -> None:
        self.options = lock_options(redis_server, lease_s=3)

    def make_provider(self, table_uri: str) -> LockProvider:
        return RedisLockProvider(LockScope(table_uri, self.options))
