"""What an ordering value that is lower than the row's does to statements, as the guide says it."""

from __future__ import annotations

from typing import Any

import pytest

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
