"""Partitions of every key generator of Java Hudi, however deep they lie: no row less than others read.

The tables in `tests/data/partitions` were written by Hudi 1.2.0: six rows, of which two were updated and one deleted.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import avro_to_arrow, with_meta_columns
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.slices.partitions import partition_files
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.table_config import TableConfig, load_table_config

TABLES = Path(__file__).parents[1] / "data" / "partitions"
FOLDERS = {
    "complex_one_key": ["eu/2024-01-02", "us/2024-02-03"],
    "custom": [f"{region}/2024/01/{day:02}" for region in ("eu", "us") for day in (1, 2, 3)],
    "nested": ["a", "a/b"],
    "nonpartitioned": [""],
    "simple_hive_url": ["path=eu%2Fde", "path=us%2Fny%2Fb"],
    "simple_slash_date": ["2024/01/02", "2024/02/03"],
    "simple_slashes": ["eu/de", "us/ny/b"],
    "timestamp": [f"2024/01/{day:02}/00" for day in (1, 2, 3)],
}
# Java 1.2.0 reads 3 rows of `nested` and hudi-rs 2, as they stop at the first folder or look at the last ones only;
# Java cannot tell partition values of `custom` apart, and hudi-rs does not know what its properties say of them.
ONLY_HERE = ("nested", "custom")
PARTITIONED = TableConfig("t", ("id",), ("p",))


@pytest.fixture
def storage(tmp_path: Path) -> MemoryStorage:
    return MemoryStorage(str(tmp_path))


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(folder)
    (root,) = folder.iterdir()
    return root


def rows_of(root: Path) -> list[dict[str, Any]]:
    storage = LocalStorage(str(root))
    config = load_table_config(storage)
    view = TableView.load(storage, config)
    latest = max(view.timeline.completed, key=lambda instant: instant.completion or "")
    schema = with_meta_columns(avro_to_arrow(view.metadata(latest).schema or ""))
    rows = [
        row
        for found in view.slices()
        for row in merge_slice(storage, found, schema, config, view.timeline.completion_times()).rows.to_pylist()
    ]
    return sorted(rows, key=lambda row: str(row["_hoodie_record_key"]))


@pytest.mark.parametrize("name", FOLDERS)
def test_every_row_of_every_key_generator(name: str, tmp_path: Path, hudi_rows: Callable[..., Any]) -> None:
    root = unpacked(name, tmp_path)
    storage = LocalStorage(str(root))
    assert TableView.load(storage, load_table_config(storage)).partitions() == FOLDERS[name]
    rows = rows_of(root)
    assert {row["id"]: row["v"] for row in rows} == {0: "a0", 1: "b1", 2: "b2", 4: "a4", 5: "a5"}
    assert {row["_hoodie_partition_path"] for row in rows} <= set(FOLDERS[name])  # one had the deleted row alone
    assert [row["region"] for row in rows] == ["eu", "us", "eu", "eu", "us"]  # values are those of the rows
    assert [row["day"] for row in rows] == [("2024-01-02", "2024-02-03")[row["id"] % 2] for row in rows]
    assert {row["ms"] for row in rows} == {1704067200000 + day * 86_400_000 for day in (0, 1, 2)}
    if name not in ONLY_HERE:
        assert rows == hudi_rows(root, meta=True)


def test_partition_columns_that_are_in_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"drop\.partition\.columns=true: its files lack the partition columns"):
        rows_of(unpacked("dropped_cow", tmp_path))


@pytest.mark.parametrize(
    "metadata",
    [".hoodie_partition_metadata", ".hoodie_partition_metadata.parquet", "f_0-0-0_20240101000000000.parquet"],
)
def test_a_partition_is_a_folder_that_says_so_or_has_data(storage: MemoryStorage, metadata: str) -> None:
    for path in (f"2024/01/{metadata}", "2024/readme.txt", "2024/02/notes.csv", ".hoodie/hoodie.properties"):
        storage.put(path, b"")
    assert list(partition_files(storage, PARTITIONED)) == [("2024/01", (metadata,))]


def test_a_table_within_a_table_is_none_of_its_partitions(storage: MemoryStorage) -> None:
    for path in (
        "a/.hoodie_partition_metadata",
        "b/.hoodie/hoodie.properties",
        "b/.hoodie_partition_metadata",
        "b/c/.hoodie_partition_metadata",
    ):
        storage.put(path, b"")
    assert [partition for partition, _ in partition_files(storage, PARTITIONED)] == ["a"]


def test_each_folder_is_listed_once(tmp_path: Path) -> None:
    class Counting(MemoryStorage):
        listed: ClassVar[list[str]] = []

        def list(self, folder: str) -> Any:
            self.listed.append(folder)
            return super().list(folder)

    storage = Counting(str(tmp_path))
    for day in range(3):
        storage.put(f"2024/0{day}/.hoodie_partition_metadata", b"")
    assert len(list(partition_files(storage, PARTITIONED))) == 3
    assert sorted(storage.listed) == ["", "2024", "2024/00", "2024/01", "2024/02"]
    storage.listed.clear()
    assert list(partition_files(storage, TableConfig("t", ("id",)))) == [("", ())]
    assert storage.listed == [""]
