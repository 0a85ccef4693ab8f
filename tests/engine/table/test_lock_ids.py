"""Writers of one table whose locks are others, although they are of the same kind: refused by name."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.calls import savepoint
from lakelatch.engine.table import manager as module
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import FILESYSTEM_PATH, PREFIX, PROVIDER
from lakelatch.storage import LocalStorage, MemoryStorage, Storage
from lakelatch.testing.servers import Server, open_server
from lakelatch.testing.servers.reach import lock_options
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOCKS, Event
from lakelatch.timeline.log.lock_names import WrongLocks, agree, joined, named_locks, split_locks
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION
from lakelatch.transactions.base.lock_check import LockCheck
from lakelatch.transactions.lock_migration import change_locks, lock_domain

PLAIN = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
URL = PREFIX + "redis.url"


def begin_a_process() -> None:
    """As far as anything is remembered."""
    for known in (module._memories, module._lock_options, module._answering, module._logged):
        known.clear()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server("redis", tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture
def redis(server: Server) -> dict[str, str]:
    begin_a_process()
    forget_all(server)
    return lock_options(server)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def forget_all(server: Server) -> None:
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(100) == b"+OK\r\n"


def upsert(path: str, key: str, **options: object) -> None:
    ArrowTable(path, {**PLAIN, **options}).upsert(pa.table({"id": [key]}))


def database(server: Server, number: int) -> dict[str, str]:
    """Another Redis, as far as clients are concerned."""
    return {URL: f"redis://{server.host}:{server.port}/{number}"}


def opened(uri: str, options: dict[str, str]) -> LockProvider:
    return open_lock_provider(LockScope(uri, options))


def test_a_writer_at_another_service_of_the_same_kind_is_refused_with_both_by_name(
    path: str, redis: dict[str, str], server: Server
) -> None:
    upsert(path, "a", **redis)
    other, locks = database(server, 1), lock_domain(LocalStorage(path))
    with pytest.raises(WrongLocks, match="knows nothing of this table's locks"):
        upsert(path, "b", **other)
    with closing(opened(LocalStorage(path).uri, {**redis, **other})) as provider:
        provider.lock_id("0123456789abcdef")
    begin_a_process()
    with pytest.raises(WrongLocks) as caught:
        upsert(path, "b", **other)
    said = str(caught.value)
    assert f"from {locks!r}, and this one from 'redis #0123456789abcdef'" in said
    assert f"{URL}={other[URL]}, recorded {redis[URL]!r}" in said and "locks migrate" in said
    upsert(path, "b")
    assert len(ArrowTable(path).to_arrow()) == 2 and lock_domain(LocalStorage(path)) == locks


def test_who_asks_no_lock_at_its_beginning_is_refused_when_it_does(
    path: str, redis: dict[str, str], server: Server
) -> None:
    upsert(path, "a", **redis)
    with pytest.raises(WrongLocks, match="knows nothing"):
        savepoint(path, options=database(server, 1))
    savepoint(path)


def test_a_service_at_the_recorded_place_that_has_lost_its_data_gets_its_id_back(
    path: str, redis: dict[str, str], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(path, "a", **redis)
    locks = lock_domain(LocalStorage(path))
    forget_all(server)
    begin_a_process()
    with pytest.raises(WrongLocks, match="its data was lost"):  # by another name, so that it may be another one
        upsert(path, "b", **{URL: f"redis://localhost:{server.port}/0"})
    with caplog.at_level(logging.WARNING, logger="lakelatch.transactions"):
        upsert(path, "b")
    assert "lost its data" in caplog.text and lock_domain(LocalStorage(path)) == locks
    upsert(path, "c", **{URL: f"redis://localhost:{server.port}/0"})


def test_a_process_that_knows_an_id_of_before_looks_again_once_it_was_refused(
    path: str, redis: dict[str, str], server: Server
) -> None:
    upsert(path, "a", **redis)
    storage = LocalStorage(path)
    before = lock_domain(storage)
    forget_all(server)
    with closing(opened(storage.uri, redis)) as old, closing(opened(storage.uri, redis)) as new:
        assert change_locks(storage, old, new, "operator", 5, old_is_gone=True) is not None
    assert lock_domain(storage) != before
    with pytest.raises(WrongLocks):
        upsert(path, "b")
    upsert(path, "b")
    assert len(ArrowTable(path).to_arrow()) == 2


def test_a_place_that_each_machine_has_is_no_proof_for_a_table_that_many_reach(redis: dict[str, str]) -> None:
    storage = MemoryStorage("test_lock_ids")
    add_slot(storage, "redis #0123456789abcdef")
    log = CommitLog(storage, lock_domain="redis")
    with closing(opened(storage.uri, redis)) as provider:
        assert provider.record() == redis
        with pytest.raises(WrongLocks, match="knows nothing"):
            LockCheck(provider, redis).confirm(log)
        assert provider.lock_id() == log.lock_id == ""


def add_slot(storage: Storage, locks: str) -> None:
    """What a log says of its locks."""
    log, event = CommitLog(storage), Event(LOCKS, "locks", "", "operation", "writer", lock_domain=locks)
    assert log.create(event, log.tail(), lambda above: str(int(above or "20250101000000000") + 1), lambda: 2**62)


def test_a_table_of_before_gets_its_id_with_its_next_commit(path: str, redis: dict[str, str], server: Server) -> None:
    upsert(path, "a", **redis)
    storage = LocalStorage(path)
    kind, lock_id = split_locks(lock_domain(storage))
    add_slot(storage, "redis")
    upsert(path, "b")
    assert lock_domain(storage) == named_locks(kind, lock_id)


def test_a_table_that_older_versions_write_names_no_ids(path: str, redis: dict[str, str]) -> None:
    """They would take it for other locks."""
    upsert(path, "a", **{PROVIDER: "in_process"})
    storage = LocalStorage(path)
    update_properties(storage, {LOG_VERSION: None})
    with closing(opened(storage.uri, {PROVIDER: "in_process"})) as old, closing(opened(storage.uri, redis)) as new:
        change_locks(storage, old, new, "operator", 5)
    begin_a_process()
    upsert(path, "b", **redis)
    savepoint(path, options=redis)
    assert lock_domain(storage) == "redis"


def test_each_table_of_a_service_has_an_id_of_its_own(redis: dict[str, str]) -> None:
    with closing(opened("file:///one", redis)) as one, closing(opened("file:///other", redis)) as other:
        assert one.lock_id("1" * 16) == one.lock_id() == "1" * 16
        assert other.lock_id() == "" and other.lock_id("2" * 16) == "2" * 16


def test_folders_of_kernel_locks_are_told_apart(path: str, tmp_path: Path) -> None:
    begin_a_process()
    folders = [{PROVIDER: "filesystem", FILESYSTEM_PATH: str(tmp_path / name)} for name in ("one", "other")]
    upsert(path, "a", **folders[0])
    with pytest.raises(WrongLocks):
        upsert(path, "b", **folders[1])
    assert not (tmp_path / "other" / "+id").exists()
    upsert(f"{path}-own", "a")
    with pytest.raises(WrongLocks, match="'filesystem #table'"):
        upsert(f"{path}-own", "b", **folders[0])


def test_names_agree_unless_they_name_two() -> None:
    one, other, none, another = "redis a #01", "redis a #02", "redis a", "redis #01"
    assert agree(one, one) and agree(one, none) and agree(none, one) and agree("", one) and agree(one, "")
    assert not agree(one, other) and not agree(one, another) and not agree(none, another)
    assert joined("", one) == joined(none, one) == joined(one, none) == joined(one, "") == one
    assert joined(one, other) == one
