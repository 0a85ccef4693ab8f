"""What bad days do to each lock service: clients and servers killed, stopped, cut off, wiped; clocks stepped.

Whatever happens, no two clients believe in a lease at once, tokens grow, and afterwards everybody goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lock_clients import KEY, Client, Crowd
from lock_history import HELD, LOST, RELEASED

from lakelatch.locks.contract import Holder, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import LEASE
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import SERVER_OF, lock_options

LEASE_S = 2.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclass
class Scene:
    """One provider, its server, a proxy in front of it, and clients that go through the proxy."""

    provider: str
    server: Server
    proxy: TcpProxy
    crowd: Crowd
    table_uri: str

    @property
    def direct(self) -> dict[str, str]:
        return lock_options(self.server, lease_s=LEASE_S)

    def holders(self) -> list[Holder]:
        provider = open_lock_provider(LockScope(self.table_uri, self.direct))
        try:
            return provider.holders()
        finally:
            provider.close()

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def must_be_well(self) -> None:
        """Everybody goes on, the checker has nothing to say, and nobody holds anything in the end."""
        self.crowd.wait_for_grants()
        self.crowd.finish()
        assert self.crowd.problems() == []
        assert self.holders() == []


_POLLED = ("dynamodb", "storage")  # which nobody wakes, so that it all takes longer
ON_EVERY_SERVICE = pytest.mark.parametrize(
    "scene",
    [pytest.param(name, marks=pytest.mark.long if name in _POLLED else ()) for name in sorted(SERVER_OF)],
    indirect=True,
)


@pytest.fixture(params=[pytest.param(name, marks=() if name == "redis" else pytest.mark.long) for name in SERVER_OF])
def scene(request: pytest.FixtureRequest, tmp_path: Path, proxy_to: Callable[[Server], TcpProxy]) -> Iterator[Scene]:
    server: Server = request.getfixturevalue(f"{SERVER_OF[request.param]}_server")
    proxy = proxy_to(server)
    table_uri = f"file://{tmp_path}/table"
    crowd = Crowd(table_uri, lock_options(server, proxy.host, proxy.port, LEASE_S), tmp_path)
    try:
        yield Scene(request.param, server, proxy, crowd, table_uri)
    finally:
        crowd.close()
        proxy.heal()
        server.resume()
        server.start()


def must_know_that_it_lost(client: Client) -> None:
    """The first thing that it sees is that its lease is lost; its release then frees nothing."""
    assert wait_until(lambda: any(entry.kind == RELEASED for entry in client.entries()), 60)
    woken = [entry for entry in client.entries() if entry.kind in (LOST, RELEASED)][:2]
    assert [entry.kind for entry in woken] == [LOST, RELEASED] and woken[1].result is False


def sleep_leases(count: float) -> None:
    REAL_SYSTEM.sleep(LEASE_S * count)


@ON_EVERY_SERVICE
def test_clients_are_killed_while_they_hold_and_while_they_wait(scene: Scene) -> None:
    holding = scene.crowd.add(hold_s=60)
    scene.crowd.wait_for_grants(1)
    waiting, others = scene.crowd.add(), [scene.crowd.add(), scene.crowd.add()]
    REAL_SYSTEM.sleep(0.5)
    scene.crowd.kill(waiting)
    scene.crowd.kill(holding)
    scene.crowd.wait_for_grants(1, others)
    scene.must_be_well()


def test_a_holder_sleeps_for_longer_than_its_lease(scene: Scene) -> None:
    sleeper = scene.crowd.add(hold_s=30)
    scene.crowd.wait_for_grants(1)
    scene.crowd.add()
    scene.crowd.add()
    REAL_SYSTEM.sleep(0.5)
    sleeper.pause()
    scene.crowd.wait_for_grants(2, scene.crowd.others(sleeper))
    sleeper.resume()
    must_know_that_it_lost(sleeper)
    scene.crowd.kill(sleeper)
    scene.must_be_well()


def test_a_holder_whose_renewal_cannot_run_knows_at_first_look(scene: Scene) -> None:
    holding = scene.crowd.add(hold_s=30)
    scene.crowd.wait_for_grants(1)
    waiting = scene.crowd.add()
    holding.freeze(3.5 * LEASE_S)
    scene.crowd.wait_for_grants(2, [waiting])
    must_know_that_it_lost(holding)
    scene.crowd.kill(holding)
    scene.must_be_well()


@ON_EVERY_SERVICE
def test_the_server_restarts_and_tokens_go_on(scene: Scene) -> None:
    for _ in range(3):
        scene.crowd.add()
    for _ in range(2):
        scene.crowd.wait_for_grants()
        scene.restart()
    scene.must_be_well()


def test_the_server_is_killed_and_gone_for_longer_than_a_lease(scene: Scene) -> None:
    for _ in range(3):
        scene.crowd.add(hold_s=0.3)
    scene.crowd.wait_for_grants()
    scene.server.kill()
    sleep_leases(2)
    now_ns = REAL_SYSTEM.monotonic_ns()
    scene.server.start()
    assert not [e for e in scene.crowd.entries() if e.kind == HELD and now_ns - LEASE_S * 0.5e9 < e.called_ns < now_ns]
    scene.must_be_well()


def test_the_server_is_stopped_with_its_connections_open(scene: Scene) -> None:
    for _ in range(3):
        scene.crowd.add(hold_s=0.3)
    scene.crowd.wait_for_grants()
    scene.server.pause()
    sleep_leases(1.7)
    scene.server.resume()
    scene.must_be_well()


def test_the_connection_is_cut_in_one_direction(scene: Scene) -> None:
    for _ in range(3):
        scene.crowd.add(hold_s=0.2)
    for to_server in (True, False):
        scene.crowd.wait_for_grants()
        scene.proxy.cut(to_server=to_server, to_client=not to_server)
        sleep_leases(1.7)
        scene.proxy.heal()
    scene.must_be_well()


def test_connections_are_reset_and_answers_are_lost(scene: Scene) -> None:
    for _ in range(3):
        scene.crowd.add()
    for turn in range(12):
        REAL_SYSTEM.sleep(0.15)
        scene.proxy.lose_answers(1 + turn % 3)
        if turn % 4 == 3:
            scene.proxy.reset()
    scene.must_be_well()


def test_two_clients_have_different_lease_times(scene: Scene) -> None:
    patient = scene.crowd.add(hold_s=60, options={LEASE: str(3 * LEASE_S)})
    scene.crowd.wait_for_grants(1)
    quick = scene.crowd.add()
    patient.pause()
    started_ns = REAL_SYSTEM.monotonic_ns()
    scene.crowd.wait_for_grants(1, [quick])
    assert REAL_SYSTEM.monotonic_ns() - started_ns > LEASE_S * 1.5e9  # the holder's own time counts
    scene.crowd.kill(patient)
    scene.must_be_well()


def test_clocks_step_by_hours(scene: Scene, tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    assert FAKETIME.exists(), "install the package faketime (.ci/install-servers does)"
    scene.crowd.add(hold_s=0.3, environment=faked)
    scene.crowd.add(hold_s=0.3)
    scene.crowd.add(hold_s=0.3, environment=faked)
    leap = "10m" if scene.provider == "storage" else "3h"  # S3 refuses requests whose clock is off by a quarter hour
    for step in (f"+{leap}", f"-{leap}", "+0"):
        scene.crowd.wait_for_grants()
        offset.write_text(step)
    scene.must_be_well()


def test_the_server_is_wiped(scene: Scene) -> None:
    """Who held a lease finds out by its renewal; tokens may begin anew where the service hands them out."""
    clients = [scene.crowd.add(hold_s=0.3) for _ in range(3)]
    scene.crowd.wait_for_grants()
    scene.server.stop()
    sleep_leases(1.1)
    scene.server.wipe()
    before = {client: len(client.entries()) for client in clients}
    scene.server.start()
    scene.crowd.wait_for_grants()
    scene.crowd.finish()
    assert all(len(client.entries()) > before[client] for client in clients)
    problems = [text for text in scene.crowd.problems() if "both held" in text or "valid again" in text]
    assert problems == []
    if scene.provider not in ("zookeeper", "etcd"):
        assert scene.crowd.problems() == []
    assert scene.holders() == [] and KEY
