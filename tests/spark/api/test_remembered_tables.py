"""Calls of one process that write one table again and again, and tables that others put in its place meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.spark import open_manager as module
from lakelatch.spark.api.arrow_table import ArrowTable
from lakelatch.spark.open_manager import forget_tables, open_manager
from lakelatch.spark.options import ManagerOptions
from lakelatch.storage import LocalStorage
from lakelatch.timeline.commit_log import CommitLog

OPTIONS = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
CHANGING = {"mergeSchema": "true", "hoodie.write.set.null.for.missing.columns": "true"}


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget_tables()
    yield
    forget_tables()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def upsert(path: str, *keys: str, **columns: list[int]) -> None:
    ArrowTable(path, {**OPTIONS, **CHANGING}).upsert(pa.table({"id": list(keys), **columns}))


def keys(path: str) -> list[str]:
    return sorted(lakelatch.open(path).to_arrow()["id"].to_pylist())


def test_a_table_that_was_removed_and_made_anew_has_its_own_rows_alone(path: str) -> None:
    for number in range(5):
        upsert(path, f"old {number}", v=[number])
    shutil.rmtree(path)
    for number in range(3):
        upsert(path, f"new {number}", w=[number])
    assert keys(path) == ["new 0", "new 1", "new 2"]
    assert lakelatch.open(path).schema.names == ["id", "w"]
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
    forget_tables()
    upsert(path, "b", v=[1], w=[2])  # as another process would
    forget_tables()
    module._memories.update(kept)
    upsert(path, "c", v=[1])
    assert lakelatch.open(path).schema.names == ["id", "v", "w"] and keys(path) == ["a", "b", "c"]


def test_a_call_that_fails_leaves_nothing_to_the_next_one(path: str) -> None:
    upsert(path, "a", v=[1])
    assert len(module._memories) == 1
    with pytest.raises(InvalidRequest):
        ArrowTable(path, OPTIONS).upsert(pa.table({"id": ["b"], "v": ["no number"]}))
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


def test_old_slots_are_forgotten(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLOTS_REMEMBERED", 2)
    for number in range(4):
        upsert(path, f"{number}")
    (memory,) = module._memories.values()
    assert sorted(memory.log._cache) == [3, 4]
