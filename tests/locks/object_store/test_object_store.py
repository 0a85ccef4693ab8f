from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import pytest
from azurite import ACCOUNT, CONTAINER, LocalAzurite, azurite_options

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.object_store.provider import HudiStorageLockProvider, StorageLockProvider
from lakelatch.testing.conformance.lock_provider import LockProviderConformance
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import lock_options


class TestFileStorage(LockProviderConformance):
    provider: ClassVar[type[StorageLockProvider]] = StorageLockProvider

    def make_provider(self, table_uri: str) -> LockProvider:
        return self.provider(LockScope(table_uri, {"lakelatch.lock.lease_s": "3"}))


class TestS3Storage(LockProviderConformance):
    provider: ClassVar[type[StorageLockProvider]] = StorageLockProvider

    @pytest.fixture(autouse=True)
    def _use_server(self, seaweedfs_server: Server) -> None:
        self.options = lock_options(seaweedfs_server, lease_s=3)

    def make_provider(self, table_uri: str) -> LockProvider:
        return self.provider(LockScope(table_uri.replace("file://", "s3://lakelatch"), self.options))


class TestHudiS3Storage(TestS3Storage):
    provider = HudiStorageLockProvider


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzurite]:
    with closing(LocalAzurite(tmp_path_factory.mktemp("azurite"))) as server:
        server.start()
        yield server


@pytest.mark.long
class TestAzureStorage(LockProviderConformance):
    @pytest.fixture(autouse=True)
    def _use_server(self, azurite: LocalAzurite) -> None:
        reached = azurite_options(azurite.host, azurite.port)
        own = {f"hoodie.write.lock.storage.{name}": value for name, value in reached.items()}
        self.options = {"lakelatch.lock.lease_s": "3", **own}

    def make_provider(self, table_uri: str) -> LockProvider:
        place = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
        return StorageLockProvider(LockScope(table_uri.replace("file://", place), self.options))
