"""A table with a metadata table: read by listing its folders, whatever the metadata table says, and never written."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.table.opening import open_table, require_writable
from lakelatch.errors import InvalidRequest
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.local import LocalStorage
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage

DATA = Path(__file__).parents[2] / "data" / "java"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    with zipfile.ZipFile(DATA / "mor_metadata_table.zip") as archive:
        archive.extractall(tmp_path)
    (found,) = (path for path in tmp_path.iterdir() if (path / ".hoodie" / "metadata").is_dir())
    return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    plan = plan_read(str(path))
    return [row for found in plan.slices for batch in plan.read(found) for row in batch.to_pylist()]


def test_reading_depends_on_no_file_of_the_metadata_table(table: Path, faults_are_injected: dict[Fault, bool]) -> None:
    before = rows_of(table)
    assert before
    for path in (table / ".hoodie" / "metadata").rglob("*"):
        if path.is_file():
            path.write_bytes(b"no metadata")
    assert rows_of(table) == before
    storage = FaultyStorage(LocalStorage(str(table)), [Fault(UNAVAILABLE, "", ".hoodie/metadata")])
    view = TableView.load(storage, open_table(storage).config)
    assert view.slices() and not any("metadata" in partition for partition in view.partitions())
    assert storage.failed == 0
    faults_are_injected.clear()


def test_writing_it_is_refused_with_the_way_out(table: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"metadata table .*hoodie\.metadata\.enable=false"):
        require_writable(LocalStorage(str(table)))
