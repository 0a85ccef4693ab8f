"""Conditions and values of rows of Arrow, as Spark has them."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelatch.engine.sql.expressions import equal_columns, evaluated, holding
from lakelatch.engine.sql.types import schema_of
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import comment_of

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
ROWS = pa.table(
    {
        "a": [1, 2, None, 4],
        "f": [1.5, float("nan"), None, -0.0],
        "s": ["x", "Y", None, ""],
        "d": [date(2026, 1, 1), None, date(2026, 2, 1), date(2025, 1, 1)],
        "t": pa.array([NOON, NOON, NOON, None], pa.timestamp("us", "UTC")),
        "n": [{"k": 1}, {"k": 2}, None, {"k": 3}],
        "b": [True, False, None, True],
        "m": pa.array([Decimal("1.10"), None, Decimal("2.00"), Decimal("0.05")], pa.decimal128(10, 2)),
    }
)
T, F, N = True, False, None
VALUES: dict[str, list[Any]] = {
    "a = 1": [T, F, N, F],
    "A <> 1": [F, T, N, T],
    "a IN (1, NULL)": [T, N, N, N],
    "a NOT IN (1, NULL)": [F, N, N, N],
    "a IS NULL OR a > 2": [F, F, T, T],
    "b AND NULL": [N, F, N, N],
    "a <=> NULL": [F, F, T, F],
    "f = 'NaN'": [F, T, N, F],  # Spark's NaN equals itself, and is greater than all others
    "f > 100": [F, T, N, F],
    "f <= 0": [F, F, N, T],
    "f IN (1.5, 'NaN')": [T, T, N, F],
    "m = 1.1": [T, N, F, F],
    "s LIKE '%x%' OR s = ''": [T, F, N, T],
    "d >= '2026-01-01'": [T, N, T, F],
    "d < DATE '2026-01-01'": [F, N, F, T],
    "t = '2026-01-01 12:00:00'": [T, T, T, N],
    "t > TIMESTAMP '2026-01-01 12:30:00+01:00'": [T, T, T, N],
    "t > d": [T, N, F, N],
    "n.k BETWEEN 2 AND 3": [F, T, N, T],
    "a * 2 + 1": [3, 5, N, 9],
    "a / 2": [0.5, 1.0, N, 2.0],
    "-a % 3": [-1, -2, N, -1],
    "CASE WHEN b THEN a ELSE -1 END": [1, -1, -1, 4],
    "CASE a WHEN 1 THEN 'one' END": ["one", N, N, N],
    "if(b, s, 'no')": ["x", "no", "no", ""],
    "coalesce(nullif(a, 1), 0)": [0, 2, 0, 4],
    "greatest(a, NULL, 3)": [3, 3, 3, 4],
    "least(a, 2)": [1, 2, 2, 2],
    "CAST(3.7 AS INT) + CAST('7' AS INT)": [10] * 4,
    "concat(upper(s), '-', a)": ["X-1", "Y-2", N, "-4"],
    "length(s || 'q')": [2, 2, N, 1],
    "year(d) * 100 + month(t)": [202601, N, 202601, N],
    "date_add(d, a) = last_day(d)": [F, N, N, F],
    "date_trunc('WEEK', t) = '2025-12-29' AND hour(t) = 12": [T, T, T, N],
    "datediff(d, '2026-01-01')": [0, N, 31, -365],
}


@pytest.mark.parametrize(("text", "values"), VALUES.items(), ids=list(VALUES))
def test_texts_are_evaluated(text: str, values: list[Any]) -> None:
    assert evaluated(text, ROWS).to_pylist() == values
    assert len(evaluated(text, ROWS.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope = 1", r"there is no column 'nope' \(a, f, s"),
        ("a = 'q'", "cannot be evaluated: Failed to parse string: 'q'"),
        ("a = s", "bigint and string do not go together: CAST one of them"),
        ("a / 0 > 1", "divide by zero"),
        ("a +", "'a \\+': the text cannot be understood"),
        ("sum(a) > 1", r"SUM\(a\) is not known without Spark"),
        ("a IN (SELECT 1)", "IN is known with a list of values only"),
        ("a; DROP TABLE t", "is not known without Spark"),
        ("n.z = 1", "'z' is no field of struct<k:bigint>"),
        ("s LIKE s", "LIKE is known with a text only"),
        ("CAST(f AS STRING) = '1.5'", "double as string is not the same everywhere"),
        ("CAST(t AS LONG) > 1", "is not the same everywhere"),
        ("9223372036854775807 + a > 1", "overflow"),
        ("d < current_date()", "CURRENT_DATE is another time at each try of a write and on each machine: give the day"),
        ("t < current_timestamp()", "CURRENT_TIMESTAMP\\(\\) is another time at each try"),
        ("date_trunc('eon', t) = t", "'EON' is no unit here: use one of year, quarter"),
        ("extract(CENTURY FROM t) = 20", "CENTURY is no part of a date or time that is known: use year"),
        ("to_date(s, 'yyyy') = d", "is not known without Spark"),
        ("year(a) = 1", "bigint is no date or time: CAST it"),
        ("date_add(d, 0.5) = d", "days are a whole number"),
        ("a", "'a' is bigint, and a condition is true or false"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        holding(text, ROWS)


def test_expressions_of_arrow_see_both_sides_of_a_merge() -> None:
    both = pa.table({"target.id": [1, 2], "source.id": [1, 3], "source.x": ["q", "r"]})
    assert evaluated(pc.field("target", "id") == pc.field("source", "id"), both).to_pylist() == [True, False]
    assert evaluated("x", both).to_pylist() == ["q", "r"]
    with pytest.raises(InvalidRequest, match="there is no column 'id'"):  # it is in both
        evaluated("id", both)
    names, others = ["target.id", "target.y"], ["source.id", "source.x"]
    text = "target.id = source.id AND (source.x = 'q' AND x == target.y) AND target.y > source.id"
    assert equal_columns(text, names, others) == [("target.id", "source.id"), ("target.y", "source.x")]
    assert equal_columns("target.id = source.id OR x = y", names, others) == []


def test_columns_of_a_table_in_text() -> None:
    text = "id long, v string NOT NULL, d decimal(10,2), a array<int>, m map<string,date>, s struct<x:int>, t timestamp"
    kinds = [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("a", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.date32())),
        ("s", pa.struct([("x", pa.int32())])),
        ("t", pa.timestamp("us", "UTC")),
    ]
    assert schema_of(text) == pa.schema(kinds)
    told = schema_of("id long NOT NULL COMMENT 'it\\'s the key', s struct<x: int COMMENT 'to the east', y: int>")
    assert comment_of(told.field("id")) == "it's the key" and comment_of(told.field("s")) == ""
    assert [comment_of(field) for field in told.field("s").type] == ["to the east", ""]
    assert comment_of(schema_of("id long COMMENT r'as \\d+'").field("id")) == "as \\d+"
    for wrong in ("id", "id foo", "", "id long) x (", "id interval", 5):
        with pytest.raises(InvalidRequest, match=r"schema=|cannot be stored"):
            schema_of(wrong)
