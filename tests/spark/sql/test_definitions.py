"""CREATE, ALTER, DROP, DESCRIBE and CALL of tables of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import lakelatch
from lakelatch import Table
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import with_comment
from lakelatch.spark.session.catalog import columns_text, plain_sql
from lakelatch.spark.sql import statement
from lakelatch.spark.sql.errors import InvalidStatement

pytestmark = pytest.mark.spark


def test_a_table_is_made_as_its_statement_says(sql: Any, tmp_path: Path) -> None:
    sql.made.append("made")
    sql(
        f"""CREATE TABLE IF NOT EXISTS made (id BIGINT NOT NULL COMMENT 'a, (b)', ts INT, v DECIMAL(10, 2), day STRING)
        USING lakelatch PARTITIONED BY (day) CLUSTERED BY (id) INTO 3 BUCKETS LOCATION '{tmp_path}/it\\'s'
        TBLPROPERTIES ('primaryKey' = 'id', preCombineField 'ts', type = 'cow')"""
    )
    detail = Table.for_path(sql.spark, tmp_path / "it's").detail()
    assert (detail.key, detail.ordering, detail.partition_by, detail.buckets) == (("id",), "ts", ("day",), 3)
    assert detail.table_type == "COPY_ON_WRITE"
    assert sql("DESCRIBE DETAIL made")[0][:2] == ("lakelatch", "it's")
    assert [row[:2] for row in sql("DESC made")] == [
        ("day", "string"),
        ("id", "bigint"),
        ("ts", "int"),
        ("v", "decimal(10,2)"),
    ]
    sql(
        f"CREATE TABLE IF NOT EXISTS made (id BIGINT) USING lakelatch LOCATION '{tmp_path}/x' OPTIONS (primaryKey 'id')"
    )
    assert not (tmp_path / "x").exists()
    with pytest.raises(AnalysisException, match="already exists"):
        statement(sql.spark, "CREATE TABLE made (id BIGINT) USING lakelatch OPTIONS (primaryKey 'id')")


def test_a_table_without_a_location_goes_with_its_name(sql: Any, spark: SparkSession) -> None:
    sql("CREATE TABLE owned USING lakelatch TBLPROPERTIES (primaryKey = 'id') AS SELECT id, id * 2 AS w FROM range(3)")
    try:
        assert sql("SELECT * FROM owned") == [(0, 0), (1, 2), (2, 4)]
        uri = sql("DESCRIBE DETAIL owned")[0][2]
        sql(f"CREATE TABLE same USING lakelatch LOCATION '{uri}'")
        sql.made.append("same")
        assert sql("SELECT count(*) FROM same") == [(3,)]
    finally:
        assert statement(spark, "DROP TABLE owned") is None
        spark.sql("DROP TABLE owned")
    assert statement(spark, "SELECT * FROM owned") is None and not Table.is_table(uri)


def test_a_table_that_cannot_be_made_leaves_no_name(sql: Any, spark: SparkSession, tmp_path: Path) -> None:
    for text, condition in (
        ("CREATE TABLE no_key USING lakelatch", "MISSING_COLUMNS"),
        ("CREATE TABLE no_key (id BIGINT) USING lakelatch TBLPROPERTIES (colour = 'red')", "UNSUPPORTED_FEATURE"),
        (f"CREATE TABLE no_key (id BIGINT) USING lakelatch LOCATION '{tmp_path}/n' OPTIONS (primaryKey 'k')", ""),
        ("CREATE OR REPLACE TABLE no_key (id BIGINT) USING lakelatch", "UNSUPPORTED_FEATURE"),
        ("CREATE VIEW no_key USING lakelatch OPTIONS (path '/a')", "UNSUPPORTED_FEATURE"),
    ):
        with pytest.raises(InvalidStatement) as caught:
            statement(spark, text)
        assert str(caught.value.getCondition()).startswith(condition)
    assert not spark.catalog.tableExists("no_key") and not (tmp_path / "n" / ".hoodie" / "hoodie.properties").exists()


def test_a_table_that_cannot_be_made_leaves_temporary_views(sql: Any, spark: SparkSession) -> None:
    spark.range(2).createOrReplaceTempView("twice_named")
    try:
        with pytest.raises(InvalidRequest, match="nope"):
            statement(spark, "CREATE TABLE twice_named (id BIGINT) USING lakelatch TBLPROPERTIES (primaryKey = 'nope')")
        assert spark.table("twice_named").columns == ["id"]
        assert [row.isTemporary for row in spark.sql("SHOW TABLES LIKE 'twice_named'").collect()] == [True]
    finally:
        spark.catalog.dropTempView("twice_named")


def test_a_table_that_has_the_name_of_a_view_is_another_one(sql: Any, spark: SparkSession) -> None:
    seen = sql.table("seen", [(1, "a")], "id long, v string")
    seen.create_view("seen_too")
    sql.made.append("default.seen_too")
    try:
        sql("CREATE TABLE seen_too USING lakelatch TBLPROPERTIES (primaryKey = 'id') AS SELECT 2L AS id, 'b' AS v")
        assert sql.rows("seen") == sql("SELECT * FROM seen_too") == [(1, "a")]
        assert sql("SELECT * FROM default.seen_too") == [(2, "b")]
    finally:
        spark.catalog.dropTempView("seen_too")


def test_a_table_that_is_there_stays_where_its_name_cannot_be_made(sql: Any, spark: SparkSession) -> None:
    path = sql.table("stays", [(1, "a")], "id long, v string").path
    with pytest.raises(InvalidRequest):
        statement(
            spark, f"CREATE TABLE second (id INT) USING lakelatch LOCATION '{path}' TBLPROPERTIES (primaryKey = 'nope')"
        )
    assert not spark.catalog.tableExists("second") and sql.rows("stays") == [(1, "a")]


def test_fields_that_cannot_be_stored_are_told_in_our_words(sql: Any, spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match=r"a b.*cannot be stored"):
        statement(
            spark,
            "CREATE TABLE spaced (id BIGINT, s STRUCT<`a b`: INT>) USING lakelatch TBLPROPERTIES (primaryKey = 'id')",
        )
    assert not spark.catalog.tableExists("spaced")


def test_tables_by_path_and_views_by_options(sql: Any, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "by path")
    sql(f"CREATE TABLE lakelatch.`{path}` (id BIGINT, v STRING, PRIMARY KEY (id)) USING lakelatch")
    sql(f"INSERT INTO lakelatch.`{path}` VALUES (1, 'a')")
    sql(f"CREATE OR REPLACE TEMPORARY VIEW by_options USING lakelatch OPTIONS (path '{path}')")
    sql(f"UPDATE lakelatch.`{path}` SET v = upper(v)")
    assert sql("SELECT v FROM by_options") == [("A",)]
    sql("DELETE FROM by_options WHERE v = 'A'")
    assert sql("SELECT count(*) FROM by_options") == [(0,)]
    for text in (f"DROP TABLE lakelatch.`{path}`", f"CREATE TABLE lakelatch.`{path}` (id BIGINT) USING lakelatch"):
        with pytest.raises(InvalidStatement):
            statement(spark, text)
    spark.catalog.dropTempView("by_options")


def test_columns_are_added_and_widened(sql: Any) -> None:
    sql.table("grown", [(1, 2)], "id long, n int")
    sql("ALTER TABLE grown ADD COLUMNS (note STRING, s STRUCT<a: INT, b: STRING>)")
    sql("ALTER TABLE grown ADD COLUMN IF NOT EXISTS note STRING")
    sql("ALTER TABLE grown ALTER COLUMN n TYPE BIGINT")
    assert sql("SELECT * FROM grown") == [(1, 2, None, None)]
    assert ("n", "bigint", None) in sql("DESCRIBE TABLE grown")
    for text, condition in (
        ("ALTER TABLE grown ADD COLUMN N INT", "FIELD_ALREADY_EXISTS"),
        ("ALTER TABLE grown ALTER COLUMN n TYPE INT", "NOT_SUPPORTED_CHANGE_COLUMN"),
        ("ALTER TABLE grown RENAME TO other", "UNSUPPORTED_FEATURE"),
        ("ALTER TABLE grown DROP COLUMN n", "UNSUPPORTED_FEATURE"),
    ):
        with pytest.raises(InvalidStatement) as caught:
            statement(sql.spark, text)
        assert str(caught.value.getCondition()).startswith(condition)
    assert sql("SELECT * FROM grown") == [(1, 2, None, None)]


def test_comments_of_columns_are_kept_with_the_table(sql: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Whoever made it: those of a path, of a name, of a frame; and whoever writes to it after that."""
    path = str(tmp_path / "told")
    sql(
        f"CREATE TABLE lakelatch.`{path}` (id BIGINT COMMENT 'it\\'s (a, b)', n INT, s STRUCT<a: INT>) "
        "USING lakelatch TBLPROPERTIES (primaryKey = 'id')"
    )
    sql(f"CREATE TABLE told USING lakelatch LOCATION '{path}'")
    sql.made.append("told")
    sql("ALTER TABLE told ADD COLUMNS (note STRING COMMENT 'what else', w INT)")
    sql("INSERT INTO told SELECT 1, 2, named_struct('a', 3), 'x', 4")
    nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
    spark.createDataFrame([(2, 5)], "id long, n int").write.format("lakelatch").options(**nulls).mode("append").save(
        path
    )
    new = "(SELECT 2L AS id, 'y' AS note) s"
    sql(f"MERGE INTO told USING {new} ON told.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note")
    sql("CALL lakelatch.compact('told')")
    said = [("id", "bigint", "it's (a, b)"), ("n", "int", None), ("s", "struct<a:int>", None)]
    said += [("note", "string", "what else"), ("w", "int", None)]
    assert sql("DESCRIBE told") == sorted(said, key=str)
    frame = spark.read.format("lakelatch").load(path)
    assert {one.name: one.metadata.get("comment") for one in frame.schema} == {name: text for name, _, text in said}
    assert [tuple(row)[:2] for row in frame.orderBy("id").collect()] == [(1, 2), (2, 5)]
    assert ("id", "bigint", "it's (a, b)") in [tuple(row) for row in spark.sql("DESCRIBE told").collect()]
    lakelatch.write(frame, str(tmp_path / "copied"), {"hoodie.datasource.write.recordkey.field": "id"})
    copied = Table.for_path(spark, tmp_path / "copied").schema
    assert copied["note"].metadata == {"comment": "what else"} and copied["w"].metadata == {}


