"""What an ordering value that is lower than the row's does to statements, as the guide says it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark


def test_the_greatest_ordering_value_wins_whichever_statement_brings_it(sql: Any) -> None:
    sql.made.append("ordered")
    sql(
        f"CREATE TABLE ordered (id BIGINT, ts BIGINT, v STRING) USING lakelatch LOCATION '{sql.folder}/ordered' "
        "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', 'hoodie.bucket.index.num.buckets' = '1')"
    )
    sql("INSERT INTO ordered VALUES (1, 100, 'a'), (2, 100, 'b'), (3, 100, 'c'), (4, 100, 'd')")
    assert sql("UPDATE ordered SET ts = 5, v = 'new' WHERE id = 1")[0][0] == 1
    sql("UPDATE ordered SET v = 'B' WHERE id = 2")
    sql("DELETE FROM ordered WHERE id > 2")
    assert sql("INSERT INTO ordered VALUES (3, 5, 'lower'), (4, 100, 'as great')")[0][0] == 2
    assert sql.rows("ordered") == [(1, 100, "a"), (2, 100, "B"), (4, 100, "as great")]


def test_a_partition_that_is_overwritten_has_the_new_rows_alone(sql: Any) -> None:
    """Also where they are ordered before those that were there, as the words for the partitions of the rows do it."""
    sql.made.append("days")
    sql(
        f"CREATE TABLE days (id BIGINT, ts BIGINT, v STRING, day STRING) USING lakelatch PARTITIONED BY (day) "
        f"LOCATION '{sql.folder}/days' TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', "
        "'hoodie.bucket.index.num.buckets' = '1')"
    )
    sql("INSERT INTO days VALUES (1, 100, 'a', 'x'), (2, 100, 'b', 'x'), (3, 100, 'c', 'y'), (4, 100, 'd', 'z')")
    sql("INSERT OVERWRITE days PARTITION (day = 'x') SELECT 1, 5, 'new'")
    assert sql.rows("days") == [(1, 5, "new", "x"), (3, 100, "c", "y"), (4, 100, "d", "z")]
    sql("INSERT OVERWRITE days PARTITION (day = 'z') SELECT id, ts, v FROM days WHERE day = 'none'")
    sql("INSERT OVERWRITE days PARTITION (day = NULL) VALUES (5, 1, 'e')")
    sql("INSERT INTO days VALUES (2, 1, 'late', 'x'), (4, 1, 'late', 'z')")
    kept = [(1, 5, "new", "x"), (2, 1, "late", "x"), (3, 100, "c", "y"), (4, 1, "late", "z"), (5, 1, "e", None)]
    assert sql.rows("days") == kept


def test_a_partition_of_rows_without_keys_is_overwritten(sql: Any) -> None:
    sql.made.append("logs")
    where = f"PARTITIONED BY (a, b) LOCATION '{sql.folder}/logs'"
    sql(f"CREATE TABLE logs USING lakelatch {where} AS SELECT 1 n, DATE'2024-01-02' a, true b")
    sql("INSERT INTO logs VALUES (2, DATE'2024-01-02', false), (3, NULL, true)")
    sql("INSERT OVERWRITE logs PARTITION (b = true, a = '2024-01-02') VALUES (4), (4)")
    sql("INSERT OVERWRITE logs PARTITION (b = true, a = NULL) SELECT 5 WHERE false")
    with pytest.raises(InvalidRequest, match="the value some day does not fit into the column 'a', which is date"):
        sql("INSERT OVERWRITE logs PARTITION (b = true, a = 'some day') VALUES (6)")
    day = date(2024, 1, 2)
    assert sql.rows("logs") == [(2, day, False), (4, day, True), (4, day, True)]
