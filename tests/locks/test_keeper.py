"""Keepers: what a process that renews for another one does when either is busy, stopped, killed, or robbed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakelatch.errors import InvalidRequest, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope
from lakelatch.locks.keeper import KeeperMemory
from lakelatch.locks.options import KEEPER, PROVIDER, LockOptions
from lakelatch.locks.redis import RedisLockProvider
from lakelatch.locks.registry import open_lock_provider
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.in_processes import in_fork
from lakelatch.testing.lock_clients import Client, Crowd
from lakelatch.testing.lock_history import HELD, LOST, RELEASED
from lakelatch.testing.lock_provider_conformance import LockProviderConformance
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import lock_options
from lakelatch.testing.servers.redis import LocalRedis

LEASE_S = 2.0
FROZEN_S = 3.2 * LEASE_S
FOREVER_S = 600.0  # a lease time that no test waits for
SECRET = "swordfish-of-the-deep"


class TestKeptRedis(LockProviderConformance):
    first_come_first_served = True

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: Server) -> None:
        self.options = {**lock_options(redis_server, lease_s=3), KEEPER: "true"}

    def make_provider(self, table_uri: str) -> LockProvider:
        return RedisLockProvider(LockScope(table_uri, self.options))


@dataclass
class Scene:
    """A server, a table, and clients of it."""

    server: Server
    crowd: Crowd
    table_uri: str

    def add_kept(self, lease_s: float = LEASE_S) -> Client:
        """A client that has the lock, for long, and a keeper."""
        client = self.crowd.add(200, lakelatch__lock__keeper="true", lakelatch__lock__lease_s=str(lease_s))
        self.crowd.wait_for_grants(1, [client])
        assert len(keepers_of(client.process_id)) == 1
        return client

    def provider(self, lease_s: float = LEASE_S, kept: bool = False) -> LockProvider:
        options = {**lock_options(self.server, lease_s=lease_s), KEEPER: str(kept)}
        return open_lock_provider(LockScope(self.table_uri, options))

    def must_be_well(self, client: Client) -> None:
        """The killed client's lock is free, its keepers are gone, and the judge has nothing to say."""
        keepers = keepers_of(client.process_id)
        self.crowd.kill(client)
        assert wait_until(lambda: not any(map(runs, keepers)), 60)
        self.crowd.wait_for_grants(2)
        self.crowd.finish()
        assert self.crowd.problems() == []
        with closing(self.provider()) as provider:
            assert wait_until(lambda: provider.holders() == [], 60)


