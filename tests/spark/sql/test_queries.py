"""SELECT of tables of ours gives what Spark gives for the same rows, and all of it is of one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakelatch import Table
from lakelatch.spark.sql import statement
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.session import known_of

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT * FROM {t}",
    " table {t}",
    "select ID, upper(Day) d FROM {t} WHERE v > 1 -- {t} is no table here",
    "SELECT {t}.id, '{{x}}' AS x, `day` FROM {t} /* of {t} */ WHERE {t}.day = 'it\\'s'",
    "SELECT a.id, b.id FROM {t} a JOIN {t} AS b ON a.day = b.day",
    "SELECT day, count(*) n, max(v) FROM {t} GROUP BY day HAVING n > 0 ORDER BY day",
    "WITH {t} AS (SELECT id + 10 AS id FROM {t}), x AS (SELECT * FROM {t}) SELECT * FROM x",
    "SELECT id FROM {t} WHERE v = (SELECT max(v) FROM {t}) OR EXISTS (SELECT 1 FROM {t} o WHERE o.id = {t}.id + 3)",
    "FROM {t} SELECT id",
    "SELECT * FROM {t}, LATERAL (SELECT {t}.v + 1 AS w)\n;",
    "(SELECT id FROM {t}) UNION ALL SELECT id FROM {t} WHERE id IN (SELECT 1)",
    "SELECT id, y FROM {t} LATERAL VIEW explode(array(1, 2)) x AS y",
    "SELECT * FROM {t} TABLESAMPLE (100 PERCENT)",
]


@pytest.fixture(scope="module", autouse=True)
def tables(sql: Any, view_of: Callable[..., None]) -> Table:
    made: Table = sql.table("flights")
    view_of("plain")
    return made


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_spark_gives(sql: Any, query: str) -> None:
    assert sql(query.format(t="flights")) == sql.of_spark(query.format(t="plain"))


def test_parameters_and_frames_are_sparks(sql: Any, spark: SparkSession) -> None:
    rows = sql("SELECT id FROM default.FLIGHTS WHERE day IN (:a, :b)", {"a": "mon", "b": "it's"})
    assert rows == [(1,), (4,)] == sql("SELECT id FROM `flights` WHERE day IN (?, ?)", ["mon", "it's"])
    wanted = spark.createDataFrame([(2,)], "k long")
    assert sql("SELECT v FROM flights JOIN {wanted} w ON id = k", wanted=wanted) == [(2.0,)]


def test_a_path_is_a_name(sql: Any, tables: Table) -> None:
    assert sql(f"SELECT count(*) FROM lakelatch.`{tables.path}` x WHERE x.id > 1") == [(3,)]
    with pytest.raises(InvalidStatement, match="backtick") as caught:
        statement(sql.spark, "SELECT * FROM lakelatch.`/data/a``b`")
    assert caught.value.getCondition() == "INVALID_IDENTIFIER"
    assert isinstance(caught.value, AnalysisException)


def test_what_spark_reads_for_others_may_come_from_ours(sql: Any, spark: SparkSession) -> None:
    try:
        sql("CREATE TABLE others USING parquet AS SELECT id, v FROM flights WHERE id < 3")
        sql("INSERT INTO others SELECT id, v FROM flights WHERE id = 4")
        assert sql.of_spark("SELECT id FROM others") == [(1,), (2,), (4,)]
    finally:
        spark.sql("DROP TABLE IF EXISTS others")
    assert "== Physical Plan ==" in sql("EXPLAIN FORMATTED SELECT * FROM flights")[0][0]


def test_each_query_is_of_one_moment_and_none_is_stale(sql: Any, spark: SparkSession) -> None:
    table = sql.table("moving", [(1, "a", 0.0)])
    table.create_view("moving_view")
    frame = statement(
        spark, "SELECT a.v, b.v, c.v FROM moving a JOIN moving b USING (id) JOIN moving_view c USING (id)"
    )
    assert frame is not None
    table.update(None, {"v": "v + 1"})
    assert [tuple(row) for row in frame.collect()] == [(0.0, 0.0, 0.0)]
    for name in ("moving", "moving_view"):
        assert sql(f"SELECT v FROM {name}") == [(1.0,)]
    spark.range(1).createOrReplaceTempView("moving_view")  # somebody else's from now on
    assert sql.of_spark("SELECT * FROM moving_view") == [(0,)]
    spark.catalog.dropTempView("moving_view")


def test_moments_and_changes(sql: Any) -> None:
    table = sql.table("aged", [(1, "a", 0.0), (2, "a", 0.0)])
    first = table.history().first()
    sql("UPDATE aged SET v = 1 WHERE id = 1")
    sql("DELETE FROM aged WHERE id = 2")
    for moment in (first["instant"], first["completion"]):
        assert sql(f"SELECT id, v FROM aged VERSION AS OF {moment}") == [(1, 0.0), (2, 0.0)]
    assert sql(f"SELECT id FROM aged FOR TIMESTAMP AS OF '{first['completion']}' AS x JOIN aged USING (id)") == [(1,)]
    assert sql("SELECT id FROM aged TIMESTAMP AS OF :t", {"t": first["completed"]}) == [(1,), (2,)]
    changes = sql(f"SELECT id, v, _change_type FROM table_changes('aged', '{first['completion']}')")
    assert changes == [(1, 0.0, "update_preimage"), (1, 1.0, "update_postimage"), (2, 0.0, "delete")]
    for moment, condition in (
        ("VERSION AS OF 3", "INVALID_TIME_TRAVEL_SPEC"),
        ("TIMESTAMP AS OF 'no time'", "INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT"),
    ):
        with pytest.raises(InvalidStatement) as caught:
            statement(sql.spark, f"SELECT * FROM aged {moment}")
        assert caught.value.getCondition() == condition


def test_statements_of_others_are_left_alone_and_cost_little(sql: Any, spark: SparkSession) -> None:
    known = "SELECT id, day FROM plain JOIN (SELECT max(id) m FROM plain) ON id = m WHERE day = 'x' AND v < 17"
    for text in (
        "CREATE VIEW x AS SELECT * FROM lakelatch_view_1(TABLE(SELECT id FROM range(0, 3, 1, 3)))",
        known,
        "SHOW TABLES",
        "SELECT 'flights' AS lakelatch",
        "SHOW DATABASES",
        "",
        "select",
    ):
        assert statement(spark, text) is None
    known_shapes, known_names = len(known_of(spark).shapes), set(known_of(spark).others)
    for number in range(20):  # nothing is parsed, and no catalog asked
        assert statement(spark, known.replace("17", str(number)).replace("'x'", f"'{number}'")) is None
    assert (len(known_of(spark).shapes), known_of(spark).others) == (known_shapes, known_names)
    assert known_shapes > 0 and known_names >= {"plain"}


def test_a_view_hides_a_table(sql: Any, view_of: Callable[..., None]) -> None:
    sql.table("hidden", [(1, "ours", 0.0)])
    assert sql("SELECT day FROM hidden") == [("ours",)]
    view_of("hidden", [(7, "theirs", 0.0)])
    assert sql.of_spark("SELECT day FROM hidden") == [("theirs",)]
    assert sql("SELECT day FROM default.hidden") == [("ours",)]
    with pytest.raises(InvalidStatement, match="hides the table of that name") as caught:
        statement(sql.spark, "DELETE FROM hidden WHERE id = 1")
    assert str(caught.value.getCondition()).startswith("EXPECT_TABLE_NOT_VIEW") and sql.rows("hidden") == [
        (1, "ours", 0.0)
    ]
