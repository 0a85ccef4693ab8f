"""Every finding of the doctor, on a table that shows it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from bare_table import bare_table, expire, manager_of

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.calls import schedule_compaction
from lakelatch.engine.doctor.examination import CHECKS, Examination, examine, examine_storage
from lakelatch.engine.doctor.finding import NOT_CHECKED, Finding, Limits, Patient
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.heartbeat.contract import Beat, HeartbeatSettings, heartbeat_path
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import FILESYSTEM_PATH, PREFIX, PROVIDER
from lakelatch.storage import LocalStorage, MemoryStorage
from lakelatch.storage.conditional_puts import CHECKS_FOLDER
from lakelatch.system import REAL_SYSTEM, RealSystem, own_version, process_name
from lakelatch.testing.servers import Server, open_server
from lakelatch.testing.servers.reach import lock_options
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION
from lakelatch.timeline.table_config import load_table_config

PLAIN = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 4}
IN_PROCESS = {PROVIDER: "in_process"}
URL = PREFIX + "redis.url"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server("redis", tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server("zookeeper", tmp_path_factory.mktemp("zookeeper"))) as server:
        yield server


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with one write."""
    made = str(tmp_path / "table")
    upsert(made, "a")
    return made


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> MemoryStorage:
    storage = MemoryStorage(request.node.name)
    bare_table(storage, log_version=2)
    return storage


def upsert(path: str, *keys: str, **options: object) -> None:
    ArrowTable(path, {**PLAIN, **options}).upsert(pa.table({"id": list(keys)}))


def found(examination: Examination) -> dict[str, Finding]:
    codes = [one.code for one in examination.findings]
    assert len(codes) == len(set(codes)) and all(one.reason and one.mend for one in examination.findings)
    return dict(zip(codes, examination.findings, strict=True))


IN_ONE_PROCESS = [check for check in CHECKS if check[0] != "two processes at one lock"]


def at(path: str, options: dict[str, str] | None = None, limits: Limits | None = None) -> dict[str, Finding]:
    """What is found without a second process, which takes its time to begin."""
    return found(examine_storage(LocalStorage(path), options, limits=limits, checks=IN_ONE_PROCESS))


def test_a_table_in_good_order_has_no_findings_and_is_as_it_was(path: str) -> None:
    examine(path)  # which makes the files of the scratch lock
    before = {file: file.stat().st_mtime_ns for file in Path(path).rglob("*") if file.is_file()}
    told: list[str] = []
    assert examine(path, tell=told.append) == Examination((), tuple(name for name, _, _ in CHECKS))
    assert told == [name for name, _, _ in CHECKS]
    after = {file: file.stat().st_mtime_ns for file in Path(path).rglob("*") if file.is_file()}
    touched = {str(file.relative_to(path)) for file in after if after[file] != before.get(file)}
    assert after.keys() == before.keys() and all(
        "doctor" in name or name == ".hoodie/.lakelatch/now" for name in touched
    )


class ForgetfulStorage(MemoryStorage):
    """Takes each put for the first one."""

    def put_if_absent(self, path: str, data: bytes, ends_with_its_writer: bool = False) -> bool:
        self.put(path, data)
        return True


def test_a_storage_that_takes_a_second_put() -> None:
    storage = bare_table(ForgetfulStorage("test_doctor"), log_version=2)
    assert (
        "two writers can both win"
        in found(examine_storage(storage, IN_PROCESS, checks=IN_ONE_PROCESS))["second-put"].reason
    )
    assert list(storage.list(CHECKS_FOLDER).files) == []


