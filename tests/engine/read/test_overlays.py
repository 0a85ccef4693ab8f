"""Overlays: made once, found by what they are made of, never believed without their checksum, removed with the base."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from live_table import LiveTable, below_logs

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read import overlays
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.overlays import (
    OF_ONE_BASE_MAX,
    OVERLAYS_FOLDER,
    Overlay,
    ensure_overlays,
    overlay_path,
)
from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.run.executor import HERE
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return below_logs(tmp_path / "table")


def made(table: LiveTable, plan: ReadPlan | None = None) -> list[Overlay] | None:
    return ensure_overlays(plan or plan_read(str(table.root)), HERE, None)


def made_one(table: LiveTable, plan: ReadPlan | None = None) -> Overlay:
    found = made(table, plan)
    assert found is not None and len(found) == 1
    return found[0]


def kept(table: LiveTable) -> list[Path]:
    return sorted((table.root / OVERLAYS_FOLDER).glob("*"))


def behind(table: LiveTable, *faults: Fault, before: Callable[[str, str], None] | None = None) -> ReadPlan:
    """A plan through a storage that fails so."""
    plan = plan_read(str(table.root))
    return replace(plan, table=replace(plan.table, storage=FaultyStorage(table.storage, faults, before=before)))


def test_it_has_the_rows_of_the_logs_keys_and_says_which_ones_of_the_base_file_have_them(table: LiveTable) -> None:
    found = made_one(table)
    rows = pq.read_table(table.root / found.path).select(["id", "v", "_hoodie_record_key"]).to_pylist()
    assert {row["id"]: row["v"] for row in rows} == {1: "new", 2: "old", 9: "more"} and found.count == 3
    assert found.superseded.words.tolist() == [0b1110]
    (base,) = (table.root / "p").glob("*.parquet")
    assert found.superseded.file_bytes == base.stat().st_size


def test_it_is_made_once_and_no_log_is_read_again(table: LiveTable) -> None:
    made(table)
    before = kept(table)
    asked: list[tuple[str, str]] = []
    found = made(table, behind(table, before=lambda kind, path: asked.append((kind, path))))
    assert found is not None and kept(table) == before
    assert {kind for kind, path in asked if not path.startswith(OVERLAYS_FOLDER)} == set()


def test_a_write_into_the_slice_calls_for_another_one(table: LiveTable) -> None:
    plan = plan_read(str(table.root))
    first = made_one(table, plan)
    table.write([(1, 7, "newer")])
    second = made_one(table)
    assert second.path != first.path and len(kept(table)) == 2
    assert "newer" in pq.read_table(table.root / second.path)["v"].to_pylist()
    assert made_one(table, plan) is first and made_one(table) is second


def test_columns_that_come_later_call_for_another_one_and_other_slices_do_not(table: LiveTable) -> None:
    (found,) = plan_read(str(table.root)).slices
    table.write([(1, 7, "newer")], "q")
    now = plan_read(str(table.root)).table
    wider = replace(now, schema=now.schema.append(pa.field("w", pa.int64())))
    made_before = made_one(table, replace(plan_read(str(table.root)), slices=(found,)))
    assert overlay_path(now, found) == made_before.path != overlay_path(wider, found)


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def changed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)


def anothers(file: Path) -> None:
    shutil.copy(next((file.parents[3] / "p").glob("*.parquet")), file)


def forged(file: Path) -> None:
    """Rows and words as they should be, and no checksum."""
    rows = pq.read_table(file)
    says = {key: value for key, value in pq.read_metadata(file).metadata.items() if key == b"lakelatch.overlay"}
    pq.write_table(rows.replace_schema_metadata(says), file)


@pytest.mark.parametrize("damage", [torn, changed, anothers, forged])
def test_what_is_not_as_it_was_written_is_not_used(table: LiveTable, damage: Callable[[Path], None]) -> None:
    made(table)
    (file,) = kept(table)
    overlays._read.cache_clear()
    damage(file)
    assert made(table) is None
    file.unlink()
    assert made(table) is not None


def test_where_it_cannot_be_put_nobody_tries_again_at_once(table: LiveTable) -> None:
    asked: list[tuple[str, str]] = []
    refused = Fault(UNAVAILABLE, "put_if_absent", OVERLAYS_FOLDER)
    plan = behind(table, refused, before=lambda kind, path: asked.append((kind, path)))
    put = ("put_if_absent", overlay_path(plan.table, plan.slices[0]))
    system = ManualSystem(0)
    tried = []
    for minute in range(8):
        assert ensure_overlays(plan, HERE, None, system=system) is None
        tried += [minute] * (put in asked)
        assert put in asked or asked == [("list", OVERLAYS_FOLDER)]
        asked.clear()
        system.advance(60)
    assert tried == [0, 1, 3, 7], "it waits twice as long each time"


def test_a_put_that_fails_once_is_made_later(table: LiveTable) -> None:
    plan = behind(table, Fault(UNAVAILABLE, "put_if_absent", OVERLAYS_FOLDER, times=1))
    system = ManualSystem(0)
    assert ensure_overlays(plan, HERE, None, system=system) is None
    assert ensure_overlays(plan, HERE, None, system=system) is None
    system.advance(60)
    assert ensure_overlays(plan, HERE, None, system=system) is not None and kept(table)


def test_those_of_base_files_that_others_have_removed_go_when_others_are_made(table: LiveTable) -> None:
    """As after a clean of Java Hudi, a restore or a rollback."""
    first = made_one(table)
    (base,) = (table.root / "p").glob("*.parquet")
    table.compact()
    table.write([(1, 8, "newest")])
    made_one(table)
    assert (table.root / first.path).exists()
    base.unlink()
    table.write([(1, 9, "newest")])
    made_one(table)
    assert not (table.root / first.path).exists() and len(kept(table)) == 2


def test_of_one_base_file_there_are_so_many(table: LiveTable) -> None:
    for number in range(OF_ONE_BASE_MAX):
        assert made(table) is not None
        table.write([(1, 7 + number, "newer")])
    assert made(table) is None and len(kept(table)) == OF_ONE_BASE_MAX
    table.compact()
    table.write([(1, 100, "newest")])
    assert made(table) is not None and len(kept(table)) == OF_ONE_BASE_MAX + 1


def test_a_clean_removes_them_with_the_base_file(table: LiveTable) -> None:
    made(table)
    table.compact()
    table.write([(1, 8, "newest")])
    second = made_one(table)
    assert len(kept(table)) == 2
    table.clean(CleaningOptions(commits=1))
    assert len([*(table.root / "p").glob("*.parquet")]) == 1
    assert kept(table) == [table.root / second.path]


def test_a_clean_completes_where_it_may_not_remove_them(table: LiveTable) -> None:
    made(table)
    (file,) = kept(table)
    file.unlink()
    file.mkdir()  # which no user may remove as a file
    table.compact()
    table.write([(1, 8, "newest")])
    table.clean(CleaningOptions(commits=1))
    assert len([*(table.root / "p").glob("*.parquet")]) == 1 and kept(table) == [file]
    assert any(name.endswith(".clean") for name in table.timeline())


def test_an_option_leaves_them_alone(table: LiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelatch.engine.read.by_reader.SMALL_LOGS_MAX_BYTES", -1)
    assert SlicesByReader.of(plan_read(str(table.root))).beside_logs
    assert not SlicesByReader.of(plan_read(str(table.root), {"lakelatch.read.overlays": "false"})).beside_logs