def test_any_comment_comes_into_the_catalog_as_it_is(sql: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Whoever wrote it: nobody's settings and secrets are put into it."""
    said = [
        'it\'s \\ "so"\\',
        "two\nlines\t{x} $1",
        "${spark.app.name} ${env:HOME} $${a}",
        "漢字 \\u0041 100\\% \U0001f600",
    ]
    fields = [
        with_comment("id", pa.int64(), "--"),
        *(with_comment(f"c{n}", pa.int32(), one) for n, one in enumerate(said)),
    ]
    lakelatch.ArrowTable.create(tmp_path / "t", pa.schema(fields), key="id")
    sql(f"CREATE TABLE strange USING lakelatch LOCATION '{tmp_path}/t'")
    sql.made.append("strange")
    assert [row[2] for row in sorted(sql("DESCRIBE strange"))] == [*said, "--"]
    assert [row["comment"] for row in plain_sql(spark, "DESCRIBE strange").collect()] == ["--", *said]
    assert columns_text(StructType([StructField("n", LongType(), True, {"comment": 5})])) == "`n` bigint"


def test_services_are_called(sql: Any) -> None:
    table = sql.table("kept", [(1, "a", 1.0)])
    first = table.history().first()["completion"]
    saved = sql("CALL lakelatch.savepoint(table => 'kept', comment => 'before')")
    assert [row[1] for row in saved] == ["before"]
    sql("INSERT INTO kept VALUES (1, 'b', 2.0)")
    assert [row[2] for row in sql("CALL lakelatch.compact('kept')")] == ["compact"]
    assert sql("CALL lakelatch.cluster(table => :t, order => 'v')", {"t": table.path})[0][2] == "cluster"
    assert sql("CALL lakelatch.clean('kept')") == []
    assert sql("CALL lakelatch.archive('default.kept')")[0][0] == 0
    sql(f"CALL lakelatch.restore('kept', '{first}')")
    assert sql("SELECT * FROM kept") == [(1, "a", 1.0)]
    assert [row[4] for row in sql("DESCRIBE HISTORY kept")].count("UPSERT") == 1
    sql(f"CALL lakelatch.delete_savepoint('kept', instant => '{saved[0][0]}')")
    for text, condition in (
        ("CALL lakelatch.vacuum('kept')", "ROUTINE_NOT_FOUND"),
        ("CALL lakelatch.clean()", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("CALL lakelatch.restore('kept')", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("CALL lakelatch.clean(table => 'kept', when => 'now')", "UNRECOGNIZED_PARAMETER_NAME"),
        ("CALL lakelatch.clean('nobodys')", "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        with pytest.raises(InvalidStatement) as caught:
            statement(sql.spark, text)
        assert caught.value.getCondition() == condition
    assert statement(sql.spark, "CALL system.rollback('kept')") is None


def test_columns_that_may_not_be_null_are_refused(sql: Any, spark: SparkSession, tmp_path: Path) -> None:
    """No writer would heed it: a row with a null would be stored in spite of the words."""
    made = f"USING lakelatch LOCATION '{tmp_path}/strict' TBLPROPERTIES (primaryKey = 'id')"
    with pytest.raises(InvalidStatement, match=r"NOT NULL of the column\(s\) v, w: a table has no place for it"):
        statement(spark, f"CREATE TABLE strict (id BIGINT NOT NULL, v INT NOT NULL, w STRING NOT NULL) {made}")
    assert not spark.catalog.tableExists("strict")
    table = sql.table("lax")
    with pytest.raises(InvalidStatement, match=r"NOT NULL of the column\(s\) w"):
        statement(spark, "ALTER TABLE lax ADD COLUMNS (w INT NOT NULL)")
    assert table.schema.names == ["id", "day", "v"]


def test_columns_that_were_added_are_shown(sql: Any, spark: SparkSession) -> None:
    sql.table("with_note")
    sql("ALTER TABLE IDENTIFIER('with_note') ADD COLUMNS (note STRING)")
    for statement_of in ("SHOW COLUMNS IN with_note", "SHOW COLUMNS FROM with_note IN default", "DESC with_note"):
        assert [row[0] for row in sql(statement_of)] == ["day", "id", "note", "v"]
    found = statement(spark, "DESCRIBE TABLE EXTENDED with_note")
    assert found is not None
    rows = [tuple(row) for row in found.collect()]
    assert [row[0] for row in rows[:5]] == ["id", "day", "v", "note", ""] and ("Table", "with_note", "") in rows
    assert statement(spark, "SHOW TABLES IN default") is None