def test_a_lock_service_that_is_not_there(path: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://me:secret@127.0.0.1:{closed.getsockname()[1]}/0"
        examination = examine(path, {PROVIDER: "redis", URL: url})
    finding = found(examination)["locks-unreachable"]
    assert URL in finding.fact and "secret" not in finding.fact
    assert set(found(examination)) == {"locks-unreachable"} and "two processes at one lock" not in examination.checked


def test_locks_of_threads_let_a_second_process_in(memory: MemoryStorage) -> None:
    assert set(found(examine_storage(memory, IN_PROCESS))) == {"no-exclusion", "locks-not-recorded"}


def test_real_locks_keep_a_second_process_out_and_are_told_apart(tmp_path: Path, redis: Server) -> None:
    path, options = str(tmp_path / "table"), lock_options(redis)
    upsert(path, "a", **options)
    assert found(examine(path, options)) == {} == at(path)
    other = at(path, {URL: options[URL].replace("/0", "/3")})
    assert set(other) == {"other-locks"} and f"{URL}=" in other["other-locks"].fact
    assert set(found(examine(path, IN_PROCESS))) == {"other-locks", "no-exclusion"}


def test_who_waits_for_the_lock_of_a_table_is_counted(tmp_path: Path, redis: Server) -> None:
    path, options = str(tmp_path / "table"), lock_options(redis)
    upsert(path, "a", **options)
    with ExitStack() as opened:
        provider = opened.enter_context(closing(open_lock_provider(LockScope(LocalStorage(path).uri, options))))
        lease = opened.enter_context(provider.acquire(TABLE_KEY, 5))

        def wait() -> None:
            provider.acquire(TABLE_KEY, 30).release()

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        while sum(one.waiting or 0 for one in provider.holders(TABLE_KEY)) < 3:
            REAL_SYSTEM.sleep(0.01)
        fact = at(path)["crowded-lock"].fact
        assert lease.owner in fact and fact.endswith(f": {', '.join([process_name()] * 3)}")
        lease.release()
        for thread in threads:
            thread.join()


class DistantStorage(MemoryStorage):
    @property
    def uri(self) -> str:
        return "s3://bucket/table"


def test_locks_of_one_machine_for_a_table_that_others_reach(tmp_path: Path) -> None:
    storage = bare_table(DistantStorage("test_doctor_distant"), log_version=2)
    options = {PROVIDER: "filesystem", FILESYSTEM_PATH: str(tmp_path)}
    assert "locks-of-one-machine" in found(examine_storage(storage, options, checks=IN_ONE_PROCESS))


class Ahead(RealSystem):
    """A machine whose wall clock is wrong."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms = by_ms

    def realtime_ms(self) -> int:
        return super().realtime_ms() + self._by_ms


def test_a_machine_whose_clock_is_ahead_or_behind(path: str) -> None:
    storage = LocalStorage(path)
    ahead = found(examine_storage(storage, system=Ahead(300_000), checks=IN_ONE_PROCESS))
    assert set(ahead) == {"clock-skew"} and "300.0 s ahead of the storage's" in ahead["clock-skew"].fact
    behind = found(examine_storage(storage, system=Ahead(-300_000), checks=IN_ONE_PROCESS))
    assert set(behind) == {"clock-skew", "times-ahead"} and "behind" in behind["clock-skew"].fact


def test_a_lock_service_whose_clock_is_another(tmp_path: Path, redis: Server) -> None:
    path = str(tmp_path / "table")
    upsert(path, "a", **lock_options(redis))
    facts = [
        one.fact for one in examine_storage(LocalStorage(path), system=Ahead(300_000), checks=IN_ONE_PROCESS).findings
    ]
    assert len(facts) == 2 and "ahead of the storage's" in facts[0] and "ahead of the lock service's" in facts[1]


def test_writers_that_died_are_late_or_beat_differently(path: str) -> None:
    storage = LocalStorage(path)
    patient, hasty = HeartbeatSettings(60_000, 2), HeartbeatSettings(1000, 60)
    died = manager_of(storage, heartbeat=patient, writer="the dead one").begin()
    expire(storage, died.instant)
    assert "the dead one" in at(path)["dead-writers"].fact
    late = manager_of(storage, heartbeat=patient, writer="the late one").begin()
    stamp = os.stat(os.path.join(path, heartbeat_path(late.instant))).st_mtime - 95
    os.utime(os.path.join(path, heartbeat_path(late.instant)), (stamp, stamp))
    other = manager_of(storage, heartbeat=hasty).begin()
    examined = at(path)
    assert set(examined) == {"dead-writers", "late-heartbeat", "heartbeats-differ"}
    assert "the late one" in examined["late-heartbeat"].fact
    for one in (late, other):
        one.abort()


def test_live_writers_of_another_version(path: str) -> None:
    begun = manager_of(LocalStorage(path), writer="the old one").begin()
    assert at(path) == {}
    file = Path(path, heartbeat_path(begun.instant))
    beat = Beat.from_bytes(file.read_bytes())
    assert beat is not None and beat.version == own_version()
    file.write_bytes(replace(beat, version="0.9").to_bytes(1))
    assert "0.9" in at(path)["versions-differ"].fact and "the old one" in at(path)["versions-differ"].fact
    begun.abort()


def test_a_heartbeat_that_ends_before_the_lease(tmp_path: Path, redis: Server) -> None:
    path = str(tmp_path / "table")
    upsert(path, "a", **lock_options(redis, lease_s=5))
    beats = {"hoodie.client.heartbeat.interval_in_ms": "1000", "lakelatch.lock.lease_s": "5"}
    assert set(at(path, beats)) == {"short-heartbeat"}
    assert at(path, {**beats, "hoodie.client.heartbeat.tolerable.misses": "5"}) == {}


def test_writes_of_another_engine_between_ours(path: str) -> None:
    storage, instant = LocalStorage(path), to_instant(REAL_SYSTEM.realtime_ms())
    storage.put(requested(instant, "deltacommit").path, b"")
    storage.put(inflight(instant, "deltacommit").path, b"")
    assert at(path) == {}
    later = to_instant(REAL_SYSTEM.realtime_ms() + 1)
    storage.put(completed(instant, "deltacommit", later).path, CommitMetadata((), "UPSERT", {}).to_avro())
    assert instant in at(path)["other-engines"].fact


def test_a_lock_key_that_java_writers_may_not_have(path: str, zookeeper: Server) -> None:
    storage, instant = LocalStorage(path), to_instant(REAL_SYSTEM.realtime_ms())
    later = to_instant(REAL_SYSTEM.realtime_ms() + 1)
    for one in (requested(instant, "deltacommit"), inflight(instant, "deltacommit")):
        storage.put(one.path, b"")
    storage.put(completed(instant, "deltacommit", later).path, CommitMetadata((), "UPSERT", {}).to_avro())
    hudi = {
        PROVIDER: "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        PREFIX + "zookeeper.url": f"{zookeeper.host}:{zookeeper.port}",
        PREFIX + "zookeeper.base_path": "/doctor",
    }
    key = PREFIX + "zookeeper.lock_key"
    name = load_table_config(storage).name
    checks = [check for check in CHECKS if check[0] == "writes of other engines"]
    findings = [
        found(examine_storage(storage, {**hudi, key: given}, checks=checks)) for given in (name, f"{name}-nightly")
    ]
    assert findings[0] == {} and f"{key}={name}-nightly" in findings[1]["java-lock-key"].fact


def test_properties_with_which_nothing_is_written(path: str) -> None:
    local = bare_table(MemoryStorage("test_doctor_times"), log_version=2, timezone="LOCAL")
    assert set(found(examine_storage(local, IN_PROCESS, checks=CHECKS[:1]))) == {"read-only"}
    update_properties(LocalStorage(path), {"hoodie.table.metadata.partitions": "files"})
    assert set(at(path)) == {"metadata-table"}
    update_properties(LocalStorage(path), {"hoodie.table.metadata.partitions": None, LOG_VERSION: None})
    assert set(at(path)) == {"old-log"}


def test_what_is_due_and_what_waits(path: str) -> None:
    assert "compaction" in at(path, {"hoodie.compact.inline.max.delta.commits": "1"})["services-due"].fact
    instant = schedule_compaction(path)
    assert instant is not None and at(path) == {}
    assert instant in at(path, limits=Limits(plan_age_s=-60))["plans-waiting"].mend


def test_a_log_that_an_open_transaction_keeps(path: str) -> None:
    begun = manager_of(LocalStorage(path), writer="the first one").begin()
    for key in "bcd":
        upsert(path, key)
    assert "the first one" in at(path, limits=Limits(slots=2))["long-log"].fact
    assert at(path, limits=Limits(slots=4)) == {}
    begun.abort()


def test_files_that_are_missing_or_belong_to_nothing(path: str) -> None:
    log = next(file for file in Path(path).iterdir() if ".log." in file.name)
    orphan = log.with_name(log.name.replace(".log.1", ".log.2"))
    orphan.write_bytes(bytes(2 * 1024 * 1024))
    assert "1 files with 2.0 MiB" in at(path)["orphans"].fact
    orphan.unlink()
    log.unlink()
    assert log.name in at(path)["not-whole"].fact


def test_logs_that_outweigh_base_files_and_a_bucket_that_outweighs_others(path: str) -> None:
    assert set(at(path, limits=Limits(log_bytes=0))) == {"heavy-logs"}
    assert set(at(path, limits=Limits(bucket_bytes=1))) == {"skewed-buckets"}
    upsert(path, *map(str, range(100)))
    assert at(path, limits=Limits(bucket_bytes=1)) == {}


class SlowStorage(MemoryStorage):
    """Gives no answer about the log's folder before it is told to."""

    answers = threading.Event()

    def names(self, folder: str) -> Sequence[str]:
        if folder == LOG_FOLDER:
            self.answers.wait()
        return super().names(folder)


class FailingStorage(MemoryStorage):
    def names(self, folder: str) -> Sequence[str]:
        if folder == LOG_FOLDER:
            raise Unavailable("the storage is away")
        return super().names(folder)


@pytest.mark.parametrize(
    ("kind", "said"), [(SlowStorage, "no answer within 0.2 s"), (FailingStorage, "the storage is away")]
)
def test_what_cannot_be_looked_at_is_told_and_holds_up_nothing(kind: type[MemoryStorage], said: str) -> None:
    storage = bare_table(kind(f"test_doctor_{kind.__name__}"), log_version=2)
    examination = examine_storage(storage, IN_PROCESS, timeout_s=0.2, checks=IN_ONE_PROCESS)
    SlowStorage.answers.set()
    unable = examination.unable
    assert {one.code for one in unable} == {NOT_CHECKED} and any(said in one.fact for one in unable)
    assert all("--timeout" in one.mend for one in unable)
    assert any(one.fact.startswith("the commit log:") for one in unable)
    assert "a second conditional put" in examination.checked and "the commit log" not in examination.checked


def test_the_second_process_has_as_much_longer_as_the_checks_have(memory: MemoryStorage) -> None:
    bounds = list[float]()

    def note(patient: Patient) -> Iterator[Finding]:
        bounds.append(patient.child_s)
        return iter(())

    for timeout_s in (10, 600):
        examine_storage(memory, IN_PROCESS, timeout_s=timeout_s, checks=[("its bound", note, False)])
    # It ends before its check is given up, and holds the scratch lock no longer.
    assert bounds[0] < 10 and 400 < bounds[1] < 600


def test_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no table"):
        examine(str(tmp_path / "nothing"))
