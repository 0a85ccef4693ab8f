"""What small logs change is found once, if it is little; what cannot be read is left to the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_table import LiveTable, below_logs

from lakelatch.engine.read import small_logs
from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.read.small_logs import small_changes
from lakelatch.format.file_slices import FileSlice
from lakelatch.testing.faults.storage import FaultyStorage


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return below_logs(tmp_path / "table")


def planned(table: LiveTable) -> tuple[ReadPlan, tuple[FileSlice, ...]]:
    plan = plan_read(str(table.root))
    return plan, plan.slices


def test_the_rows_of_the_logs_keys_and_which_ones_of_the_base_file_have_them(table: LiveTable) -> None:
    plan, slices = planned(table)
    found = small_changes(plan, slices)
    assert found is not None
    assert sorted(found.rows.select(["id", "v"]).to_pylist(), key=str) == [
        {"id": 1, "v": "new"},
        {"id": 2, "v": "old"},
        {"id": 9, "v": "more"},
    ]
    path = slices[0].base_path or ""
    assert {*found.superseded} == {path}
    assert found.superseded[path].words.tolist() == [0b1110]
    assert found.superseded[path].file_bytes == (table.root / path).stat().st_size
    assert len(found.rows.to_batches()) == 1


def test_no_file_is_read_twice_for_the_same_slices(table: LiveTable) -> None:
    asked: list[str] = []
    plan, slices = planned(table)
    storage = FaultyStorage(table.storage, before=lambda _, path: asked.append(path))
    plan = replace(plan, table=replace(plan.table, storage=storage))
    first = small_changes(plan, slices)
    assert asked and small_changes(plan, slices) is first
    asked.clear()
    assert small_changes(plan, slices) is first and not asked
    table.write([(1, 7, "newer")])
    again = small_changes(plan, planned(table)[1])
    assert asked and again is not None and "newer" in again.rows["v"].to_pylist()


@pytest.fixture
def few_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(small_logs, "SMALL_ROWS_MAX", 2)
        yield


def test_too_many_rows_are_left_to_tasks(tmp_path: Path, few_rows: None) -> None:
    table = LiveTable(tmp_path / "table", buckets=1)
    table.write([(key, 5, "old") for key in range(8)])
    table.compact()
    table.write([(key, 9, "") for key in range(8, 11)])
    assert small_changes(*planned(table)) is None


def test_a_file_that_cannot_be_read_is_left_to_tasks_until_it_can_be(table: LiveTable) -> None:
    plan, slices = planned(table)
    log = table.root / slices[0].path_of(slices[0].log_files[0])
    content = log.read_bytes()
    log.unlink()
    assert small_changes(plan, slices) is None
    log.write_bytes(content)
    assert small_changes(plan, slices) is not None
