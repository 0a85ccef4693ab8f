"""That Hudi's Java writers and ours exclude each other: Apache Curator, whose lock they take, against our provider."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from java_hudi import JavaProgram

from lakelatch.errors import LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.zookeeper.provider import HudiImplicitZookeeperLockProvider, HudiZookeeperLockProvider
from lakelatch.testing.conformance.in_processes import count_one
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises, until, waiting_for
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.local import program

VERSION = "5.7.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lakelatch", f"curator-{VERSION}")
URL, BASE_PATH = "hoodie.write.lock.zookeeper.url", "hoodie.write.lock.zookeeper.base_path"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.curator</groupId><artifactId>curator-recipes</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""
WRITER = """\
import java.nio.file.*;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;

public class Writer {
    static InterProcessMutex lock;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(arguments[0])
            .retryPolicy(new BoundedExponentialBackoffRetry(100, 1000, 15))
            .sessionTimeoutMs(10000).connectionTimeoutMs(15000).build();
        client.start();
        lock = new InterProcessMutex(client, arguments[1]);
        Scanner orders = new Scanner(System.in);
        say("ready");
        while (orders.hasNextLine()) {
            String[] words = orders.nextLine().split(" ");
            if (words[0].equals("acquire")) say(lock.acquire(Long.parseLong(words[1]), TimeUnit.MILLISECONDS));
            if (words[0].equals("release")) { lock.release(); say("released"); }
            if (words[0].equals("count")) { count(Path.of(words[1]), Integer.parseInt(words[2])); say("counted"); }
        }
        client.close();
    }

    static void count(Path file, int rounds) throws Exception {
        for (int round = 0; round < rounds; round++) {
            lock.acquire();
            int number = Integer.parseInt("0" + Files.readString(file));
            Files.writeString(file, String.valueOf(number + 1));
            lock.release();
        }
    }

    static void say(Object what) { System.out.println(what); }
}
"""


def curator_jars() -> Path:
    """The folder of Curator and what it needs; fetched once, and kept outside of the tree."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE.parent) as name:
            folder = Path(name)
            (folder / "pom.xml").write_text(POM)
            maven = program("mvn", "apt-get install maven; it fetches Apache Curator")
            command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)
            assert done.returncode == 0, done.stdout + done.stderr
            try:
                (folder / "jars").rename(CACHE)  # all of them or none
            except OSError:
                assert CACHE.exists()  # somebody else was faster
    return CACHE


class Writer(JavaProgram):
    """A Java process that holds Curator's lock of one path when it is told to."""

    def __init__(self, folder: Path, server: Server, lock_path: str) -> None:
        super().__init__(folder, "Writer", WRITER, f"{curator_jars()}/*", f"{server.host}:{server.port}", lock_path)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: Server) -> Iterator[Writer]:
    with closing(Writer(tmp_path_factory.mktemp("java"), zookeeper_server, "/hudi/java/trips")) as one:
        yield one


@pytest.fixture
def ours(zookeeper_server: Server) -> Iterator[HudiZookeeperLockProvider]:
    options = {
        URL: f"{zookeeper_server.host}:{zookeeper_server.port}",
        BASE_PATH: "/hudi/java",
        "hoodie.table.name": "trips",
        "lakelatch.lock.lease_s": "3",
    }
    with closing(HudiZookeeperLockProvider(LockScope("s3://bucket/trips", options))) as provider:
        yield provider


def test_a_java_writer_waits_for_ours(writer: Writer, ours: HudiZookeeperLockProvider) -> None:
    lease = ours.acquire(TABLE_KEY, SOON_S)
    assert writer.asked("acquire 300") == "false" and lease.valid()
    writer.tell("acquire 20000")
    until(lambda: ours.holders()[0].waiting == 1)
    assert lease.release()
    assert writer.told() == "true" and writer.asked("release") == "released"


def test_ours_waits_for_a_java_writer(writer: Writer, ours: HudiZookeeperLockProvider) -> None:
    assert writer.asked("acquire 20000") == "true"
    (holder,) = ours.holders()
    assert holder.key == TABLE_KEY and holder.token > 0 and holder.owner
    for timeout_s in (0.0, 0.2):
        assert_raises(LockTimeout, partial(ours.acquire, TABLE_KEY, timeout_s))
    with waiting_for() as start:
        waiter = start(lambda: ours.acquire(TABLE_KEY, SOON_S))
        until(lambda: ours.holders()[0].waiting == 1)
        assert not waiter.done() and writer.asked("release") == "released"
        lease = waiter.result(SOON_S)
    assert lease.token > holder.token and writer.asked("acquire 0") == "false"
    assert lease.release()


def test_no_update_of_either_side_is_lost(writer: Writer, ours: HudiZookeeperLockProvider, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("")
    writer.tell(f"count {number} 100")
    for _ in range(100):
        count_one(ours, TABLE_KEY, number)
    assert writer.told() == "counted"
    assert number.read_text() == "200"


def test_an_implicit_place_is_the_same_for_both(zookeeper_server: Server, tmp_path: Path) -> None:
    options = {URL: f"{zookeeper_server.host}:{zookeeper_server.port}", "lakelatch.lock.lease_s": "3"}
    place = "/tmp/C0E15D0CE1AD11CC/lock_key"  # as a test of Hudi itself has it for this table
    scope = LockScope("s3a://my-bucket/my_lake/my_table", options)
    with (
        closing(Writer(tmp_path, zookeeper_server, place)) as writer,
        closing(HudiImplicitZookeeperLockProvider(scope)) as provider,
    ):
        lease = provider.acquire(TABLE_KEY, SOON_S)
        assert writer.asked("acquire 300") == "false"
        assert lease.release() and writer.asked("acquire 20000") == "true"
        assert writer.asked("release") == "released"
