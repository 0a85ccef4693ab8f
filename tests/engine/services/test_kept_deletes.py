"""The deletes that a compaction keeps are among the files of its commit, where Java's incremental reads look."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from live_table import LiveTable, rows_since

from lakelatch.failpoints import calling
from lakelatch.format.names import LogFile, is_kept_deletes, parse_data_file
from lakelatch.format.slices.table_view import TableView


def test_the_commit_names_kept_deletes_before_the_base_file(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(key, 10, "a") for key in range(4)])
    first = table.delete([(0, 20, "")])
    compacted = table.compact()
    assert compacted is not None
    view = TableView.load(table.storage, table.opened.config)
    instant = next(one for one in view.completed_between("", None) if one.requested == compacted.instant)
    kept, base = view.metadata(instant).stats
    file = parse_data_file(kept.path.rpartition("/")[2])
    assert isinstance(file, LogFile)
    assert is_kept_deletes(file) and kept.file_size_bytes == (table.root / kept.path).stat().st_size
    assert base.path.endswith(".parquet") and kept.file_id == base.file_id
    table.write([(0, 15, "late"), (1, 30, "b")])
    assert table.since(first.completion) == [("p", 1, 30, "b")]
    assert table.by_hudi_rs(rows_since(first.completion)) == table.since(first.completion)


def test_an_overwrite_between_a_compactions_files_and_its_commit_leaves_no_rows_to_warn_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the compaction keeps of the replaced file group is from before the overwrite, as its base file is."""
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(key, 10, "a") for key in range(4)])
    table.delete([(0, 20, "")])
    plan = table.plan({"hoodie.compact.inline.max.delta.commits": "1"})
    assert plan is not None
    with calling(lambda _: table.write([(1, 30, "new")], operation="insert_overwrite"), ["compact.before_commit"]):
        table.execute(plan)
    kept = [name for name in table.storage.list("p").files if plan in name and name.startswith(".")]
    assert len(kept) == 1
    with caplog.at_level(logging.WARNING, "lakelatch.format"):
        assert table.agreed() == [("p", 1, 30, "new")]
        table.write([(0, 5, "late")])
        assert table.agreed() == [("p", 0, 5, "late"), ("p", 1, 30, "new")]
    assert not caplog.records
