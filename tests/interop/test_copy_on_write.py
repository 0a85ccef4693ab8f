"""Copy-on-write tables: hudi-rs reads what we write, and we go on in tables that Java Hudi has made."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.errors import InvalidRequest
from lakelatch.format.names import parse_data_file

pytestmark = pytest.mark.spark
Read = Callable[..., list[dict[str, Any]]]
OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.table.type": "COPY_ON_WRITE",
}
JAVA_TABLES = Path(__file__).parents[1] / "data" / "java"


def rows(ids: range, ts: int, name: str) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "ts": [ts] * len(ids),
            "v": [f"{name}{key}" for key in ids],
            "part": ["pq"[key % 2] for key in ids],
        }
    )


def java_table(name: str, folder: Path, buckets: int = 2) -> str:
    """A table of Java's, with the number of its buckets added, which Java keeps nowhere."""
    with zipfile.ZipFile(JAVA_TABLES / f"{name}.zip") as archive:
        archive.extractall(folder)
    with open(folder / name / ".hoodie" / "hoodie.properties", "a") as properties:
        properties.write(f"hoodie.bucket.index.num.buckets={buckets}\n")
    return str(folder / name)


@pytest.mark.parametrize("version", [8, 9])
def test_hudi_rs_reads_what_we_write(version: int, tmp_path: Path, by_lakelatch: Read, by_hudi_rs: Read) -> None:
    table = ArrowTable(tmp_path / "trips", {**OPTIONS, "hoodie.write.table.version": version})
    times = ["20000101000000000"]

    def agree(completion: str, count: int) -> None:
        times.append(completion)
        assert by_lakelatch(table.path) == by_hudi_rs(table.path) == by_hudi_rs(table.path, optimized=True)
        assert len(by_lakelatch(table.path)) == count

    agree(table.upsert(rows(range(6), 10, "a")).completion, 6)
    agree(table.upsert(rows(range(4, 8), 11, "b")).completion, 8)
    agree(table.upsert(rows(range(3), 9, "older")).completion, 8)
    agree(table.delete(rows(range(0, 8, 2), 20, "")).completion, 4)
    agree(table._write(rows(range(1, 2), 1, "over"), "insert_overwrite", None).completion, 1)
    agree(lakelatch.delete_partitions(table.path, "q", table._options).completion, 0)
    agree(table.upsert(rows(range(2), 1, "again")).completion, 2)
    for begin, end in [(times[0], times[-1]), *pairwise(times)]:
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": begin,
            "hoodie.datasource.read.end.instanttime": end,
        }
        assert by_lakelatch(table.path, options) == by_hudi_rs(table.path, since=(begin, end)), (begin, end)


@pytest.mark.parametrize("name", ["cow_v8", "cow_overwritten", "cow_archived"])
def test_we_go_on_in_a_table_of_java_s(name: str, tmp_path: Path, by_lakelatch: Read, by_hudi_rs: Read) -> None:
    path = java_table(name, tmp_path)
    before = {row["_hoodie_record_key"]: row for row in by_lakelatch(path)}
    table = ArrowTable(path)
    table.upsert(rows(range(4, 12), 100, "ours"))
    table.upsert(rows(range(4, 6), 5, "older"))
    table.delete(rows(range(10, 11), 200, ""))

    found = {row["_hoodie_record_key"]: row for row in by_lakelatch(path)}
    assert by_lakelatch(path) == by_hudi_rs(path)
    ours = {str(key) for key in range(4, 12)}
    assert {key: row["v"] for key, row in found.items() if key in ours} == {
        key: f"ours{key}" for key in ours if key != "10"
    }
    left = {key: {**row, "_hoodie_file_name": ""} for key, row in before.items() if key not in ours}
    assert {key: {**row, "_hoodie_file_name": ""} for key, row in found.items() if key not in ours} == left
    for key in before.keys() & found.keys():
        assert file_id(found[key]) == file_id(before[key])


def file_id(row: dict[str, Any]) -> str:
    file = parse_data_file(row["_hoodie_file_name"])
    assert file is not None
    return file.file_id


def test_file_groups_of_no_bucket_are_not_written(tmp_path: Path) -> None:
    """Java's clustering draws file ids that name no bucket, also in a table with a bucket index."""
    with pytest.raises(InvalidRequest, match="belongs to none of them"):
        ArrowTable(java_table("cow_clustered", tmp_path)).upsert(rows(range(1), 1, "a"))


def test_a_table_of_another_index_is_not_written(sample_table: Callable[[str], str]) -> None:
    path = sample_table("cow_v9_txns_simple")
    with pytest.raises(InvalidRequest, match=r"num\.buckets"):
        ArrowTable(path).upsert(rows(range(1), 1, "a"))
