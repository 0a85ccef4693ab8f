"""Hudi's own lock providers, in a Java process without Spark, against ours: who waits, and what a dead or paused holder
does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from java_hudi import JavaHudi, JavaProgram

from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.lock_provider import SOON_S, until, waiting_for
from lakelatch.testing.servers import Server

PREFIX = "hoodie.write.lock."
ZOOKEEPER = PREFIX + "zookeeper."
CLASSES = "org.apache.hudi.client.transaction.lock."
SESSION_S = 4
HOLDER = """\
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.client.transaction.lock.*;
import org.apache.hudi.common.config.*;
import org.apache.hudi.common.lock.LockProvider;

public class Holder {
    public static void main(String[] arguments) throws Exception {
        TypedProperties options = new TypedProperties();
        for (int i = 1; i < arguments.length; i += 2) options.setProperty(arguments[i], arguments[i + 1]);
        LockConfiguration configuration = new LockConfiguration(options);
        LockProvider<?> lock = arguments[0].contains("Implicit")
            ? new ZookeeperBasedImplicitBasePathLockProvider(configuration, null)
            : new ZookeeperBasedLockProvider(configuration, null);
        System.out.println("ready");
        for (Scanner orders = new Scanner(System.in); orders.hasNextLine(); ) {
            String[] words = orders.nextLine().split(" ");
            try {
                if (words[0].equals("acquire"))
                    System.out.println(lock.tryLock(Long.parseLong(words[1]), TimeUnit.MILLISECONDS));
                if (words[0].equals("believes")) System.out.println(lock.getLock() != null);
                if (words[0].equals("release")) { lock.unlock(); System.out.println("released"); }
            } catch (Exception error) {
                System.out.println("error " + error.toString().replace("\\n", " "));
            }
        }
    }
}
"""


class Holder(JavaProgram):
    """A Java process with one of Hudi's lock providers, which does what it is told."""

    def __init__(self, java: JavaHudi, folder: Path, name: str, options: Mapping[str, str]) -> None:
        folder.mkdir()
        (jars,) = java.python.parents[1].glob("lib/python3*/site-packages/pyspark/jars")
        words = [word for pair in options.items() for word in pair]
        super().__init__(folder, "Holder", HOLDER, f"{java.jar}:{jars}/*", name, *words)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process_id, number)


@pytest.fixture(params=["ZookeeperBasedLockProvider", "ZookeeperBasedImplicitBasePathLockProvider"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(zookeeper: Server) -> dict[str, str]:
    """The same on both sides."""
    return {
        ZOOKEEPER + "url": f"{zookeeper.host}:{zookeeper.port}",
        ZOOKEEPER + "base_path": "/hudi/java",
        ZOOKEEPER + "lock_key": "trips",
        ZOOKEEPER + "session_timeout_ms": str(SESSION_S * 1000),
        "hoodie.base.path": "s3://bucket/trips",
    }


@pytest.fixture
def hold(java_session: JavaHudi, tmp_path: Path, options: dict[str, str]) -> Iterator[Callable[[str], Holder]]:
    holders: list[Holder] = []

    def start(name: str) -> Holder:
        holders.append(Holder(java_session, tmp_path / f"holder-{len(holders)}", name, options))
        return holders[-1]

    yield start
    for holder in holders:
        holder.close()


@pytest.fixture
def ours(options: dict[str, str]) -> Iterator[Callable[[str], LockProvider]]:
    opened: list[LockProvider] = []

    def open_one(name: str) -> LockProvider:
        unused = (ZOOKEEPER + "base_path", ZOOKEEPER + "lock_key") if "Implicit" in name else ()
        kept = {key: value for key, value in options.items() if key not in unused}
        scope = LockScope("s3://bucket/trips", {**kept, PREFIX + "provider": CLASSES + name})
        opened.append(open_lock_provider(scope))
        return opened[-1]

    yield open_one
    for provider in opened:
        provider.close()


def test_each_side_waits_for_the_other(
    name: str, hold: Callable[[str], Holder], ours: Callable[[str], LockProvider]
) -> None:
    java, provider = hold(name), ours(name)
    lease = provider.acquire(TABLE_KEY, SOON_S)
    assert java.asked("acquire 300") != "true"
    java.tell("acquire 60000")
    until(lambda: provider.holders()[0].waiting == 1)
    assert lease.release() and java.told() == "true"
    with waiting_for() as start:
        waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
        until(lambda: provider.holders()[0].waiting == 1)
        assert not waiter.done() and java.asked("release") == "released"
        assert waiter.result(SOON_S).release()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_the_lock_of_a_java_holder_that_is_dead_or_paused_ends_with_its_session(
    end: signal.Signals, hold: Callable[[str], Holder], ours: Callable[[str], LockProvider]
) -> None:
    """A paused one goes on as if it held the lock: Hudi's provider does not look again. Its release takes nothing."""
    name = "ZookeeperBasedLockProvider"
    java, provider = hold(name), ours(name)
    assert java.asked("acquire 60000") == "true"
    java.signal(end)
    began_ns = REAL_SYSTEM.monotonic_ns()
    with closing(ours(name)), provider.acquire(TABLE_KEY, 60) as lease:
        assert REAL_SYSTEM.monotonic_ns() - began_ns > SESSION_S * 1e9 / 3
        if end == signal.SIGSTOP:
            java.signal(signal.SIGCONT)
            assert java.asked("believes") == "true"
            java.asked("release")
            assert lease.valid() and provider.holders()[0].token == lease.token
            assert java.asked("acquire 300") != "true"
    if end == signal.SIGSTOP:
        assert java.asked("acquire 60000") == "true"
