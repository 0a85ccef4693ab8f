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
from lakelatch.storage import LocalStorage
from lakelatch.testing.servers import Server
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.snapshot import Snapshot

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


def test_comments_of_columns_outlive_our_commits(
    spark: SparkSession,
    java: JavaHudi,
    locks: dict[str, str],
    adopt: Callable[[str], tuple[int, Any]],
    ours: Callable[..., Rows],
    tmp_path: Path,
) -> None:
    """They are in the schema of the last write, where Hudi's catalog syncs look for them."""
    path = str(tmp_path / "trips")
    properties = {**SHARED, **ORDERED, "type": "mor", "primaryKey": "id", "preCombineField": "ts"}
    del properties["hoodie.table.name"]
    said = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    java.sql("drop table if exists told")
    java.sql(
        f"create table told (id bigint comment 'the key', ts bigint, v string) using hudi location '{path}' "
        f"tblproperties ({said})"
    )
    java.sql("insert into told select id, 1, 'a' from range(8)")
    assert adopt(path)[0] == 0
    lakelatch.write(spark.createDataFrame([(9, 1, "b")], "id long, ts long, v string"), path, locks)
    storage = LocalStorage(path)
    schemas = [json.loads(read_commit(storage, one).schema or "") for one in Snapshot.look(storage).by_completion]
    docs = [{field["name"]: field.get("doc") for field in schema["fields"]}["id"] for schema in schemas]
    assert docs == ["the key", "the key"]
    assert ours(path) == java.read(path) and len(ours(path)) == 9