@pytest.fixture(params=["redis", "etcd"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    crowd = Crowd(f"file://{tmp_path}", lock_options(server, lease_s=LEASE_S), tmp_path)
    try:
        yield Scene(server, crowd, f"file://{tmp_path}")
    finally:
        crowd.close()
        server.resume()


def runs(process_id: int) -> bool:
    return stat_of(process_id)[0] not in ("", "Z")  # a zombie is dead, whoever forgot to bury it


def about(process_id: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process_id}/{name}").read_text()
    return ""


def stat_of(process_id: int) -> list[str]:
    return about(process_id, "stat").rpartition(")")[2].split() or ["", ""]


def command_of(process_id: int) -> list[str]:
    return about(process_id, "cmdline").split("\0")


def keepers_of(process_id: int) -> list[int]:
    found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    children = [each for each in found if stat_of(each)[1] == str(process_id) and runs(each)]
    return [each for each in children if "lakelatch.locks.keeper_process" in command_of(each)]


def pipes_of(*process_ids: int) -> set[str]:
    files = [file for each in process_ids for file in Path(f"/proc/{each}/fd").glob("*") if file.is_symlink()]
    return {os.readlink(file) for file in files if os.readlink(file).startswith("pipe:")}


def stop_between_renewals(keeper: int, renewing: bool = False) -> None:
    """Stops a keeper that is in the midst of a renewal, or surely is not."""
    descriptor = os.open(f"/proc/{keeper}/fd/{command_of(keeper)[4]}", os.O_RDWR)
    memory = KeeperMemory(descriptor)
    os.close(descriptor)

    def stopped_well() -> bool:
        os.kill(keeper, signal.SIGSTOP)
        assert wait_until(lambda: stat_of(keeper)[0] == "T", 10)
        if memory.renewing is not renewing:
            os.kill(keeper, signal.SIGCONT)
        return memory.renewing is renewing

    assert wait_until(stopped_well, 30)


def first_look_after_a_freeze(client: Client) -> str:
    """What the client saw first after it could not run for some lease times."""
    client.freeze(FROZEN_S)
    assert wait_until(lambda: looks_after_pauses(client) != [], 60)
    return looks_after_pauses(client)[0]


def looks_after_pauses(client: Client) -> list[str]:
    looks = [entry for entry in client.entries() if entry.kind in (HELD, LOST)]
    return [after.kind for before, after in pairwise(looks) if after.called_ns - before.at_ns > FROZEN_S * 0.9e9]


def must_go_on(client: Client, for_s: float) -> None:
    REAL_SYSTEM.sleep(for_s)
    last = client.entries()[-1]
    assert last.kind == HELD and REAL_SYSTEM.monotonic_ns() - last.at_ns < 30e9
    assert not any(entry.kind == LOST for entry in client.entries())


def must_know_that_it_lost(client: Client) -> None:
    assert wait_until(lambda: any(entry.kind == RELEASED for entry in client.entries()), 60)
    woken = [entry for entry in client.entries() if entry.kind in (LOST, RELEASED)][:2]
    assert [entry.kind for entry in woken] == [LOST, RELEASED] and woken[1].result is False


HOLDS = """
import ctypes, json, os, sys, time
from lakelatch.locks.contract import LockScope
from lakelatch.locks.registry import open_lock_provider
sys.setswitchinterval(1000)  # so that no thread of the keeper gets in before the first look
provider = open_lock_provider(LockScope(sys.argv[1], json.loads(sys.argv[2])))
lease, other = provider.acquire("table", 20), provider.acquire("other", 20)
"""
CALLS_INTO_C = """
print("calls", flush=True)
ctypes.PyDLL(None).usleep(9_000_000)
print(provider.scope.system.monotonic_ns(), lease.valid(), other.valid(), flush=True)
time.sleep(600)
"""
FORKS_IN_C = """
child = ctypes.PyDLL(None).fork()  # without Python's hooks
if child:
    print(child, flush=True)
time.sleep(600)
"""
CLOSES_PIPES = """
print(os.getpid(), flush=True)
sys.stdin.readline()
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2 and os.path.exists("/proc/self/fd/" + name) and "pipe:" in os.readlink("/proc/self/fd/" + name):
        os.close(int(name))
ctypes.PyDLL(None).usleep(3_000_000)
print(lease.valid(), flush=True)
print(provider.acquire("table", 60).valid(), flush=True)
"""


@contextmanager
def script(scene: Scene, text: str, lease_s: float = FOREVER_S) -> Iterator[Any]:
    """A process that holds two keys and then runs this, and what gives its next line of output."""
    options = json.dumps(dict(scene.provider(lease_s, kept=True).scope.options))
    command = [sys.executable, "-c", HOLDS + text, scene.table_uri, options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline  # type: ignore[union-attr]
        finally:
            process.kill()


def test_a_lease_is_valid_at_the_first_look_after_a_call_into_c(scene: Scene) -> None:
    holding = scene.add_kept()
    waiting = scene.crowd.add()
    assert first_look_after_a_freeze(holding) == HELD
    must_go_on(holding, LEASE_S)
    assert waiting.grants() == 0
    scene.must_be_well(holding)


def test_a_key_that_was_broken_meanwhile_is_lost_at_the_first_look(scene: Scene) -> None:
    """Its session ends then, as nobody there could say that it was given up; its other keys are free as well."""
    with script(scene, CALLS_INTO_C, LEASE_S) as (_, read), closing(scene.provider()) as provider:
        assert read() == "calls\n"
        REAL_SYSTEM.sleep(0.5)
        assert provider.break_(TABLE_KEY)
        assert provider.acquire(TABLE_KEY, 60).valid() and provider.acquire("other", 60).valid()
        granted_ns = REAL_SYSTEM.monotonic_ns()
        looked_ns, *looks = read().split()
        assert granted_ns < int(looked_ns)  # or nothing was tried
        assert looks == ["False", "False"]


def test_a_key_that_is_broken_costs_the_other_leases_nothing(scene: Scene) -> None:
    with closing(scene.provider(kept=True)) as provider, closing(scene.provider()) as operator:
        wanted, other = provider.acquire("wanted", 10), provider.acquire("other", 10)
        assert operator.break_("wanted")
        assert not wanted.valid() and wanted.lost.is_set() and not wanted.release()
        REAL_SYSTEM.sleep(2 * LEASE_S)
        assert other.valid() and [holder.key for holder in operator.holders()] == ["other"]
        assert provider.break_("other") and not other.valid()


def test_nothing_is_renewed_for_a_stopped_process(scene: Scene) -> None:
    sleeper = scene.add_kept()
    waiting = scene.crowd.add()
    REAL_SYSTEM.sleep(0.5)
    sleeper.pause()
    scene.crowd.wait_for_grants(2, [waiting])
    sleeper.resume()
    must_know_that_it_lost(sleeper)
    scene.must_be_well(sleeper)


def test_a_killed_process_frees_its_locks_without_waiting_for_its_lease_time(scene: Scene) -> None:
    holding = scene.add_kept(lease_s=FOREVER_S)
    waiting = scene.crowd.add()
    REAL_SYSTEM.sleep(0.5)
    assert waiting.grants() == 0
    scene.must_be_well(holding)


def test_a_forked_child_does_not_keep_the_keeper_alive(scene: Scene) -> None:
    with script(scene, FORKS_IN_C) as (process, read), closing(scene.provider()) as provider:
        child, (keeper,) = int(read()), keepers_of(process.pid)
        try:
            with pytest.raises(LockTimeout):
                provider.acquire(TABLE_KEY, 0)
            process.kill()
            assert provider.acquire(TABLE_KEY, 60).release()
            assert runs(child) and wait_until(lambda: not runs(keeper), 60)
        finally:
            os.kill(child, signal.SIGKILL)


def test_who_cannot_be_told_anything_any_more_does_not_believe_either(scene: Scene) -> None:
    """A process that closes what it has open, as daemons do."""
    with script(scene, CLOSES_PIPES) as (process, read):
        assert int(read()) == process.pid and len(keepers_of(process.pid)) == 1
        process.stdin.write("\n")
        process.stdin.flush()
        assert [read(), read()] == ["False\n", "True\n"]


def test_a_forked_child_has_a_keeper_of_its_own(scene: Scene) -> None:
    with closing(scene.provider(kept=True)) as provider:
        lease = provider.acquire(TABLE_KEY, 20)
        pipes = pipes_of(*keepers_of(os.getpid()))

        def check() -> None:
            assert pipes and not pipes & pipes_of(os.getpid())
            assert not lease.valid() and keepers_of(os.getpid()) == []
            assert provider.acquire("other", 20).valid() and len(keepers_of(os.getpid())) == 1

        assert in_fork(check)
        REAL_SYSTEM.sleep(LEASE_S)
        assert lease.valid() and lease.release()
        assert wait_until(lambda: provider.holders() == [], 60)


def test_a_killed_keeper_is_replaced(scene: Scene) -> None:
    holding = scene.add_kept()
    waiting = scene.crowd.add()
    (keeper,) = keepers_of(holding.process_id)
    stop_between_renewals(keeper)
    os.kill(keeper, signal.SIGKILL)
    must_go_on(holding, 2 * LEASE_S)
    assert wait_until(lambda: keepers_of(holding.process_id) not in ([], [keeper]), 60)
    REAL_SYSTEM.sleep(LEASE_S)
    assert first_look_after_a_freeze(holding) == HELD and waiting.grants() == 0
    scene.must_be_well(holding)


def test_a_stuck_keeper_is_replaced(scene: Scene) -> None:
    holding = scene.add_kept(lease_s=2 * LEASE_S)
    (keeper,) = keepers_of(holding.process_id)
    stop_between_renewals(keeper)
    must_go_on(holding, 4 * LEASE_S)
    assert not runs(keeper) and wait_until(lambda: len(keepers_of(holding.process_id)) == 1, 60)
    scene.must_be_well(holding)


def test_a_keeper_that_dies_in_the_midst_of_a_renewal_is_not_trusted(scene: Scene) -> None:
    """It may have been told of a wish that nobody hears of now."""
    holding = scene.add_kept(lease_s=4 * LEASE_S)
    (keeper,) = keepers_of(holding.process_id)
    scene.server.pause()
    stop_between_renewals(keeper, renewing=True)
    os.kill(keeper, signal.SIGKILL)
    scene.server.resume()
    must_know_that_it_lost(holding)
    scene.must_be_well(holding)


def test_the_server_is_gone_for_longer_than_a_lease(scene: Scene) -> None:
    holding = scene.add_kept()
    granted = holding.grants()
    scene.server.pause()
    REAL_SYSTEM.sleep(2 * LEASE_S)
    resumed_ns = REAL_SYSTEM.monotonic_ns()
    scene.server.resume()
    must_know_that_it_lost(holding)
    assert next(entry for entry in holding.entries() if entry.kind == LOST).called_ns < resumed_ns
    assert wait_until(lambda: holding.grants() > granted, 90)
    assert len(keepers_of(holding.process_id)) == 1
    scene.must_be_well(holding)


def test_signals_for_the_kept_process_do_not_end_the_keeper(scene: Scene) -> None:
    holding = scene.add_kept()
    (keeper,) = keepers_of(holding.process_id)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper, number)
    must_go_on(holding, LEASE_S)
    assert keepers_of(holding.process_id) == [keeper] and os.getsid(keeper) != os.getsid(holding.process_id)
    scene.must_be_well(holding)


def test_it_ends_with_its_session(scene: Scene) -> None:
    with closing(scene.provider(kept=True)) as provider:
        provider.acquire(TABLE_KEY, 20).release()
        keepers = keepers_of(os.getpid())
    assert keepers and wait_until(lambda: not any(Path(f"/proc/{keeper}").exists() for keeper in keepers), 60)


def test_no_secret_is_where_others_may_look(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = LocalRedis(tmp_path / "server", ["--requirepass", SECRET])
    server.start()
    try:
        options = {**lock_options(server, lease_s=LEASE_S), KEEPER: "true"}
        options["hoodie.write.lock.redis.password"] = SECRET
        provider = open_lock_provider(LockScope(f"file://{tmp_path}", options))
        with caplog.at_level(logging.DEBUG), closing(provider), provider.acquire(TABLE_KEY, 20) as lease:
            keepers = keepers_of(os.getpid())
            REAL_SYSTEM.sleep(2 * LEASE_S)
            assert lease.valid() and keepers
            for keeper in keepers:
                assert SECRET not in " ".join(command_of(keeper))
                environment = about(keeper, "environ").strip("\0").split("\0")
                assert SECRET not in " ".join(environment) and len(environment) > 1
                assert {word.partition("=")[0] for word in environment} <= {*os.environ, "PYTHONPATH"}
        assert SECRET not in caplog.text and SECRET not in repr(vars(provider))
    finally:
        server.close()


def test_without_a_keeper_that_comes_up_the_process_renews_by_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with closing(scene.provider(lease_s=2.5, kept=True)) as provider:
        lease = provider.acquire(TABLE_KEY, 20)
        REAL_SYSTEM.sleep(2 * LEASE_S)
        assert lease.valid() and lease.release()
        assert "the keeper does not stay up" in caplog.text


def test_options_that_cannot_be_right_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"{KEEPER}='yes' is not supported: use true or false"):
        LockOptions.from_options({KEEPER: "yes"})
    options = {PROVIDER: "zookeeper", "hoodie.write.lock.zookeeper.url": "127.0.0.1:1", KEEPER: "true"}
    provider = open_lock_provider(LockScope(f"file://{tmp_path}", options))
    with closing(provider), pytest.raises(InvalidRequest, match=f"{KEEPER}=true.*redis or etcd"):
        provider.acquire(TABLE_KEY, 0)
