"""Tables that say where their locks are, and lock services that are asked once whether they are there."""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.calls import savepoint
from lakelatch.engine.distributed_write import begin_write
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.services.verifying import MISSING
from lakelatch.engine.table import manager as module
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.writing import parse_write
from lakelatch.errors import CorruptTable, InvalidRequest, Unavailable
from lakelatch.format.avro import arrow_to_avro
from lakelatch.format.names import NO_TASK
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.storage import LocalStorage
from lakelatch.testing.servers import Server, TcpProxy, open_server
from lakelatch.testing.servers.reach import lock_options
from lakelatch.timeline.log.lock_names import WrongLocks, split_locks
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.properties_update import record_lock_options
from lakelatch.timeline.table_config import TableConfig, load_table_config
from lakelatch.transactions.lock_migration import change_locks, lock_domain, record_locks

PLAIN = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
URL = PREFIX + "redis.url"


@pytest.fixture(autouse=True)
def a_new_process() -> None:
    """As far as anything is remembered."""
    for known in (module._memories, module._lock_options, module._answering, module._logged):
        known.clear()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(open_server("redis", tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture
def proxy(redis: Server) -> Iterator[TcpProxy]:
    with closing(TcpProxy(redis.host, redis.port)) as made:
        yield made


@pytest.fixture
def locks(redis: Server, proxy: TcpProxy) -> dict[str, str]:
    """The options that lead to the server through the proxy."""
    return lock_options(redis, proxy.host, proxy.port)


@pytest.fixture
def nowhere() -> Iterator[dict[str, str]]:
    """Options that lead to a port that nobody listens at."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield {PROVIDER: "redis", URL: f"redis://me:secret@127.0.0.1:{closed.getsockname()[1]}/0"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def upsert(path: str, key: str, **options: object) -> None:
    ArrowTable(path, {**PLAIN, **options}).upsert(pa.table({"id": [key]}))


def keys(path: str) -> list[str]:
    return sorted(lakelatch.open(path).to_arrow()["id"].to_pylist())


def kind_of_locks(path: str) -> str:
    kind, lock_id = split_locks(lock_domain(LocalStorage(path)))
    assert lock_id
    return kind


def test_who_says_nothing_of_locks_takes_those_of_the_table(
    path: str, locks: dict[str, str], a_new_process: None
) -> None:
    upsert(path, "a", **locks)
    assert load_table_config(LocalStorage(path)).locks == locks
    module._lock_options.clear()
    upsert(path, "b")
    upsert(path, "c")
    savepoint(path)  # a service, which takes the table's lock
    assert keys(path) == ["a", "b", "c"] and kind_of_locks(path) == "redis"


def test_what_is_said_goes_before(path: str, locks: dict[str, str], redis: Server) -> None:
    upsert(path, "a", **locks)
    upsert(path, "b", **{URL: f"redis://localhost:{redis.port}/0"})  # without the proxy, and by another name
    with pytest.raises(WrongLocks, match=r"'redis #[0-9a-f]{16}', and this one from 'filesystem #table'"):
        upsert(path, "c", **{PROVIDER: "filesystem"})
    assert keys(path) == ["a", "b"]


def test_a_password_is_not_recorded_and_is_all_that_has_to_be_said(path: str, tmp_path: Path) -> None:
    password = {PREFIX + "redis.password": "hidden"}
    with closing(open_server("redis", tmp_path / "redis")) as server:
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(b"CONFIG SET requirepass hidden\r\n")
            assert connection.recv(100) == b"+OK\r\n"
        upsert(path, "a", **lock_options(server), **password)
        with pytest.raises(InvalidRequest, match="credentials"):
            savepoint(path)
        savepoint(path, options=password)
    assert not [file for file in Path(path).rglob("*") if file.is_file() and b"hidden" in file.read_bytes()]


def test_a_table_that_moves_takes_along_those_who_say_nothing(path: str, locks: dict[str, str]) -> None:
    """Also a process that has seen it before."""
    upsert(path, "a")
    upsert(path, "b")
    storage = LocalStorage(path)
    assert load_table_config(storage).locks == {}
    old, new = (open_lock_provider(LockScope(storage.uri, options)) for options in ({}, locks))
    with closing(old), closing(new):
        change_locks(storage, old, new, "operator", 5)
        with pytest.raises(WrongLocks):
            upsert(path, "lost")
        assert record_locks(storage, new, 5) == locks
    upsert(path, "c")
    assert keys(path) == ["a", "b", "c"] and kind_of_locks(path) == "redis"


PARTED = {"hoodie.datasource.write.partitionpath.field": "part"}
ROW = pa.schema([("id", pa.string())])


def moved(path: str, locks: dict[str, str]) -> None:
    """The table as others move it to other locks."""
    storage = LocalStorage(path)
    old, new = (open_lock_provider(LockScope(storage.uri, options)) for options in ({}, locks))
    with closing(old), closing(new):
        change_locks(storage, old, new, "operator", 5)
        record_locks(storage, new, 5)


def test_a_deletion_of_partitions_looks_again(path: str) -> None:
    ArrowTable(path, {**PLAIN, **PARTED}).upsert(pa.table({"id": ["a", "b"], "part": ["p", "q"]}))
    ArrowTable(path, PARTED).upsert(pa.table({"id": ["c"], "part": ["q"]}))
    moved(path, {PROVIDER: "in_process"})
    lakelatch.delete_partitions(path, "q")
    assert keys(path) == ["a"]


def test_a_write_that_is_handed_over_looks_again(path: str) -> None:
    for key in "ab":
        upsert(path, key)
    moved(path, {PROVIDER: "in_process"})
    begun, task = begin_write(path, *parse_write({}), ROW)
    begun.commit(task.write(iter(pa.table({"id": ["c"]}).to_batches()), NO_TASK))
    assert keys(path) == ["a", "b", "c"]


def test_a_write_that_is_handed_over_asks_for_the_locks_of_a_new_table_alone(
    path: str, locks: dict[str, str], proxy: TcpProxy, nowhere: dict[str, str]
) -> None:
    """Each of its processes is a new one, perhaps one for each small batch."""
    with pytest.raises(Unavailable, match="no table was made"):
        begin_write(path, *parse_write({**PLAIN, **nowhere}), ROW)
    assert not Path(path).exists()
    upsert(path, "a", **locks)
    module._answering.clear()
    accepted = proxy.accepted
    storage = LocalStorage(path)
    begun, _ = begin_write(path, *parse_write({}), ROW)
    assert proxy.accepted == accepted and begun.table.storage == storage
    begun.abort()
    Path(path).rename(f"{path}-away")
    with pytest.raises(Unavailable, match="no table was made"):  # whatever was seen of the one before
        begin_write(path, *parse_write({**PLAIN, **nowhere}), ROW)


def test_a_table_that_is_made_anew_by_others_is_taken_for_what_it_is(path: str, locks: dict[str, str]) -> None:
    upsert(path, "old", **locks)
    upsert(path, "old")
    Path(path).rename(f"{path}-away")
    upsert(path, "new")
    assert load_table_config(LocalStorage(path)).locks == {} and lock_domain(LocalStorage(path)) == "filesystem #table"


def test_other_properties_stay_where_locks_are_recorded(path: str) -> None:
    upsert(path, "a", **{PROVIDER: "in_process"})
    storage = LocalStorage(path)
    before = load_table_config(storage)
    record_lock_options(storage, {PROVIDER: "redis", URL: "redis://h=1:2#3"})
    after = load_table_config(storage)
    assert after.locks == {PROVIDER: "redis", URL: "redis://h=1:2#3"} and after == before
    own = {key: value for key, value in before.raw.items() if "table.lock." not in key}
    assert own == {key: value for key, value in after.raw.items() if "table.lock." not in key}


def test_no_table_is_made_whose_locks_nobody_can_take(path: str, nowhere: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as caught:
        upsert(path, "a", **nowhere)
    text = str(caught.value)
    assert f"({PROVIDER}=redis, {URL}=redis://127.0.0.1:" in text
    assert "no table was made" in text and "secret" not in text
    assert not Path(path).exists()


def test_it_is_asked_again_where_a_table_is_to_be_made(path: str, nowhere: dict[str, str]) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable):
            upsert(path, "a", **nowhere)


def test_a_write_that_needs_no_lock_goes_on_and_is_told_once_that_the_service_is_gone(
    path: str, locks: dict[str, str], proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(path, "a", **locks)
    for known in (module._memories, module._answering):  # as another process
        known.clear()
    proxy.refuse(True)
    with caplog.at_level(logging.WARNING, logger="lakelatch.transactions"):
        for key in "bcd":
            upsert(path, key, **locks)
    (told,) = (message for message in caplog.messages if path in message)  # and the other calls are silent
    assert f"{URL}={locks[URL]}" in told
    assert keys(path) == ["a", "b", "c", "d"]


def test_a_process_asks_a_service_once_for_each_table(path: str, locks: dict[str, str], proxy: TcpProxy) -> None:
    for key in "abc":
        upsert(path, key, **locks)
        assert proxy.accepted == 2
    upsert(f"{path}-other", "a", **locks)
    assert proxy.accepted == 4


def test_the_properties_are_read_once_more_by_a_process_for_its_locks(path: str, locks: dict[str, str]) -> None:
    """A process remembers what it has seen, and each call sees whether it is still so."""
    upsert(path, "a", **locks)
    upsert(path, "b")
    assert module._lock_options == {LocalStorage(path): load_table_config(LocalStorage(path)).lock_options}


def test_a_table_that_moves_before_its_first_write_is_whole(path: str) -> None:
    """What a slot says of locks is about no instant, so there need not be a timeline."""
    storage = LocalStorage(path)
    schema = arrow_to_avro(pa.schema([("id", pa.string())]), "t")
    config = TableConfig("t", ("id",), bucket_count=1, hash_fields=("id",), create_schema=schema)
    storage.put_if_absent(PROPERTIES_PATH, config.to_properties())
    old, new = (open_lock_provider(LockScope(storage.uri, {PROVIDER: name})) for name in ("filesystem", "in_process"))
    with closing(old), closing(new):
        assert change_locks(storage, old, new, "operator", 5) is not None
    assert lakelatch.verify(path).findings == ()
    assert keys(path) == []
    upsert(path, "a", **{PROVIDER: "in_process"})
    assert keys(path) == ["a"] and lock_domain(storage) == new.domain
    shutil.rmtree(Path(path) / ".hoodie/timeline")
    with pytest.raises(CorruptTable, match=r"no files in \.hoodie/timeline"):
        open_table(storage)
    assert [one.path for one in lakelatch.verify(path).findings if one.kind == MISSING] == [".hoodie/timeline"]


def test_what_is_remembered_of_services_is_bounded_and_new_in_a_child(path: str, nowhere: dict[str, str]) -> None:
    upsert(path, "a")
    storage, many = LocalStorage(path), range(module._TABLES_MAX + 3)
    for number in many:
        with open_manager(LocalStorage(f"{path}-{number}"), ManagerOptions.from_options({})):
            pass
        unreachable = {**nowhere, URL: f"{nowhere[URL][:-1]}{number}"}
        with open_manager(storage, ManagerOptions.from_options(unreachable)):
            pass
    assert len(module._answering) == len(module._logged) == module._TABLES_MAX
    child = os.fork()
    if not child:
        os._exit(len(module._answering) + len(module._logged))
    assert os.waitpid(child, 0)[1] == 0
