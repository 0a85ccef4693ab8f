from __future__ import annotations

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem import FilesystemLockProvider
from lakelatch.testing.lock_provider_conformance import LockProviderConformance


class TestFilesystem(LockProviderConformance):
    def make_provider(self, table_uri: str) -> LockProvider:
        return FilesystemLockProvider(LockScope(table_uri, {}))
