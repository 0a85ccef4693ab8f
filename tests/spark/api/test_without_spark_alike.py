"""That a table without Spark is the same to its users: methods, results, rows and refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from spark_session import local_frame

from lakelatch import ArrowTable, Table
from lakelatch.engine.changes.merge import Merge as ArrowMerge
from lakelatch.engine.sql.expressions import evaluated
from lakelatch.errors import InvalidRequest
from lakelatch.spark.write.merge import Merge

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
    lambda table, source: (
        table.merge(source, "target.id > source.id AND source.id = 3")
        .when_matched_update({"v": "concat(source.v, '+')"})
        .execute()
    ),
]
TEXTS = [
    *("year(d)", "month(t)", "day(d)", "dayofmonth(s)", "quarter(d)", "dayofweek(d)", "dayofyear(t)", "weekofyear(d)"),
    *("hour(t)", "minute(t)", "second(t)", "hour(n)", "hour(d)", "extract(YEAR FROM t)", "extract(WEEK FROM d)"),
    *(f"date_trunc('{unit}', t)" for unit in ("year", "QUARTER", "mon", "week", "dd", "hour", "minute", "second")),
    *("date_trunc('DAY', d)", "date_trunc('hour', n)", "date_trunc('millisecond', t)", "date_trunc('week', s)"),
    *(f"trunc(d, '{unit}')" for unit in ("yyyy", "quarter", "MM", "week")),
    *("trunc(s, 'month')", "date_add(d, 3)", "date_sub(t, 3)", "date_add('2026-12-31', 1)", "date_add(d, k)"),
    *("to_date(s)", "to_date(t)", "date(t)", "CAST(t AS DATE)", "last_day(d)", "datediff(d, s)", "datediff(t, d)"),
    *("t >= date_add(d, 100)", "to_date(t) = '2026-05-06'", "year(d) + month(d)", "year(NULL)"),
]


def test_functions_of_dates_come_to_the_same(spark: SparkSession) -> None:
    late, early = datetime(2026, 5, 6, 7, 8, 9, 123456), datetime(1960, 2, 29, 23, 59, 59)
    rows = pa.table(
        {
            "d": [date(2026, 1, 31), date(1969, 12, 28), None],
            "t": pa.array([late, early, None], pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "n": pa.array([late, early, None], pa.timestamp("us")),
            "s": ["2026-03-01", "2024-02-29 13:14:15", None],
            "k": pa.array([1, -400, None], pa.int32()),
        }
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        theirs = spark.createDataFrame(rows).selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(TEXTS))).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    found = [evaluated(text, rows) for text in TEXTS]
    ours = [pa.chunked_array([one]) if isinstance(one, pa.Array) else one for one in found]
    differ = {
        text: (here, there)
        for text, here, there in zip(TEXTS, ours, theirs.columns, strict=True)
        if (here.to_pylist(), here.type) != (there.to_pylist(), there.type)
    }
    assert differ == {}


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
