"""Tables that Java Hudi wrote, read whole: the same rows as hudi-rs, meta columns included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakelatch.format.log.blocks import read_log_file

COUNTS = {
    "cow_v8_nonpartitioned": 4,
    "cow_v9_txns_simple": 12,
    "mor_v8_trips_8i3u1d": 6,
    "mor_v9_txns_nonpart": 14,
    "mor_v9_txns_simple": 12,
}
Read = Callable[..., Any]


def test_snapshot(sample: Path, sample_name: str, read_table: Read, hudi_rows: Read) -> None:
    ours = read_table(sample).rows(meta=True)
    assert len(ours) == COUNTS[sample_name]
    assert ours == hudi_rows(sample, meta=True)


def test_read_optimized(sample: Path, read_table: Read, hudi_rows: Read, read_optimized: dict[str, str]) -> None:
    ours = read_table(sample).rows(read_optimized=True, meta=True)
    assert ours
    assert ours == hudi_rows(sample, meta=True, **read_optimized)


def test_log_files_are_understood_to_the_last_block(sample: Path, sample_name: str, read_table: Read) -> None:
    table = read_table(sample)
    rows = deletes = 0
    for group in table.groups():
        for found in group:
            for path in found.log_paths:
                (entries,) = read_log_file(table.storage.read(path), path)
                rows += 0 if entries.records is None else entries.records.num_rows
                deletes += 0 if entries.deletes is None else len(entries.deletes.keys)
    written = [stat for commit in table.commits for stat in commit.stats if stat.log_files]
    groups = {(found.partition, found.file_id) for group in table.groups() for found in group}
    visible = [stat for stat in written if (stat.partition, stat.file_id) in groups]
    assert rows == sum(stat.num_writes for stat in visible)
    assert deletes == sum(stat.num_deletes for stat in visible)
    if sample_name == "mor_v8_trips_8i3u1d":
        assert (rows, deletes) == (3, 2)


def test_slices_name_every_visible_file_once(sample: Path, read_table: Read) -> None:
    table = read_table(sample)
    for group in table.groups():
        instants = [found.base_instant for found in group]
        assert instants == sorted(set(instants), reverse=True)
        names = [path for found in group for path in (found.base_path, *found.log_paths) if path]
        assert len(names) == len(set(names))
        assert all(table.storage.exists(path) for path in names)


@pytest.mark.parametrize("name", ["mor_v9_txns_nonpart", "mor_v9_txns_simple"])
def test_replaced_groups_are_hidden(name: str, unzip: Callable[[str], Path], read_table: Read) -> None:
    table = read_table(unzip(name))
    replaced = {group for commit in table.commits for group in commit.replaced_file_groups()}
    shown = {(group[0].partition, group[0].file_id) for group in table.groups()}
    assert replaced and not replaced & shown
