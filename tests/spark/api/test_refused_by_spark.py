"""What Spark refuses for all data sources in Python: the guide says so, and a newer Spark may do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]


@pytest.mark.parametrize("mode", [None, "ignore", "errorifexists"])
def test_save_modes(make_table: MakeTable, mode: str | None) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    writer = table.frame([(2, 1, "b")]).write.format("lakelatch").options(**table.options)
    with pytest.raises(PySparkException, match='either the "Append" or "Overwrite" mode'):
        (writer if mode is None else writer.mode(mode)).save(table.path)
    assert table.read() == [(1, 1, "a")]


def test_changes_in_sql_and_queries_by_path(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    spark.sql("CREATE TABLE refused (id BIGINT, ts BIGINT, v STRING) USING lakelatch")
    try:
        for statement in (
            "DELETE FROM refused WHERE id = 1",
            "UPDATE refused SET v = 'b'",
            "MERGE INTO refused USING refused AS new ON refused.id = new.id WHEN MATCHED THEN DELETE",
            "TRUNCATE TABLE refused",
            f"SELECT * FROM lakelatch.`{table.path}`",
        ):
            with pytest.raises(PySparkException, match=r"support|UNSUPPORTED"):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE refused")
    assert table.read() == [(1, 1, "a")]
