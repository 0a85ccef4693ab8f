"""Tables that Java Hudi made are adopted, and then written by both engines; and what a metadata table needs before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from java_hudi import NON_BLOCKING, OPTIMISTIC, ORDERED, SHARED, JavaHudi, Rows, table_of, zookeeper_locks
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.console.main import main
from lakelatch.testing.servers import Server

COLUMNS = "id long, ts long, v string, part string"
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part"}
CONTROLS = {"non-blocking": NON_BLOCKING, "optimistic": OPTIMISTIC}
VERSION_8 = {"hoodie.write.table.version": "8", "hoodie.write.auto.upgrade": "false"}


@pytest.fixture
def locks(zookeeper: Server) -> dict[str, str]:
    return zookeeper_locks(zookeeper, "adopted")


@pytest.fixture
def adopt(capsys: pytest.CaptureFixture[str], locks: dict[str, str]) -> Callable[[str], tuple[int, Any]]:
    def call(path: str) -> tuple[int, Any]:
        options = [word for name, value in locks.items() for word in ("-o", f"{name}={value}")]
        code = main(["adopt", path, "--yes", "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("version", ["8", "9"])
def test_both_engines_write_an_adopted_table(
    version: str,
    control: str,
    spark: SparkSession,
    java: JavaHudi,
    locks: dict[str, str],
    adopt: Callable[[str], tuple[int, Any]],
    ours: Callable[..., Rows],
    hudi_rs: Callable[[str], Rows],
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "trips")
    options = {
        **SHARED,
        **ORDERED,
        **CONTROLS[control],
        **PARTITIONED,
        **locks,
        **(VERSION_8 if version == "8" else {}),
    }
    options.pop("hoodie.table.timeline.timezone")  # as most tables have it: local times, which are UTC's here
    java.write(path, table_of(COLUMNS, [(key, 1, "java", "pq"[key % 2]) for key in range(8)]), options)
    before = ours(path)

    code, found = adopt(path)
    assert (code, found["set"], found["version"]) == (0, True, int(version)), found
    assert ours(path) == before == java.read(path)

    frame = spark.createDataFrame(table_of(COLUMNS, [(key, 2, "ours", "pq"[key % 2]) for key in range(4, 12)]))
    own = {"hoodie.write.concurrency.mode": CONTROLS[control]["hoodie.write.concurrency.mode"], **locks}
    own["hoodie.time.generator.type"] = "skew_adjusting"
    lakelatch.write(frame, path, own)
    java.write(path, table_of(COLUMNS, [(key, 3, "java again", "pq"[key % 2]) for key in range(10, 14)]), options)
    expected = {key: "java" if key < 4 else "ours" if key < 10 else "java again" for key in range(14)}
    rows = ours(path)
    assert {row["id"]: row["v"] for row in rows} == expected and len(rows) == 14
    assert rows == java.read(path) == hudi_rs(path)
    assert lakelatch.compact(spark, path, {**own, "hoodie.compact.inline.max.delta.commits": "1"})
    assert ours(path) == java.read(path) == java.read_optimized(path) == hudi_rs(path)
    java.write(path, table_of(COLUMNS, [(0, 4, "java last", "p")]), options)
    assert {row["id"]: row["v"] for row in ours(path)} == expected | {0: "java last"}
    assert ours(path) == java.read(path) == hudi_rs(path)


def test_a_metadata_table_goes_with_one_write_of_java_s(
    java: JavaHudi, adopt: Callable[[str], tuple[int, Any]], ours: Callable[..., Rows], tmp_path: Path
) -> None:
    path = str(tmp_path / "trips")
    with_metadata = {**SHARED, **ORDERED, "hoodie.metadata.enable": "true"}
    java.write(path, table_of("id long, ts long", [(1, 1), (2, 1)]), with_metadata)
    assert (Path(path) / ".hoodie" / "metadata").is_dir()
    code, found = adopt(path)
    assert code == 1 and "hoodie.metadata.enable=false" in found["refusals"][0]
    assert ours(path) == java.read(path)

    java.write(path, table_of("id long, ts long", [(3, 1)]), SHARED | ORDERED)
    code, found = adopt(path)
    assert (code, found["set"]) == (0, True), found
    assert not (Path(path) / ".hoodie" / "metadata").exists()
    assert [row["id"] for row in ours(path)] == [1, 2, 3]
