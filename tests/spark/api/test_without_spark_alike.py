"""That a table without Spark is the same to its users: methods, results, rows and refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from spark_session import local_frame

from lakelatch import ArrowTable, Table
from lakelatch.engine.changes.merge import Merge as ArrowMerge
from lakelatch.errors import InvalidRequest
from lakelatch.spark.merge import Merge

COLUMNS = "id long, ts long, v string, part string"
ROWS = [(1, 1, "a", "p"), (2, 1, "b", "p"), (3, 1, "c", ""), (4, 1, "d", None)]
SOURCE = [(1, 2, "A", "p"), (3, 2, "C", None), (7, 2, "G", "q"), (7, 3, "GG", "q")]

CALLS: list[Callable[[Any, Any], Any]] = [  # one after the other
    lambda table, source: table.insert(source, if_exists="skip"),
    lambda table, source: table.update("v >= 'b' AND NOT part = 'p'", {"v": "upper(v)", "part": "'r'", "ts": "ts + 1"}),
    lambda table, source: (
        table.merge(source)
        .when_matched_delete("source.v = 'C'")
        .when_matched_update_all("target.ts < source.ts")
        .when_not_matched_insert_all("source.ts > 1")
        .when_not_matched_by_source_update({"v": "CASE WHEN target.id > 3 THEN 'left' ELSE target.v END"})
        .execute()
    ),
]


def said(call: Callable[[Any, Any], Any], table: Any, source: Any) -> tuple[Any, ...]:
    try:
        done = call(table, source)
    except InvalidRequest as error:
        return error.message.split(" ", 4)[:4], error.details
    return done.operation, done.rows_written, done.deletes_written, done.rows_skipped, done.conflicts_retried


def as_arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string()), ("part", pa.string())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def test_changes_come_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    source = local_frame(spark, SOURCE, COLUMNS), as_arrow(SOURCE)
    fixed: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "part", "buckets": 1}
    tables = Table.create(spark, tmp_path / "s", COLUMNS, **fixed), ArrowTable.create(tmp_path / "a", COLUMNS, **fixed)
    assert tables[0].schema == Table(spark, tables[1].path).schema
    for table in tables:
        ArrowTable(table.path).upsert(as_arrow(ROWS))
    for number, call in enumerate(CALLS):
        results = [said(call, table, rows) for table, rows in zip(tables, source, strict=True)]
        assert results[0] == results[1], number
        found = [sorted(map(repr, ArrowTable(table.path).to_arrow().to_pylist())) for table in tables]
        assert found[0] == found[1], number


def test_methods_have_the_same_arguments() -> None:
    """But for the session, and for the types of what they are given."""
    only_spark = {"create_view", "for_path", "to_df", "spark"}
    for one, other in ((Table, ArrowTable), (Merge, ArrowMerge)):
        methods = {name for name, value in vars(one).items() if callable(getattr(one, name)) and name[0] != "_"}
        methods |= {name for name in dir(one) if name.startswith("when_")}
        for name in sorted(methods - only_spark):
            wanted = [part for part in inspect.signature(getattr(one, name)).parameters if part != "spark"]
            assert list(inspect.signature(getattr(other, name)).parameters) == wanted, name
    reads = inspect.signature(Table.to_df).parameters.keys()
    assert inspect.signature(ArrowTable.to_arrow).parameters.keys() == reads
