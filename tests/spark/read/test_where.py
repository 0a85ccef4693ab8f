"""What a read is told of the rows that it wants: as text and as conditions, before and after the merge."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as functions

import lakelatch
from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.read.pruning import Bound, Condition, OneOf, Present
from lakelatch.engine.read.where import conditions_in, mentioned
from lakelatch.errors import CorruptTable
from lakelatch.format import parquet
from lakelatch.storage.checksums import strip_checksum

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("d", pa.date32()), ("b", pa.bool_()), ("f", pa.float64())])
DAY = datetime.date(2024, 1, 31)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 'a'", [OneOf("id", ("a",))]),
        ("ID == 'a' and `n` <=> -3", [OneOf("id", ("a",)), OneOf("n", (-3,))]),
        ("id in ('a', 'b', NULL) AND f > 1.5", [OneOf("id", ("a", "b"))]),
        ("n BETWEEN 1 AND 5 AND id IS NULL", [Bound("n", ">=", 1), Bound("n", "<=", 5), OneOf("id", (None,))]),
        ("5 < n AND 6 >= n AND id IS NOT NULL", [Bound("n", ">", 5), Bound("n", "<=", 6), Present("id")]),
        ("d >= '2024-01-31' AND DATE '2024-01-31' > d", [Bound("d", ">=", DAY), Bound("d", "<", DAY)]),
        ("b = true AND (n = 1 OR n = 2)", [OneOf("b", (True,))]),
        ("NOT id = 'a' AND n = 2", [OneOf("n", (2,))]),
        ("n = 1 = b AND length(id) = 3 AND n != 7", []),
        ("n = '5' AND id = 5 AND f = 1 AND n = 1 + 1 AND d = '2024-02-31'", []),
        ("id = 'it''s' AND n NOT IN (1) AND n IN (SELECT 1)", []),
        ("n = 1 AND", [OneOf("n", (1,))]),  # for Spark to refuse
        ("id = 'a' OR n = 1", []),
        ("n = 1 AND f BETWEEN 1 AND n = 5", []),
        ("n = 1 -- AND n = 2", []),
        ("CASE WHEN n = 1 AND n = 2 THEN b ELSE b END", []),
        ("exists(x, y -> b AND n = 2)", []),
        ("n = 1 AND (n = 2", []),
        ("id = '${key}' AND n = 1", []),  # Spark puts a setting there
    ],
)
def test_a_text_says_what_is_clear_of_single_columns(text: str, expected: list[Condition]) -> None:
    assert [*conditions_in(text, SCHEMA)] == expected


def test_columns_that_a_text_mentions_are_read() -> None:
    assert mentioned("upper(ID) = 'B' or F > 1", SCHEMA) == ["id", "d", "b", "f"]  # rather too many


def rows_of(plan: ReadPlan) -> list[dict[str, Any]]:
    return sorted((row for one in plan.slices for batch in plan.read(one) for row in batch.to_pylist()), key=repr)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Base files of several row groups, and above them rows and deletes that win and others that lose."""
    table = LiveTable(tmp_path_factory.mktemp("where") / "t", partitioned=False, buckets=2)
    table.write([(key, 5, f"v{key}") for key in range(12)], "x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "_GROUP_ROWS_MAX", 2)
        table.compact()
    table.write([(1, 6, "v9"), (2, 4, "v9"), (12, 1, "v1")], "y")
    table.delete([(3, 6, ""), (4, 4, "")], "z")
    return str(table.root)


values = {"id": st.integers(0, 13), "ts": st.integers(0, 7), "v": st.sampled_from(["v1", "v10", "v9", "w"])}
conditions = st.sampled_from(list(values)).flatmap(
    lambda column: st.one_of(
        st.builds(OneOf, st.just(column), st.lists(values[column], max_size=3).map(tuple)),
        st.builds(Bound, st.just(column), st.sampled_from(["<", "<=", ">", ">="]), values[column]),
        st.sampled_from([OneOf(column, (None,)), Present(column)]),
    )
)


@settings(max_examples=60, deadline=None)
@given(st.lists(conditions, min_size=1, max_size=3))
def test_rows_are_those_that_fulfil_the_conditions_after_the_merge(merged: str, wanted: list[Condition]) -> None:
    expected = [row for row in rows_of(plan_read(merged)) if all(one.allows(row[one.column]) for one in wanted)]
    assert rows_of(plan_read(merged, conditions=wanted)) == expected
    found = rows_of(plan_read(merged, {"columns": "v"}, conditions=wanted))
    assert found == sorted(({"v": row["v"]} for row in expected), key=repr)


def test_a_key_is_looked_for_in_row_groups_that_may_have_it(tmp_path: Path) -> None:
    """Others are not decoded, so that nobody finds what is wrong with them."""
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=1)
    table.write([(key, 1, f"v{key}") for key in range(8)], "x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "_GROUP_ROWS_MAX", 2)
        table.compact()
    (base,) = [path for path in table.storage.walk("") if path.endswith(".parquet")]
    data = bytearray(strip_checksum(table.storage.read(base)))
    first = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    for chunk in (first.column(number) for number in range(first.num_columns)):
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    table.storage.put(base, bytes(data))
    for logs in range(2):
        with pytest.raises(CorruptTable):
            rows_of(plan_read(str(table.root)))
        found = rows_of(plan_read(str(table.root), conditions=[OneOf("id", (7, 3))]))
        assert [(row["id"], row["v"]) for row in found] == [(3, "v3"), (7, "new" if logs else "v7")]
        table.write([(0, 2, "new"), (7, 2, "new")], "x")
    with pytest.raises(CorruptTable):  # the row that it would win against may be one of another value
        rows_of(plan_read(str(table.root), conditions=[OneOf("v", ("new",))]))


def test_reads_say_in_sql_which_rows_they_want(spark: SparkSession, tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=2)
    for partition in ("p", "q"):
        table.write([(key, 5, f"v{key}") for key in range(6)], partition)
    table.compact()
    table.write([(1, 6, "v5"), (5, 4, "lost")], "p")
    path = str(table.root)
    plain = lakelatch.read(spark, path)
    for where in (
        "v = 'v5'",
        "v = 'lost'",
        "part = 'p' AND id > 3",
        "id IN (1, 5) OR ts = 6",
        "length(v) = 2 AND id = 1",
    ):
        expected = sorted(plain.where(where).select("id", "part").collect())
        assert sorted(lakelatch.read(spark, path, {"columns": "id,part"}, where=where).collect()) == expected
    column = functions.col("v") == "v5"
    assert sorted(lakelatch.read(spark, path, {"columns": "id"}, where=column).collect()) == [(1,), (5,), (5,)]
    held = lakelatch.Table.for_path(spark, path)
    assert held.to_df(where="id = 1 AND part = 'p'").select("v", "ts").collect() == [("v5", 6)]
