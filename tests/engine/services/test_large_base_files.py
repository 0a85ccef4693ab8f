"""Base files that go through a temporary file, because memory is not to hold them: the same bytes, or one error."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.errors import Unavailable
from lakelatch.format.parquet import IN_MEMORY_ROWS_BYTES
from lakelatch.storage.checksums import verify_checksum

TEXT = "x" * (IN_MEMORY_ROWS_BYTES // 8)  # a bucket has ten of them, and more


def test_compaction_and_clustering_put_the_same_files(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=2)
    for instants in range(2):
        table.write([(key, 10 + instants, f"{TEXT}{key}") for key in range(20)])
        done = table.compact() if instants else table.cluster()
        assert done is not None and len(done.files) == 2
        found = [table.root / "p" / name for name in done.files]
        assert sum(path.stat().st_size for path in found) == done.bytes_written
        assert all(verify_checksum(path.read_bytes(), f"p/{path.name}") for path in found)
        assert table.agreed() == [("p", key, 10 + instants, f"{TEXT}{key}") for key in range(20)]


def test_without_space_for_a_temporary_file_the_plan_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write(rows := [(key, 1, TEXT) for key in range(9)])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    plan = table.plan()
    assert plan is not None
    with pytest.raises(Unavailable, match=rf"temporary file in {tmp_path}/nowhere.*set TMPDIR"):
        table.execute(plan)
    monkeypatch.undo()
    assert table.execute(plan).rows_written == 9 and table.agreed() == [("p", *row) for row in rows]
