"""What is found in a statement's text: its words, its tables with their places, its parameters. Without Spark."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.forms import plain_form, without_defaults
from lakelatch.spark.sql.literals import bound, literal
from lakelatch.spark.sql.references import is_volatile, qualified, references, table_names
from lakelatch.spark.sql.tokens import Cursor, tokens_of

ODD = """SELECT 'a -- b', "c /* d", r'e\\', `f``g` -- 'h
/* SELECT 'i */ FROM j WHERE k<=>:l"""


def test_comments_and_quotes_are_told_apart() -> None:
    found = [token.text for token in tokens_of(ODD)]
    assert found[:8] == ["SELECT", "'a -- b'", ",", '"c /* d"', ",", "r'e\\'", ",", "`f``g`"]
    assert found[8:] == ["FROM", "j", "WHERE", "k", "<=>", ":", "l"]
    assert [token.name for token in tokens_of("`f``g`")] == ["f`g"]


def test_a_text_ends_at_a_word_outside_of_brackets_and_cases() -> None:
    cursor = Cursor.of("CASE WHEN (a, b) THEN 'WHEN' END, c WHEN MATCHED;")
    assert cursor.until(",", "WHEN") == "CASE WHEN (a, b) THEN 'WHEN' END"
    assert cursor.take(",") and cursor.until("WHEN") == "c"
    assert cursor.take("WHEN", "MATCHED") and cursor.at_end
    assert Cursor.of("a IS NOT DISTINCT FROM b FROM c").until("FROM") == "a IS NOT DISTINCT FROM b"
    with pytest.raises(InvalidStatement, match="is not understood") as caught:
        Cursor.of("\nCALL x").finish()
    assert "line 2" in str(caught.value) and caught.value.getCondition() == "PARSE_SYNTAX_ERROR"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TABLE t", "SELECT * FROM t"),
        ("((TABLE t)) MINUS ALL TABLE `u`", "((SELECT * FROM t)) MINUS ALL SELECT * FROM `u`"),
        ("a IN (TABLE t) OR f(TABLE t) OR `f`(TABLE t)", "a IN (SELECT * FROM t) OR f(TABLE t) OR `f`(TABLE t)"),
        ("DROP TABLE t", "DROP TABLE t"),
        ("SELECT DISTINCT table FROM IDENTIFIER('a.b')", "SELECT DISTINCT table FROM `a`.`b`"),
        ("SELECT 1 FROM IDENTIFIER('t; DROP')", "SELECT 1 FROM IDENTIFIER('t; DROP')"),
        ("SELECT identifier, 'IDENTIFIER(''t'')' FROM t", "SELECT identifier, 'IDENTIFIER(''t'')' FROM t"),
    ],
)
def test_other_forms_are_told_from_what_only_looks_like_them(text: str, expected: str) -> None:
    no_session: Any = None
    assert plain_form(no_session, text) == (expected, None)


def test_a_default_is_a_whole_value() -> None:
    assert without_defaults("VALUES (1, DEFAULT), (default, f(DEFAULT + 1))") == (
        "VALUES (1, NULL), (NULL, f(DEFAULT + 1))"
    )
    assert without_defaults("SELECT (DEFAULT)") == "SELECT (DEFAULT)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a, b.c x", ["a", "b.c"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a JOIN d", ["a", "d"]),
        (
            "WITH x AS (SELECT 1), y AS (SELECT * FROM x) SELECT * FROM y, (WITH z AS (SELECT 2) SELECT * FROM z), z",
            ["z"],
        ),
        ("SELECT * FROM VALUES (1) AS t(a) WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", ["u"]),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", ["s", "t"]),
        ("OPTIMIZE t", ["t"]),
        ("SELECT 1 FROM range(3)", []),
        ("INSERT INTO a.b SELECT * FROM `odd name`", ["`odd name`", "a.b"]),
        ("not ((SQL FROM here", ["here"]),
    ],
)
def test_tables_are_named(text: str, expected: list[str]) -> None:
    assert sorted(map(str, table_names(text))) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t TIMESTAMP AS OF '2026-11-24' AS x", [("t TIMESTAMP AS OF '2026-11-24'", True)]),
        (
            "SELECT * FROM t FOR VERSION AS OF 20261124100000000, u",
            [("t FOR VERSION AS OF 20261124100000000", False), ("u", False)],
        ),
        (
            "SELECT * FROM t TIMESTAMP AS OF current_timestamp() - INTERVAL '1' DAY WHERE a",
            [("t TIMESTAMP AS OF current_timestamp() - INTERVAL '1' DAY", False)],
        ),
        ("a IN (SELECT b FROM `t`) AND c", [("`t`", False)]),
        ("(SELECT max(b) FROM t) + 1", [("t", False)]),
        ("SELECT * FROM table_changes('t', :after) c", [("table_changes('t', :after)", False)]),
        ("SELECT /*+ BROADCAST(b), MERGE(a) */ * FROM a JOIN b", [("a", False), ("b", False)]),
    ],
)
def test_places_of_tables_are_found(text: str, expected: list[tuple[str, bool]]) -> None:
    found = sorted(references(text), key=lambda one: one.start)
    assert [(text[one.start : one.end], one.named) for one in found] == expected


def test_columns_without_a_table_get_one_side() -> None:
    text = "v > 1 AND s.w = T.v AND r.f = 2 AND exists(a, x -> x > v) AND n IN (SELECT v FROM o)"
    assert qualified(text, "s", ["v", "w", "r", "a"], ["t", "s"]) == (
        "`s`.v > 1 AND s.w = T.v AND `s`.r.f = 2 AND exists(`s`.a, x -> x > `s`.v) AND n IN (SELECT v FROM o)"
    )


def test_volatile_functions_are_seen() -> None:
    assert is_volatile("a < Rand( )") == "Rand" and is_volatile("rand = 'rand()' -- rand()") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (True, "true"),
        (7, "7"),
        (2**40, "CAST('1099511627776' AS BIGINT)"),
        (-7, "(-7)"),
        (-(2**40), "CAST('-1099511627776' AS BIGINT)"),
        (-1.5, "CAST('-1.5' AS DOUBLE)"),
        (Decimal("-1.50"), "(-1.50BD)"),
        ([-1, {"a": Decimal(-1)}], "array((-1), map('a', (-1BD)))"),
        (math.inf, "CAST('inf' AS DOUBLE)"),
        (Decimal("1.50"), "1.50BD"),
        ("plain 1", "'plain 1'"),
        ("it's", "CAST(X'69742773' AS STRING)"),
        (b"\x00", "X'00'"),
        (date(2026, 11, 24), "DATE'2026-11-24'"),
        ([1, "a"], "array(1, 'a')"),
        ({"a": 1}, "map('a', 1)"),
    ],
)
def test_values_are_written_by_their_type(value: Any, expected: str) -> None:
    assert literal(value) == expected


def test_parameters_are_bound_outside_of_quotes_alone() -> None:
    assert bound("a = :x AND b = ':x' -- :x\nAND c:x = :y", {"x": 1}) == "a = 1 AND b = ':x' -- :x\nAND c:x = :y"
    assert bound("a = ? AND b = '?' AND c = ?", ["v", None]) == "a = 'v' AND b = '?' AND c = NULL"
    assert bound("a::string = :string AND b > c -:string", {"string": -1}) == "a::string = (-1) AND b > c -(-1)"
    with pytest.raises(InvalidStatement, match="a parameter is a object"):
        bound(":x", {"x": object()})
