"""Java Hudi 1.0.2 reads tables of version 8, the last one that it knows: every partition, by every kind of read.

Its incremental reads know a file by its name alone, without the folder. So no two files of ours that one commit makes
have the same name, though their file ids are those of a bucket in every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from java_hudi import OLDER_VERSION, OURS, PARTITIONED_COLUMNS, JavaHudi, Rows, table_of
from pyspark.sql import SparkSession

import lakelatch

OPERATION = "hoodie.datasource.write.operation"
BEGINNING = "20000101000000000"
PARTITIONS = ("p", "q", "r")
VERSION_8 = {
    **OURS,
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.write.table.version": "8",
    "hoodie.clean.automatic": "false",
}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
ON_WRITE = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
INCREMENTAL = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": BEGINNING}
Write = Callable[..., Any]
Read = Callable[..., Rows]


@pytest.fixture(scope="module")
def older_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    java = JavaHudi(tmp_path_factory.mktemp("java"), OLDER_VERSION)
    if java.missing():
        pytest.skip(f"there is no {java.missing()}: run .ci/install-java-hudi, or set LAKELATCH_JAVA_HUDI")
    yield java
    java.close()


class OldTable:
    """A table of ours of version 8 with three partitions, in two buckets each."""

    def __init__(self, java: JavaHudi, spark: SparkSession, path: str, write: Write, ours: Read) -> None:
        self.java, self.spark, self.path, self._write, self._ours = java, spark, path, write, ours
        self.options = dict(VERSION_8)

    def put(self, ids: range, ts: int, name: str, **more: str) -> str:
        rows = [(key, ts, f"{name}{key}", PARTITIONS[key % 3]) for key in ids]
        options = {**self.options, **{option.replace("__", "."): value for option, value in more.items()}}
        return str(self._write(self.path, table_of(PARTITIONED_COLUMNS, rows), options).completion)

    def agreed(self, begin: str = BEGINNING) -> list[tuple[int, str]]:
        """What Java reads since then, after making sure that it is what we read, as its snapshot is.

        Its window holds its beginning, as all windows of this version do.
        """
        assert self.java.read(self.path) == self._ours(self.path)
        since = {**INCREMENTAL, "hoodie.datasource.read.begin.instanttime": begin}
        rows = self._ours(self.path, since)
        assert self.java.read_since(self.path, str(int(begin) + 1)) == rows
        return sorted((row["id"], row["v"]) for row in rows)


@pytest.fixture
def table(older_java: JavaHudi, spark: SparkSession, tmp_path: Path, write_ours: Write, ours: Read) -> OldTable:
    return OldTable(older_java, spark, str(tmp_path / "trips"), write_ours, ours)


def values(ids: range, name: str) -> list[tuple[int, str]]:
    return [(key, f"{name}{key}") for key in ids]


def test_an_incremental_read_has_every_partition(table: OldTable) -> None:
    table.put(range(30), 1, "a")
    assert table.agreed() == values(range(30), "a")
    table.put(range(12), 2, "b", lakelatch__write__small__rows="0")  # by tasks
    assert table.agreed() == values(range(12), "b") + values(range(12, 30), "a")
    deleted = table.put(range(6), 3, "", hoodie__datasource__write__operation="delete")
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    assert table.agreed() == values(range(6, 12), "b") + values(range(12, 30), "a")
    table.put(range(6), 2, "late")  # older than the deletes that the compaction has kept
    assert table.agreed(deleted) == []
    table.put(range(24, 30), 4, "c")
    assert lakelatch.cluster(table.spark, table.path, table.options)
    assert table.agreed() == values(range(6, 12), "b") + values(range(12, 24), "a") + values(range(24, 30), "c")


def test_base_files_of_bulk_loads_and_of_tables_that_are_copied_on_write(table: OldTable) -> None:
    table.options |= ON_WRITE
    table.put(range(30), 1, "a", hoodie__datasource__write__operation="bulk_insert")
    assert table.agreed() == values(range(30), "a")
    second = table.put(range(12), 2, "b")
    assert table.agreed(second) == []
    assert table.agreed() == values(range(12), "b") + values(range(12, 30), "a")
