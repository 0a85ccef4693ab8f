"""Values of other types are stored as in tables of Spark's own, or refused, in sessions without ANSI too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

from lakelatch.spark.sql import statement

pytestmark = pytest.mark.spark

COLUMNS = "id long, v int, n decimal(4,1), a array<int>, s struct<x:int>"
ROWS = [(1, 10, Decimal("1.0"), [1], Row(x=1)), (2, 20, None, None, None)]
OVERFLOW, UNSAFE = "CAST_OVERFLOW_IN_TABLE_INSERT", "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"
MERGE = "MERGE INTO numbers t USING other s ON t.id = s.id "
REFUSED = [
    ("INSERT INTO numbers (id, v) VALUES (3, 3000000000)", OVERFLOW, "the value 3000000000 .*'v'.* int"),
    ("INSERT INTO numbers (id, a) SELECT 3, array(1, id * 3000000000) FROM other", OVERFLOW, "3000000000"),
    ("INSERT INTO numbers (id, v) VALUES (3, 'abc')", UNSAFE, "cast it"),
    ("UPDATE numbers SET v = v + 5000000000", OVERFLOW, "50000000"),
    ("UPDATE numbers SET n = 999.96", OVERFLOW, "999.96"),
    ("UPDATE numbers SET v = '12'", UNSAFE, "'v' is int, and is given string"),
    ("UPDATE numbers SET a = array('12')", UNSAFE, "array<string>"),
    (MERGE + "WHEN MATCHED THEN UPDATE SET v = s.day", UNSAFE, "string"),
    (MERGE + "WHEN MATCHED THEN UPDATE SET v = s.big", OVERFLOW, "50000000"),
    (MERGE + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = id * 5000000000", OVERFLOW, "10000000000"),
    (MERGE + "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (id, day)", UNSAFE, "string"),
    ("MERGE INTO numbers t USING whole s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *", UNSAFE, "string"),
    ("MERGE INTO numbers t USING whole s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", UNSAFE, "string"),
]


@pytest.fixture(autouse=True)
def without_ansi(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


@pytest.fixture(scope="module", autouse=True)
def tables(sql: Any, view_of: Callable[..., None]) -> None:
    sql.table("numbers", ROWS, COLUMNS)
    view_of("other", [(1, "x", 5000000000)], "id long, day string, big long")
    view_of("whole", [(1, "x", None, None, None)], COLUMNS.replace("v int", "v string"))


def test_what_does_not_fit_is_refused(sql: Any) -> None:
    for text, condition, words in REFUSED:
        with pytest.raises(AnalysisException, match=words) as caught:
            statement(sql.spark, text)
        assert caught.value.getCondition() == condition, caught.value
    assert sql.rows("numbers") == ROWS


def test_what_fits_is_stored(sql: Any) -> None:
    sql("UPDATE numbers SET v = 1e3, n = v * 1L, a = array(id, NULL), s = named_struct('y', id) WHERE id = 1")
    assert sql.rows("numbers")[0] == (1, 1000, Decimal("10.0"), [1, None], Row(x=1))
    sql("INSERT INTO numbers VALUES (1, 7.9D, 8, NULL, NULL)")
    sql("MERGE INTO numbers t USING (SELECT 2 AS id, 5L AS v, 1 AS n, array(6L) AS a, NULL AS s) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *")  # fmt: skip
    expected = [(1, 7, Decimal("8.0"), None, None), (2, 5, Decimal("1.0"), [6], None)]
    assert sql.rows("numbers") == expected


def test_a_text_in_partition_means_a_value_of_the_column(sql: Any) -> None:
    sql.table("hours", [(1, 7)], "id long, hour int", "PARTITIONED BY (hour)")
    sql("INSERT INTO hours PARTITION (hour = '12') SELECT 2")
    with pytest.raises(AnalysisException, match="the value noon does not fit"):
        statement(sql.spark, "INSERT INTO hours PARTITION (hour = 'noon') SELECT 3")
    assert sql.rows("hours") == [(1, 7), (2, 12)]
