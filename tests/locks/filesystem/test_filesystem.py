from __future__ import annotations

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.testing.conformance.lock_provider import LockProviderConformance


class TestFilesystem(LockProviderConformance):
    def make_provider(self, table_uri: str) -> LockProvider:
        return FilesystemLockProvider(LockScope(table_uri, {}))
