"""What others do with the forms in which we write: orderings, keys, versions, groups of columns."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import ORDERED, OURS, SHARED, JavaHudi, JavaHudiError, Rows, table_of
from pyspark.sql import SparkSession

import lakelatch

OPERATION = "hoodie.datasource.write.operation"
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
ALL = "id long, a_ts long, a string, b_ts long, b string"
VERSION_8 = {"hoodie.write.table.version": "8"}
Write = Callable[..., Any]
Read = Callable[..., Rows]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "trips")


@pytest.mark.parametrize("kind", ["string", "decimal", "double"])
def test_orderings_of_other_types(
    java: JavaHudi, spark: SparkSession, path: str, write_ours: Write, ours: Read, hudi_rs: Read, kind: str
) -> None:
    """Over a base file as well, where Java compares the texts of parquet blocks wrongly: they are in Avro blocks."""

    def at(step: int) -> Any:
        return {"string": f"{step:03}", "decimal": Decimal(step) / 10, "double": step / 10}[kind]

    def put(ids: range, step: int, name: str, **more: str) -> None:
        rows = table_of(
            "id long, ts other, v string",
            [(key, at(step), f"{name}{key}") for key in ids],
            ts={"string": pa.string(), "decimal": pa.decimal128(10, 1), "double": pa.float64()}[kind],
        )
        write_ours(path, rows, {**OURS, **{name.replace("__", "."): value for name, value in more.items()}})

    def agree() -> list[str]:
        rows = ours(path)
        assert rows == java.read(path) == hudi_rs(path)
        return [row["v"] for row in rows]

    put(range(8), 10, "a")
    put(range(3), 20, "", hoodie__datasource__write__operation="delete")
    put(range(3, 5), 5, "", hoodie__datasource__write__operation="delete")
    assert agree() == ["a3", "a4", "a5", "a6", "a7"]
    assert lakelatch.compact(spark, path, {**OURS, **EVERY_LOG})
    put(range(2, 6), 10, "equal")
    put(range(7, 8), 9, "older")
    put(range(1), 30, "back")
    assert agree() == ["back0", "equal3", "equal4", "equal5", "a6", "a7"]


def test_column_groups_are_refused_until_they_are_compacted(
    own_java: JavaHudi, spark: SparkSession, path: str, write_ours: Write, ours: Read
) -> None:
    """Partial rows of which Java has no base row take its process down, so it is told of a merger that it has not."""
    groups = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": "2",
        "lakelatch.table.column.groups": "a_ts: a; b_ts: b",
    }
    columns = {"a": "id long, a_ts long, a string", "b": "id long, b_ts long, b string"}
    nothing = table_of(ALL, [])
    write_ours(path, nothing, groups)
    write_ours(path, table_of(columns["a"], [(key, 5, f"a{key}") for key in range(4)]), groups)
    write_ours(path, table_of(columns["b"], [(key, 5, f"b{key}") for key in range(2, 6)]), groups)
    with pytest.raises(JavaHudiError, match="No valid spark merger implementation"):
        own_java.read(path)
    assert lakelatch.compact(spark, path, {**groups, **EVERY_LOG})
    assert own_java.read(path) == ours(path)
    write_ours(path, table_of(columns["a"], [(1, 4, "older"), (2, 6, "newer")]), groups)
    with pytest.raises(JavaHudiError, match="No valid spark merger implementation"):
        own_java.read(path)
    assert own_java.read_optimized(path) == ours(path, OPTIMIZED)
    before = ours(path)
    with pytest.raises(JavaHudiError, match="No valid merger implementation"):
        own_java.write(path, table_of(ALL, [(1, 9, "java", 9, "java")]), SHARED)
    assert ours(path) == before


def test_both_engines_write_keys_of_one_field_in_folders_of_two(
    java: JavaHudi, path: str, write_ours: Write, ours: Read, hudi_rs: Read
) -> None:
    """Java takes a complex key generator for them, and writes `id:1`; another text would be a second row."""
    options = {"hoodie.datasource.write.partitionpath.field": "p,q", "hoodie.bucket.index.num.buckets": "7"}
    nbcc = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}

    def rows(ids: range, ts: int, name: str) -> pa.Table:
        values = [(f"k{key}:x", ts, f"{name}{key}", "p", "q") for key in ids]
        return table_of("id string, ts long, v string, p string, q string", values)

    write_ours(path, rows(range(8), 1, "a"), {**OURS, **options, **nbcc})
    java.write(path, rows(range(4, 12), 2, "java"), {**SHARED, **ORDERED, **options})
    write_ours(path, rows(range(2, 6), 3, "c"), {**OURS, **options, **nbcc})
    found = ours(path)
    assert [row["v"] for row in sorted(found, key=lambda row: int(row["id"][1:-2]))] == [
        *("a0", "a1", "c2", "c3", "c4", "c5", "java6", "java7"),
        *("java8", "java9", "java10", "java11"),
    ]
    assert found == java.read(path) == hudi_rs(path)


@pytest.mark.parametrize("version", [{}, VERSION_8], ids=["9", "8"])
def test_procedures_that_are_given_a_path(
    java: JavaHudi, path: str, write_ours: Write, ours: Read, version: dict[str, str]
) -> None:
    for ts in range(1, 8):
        rows = table_of("id long, ts long, v string", [(key, ts, f"{ts}-{key}") for key in range(3)])
        write_ours(path, rows, {**OURS, **version})
    before = ours(path)
    java.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{path}')")
    assert list(Path(path).glob("*.parquet"))
    assert ours(path) == ours(path, OPTIMIZED) == java.read_optimized(path)
    assert [row["v"] for row in ours(path)] == [row["v"] for row in before]
