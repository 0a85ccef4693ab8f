"""How slices are spread over tasks of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_table import LiveTable

from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.read.rows.tasks import ReadTask, packed, packed_for, shared_or_packed
from lakelatch.format import parquet


def tasks_of(plan: ReadPlan, task_bytes: int) -> list[ReadTask]:
    return shared_or_packed(plan.table.storage, plan.slices, task_bytes)


def test_tasks_that_share_a_slice_have_its_rows_between_them(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=1)
    table.write([(key, 1, "v") for key in range(9)], "x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "_GROUP_ROWS_MAX", 2)
        table.compact()
    plan = plan_read(str(table.root))
    (size_bytes,) = [(table.root / str(found.base_path)).stat().st_size for found in plan.slices]
    assert tasks_of(plan, size_bytes) == [ReadTask((0,))]
    tasks = tasks_of(plan, size_bytes // 2 + 1)
    assert tasks == [ReadTask((0,), (0, 2)), ReadTask((0,), (1, 2))]
    shares = [[row["id"] for batch in plan.read_task(task) for row in batch.to_pylist()] for task in tasks]
    assert sorted(map(len, shares)) == [4, 5] and sorted([*shares[0], *shares[1]]) == [*range(9)]
    table.write([(1, 2, "w")], "x")
    assert tasks_of(plan_read(str(table.root)), 1) == [ReadTask((0,))]


@given(st.lists(st.none() | st.integers(0, 300)), st.integers(1, 500))
def test_neighbours_are_packed_and_none_is_lost(sizes: list[int | None], target_bytes: int) -> None:
    groups = packed(sizes, target_bytes)
    assert [number for group in groups for number in group] == [*range(len(sizes))]
    for group in groups:
        found = [sizes[number] for number in group]
        assert len(found) == 1 or None not in found
        assert len(found) == 1 or sum(size or 0 for size in found[1:-1]) <= target_bytes


def test_small_slices_are_read_by_as_many_tasks_as_there_are_cores(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=6)
    table.write([(key, 1, "v") for key in range(60)], "x")
    plan = plan_read(str(table.root))
    storage = plan.table.storage
    assert [len(task.indexes) for task in packed_for(storage, plan.slices, None)] == [6]  # all of them are a few KB
    (task,) = plan.tasks()
    assert task == ReadTask((0, 1, 2, 3, 4, 5))
    rows = [row["id"] for batch in plan.read_task(task) for row in batch.to_pylist()]
    assert sorted(rows) == [*range(60)]
    assert packed([30, 30, 30, 30, 30, 30], 90) == [[0, 1, 2], [3, 4, 5]]
    assert packed([30, None, 30, 30, 500, 30], 90) == [[0], [1], [2, 3], [4], [5]]


def test_sizes_are_asked_for_where_it_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=3)
    table.write([(key, 1, "v") for key in range(30)], "x")
    plan = plan_read(str(table.root))
    monkeypatch.setattr("lakelatch.engine.read.rows.tasks.LocalStorage", Path)
    assert [len(task.indexes) for task in packed_for(plan.table.storage, plan.slices, 2)] == [1, 1, 1]
