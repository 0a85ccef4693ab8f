"""A view by name shows the rows of the moment at which it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelatch import Table
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]


def test_a_view_shows_each_query_the_rows_of_its_time(make_table: MakeTable, spark: SparkSession) -> None:
    table = make_table()
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    held = Table.for_path(spark, table.path)
    held.create_view("trips")
    held.create_view("trips_then", as_of=first.completion, columns=["v", "id"], tasks=1)
    try:
        for rows in ([], [(3, 1, "c")], [(1, 2, "A")]):
            table.write(rows)
            assert sorted(tuple(row) for row in spark.sql("SELECT * FROM trips").collect()) == table.read()
        joined = spark.sql("WITH t AS (SELECT * FROM trips) SELECT count(*) FROM t a JOIN t b USING (id)")
        assert joined.collect()[0][0] == 3
        assert sorted(tuple(row) for row in spark.table("trips_then").collect()) == [("a", 1), ("b", 2)]
        with pytest.raises(InvalidRequest, match="named by letters"):
            held.create_view("a; b")
    finally:
        for name in ("trips", "trips_then"):
            spark.catalog.dropTempView(name)
