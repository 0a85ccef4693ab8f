"""Times that strictly increase, on the register of each lock service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from bare_table import manager_of

from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.storage import MemoryStorage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.time_generator import TimeGeneratorConformance
from lakelatch.testing.servers import Server, open_server
from lakelatch.testing.servers.reach import SERVER_OF, lock_options
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.instant_time import to_ms


class OnServer(TimeGeneratorConformance):
    """`make_generator` opens a provider of the server's."""

    provider: ClassVar[str]
    rounding_ms = 0

    @pytest.fixture(autouse=True)
    def _use_server(self, request: pytest.FixtureRequest) -> None:
        server: Server = request.getfixturevalue(f"{SERVER_OF[self.provider]}_server")
        self.options = lock_options(server)

    def test_a_service_that_tells_its_clock_has_this_machines(self) -> None:
        """As they run here."""
        with closing(open_lock_provider(LockScope("memory://clock", self.options))) as provider:
            before_ms = REAL_SYSTEM.realtime_ms()
            told_ms = provider.time_ms()
            after_ms = REAL_SYSTEM.realtime_ms()
        assert (told_ms is not None) == (self.provider != "etcd")
        assert told_ms is None or before_ms - self.rounding_ms - 1 <= told_ms <= after_ms + 1

    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        return HybridTimeGenerator(open_lock_provider(LockScope(table_uri, self.options, system)), system)


class TestRedis(OnServer):
    provider = "redis"


class TestZookeeper(OnServer):
    provider = "zookeeper"


class TestEtcd(OnServer):
    provider = "etcd"


class TestDynamodb(OnServer):
    provider = "dynamodb"
    rounding_ms = 1000


class TestStorage(OnServer):
    provider = "storage"
    rounding_ms = 1000


@pytest.fixture(params=sorted(SERVER_OF))
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server = open_server(SERVER_OF[request.param], tmp_path / "server")
    try:
        yield server
    finally:
        server.close()


def test_a_wiped_service_takes_the_floor_from_the_table(own_server: Server, tmp_path: Path) -> None:
    """Its memory is lost while every clock is an hour behind the table's times."""
    storage = MemoryStorage(str(tmp_path), REAL_SYSTEM)
    options = lock_options(own_server, lease_s=2)

    def commit(system: System) -> str:
        provider = open_lock_provider(LockScope(storage.uri, options, system))
        manager = manager_of(storage, provider, system)
        try:
            return manager.begin().instant
        finally:
            provider.close()

    ahead = ManualSystem(realtime_ms=REAL_SYSTEM.realtime_ms() + 300_000)
    first = commit(ahead)
    own_server.stop()
    own_server.wipe()
    own_server.start()
    behind = ManualSystem(realtime_ms=to_ms(first) - 3_600_000)
    second = commit(behind)
    assert second > first
