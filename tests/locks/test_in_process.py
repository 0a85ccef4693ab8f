from __future__ import annotations

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.options import IN_PROCESS_LEASE
from lakelatch.testing.conformance.lock_provider import LockProviderConformance


class TestInProcess(LockProviderConformance):
    across_processes = False
    first_come_first_served = True
    names_waiters = True

    def make_provider(self, table_uri: str) -> LockProvider:
        return InProcessLockProvider(LockScope(table_uri, {}))


class TestInProcessWithLeaseTime(LockProviderConformance):
    across_processes = False
    first_come_first_served = True
    names_waiters = True

    def make_provider(self, table_uri: str) -> LockProvider:
        return InProcessLockProvider(LockScope(table_uri, {IN_PROCESS_LEASE: "5"}))
