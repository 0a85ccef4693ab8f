"""Other forms of a statement, as the one that is understood here: `(TABLE t)`, and names by IDENTIFIER."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakelatch.spark.session.catalog import parts_of, plain_sql, quoted
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.literals import bound
from lakelatch.spark.sql.tokens import QUOTED, STRING, WORD, Cursor, Token, replaced, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTE = re.compile(r"\s*EXECUTE\s+IMMEDIATE\b", re.IGNORECASE)
_MAY_DIFFER = re.compile(r"\b(TABLE|IDENTIFIER)\b", re.IGNORECASE)
_SETS = {"UNION", "EXCEPT", "MINUS", "INTERSECT"}
#: Words behind which brackets hold a query; behind a function's name `(TABLE t)` is an argument.
_BEFORE_QUERY = {"FROM", "JOIN", "LATERAL", "IN", "EXISTS", "AS", "ANY", "SOME", "ALL", "USING", "DISTINCT", "NOT"}
_BEFORE_QUERY |= {"AND", "OR", "WHERE", "ON", "SELECT", "WHEN", "THEN", "ELSE", *_SETS}


def plain_form(spark: SparkSession, text: str, args: Any = None) -> tuple[str, Any]:
    """The text with `SELECT * FROM t` for a query `TABLE t`, and `t` for `IDENTIFIER('t')`; what is left of `args`.

    An identifier that Spark cannot tell without the rows stays as it is.
    """
    if not _MAY_DIFFER.search(text):
        return text, args
    tokens = tokens_of(text)
    if args and not isinstance(args, Mapping) and any(token.upper == "IDENTIFIER" for token in tokens):
        try:  # all of them, as those that are left would be counted anew
            text, args = bound(text, args), None
        except InvalidStatement:
            return text, args
        tokens = tokens_of(text)
    changes = []
    for place, (token, after) in enumerate(pairwise(tokens)):
        if token.upper == "TABLE" and after.kind in (WORD, QUOTED) and _is_query(tokens[:place]):
            changes.append((token.start, token.end, "SELECT * FROM"))
        elif token.upper == "IDENTIFIER" and after.text == "(":
            cursor = Cursor(text, tokens, place + 1)
            parts = parts_of(value_of(spark, cursor.in_brackets(), args) or "")
            if parts:
                changes.append((token.start, tokens[cursor.place - 1].end, quoted(parts)))
    return replaced(text, changes), args


def without_defaults(query: str) -> str:
    """The rows of `VALUES (1, DEFAULT)`, where no column has a default: with NULL, which Spark stores then."""
    tokens = tokens_of(query)
    if not tokens or tokens[0].upper != "VALUES":
        return query
    places = zip(tokens, tokens[1:], tokens[2:], strict=False)
    found = [one for before, one, after in places if before.text in "(," and after.text in "),"]
    return replaced(query, [(one.start, one.end, "NULL") for one in found if one.upper == "DEFAULT"])


def executed_text(spark: SparkSession, text: str, args: Any) -> str | None:
    """The statement that an `EXECUTE IMMEDIATE` would carry out; None for any other, and if Spark alone can tell."""
    found = _EXECUTE.match(text)
    if found is None:
        return None
    return value_of(spark, Cursor.of(text[found.end() :]).until("INTO", "USING"), args)


def value_of(spark: SparkSession, expression: str, args: Any) -> str | None:
    """The text that an expression without columns stands for; None if there is none."""
    tokens = tokens_of(expression)
    if len(tokens) == 1 and tokens[0].kind == STRING and re.fullmatch(r"'[^'\\]*'", tokens[0].text):
        return tokens[0].text[1:-1]
    try:
        row = plain_sql(spark, f"SELECT {bound(expression, args)}").first()
    except (PySparkException, InvalidStatement):
        return None
    return row[0] if row is not None and isinstance(row[0], str) else None


def _is_query(before: list[Token]) -> bool:
    """Whether a query begins behind these words."""
    words = ["", "", *(token.upper or token.kind for token in before)]
    if words[-1] == "(":
        while words[-1] == "(":
            words.pop()
        is_name = bool(words[-1]) and before[len(words) - 3].kind in (WORD, QUOTED)
        return words[-1] in _BEFORE_QUERY or not is_name
    follows = words[-2] if words[-1] in ("ALL", "DISTINCT") else words[-1]
    return not before or follows == ")" or follows in _SETS
