from __future__ import annotations

from typing import ClassVar

import pytest

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.zookeeper.provider import HudiZookeeperLockProvider, ZookeeperLockProvider
from lakelatch.testing.conformance.lock_provider import LockProviderConformance
from lakelatch.testing.servers import Server


class TestZookeeper(LockProviderConformance):
    first_come_first_served = True
    names_waiters = True
    provider: ClassVar[type[ZookeeperLockProvider]] = ZookeeperLockProvider

    @pytest.fixture(autouse=True)
    def _use_server(self, zookeeper_server: Server) -> None:
        self.url = f"{zookeeper_server.host}:{zookeeper_server.port}"

    def make_provider(self, table_uri: str) -> LockProvider:
        url, lease = "hoodie.write.lock.zookeeper.url", "lakelatch.lock.lease_s"
        return self.provider(LockScope(table_uri, {url: self.url, lease: "3", **self.more_options(table_uri)}))

    def more_options(self, table_uri: str) -> dict[str, str]:
        return {}


class TestHudiZookeeper(TestZookeeper):
    provider = HudiZookeeperLockProvider

    def more_options(self, table_uri: str) -> dict[str, str]:
        name = table_uri.replace("/", "_")
        return {"hoodie.write.lock.zookeeper.base_path": "/hudi/locks", "hoodie.table.name": name}
