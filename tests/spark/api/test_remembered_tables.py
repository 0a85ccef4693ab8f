"""Calls of one process that write one table again and again, and tables that others put in its place meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import failpoints
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.table import making
from lakelatch.engine.table import manager as module
from lakelatch.engine.table.manager import open_manager
from lakelatch.errors import InvalidRequest
from lakelatch.storage import LocalStorage, Storage
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.properties_file import is_table

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
CHANGING = {"mergeSchema": "true", "hoodie.write.set.null.for.missing.columns": "true"}


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    module._memories.clear()
    yield
    module._memories.clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def upsert(path: str, *keys: str, **columns: list[int]) -> None:
    ArrowTable(path, {**OPTIONS, **CHANGING}).upsert(pa.table({"id": list(keys), "ts": [1] * len(keys), **columns}))


def keys(path: str) -> list[str]:
    return sorted(lakelatch.open(path).to_arrow()["id"].to_pylist())


def test_a_table_that_was_removed_and_made_anew_has_its_own_rows_alone(path: str) -> None:
    for number in range(5):
        upsert(path, f"old {number}", v=[number])
    shutil.rmtree(path)
    for number in range(3):
        upsert(path, f"new {number}", w=[number])
    assert keys(path) == ["new 0", "new 1", "new 2"]
    assert lakelatch.open(path).schema.names == ["id", "ts", "w"]
    assert CommitLog(LocalStorage(path)).tail_number() == 3


def test_an_older_copy_that_was_brought_back_is_gone_on_with(path: str) -> None:
    upsert(path, "a")
    shutil.copytree(path, f"{path}-copy")
    upsert(path, "b")
    upsert(path, "c")
    shutil.rmtree(path)
    shutil.move(f"{path}-copy", path)
    upsert(path, "d")
    assert keys(path) == ["a", "d"]


def test_columns_that_others_have_added_meanwhile_are_there(path: str) -> None:
    upsert(path, "a", v=[1])
    kept = dict(module._memories)
    module._memories.clear()
    upsert(path, "b", v=[1], w=[2])  # as another process would
    module._memories.clear()
    module._memories.update(kept)
    upsert(path, "c", v=[1])
    assert lakelatch.open(path).schema.names == ["id", "ts", "v", "w"] and keys(path) == ["a", "b", "c"]


def test_columns_that_others_add_during_a_call_are_there_in_the_next_one(path: str) -> None:
    """The commit says them as well, at its place in the log, which is what the next call goes by."""
    upsert(path, "a", v=[1])
    begun: list[str] = []

    def add_other(name: str) -> None:
        if not begun:
            begun.append(name)
            upsert(path, "b", v=[1], u=[2])

    with failpoints.calling(add_other, ["write.before_rows"]):
        upsert(path, "c", v=[1], w=[3])
    upsert(path, "d", v=[1])
    assert sorted(lakelatch.open(path).schema.names) == ["id", "ts", "u", "v", "w"]
    assert keys(path) == ["a", "b", "c", "d"]


def test_a_table_that_is_replaced_during_the_opening_is_another_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check was made beside an opening that was refused, and the next opening finds another table."""
    other, two_buckets = f"{path}-other", {**OPTIONS, "hoodie.bucket.index.num.buckets": 2}
    for key in "abc":
        upsert(path, key)
    ArrowTable(other, two_buckets).upsert(pa.table({"id": ["x"], "ts": [1]}))

    def swap(storage: Storage) -> bool:
        if Path(other).exists():
            shutil.rmtree(path)
            shutil.move(other, path)
        return is_table(storage)

    monkeypatch.setattr(making, "is_table", swap)
    ArrowTable(path, two_buckets).upsert(pa.table({"id": ["y"], "ts": [1]}))
    assert keys(path) == ["x", "y"]
    assert CommitLog(LocalStorage(path)).tail_number() == 2


def test_a_forked_child_begins_anew() -> None:
    script = """
import os
from lakelatch.engine.table import manager as module
module._memories["a table"] = None
with module._guard:
    child = os.fork()
    if not child:
        os._exit(0 if module._guard.acquire(timeout=10) and not module._memories else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_a_call_that_fails_leaves_nothing_to_the_next_one(path: str) -> None:
    upsert(path, "a", v=[1])
    assert len(module._memories) == 1
    with pytest.raises(InvalidRequest):
        ArrowTable(path, OPTIONS).upsert(pa.table({"id": ["b"], "ts": [1], "v": ["no number"]}))
    assert not module._memories


def test_other_locks_have_a_memory_of_their_own(path: str) -> None:
    upsert(path, "a")
    others = ManagerOptions.from_options({"hoodie.write.lock.provider": "in_process"})
    with open_manager(LocalStorage(path), others, remembers=True) as manager:
        assert manager.memory_check is None


def test_no_more_than_the_last_tables_are_remembered(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TABLES_MAX", 2)
    for name in "abca":
        upsert(f"{path}-{name}", name)
    found = [place[0].uri.rpartition("-")[2] for place in module._memories]  # type: ignore[index]
    assert found == ["c", "a"]


def test_no_slot_but_the_last_one_is_kept(path: str) -> None:
    for number in range(4):
        upsert(path, f"{number}")
    (memory,) = module._memories.values()
    assert list(memory.log._cache) == [4]
