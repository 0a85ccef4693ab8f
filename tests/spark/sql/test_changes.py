"""DELETE, UPDATE, INSERT and MERGE leave the rows that Spark computes for the same rows of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from spark_session import local_frame
from table import meanwhile

from lakelatch import Table
from lakelatch.spark.sql import changes, merges, statement
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.tokens import Cursor

pytestmark = pytest.mark.spark

ROWS = [(1, "mon", 1.0), (2, "tue", 2.0), (3, "tue", None), (4, "it's", 4.5)]
REFUSED = [
    ("DELETE FROM target WHERE rand() < 0.5", "INVALID_NON_DETERMINISTIC_EXPRESSIONS", "rand"),
    ("DELETE FROM target WHERE nothing = 1", "UNRESOLVED_COLUMN", "nothing"),
    ("DELETE FROM target WHERE", "PARSE_SYNTAX_ERROR", "missing"),
    ("DELETE FROM target LIMIT 1", "PARSE_SYNTAX_ERROR", "is not understood"),
    ("UPDATE target SET id = 1", "UNSUPPORTED_FEATURE.UPDATE_COLUMN_OF_KEY", "record key"),
    ("UPDATE target SET w = 1", "UNRESOLVED_COLUMN", "'w' is no column"),
    ("UPDATE target SET v = 1, V = 2", "COLUMN_ALREADY_EXISTS", "two values"),
    ("INSERT INTO target SELECT 1", "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS", "BY NAME"),
    ("INSERT INTO target SELECT 1, 'a', 'b'", "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST", "cast it"),
    ("INSERT OVERWRITE target IF NOT EXISTS SELECT 1, 'a', 1", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "IF NOT EXISTS"),
    ("INSERT INTO target REPLACE WHERE id = 1 SELECT 2, 'a', 1", "REPLACE_WHERE_VIOLATION", "id=2"),
    ("INSERT INTO target REPLACE USING (id) SELECT 2, 'a', 1", "UNSUPPORTED_FEATURE", "USING: .* REPLACE WHERE"),
    ("INSERT INTO target REPLACE ON id = s.id SELECT 2, 'a', 1", "UNSUPPORTED_FEATURE", "REPLACE ON: .* REPLACE WHERE"),
    ("INSERT WITH SCHEMA EVOLUTION INTO target SELECT 2, 'a', 1, 4", "UNSUPPORTED_FEATURE", "ADD COLUMNS"),
    ("MERGE WITH SCHEMA EVOLUTION INTO target USING source s ON true WHEN MATCHED THEN DELETE", "", "ADD COLUMNS"),
    (
        "MERGE INTO target t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v, V) VALUES (9, 1, 2)",
        "COLUMN_ALREADY_EXISTS",
        "v: named twice",
    ),
    ("INSERT INTO target () VALUES (2, 'a', 1)", "PARSE_SYNTAX_ERROR", "a column is expected"),
    ("ALTER TABLE target ADD COLUMN w STRUCT<first: INTT>", "UNSUPPORTED_", "INTT"),
    ("INSERT INTO target (nope.id, day, v) VALUES (2, 'a', 1)", "UNSUPPORTED_FEATURE", "nope.id"),
    ("INSERT INTO target (id day, v) VALUES (2, 1)", "PARSE_SYNTAX_ERROR", "'day' is not understood"),
    (
        "MERGE INTO target t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (s.id) VALUES (s.id)",
        "UNSUPPORTED_FEATURE",
        "s.id.* name columns of the table",
    ),
    ("ALTER TABLE target ADD COLUMN w INT FIRST", "UNSUPPORTED_FEATURE", "FIRST of a column"),
    ("ALTER TABLE target ADD COLUMNS (w INT AFTER id, x INT DEFAULT 3)", "UNSUPPORTED_FEATURE", "AFTER, DEFAULT of"),
    ("ALTER TABLE target ADD COLUMN w INTT", "UNSUPPORTED_", "INTT"),
    (
        "MERGE INTO target t USING (VALUES (1), (1)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 0",
        "MERGE_CARDINALITY_VIOLATION",
        "more than one row",
    ),
    (
        "MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id + 1",
        "UNSUPPORTED_FEATURE.UPDATE_COLUMN_OF_KEY",
        "record key",
    ),
    ("MERGE INTO target t USING source t ON true WHEN MATCHED THEN DELETE", "AMBIGUOUS_REFERENCE", "alias"),
    ("MERGE INTO target t USING source s ON t.id = s.id", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "clause"),
    ("OPTIMIZE target ZORDER BY (id)", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "lakelatch.cluster"),
    ("VACUUM target", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "lakelatch.clean"),
    ("ANALYZE TABLE target COMPUTE STATISTICS", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "ANALYZE"),
    ("BEGIN DELETE FROM target; END", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "for each statement of the script"),
    ("EXECUTE IMMEDIATE 'DELETE FROM target'", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "spark.sql"),
    ("EXECUTE IMMEDIATE 'DELETE FROM ' || 'target'", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "spark.sql"),
    ("CREATE VIEW w AS SELECT * FROM target", "UNSUPPORTED_FEATURE.TABLE_OPERATION", "one moment"),
]


@pytest.fixture(scope="module", autouse=True)
def tables(sql: Any, view_of: Callable[..., None]) -> Table:
    made: Table = sql.table("target", [])
    sql.table("named", ROWS)
    view_of("plain", ROWS)
    view_of("source", [(2, "new", 20.0), (9, "new", 9.0), (3, "drop", 0.0)])
    return made


@pytest.fixture
def same_rows(tables: Table, spark: SparkSession) -> None:
    tables.overwrite(local_frame(spark, ROWS, "id long, day string, v double"))


@pytest.mark.parametrize(
    ("change", "args", "expected"),
    [
        ("DELETE FROM target AS T WHERE t.v > 1 OR day = :d", {"d": "mon"}, "SELECT * FROM plain WHERE v IS NULL"),
        ("DELETE FROM target WHERE id = ?", [2], "SELECT * FROM plain WHERE id <> 2"),
        (
            "WITH gone AS (SELECT id FROM source) DELETE FROM target WHERE id IN (SELECT id FROM gone) -- all",
            None,
            "SELECT * FROM plain WHERE id NOT IN (2, 9, 3)",
        ),
        ("DELETE FROM target WHERE v > id -:p AND day = 'tue'", {"p": -1}, "SELECT * FROM plain"),
        (
            "WITH Named AS (SELECT 1 AS id) DELETE FROM target WHERE id IN (SELECT id FROM named)",
            None,
            "SELECT * FROM plain WHERE id <> 1",
        ),
        (
            "WITH named AS (SELECT * FROM named WHERE id < 3) UPDATE target SET v = (SELECT max(v) FROM named)",
            None,
            "SELECT id, day, 2.0D FROM plain",
        ),
        (
            "DELETE FROM target t WHERE exists(array(named_struct('id', 9)), t -> t.id > 8) AND id = 1",
            None,
            "SELECT * FROM plain WHERE id <> 1",
        ),
        (
            "DELETE FROM target t WHERE NOT EXISTS (SELECT 1 FROM target o WHERE o.day = t.day AND o.id <> t.id)",
            None,
            "SELECT * FROM plain WHERE day = 'tue'",
        ),
        ("WITH w AS (TABLE source) DELETE FROM target WHERE id IN (SELECT id FROM (TABLE w))", None,
         "SELECT * FROM plain WHERE id NOT IN (2, 9, 3)"),
        ("INSERT INTO IDENTIFIER(:t) (TABLE source)", {"t": "target"},
         "SELECT * FROM plain WHERE id NOT IN (2, 3) UNION ALL SELECT * FROM source"),
        ("DELETE FROM IDENTIFIER('tar' || ?) WHERE IDENTIFIER('id') = ?", ["get", 2],
         "SELECT * FROM plain WHERE id <> 2"),
        ("INSERT INTO target VALUES (5, DEFAULT, 5), (6, 'default', default)", None,
         "SELECT * FROM plain UNION ALL VALUES (5, NULL, 5.0D), (6, 'default', NULL)"),
        ("UPDATE target SET v = DEFAULT WHERE id = 1", None, "SELECT id, day, if(id = 1, NULL, v) FROM plain"),
        ("delete from\ttarget;", None, "SELECT * FROM plain WHERE false"),
        (
            "UPDATE target SET v = CASE WHEN day IN ('a, b', 'tue') THEN ifnull(v, 0) END, `Day` = 'x' WHERE id > 1",
            None,
            "SELECT id, if(id > 1, 'x', day), if(id > 1, CASE WHEN day = 'tue' THEN ifnull(v, 0) END, v) FROM plain",
        ),
        (
            "UPDATE target AS t SET t.day = :d, v = (SELECT max(s.v) FROM source s)",
            {"d": "a'; DROP\\"},
            "SELECT id, 'a\\'; DROP\\\\', 20.0D FROM plain",
        ),
        ("INSERT INTO target VALUES (5, 'wed', 5), (1, NULL, 7)", None,
         "SELECT id, if(id = 1, NULL, day), if(id = 1, 7.0D, v) FROM plain UNION ALL SELECT 5, 'wed', 5.0D"),
        ("INSERT INTO TABLE target (v, id) SELECT v + 1, id + 10 FROM target WHERE v > 1", None,
         "SELECT * FROM plain UNION ALL SELECT id + 10, NULL, v + 1 FROM plain WHERE v > 1"),
        ("INSERT INTO target BY NAME SELECT 'x' AS day, 8 AS id", None,
         "SELECT * FROM plain UNION ALL SELECT 8, 'x', NULL"),
        ("WITH w AS (SELECT 6 AS k) INSERT OVERWRITE target SELECT k, :d, NULL FROM w", {"d": "x"},
         "SELECT 6L, 'x', CAST(NULL AS DOUBLE)"),
        ("INSERT INTO target REPLACE WHERE day = 'tue' SELECT 7, 'tue', 7", None,
         "SELECT * FROM plain WHERE day <> 'tue' UNION ALL SELECT 7, 'tue', 7.0D"),
        ("INSERT INTO target BY NAME REPLACE WHERE day = 'tue' SELECT 7.0D AS v, 7 AS id, 'tue' AS day", None,
         "SELECT * FROM plain WHERE day <> 'tue' UNION ALL SELECT 7, 'tue', 7.0D"),
        ("INSERT INTO target REPLACE WHERE day IS DISTINCT FROM 'mon' SELECT 7, 'x', 7", None,
         "SELECT * FROM plain WHERE day = 'mon' UNION ALL SELECT 7, 'x', 7.0D"),
        ("TRUNCATE TABLE target", None, "SELECT * FROM plain WHERE false"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("same_rows")
def test_a_change_leaves_what_spark_computes(sql: Any, change: str, args: Any, expected: str) -> None:
    assert len(sql(change, args)) == 1
    assert sql.rows("target") == sql.of_spark(expected)


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        (
            "MERGE INTO target USING source ON target.id = source.id WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
            "SELECT id, coalesce(s.day, p.day), if(s.id IS NULL, p.v, s.v) FROM plain p FULL JOIN source s USING (id)",
        ),
        (
            "MERGE INTO target USING (SELECT id AS ID, day AS Day, v FROM source) s ON target.id = s.Id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "SELECT id, coalesce(s.day, p.day), if(s.id IS NULL, p.v, s.v) FROM plain p FULL JOIN source s USING (id)",
        ),
        (
            """merge into target as T using (select * from source where id < 100) S on s.id = t.id
            when matched and S.day = 'drop' then delete
            when matched then update set t.id = s.id, v = t.v + s.v, day = concat(t.day, ' WHEN ', s.day)
            when not matched by target and day <> 'WHEN' then insert (id, v) values (id, v / 2)
            when not matched by source and v > 4 then update set v = -v
            when not matched by source and day = 'mon' then delete;""",
            "SELECT 2, 'tue WHEN new', 22.0D UNION ALL SELECT 9, NULL, 4.5D UNION ALL SELECT 4, 'it\\'s', -4.5D",
        ),
        (
            "WITH w AS (SELECT * FROM source) MERGE INTO target t USING w ON t.id = w.id AND w.day = :d "
            "WHEN NOT MATCHED BY SOURCE AND id IN (SELECT id FROM w) THEN DELETE",
            "SELECT * FROM plain WHERE id <> 3",
        ),
        (
            "WITH named AS (SELECT 1L AS id) MERGE INTO target t USING source s "
            "ON t.id = s.id AND s.id IN (SELECT id + 1 FROM named) "
            "WHEN MATCHED THEN UPDATE SET v = (SELECT max(id) FROM named)",
            "SELECT id, day, if(id = 2, 1.0D, v) FROM plain",
        ),
        (
            "MERGE INTO target t USING target s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET day = s.day",
            "SELECT p.id, coalesce(q.day, p.day), p.v FROM plain p LEFT JOIN plain q ON p.id = q.id + 1",
        ),
        (
            "MERGE INTO target USING VALUES (4L, 'x') AS s (k, d) ON k = id WHEN MATCHED THEN DELETE",
            "SELECT * FROM plain WHERE id <> 4",
        ),
    ],
)
@pytest.mark.usefixtures("same_rows")
def test_a_merge_leaves_what_spark_computes(sql: Any, merge: str, expected: str) -> None:
    sql(merge, {"d": "new"})
    assert sql.rows("target") == sql.of_spark(expected)


@pytest.mark.usefixtures("same_rows")
def test_what_is_refused_leaves_the_table_as_it_was(sql: Any, tables: Table) -> None:
    timeline = Path(tables.path, ".hoodie", "timeline")
    before = sorted(path.name for path in timeline.glob("*commit"))
    for change, condition, words in REFUSED:
        with pytest.raises(AnalysisException, match=words) as caught:
            statement(sql.spark, change)
        assert str(caught.value.getCondition()).startswith(condition), caught.value
    assert len(before) > 0 and sorted(path.name for path in timeline.glob("*commit")) == before
    assert sql.rows("target") == sorted(ROWS, key=repr)


@pytest.mark.parametrize("text", ["DELETE plain /*lakelatch*/", "MERGE plain lakelatch", "UPDATE 'lakelatch'"])
def test_a_change_of_nothing_of_ours_is_refused_by_spark(sql: Any, text: str) -> None:
    with pytest.raises(ParseException):
        sql.of_spark(text)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT {} INTO others SELECT * FROM target",
        "MERGE {} INTO others o USING target t ON o.id = t.id WHEN MATCHED THEN DELETE",
    ],
)
def test_schema_evolution_of_a_table_of_another_format_is_told_another_way(sql: Any, change: str) -> None:
    sql.of_spark("CREATE TABLE others (id LONG) USING parquet")
    try:
        with pytest.raises(AnalysisException) as caught:
            sql(change.format("WITH SCHEMA EVOLUTION"))
    finally:
        sql.of_spark("DROP TABLE others")
    assert "createOrReplaceTempView" in str(caught.value)


def test_a_whole_table_is_inserted_by_its_name(sql: Any, spark: SparkSession) -> None:
    sql.table("whole")
    sql.table("copied", [])
    sql("INSERT INTO copied TABLE whole")
    assert sql.rows("copied") == sql.rows("whole")
    sql.made.append("made_of")
    place = f"LOCATION '{sql.folder}/made_of' OPTIONS (primaryKey 'id')"
    sql(f"CREATE TABLE made_of USING lakelatch {place} AS TABLE whole")
    assert sql.rows("made_of") == sql.rows("whole")
    sql("CACHE TABLE kept AS SELECT * FROM whole")
    sql("CACHE LAZY TABLE lazily OPTIONS ('storageLevel' 'MEMORY_ONLY') SELECT * FROM whole WHERE id = 1")
    sql("DELETE FROM whole WHERE id < 3")
    assert sql.of_spark("SELECT * FROM kept") == sql.rows("copied")
    assert len(sql.of_spark("SELECT * FROM lazily")) == 1
    for name in ("kept", "lazily"):
        spark.catalog.dropTempView(name)
    for text, words in (
        ("CACHE TABLE whole", "CACHE TABLE copy AS SELECT"),
        ("CREATE TABLE alike LIKE whole", "AS SELECT \\* FROM whole WHERE false"),
        ("FROM whole INSERT INTO copied SELECT *", "a statement for each table"),
    ):
        with pytest.raises(AnalysisException, match=words):
            statement(spark, text)


def test_partitions(sql: Any) -> None:
    sql.table("days", [(1, "a", 1.0), (2, "b", 2.0)], more="PARTITIONED BY (day)")
    sql("INSERT OVERWRITE days PARTITION (day) SELECT 3, 'b', 3")
    assert sql.rows("days") == [(1, "a", 1.0), (3, "b", 3.0)]
    sql("INSERT OVERWRITE TABLE days PARTITION (day = 'a') VALUES (4, 4)")
    assert sql.rows("days") == [(3, "b", 3.0), (4, "a", 4.0)]
    sql("INSERT INTO days PARTITION (day = 'c') SELECT 5, 5")
    sql("UPDATE days SET day = 'd' WHERE day = 'c'")
    sql("MERGE INTO days USING (SELECT 4 AS id, 'a' AS day, 40.0D AS v) s ON days.id = s.id AND days.day = s.day "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE")  # fmt: skip
    assert sql.rows("days") == [(4, "a", 40.0)]
    sql("INSERT INTO days VALUES (7, '010', 7), (8, '10', 8)")
    sql("INSERT OVERWRITE days PARTITION (day = 10) VALUES (6, 6)")
    assert sql.rows("days") == [(4, "a", 40.0), (6, "10", 6.0), (7, "010", 7.0)]


def test_rows_go_into_the_partition_that_is_named_and_nowhere_else(sql: Any) -> None:
    before = [(1, "a", 1.0), (2, "b", 2.0)]
    sql.table("named_days", before, more="PARTITIONED BY (day)")
    for verb in ("INSERT INTO", "INSERT OVERWRITE"):
        for rows in ("(id, Day, v) VALUES (3, 'b', 3)", "BY NAME SELECT 3 AS id, 'b' AS day, 3D AS v"):
            with pytest.raises(AnalysisException, match="day: PARTITION says the value") as caught:
                sql(f"{verb} named_days PARTITION (day = 'a') {rows}")
            assert caught.value.getCondition() == "STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST"
            assert sql.rows("named_days") == before


def test_no_row_is_written_over_by_another_one(sql: Any) -> None:
    """Of two rows that a change would make one, no one says which is wanted."""
    sql.table("others", [(1, "a", 1.0), (2, "a", 2.0), (1, "b", 3.0), (5, None, 5.0)], more="PARTITIONED BY (day)")
    before = sql.rows("others")
    merge = "MERGE INTO others t USING (VALUES ({}, 0D)) s (id, day, v) ON t.id = s.id "
    for change in (
        "UPDATE others SET day = 'b' WHERE day = 'a'",
        "UPDATE others SET day = 'z' WHERE id = 1",
        "UPDATE others SET day = if(day = 'a', 'b', 'a') WHERE id = 1",
        merge.format("1, 'b'") + "WHEN MATCHED AND t.day = 'a' THEN UPDATE SET day = s.day",
        merge.format("5, CAST(NULL AS STRING)") + "AND t.day = s.day WHEN NOT MATCHED THEN INSERT *",
        merge.format("9, 'a'") + "AND t.day = s.day WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id - 8, s.day)",
    ):
        with pytest.raises(AnalysisException, match=r"id=[15].* would (be lost|write over it)"):
            sql(change)
        assert sql.rows("others") == before, change
    sql(merge.format("6, CAST(NULL AS STRING)") + "AND t.day = s.day WHEN NOT MATCHED THEN INSERT *")
    sql(merge.format("2, 'c'") + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    sql("UPDATE others SET day = 'z' WHERE day = 'a' OR id = 5")
    assert sql.rows("others") == [(1, "b", 3.0), (1, "z", 1.0), (2, "c", 0.0), (5, "z", 5.0), (6, None, 0.0)]


def test_values_of_parameters_are_values(sql: Any) -> None:
    sql.table("kinds", [(1, None, None)], "id long, d date, b binary")
    args = {"d": date(2026, 11, 24), "b": b"'\x00", "ids": [1, 2]}
    sql("UPDATE kinds SET d = :d, b = :b WHERE array_contains(:ids, id)", args)
    assert sql.rows("kinds") == [(1, date(2026, 11, 24), bytearray(b"'\x00"))]


class Disturbed(Reads):
    """Another one commits after the first reading inside the transaction."""

    def renew(self) -> None:
        super().renew()
        if not self.args:
            self.args = ["disturbed"]
            rows = [(number, "theirs", 0.0) for number in range(5, 13)]
            name = Cursor.of("target").name()
            place = self.place(name)
            assert place is not None
            Table(self.spark, place.path).upsert(self.spark.createDataFrame(rows, "id long, day string, v double"))


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM target WHERE id IN (SELECT max(id) FROM target)",
        "MERGE INTO target t USING (SELECT max(id) AS id FROM target) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
@pytest.mark.usefixtures("same_rows")
def test_a_change_reads_all_of_it_again_after_a_conflict(sql: Any, spark: SparkSession, change: str) -> None:
    carry_out = changes.delete if change.startswith("DELETE") else merges.merge
    reads = Disturbed(spark)
    assert carry_out(reads, Cursor.of(change), "") is not None
    reads.close()
    assert [row[0] for row in sql("SELECT id FROM target")] == sorted(range(1, 12), key=lambda number: repr((number,)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("own", "INSERT INTO own_rows"),
        ("whole", "INSERT OVERWRITE whole_rows"),
        ("some", "INSERT INTO some_rows REPLACE WHERE id > 0"),
    ],
)
def test_an_insert_that_reads_its_own_table_loses_no_commit_that_comes_before_it_begins(
    sql: Any, name: str, change: str
) -> None:
    table = sql.table(f"{name}_rows", [(1, "mon", 1.0), (2, "tue", 2.0)])
    with meanwhile(lambda: table.update(None, {"v": "v + 100"}), "begin.after_claim"):
        sql(f"{change} SELECT id, day, v + 1 FROM {name}_rows")
    assert sql.rows(f"{name}_rows") == [(1, "mon", 102.0), (2, "tue", 103.0)]
