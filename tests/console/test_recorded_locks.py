"""Commands on tables of several lock providers, which say themselves where their locks are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.console.main import main
from lakelatch.engine.arrow import ArrowTable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.storage import LocalStorage
from lakelatch.testing.servers import Server, open_server
from lakelatch.testing.servers.reach import lock_options
from lakelatch.timeline.log.lock_names import split_locks
from lakelatch.timeline.properties_update import record_lock_options
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.lock_migration import lock_domain

PLAIN = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
Run = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with (
        closing(open_server("redis", tmp_path_factory.mktemp("redis"))) as redis,
        closing(open_server("etcd", tmp_path_factory.mktemp("etcd"))) as etcd,
    ):
        yield {"redis": redis, "etcd": etcd}


@pytest.fixture
def tables(servers: dict[str, Server], tmp_path: Path) -> dict[str, str]:
    """The path of a table for each provider."""
    paths = {name: str(tmp_path / name) for name in ("redis", "etcd", "filesystem")}
    for name, path in paths.items():
        options = lock_options(servers[name]) if name in servers else {}
        for key in "abc":
            ArrowTable(path, {**PLAIN, **options}).upsert(pa.table({"id": [key]}))
    return paths


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, Any]:
        code = main([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def options_of(table: str) -> dict[str, str]:
    return dict(load_table_config(LocalStorage(table)).locks)


def words(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() if key != PROVIDER for word in ("-o", f"{key}={value}")]


def test_one_service_keeps_tables_of_different_locks(tables: dict[str, str], run: Run) -> None:
    due = ["-o", "hoodie.compact.inline.max.delta.commits=1"]
    code, kept = run("service", "run", "--once", "--cores", "0", *tables.values(), *due)
    assert code == 0 and [table["failed"] for table in kept] == [0, 0, 0] and all(table["done"] for table in kept)


def test_commands_need_no_options(tables: dict[str, str], run: Run) -> None:
    for name, path in tables.items():
        code, shown = run("locks", path)
        assert code == 0 and shown["asked"] == shown["domain"] and shown["asked"].startswith(name)
        code, made = run("savepoint", "create", path)
        assert code == 0
        assert run("rollback", path, run("timeline", path)[1][-1]["requested"])[0] == 1  # the savepoint keeps it
        assert run("savepoint", "delete", path, made["instant"])[0] == 0


def test_a_lock_is_broken_where_the_table_says(tables: dict[str, str], servers: dict[str, Server], run: Run) -> None:
    options = lock_options(servers["redis"], lease_s=1)
    with closing(open_lock_provider(LockScope(LocalStorage(tables["redis"]).uri, options))) as provider:
        lease = provider.acquire(TABLE_KEY, 5)
        assert run("locks", "break", tables["redis"]) == (0, {"key": TABLE_KEY, "broken": True, "holder": lease.owner})


def test_a_move_records_the_new_locks_and_may_be_done_again(
    tables: dict[str, str], servers: dict[str, Server], run: Run
) -> None:
    path, etcd = tables["redis"], lock_options(servers["etcd"])
    before = options_of(path)
    move = ["locks", "migrate", path, "--to", "etcd", *words(etcd)]
    code, moved = run(*move)
    assert code == 0 and moved["changed"] and options_of(path) == etcd != before
    record_lock_options(LocalStorage(path), before)  # as if its process had died between the two
    assert run(*move) == (0, {"changed": False, "domain": moved["domain"]})
    assert options_of(path) == etcd and run("savepoint", "create", path)[0] == 0


def test_a_service_that_has_moved_house_is_recorded(
    tables: dict[str, str], servers: dict[str, Server], run: Run
) -> None:
    path = tables["redis"]
    other = {**lock_options(servers["redis"]), PREFIX + "redis.url": f"redis://localhost:{servers['redis'].port}/0"}
    assert run("locks", "record", path, *words(other)) == (0, {"recorded": other})
    assert options_of(path) == other and split_locks(lock_domain(LocalStorage(path)))[0] == "redis"
    code, error = run("locks", "record", path, "-o", f"{PROVIDER}=filesystem")
    assert code == 1 and "locks migrate" in error["message"] and options_of(path) == other


def test_a_service_that_has_lost_its_data_and_its_house_is_moved_to(
    tables: dict[str, str], servers: dict[str, Server], run: Run
) -> None:
    path, before = tables["redis"], lock_domain(LocalStorage(tables["redis"]))
    other = {**lock_options(servers["redis"]), PREFIX + "redis.url": f"redis://localhost:{servers['redis'].port}/2"}
    for command in (["savepoint", "create"], ["locks", "record"]):
        code, error = run(*command, path, *words(other))
        assert code == 1 and "--from-is-gone" in error["message"]
    move = ["locks", "migrate", path, "--to", "redis", *words(other)]
    assert run(*move)[0] == 1
    code, moved = run(*move, "--from-is-gone")
    assert code == 0 and moved["domain"] == lock_domain(LocalStorage(path)) != before and options_of(path) == other
    assert run(*move, "--from-is-gone")[1]["changed"] is False
    assert run("savepoint", "create", path)[0] == 0
    assert run("savepoint", "create", path, *words(lock_options(servers["redis"])))[0] == 1


def test_a_table_that_records_nothing_is_told_by_its_options(
    tables: dict[str, str], servers: dict[str, Server], run: Run
) -> None:
    """As tables of before do."""
    path = tables["redis"]
    options = options_of(path)
    record_lock_options(LocalStorage(path), {})
    code, error = run("savepoint", "create", path)
    assert code == 1 and "and this one from 'filesystem" in error["message"]
    move = ["locks", "migrate", path, "--to", "etcd", *words(lock_options(servers["etcd"]))]
    code, error = run(*move)
    assert code == 1 and "the table's locks are 'redis #" in error["message"] and "(--from)" in error["message"]
    said = ["-o", f"{PROVIDER}=redis", *words(options)]
    assert run("savepoint", "create", path, *said)[0] == 0
    assert run("locks", "record", path, *said) == (0, {"recorded": options})
    assert split_locks(run("locks", path)[1]["asked"])[0] == "redis"
    record_lock_options(LocalStorage(path), {})
    assert run(*move, "--from", "redis", *words(options))[1]["domain"].startswith("etcd #")
